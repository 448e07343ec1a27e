package graph

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
)

// Graph is an immutable computation: nodes in creation order, which is a topological order, and the resources they use.
type Graph struct {
	nodes     []*Node
	resources []*Resource
	inputs    []Value // Input nodes; of a body, in the order that its control node binds them
	outputs   []Value // of a body
	origin    *Builder
}

// Node is one operation with its operands. Nobody writes to it after it was created.
type Node struct {
	ID        int     // position in the graph
	Op        *Op     // row of the operation table
	Name      string  // scoped and unique, "encoder/MatMul_2"
	Device    string  // constraint on placement, "" for none; may be partial
	Colocate  int     // node that this one is placed with, -1 for none
	Inputs    []Value // of this graph
	Control   []int   // nodes that run before this one
	Resources []int   // indices in Graph.Resources: what the effect is on
	Types     []Type  // one for each output
	Body      *Graph  // of a control operation
	attrs     []Attr  // in the order of Op.Attrs
	pcs       [6]uintptr
}

// Value is one output of a node. It carries the builder of its node, so that operations need no builder argument. Values are comparable.
type Value struct {
	b    *Builder
	node int32
	out  int32
}

// Len is the number of nodes.
func (g *Graph) Len() int { return len(g.nodes) }

// Node returns node id, 0 <= id < Len.
func (g *Graph) Node(id int) *Node { return g.nodes[id] }

// Nodes walks the nodes in creation order.
func (g *Graph) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for _, n := range g.nodes {
			if !yield(n) {
				return
			}
		}
	}
}

// Resources lists Variables, queues and accumulators in creation order. Read only.
func (g *Graph) Resources() []*Resource { return g.resources }

// Inputs lists the Input nodes' values: of a graph in creation order; of a Scan's body the carries, then the slices of xs, then the
// captured values. Read only.
func (g *Graph) Inputs() []Value { return g.inputs }

// Outputs lists what a body returns: of a Scan the next carries, then the ys. A whole graph has none. Read only.
func (g *Graph) Outputs() []Value { return g.outputs }

// Value is output out of node id; the zero Value when there is none.
func (g *Graph) Value(id, out int) Value {
	if id < 0 || id >= len(g.nodes) || out < 0 || out > 0 && out >= len(g.nodes[id].Types) {
		return Value{}
	}
	return Value{g.origin, int32(id), int32(out)}
}

// Contains reports whether v is a value of this graph.
func (g *Graph) Contains(v Value) bool {
	return v.b != nil && v.b == g.origin && v.node >= 0 && int(v.node) < len(g.nodes)
}

// Input finds an Input node's value by its name.
func (g *Graph) Input(name string) (Value, bool) {
	for _, v := range g.inputs {
		if g.nodes[v.node].Name == name {
			return v, true
		}
	}
	return Value{}, false
}

// TypeOf is the type of a value of this graph.
func (g *Graph) TypeOf(v Value) Type { return g.nodes[v.node].Types[v.out] }

// Node is the id of the node that computes v; negative for a Value that came from a mistake.
func (v Value) Node() int {
	if v.b == nil {
		return -1
	}
	return int(v.node)
}

// Out is the number of the output of its node.
func (v Value) Out() int { return int(v.out) }

// Builder is where the Value was made; nil for the zero Value.
func (v Value) Builder() *Builder { return v.b }

// IsZero reports whether v is the zero Value, which stands for "none".
func (v Value) IsZero() bool { return v.b == nil }

// Type is the inferred type; the zero Type for a Value that came from a mistake and for a node without outputs.
func (v Value) Type() Type {
	if n := v.def(); n != nil && int(v.out) < len(n.Types) {
		return n.Types[v.out]
	}
	return Type{}
}

// Shape is the inferred shape.
func (v Value) Shape() Shape { return v.Type().Shape }

// DType is the inferred element type.
func (v Value) DType() DType { return v.Type().DType }

// Def is the node that computes v; nil for a Value that came from a mistake.
func (v Value) Def() *Node { return v.def() }

func (v Value) def() *Node {
	if v.b == nil || v.node < 0 || int(v.node) >= len(v.b.nodes) {
		return nil
	}
	return v.b.nodes[v.node]
}

func (v Value) String() string {
	n := v.def()
	if n == nil {
		return "no value"
	}
	if len(n.Types) > 1 {
		return fmt.Sprintf("%s:%d", n.Name, v.out)
	}
	return n.Name
}

// Attr returns the named attribute.
func (n *Node) Attr(name string) (Attr, bool) { return findAttr(n.Op, n.attrs, name) }

// Attrs returns the attributes in the order of Op.Attrs. Read only.
func (n *Node) Attrs() []Attr { return n.attrs }

func findAttr(op *Op, attrs []Attr, name string) (Attr, bool) {
	for i := range op.Attrs {
		if op.Attrs[i].Name == name && i < len(attrs) {
			return attrs[i], true
		}
	}
	return Attr{}, false
}

// Int is an attribute of KindInt; 0 when the operation has none of that name.
func (n *Node) Int(name string) int { a, _ := n.Attr(name); return a.I }

// Float is an attribute of KindFloat.
func (n *Node) Float(name string) float64 { a, _ := n.Attr(name); return a.F }

// Bool is an attribute of KindBool.
func (n *Node) Bool(name string) bool { a, _ := n.Attr(name); return a.I != 0 }

// Str is an attribute of KindString.
func (n *Node) Str(name string) string { a, _ := n.Attr(name); return a.S }

// Ints is an attribute of KindInts. Read only.
func (n *Node) Ints(name string) []int { a, _ := n.Attr(name); return a.Ints }

// DType is an attribute of KindDType.
func (n *Node) DType(name string) DType { a, _ := n.Attr(name); return DType(a.I) }

// Shape is an attribute of KindShape. Read only.
func (n *Node) Shape(name string) Shape { a, _ := n.Attr(name); return a.Shape }

// Literal is an attribute of KindLiteral. Read only; nil when the operation has none of that name.
func (n *Node) Literal(name string) *Literal { a, _ := n.Attr(name); return a.Lit }

// Where is the file:line outside this package and autodiff that asked for the node; "" for a decoded graph.
func (n *Node) Where() string { return where(n.pcs[:]) }

// callers fills pcs with program counters above the exported function that was called; they are resolved only when an error needs them.
func callers(pcs *[6]uintptr) { runtime.Callers(4, pcs[:]) }

func where(pcs []uintptr) string {
	k := 0
	for k < len(pcs) && pcs[k] != 0 {
		k++
	}
	if k == 0 {
		return ""
	}
	const own = "github.com/trivium-ml/trivium/graph"
	frames := runtime.CallersFrames(pcs[:k])
	for {
		f, more := frames.Next()
		rest, inside := strings.CutPrefix(f.Function, own)
		if f.File != "" && !(inside && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/autodiff."))) {
			file := f.File[strings.LastIndexByte(f.File, '/')+1:]
			return fmt.Sprintf("%s:%d", file, f.Line)
		}
		if !more {
			return ""
		}
	}
}
