package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Format writes the graph for people: resources, then a line for each node, bodies indented.
func (g *Graph) Format(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "graph of %d nodes\n", len(g.nodes))
	for _, r := range g.resources {
		fmt.Fprintf(b, "  %v %s %v%s\n", r.Kind, r.Name, typeList(r.Types), resourceNotes(r))
	}
	formatNodes(b, g, "  ")
	return b.Flush()
}

func resourceNotes(r *Resource) string {
	s := ""
	if r.Kind == VariableKind {
		s += " " + r.Init.String()
		if r.Trainable {
			s += " trainable"
		}
	}
	if r.Kind == QueueKind {
		s += fmt.Sprintf(" capacity %d", r.Capacity)
	}
	if r.MeanPerRow {
		s += " mean per row"
	}
	if r.Device != "" {
		s += " on " + r.Device
	}
	return s
}

func (i Init) String() string {
	s := "zeros"
	switch i.Kind {
	case InitConstant:
		s = fmt.Sprintf("constant %g", i.A)
	case InitUniform:
		s = fmt.Sprintf("uniform [%.4g,%.4g)", i.A, i.B)
	case InitNormal:
		s = fmt.Sprintf("normal %.4g±%.4g", i.A, i.B)
	case InitTruncated:
		s = fmt.Sprintf("truncated normal %.4g±%.4g", i.A, i.B)
	}
	switch i.Scale {
	case ScaleFanIn:
		s += " / √(fan in)"
	case ScaleFanAvg:
		s += " / √(mean fan)"
	}
	return s
}

func typeList(types []Type) string {
	parts := make([]string, len(types))
	for i, t := range types {
		parts[i] = t.String()
	}
	return strings.Join(parts, " ")
}

func formatNodes(w io.Writer, g *Graph, indent string) {
	for _, n := range g.nodes {
		fmt.Fprintf(w, "%s%d %s = %s(%s)%s %s%s\n", indent, n.ID, n.Name, n.Op.Name, valueList(n.Inputs), attrList(n), shownTypes(n), nodeNotes(g, n))
		if n.Body != nil {
			formatNodes(w, n.Body, indent+"    ")
			fmt.Fprintf(w, "%s    takes %s gives %s\n", indent, valueList(n.Body.inputs), valueList(n.Body.outputs))
		}
	}
}

func valueList(vs []Value) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = v.String()
	}
	return strings.Join(parts, ", ")
}

func attrList(n *Node) string {
	if len(n.attrs) == 0 || n.Op.Name == "Input" {
		return ""
	}
	parts := make([]string, len(n.attrs))
	for i, a := range n.attrs {
		parts[i] = n.Op.Attrs[i].Name + "=" + a.String()
	}
	return " {" + strings.Join(parts, " ") + "}"
}

// shownTypes leaves out what a Scan stacks for its gradient.
func shownTypes(n *Node) string {
	if n.Body != nil {
		return typeList(n.Types[:len(n.Body.outputs)])
	}
	return typeList(n.Types)
}

func nodeNotes(g *Graph, n *Node) string {
	s := ""
	for _, id := range n.Resources {
		s += " of " + g.resources[id].Name
	}
	if n.Device != "" {
		s += " on " + n.Device
	}
	if n.Colocate >= 0 {
		s += " with " + g.nodes[n.Colocate].Name
	}
	for _, id := range n.Control {
		s += " after " + g.nodes[id].Name
	}
	return s
}

// Dot writes the graph in the language of Graphviz: nodes are boxes, Variables are ovals, control dependencies are dashed.
func (g *Graph) Dot(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "digraph {\n  node [shape=box]")
	for _, r := range g.resources {
		fmt.Fprintf(b, "  r%d [shape=ellipse label=%q]\n", r.ID, r.Name+"\n"+typeList(r.Types))
	}
	for _, n := range g.nodes {
		fmt.Fprintf(b, "  n%d [label=%q]\n", n.ID, n.Name+"\n"+shownTypes(n))
		for _, v := range n.Inputs {
			fmt.Fprintf(b, "  n%d -> n%d\n", v.node, n.ID)
		}
		for _, id := range n.Control {
			fmt.Fprintf(b, "  n%d -> n%d [style=dashed]\n", id, n.ID)
		}
		for _, id := range n.Resources {
			if n.Op.Effect == Read {
				fmt.Fprintf(b, "  r%d -> n%d\n", id, n.ID)
			} else {
				fmt.Fprintf(b, "  n%d -> r%d\n", n.ID, id)
			}
		}
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}
