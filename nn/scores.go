package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// Scores draws the nodes that the net's Scores depend on into b, under their names, and reads the inputs in the shapes of the net's graph.
// A sparse input is dense rows there: its products are MatMuls, and what the graph does to its values one by one is done to every cell,
// which must leave zeros alone. The error names the operation and the node that cannot be drawn.
func (n *Net) Scores(b *graph.Builder, inputs map[string]graph.Value) (graph.Value, error) {
	d := drawing{
		g: n.g, b: b, inputs: inputs,
		drawn: map[graph.Value]graph.Value{}, reads: map[int]graph.Value{}, parts: map[graph.Value]sparsePart{},
	}
	for _, node := range ancestors(n.g, n.result) {
		err := d.node(node)
		if err == nil {
			err = b.Err()
		}
		if err != nil {
			return graph.Value{}, fmt.Errorf("nn: %s (%s): %w", node.Op.Name, node.Name, err)
		}
	}
	return d.drawn[n.result], nil
}

// ancestors are the nodes that v depends on, in creation order.
func ancestors(g *graph.Graph, v graph.Value) []*graph.Node {
	needed := make([]bool, v.Node()+1)
	needed[v.Node()] = true
	var nodes []*graph.Node
	for id := v.Node(); id >= 0; id-- { // operands have lower numbers than their readers
		if !needed[id] {
			continue
		}
		node := g.Node(id)
		nodes = append(nodes, node)
		for _, in := range node.Inputs {
			needed[in.Node()] = true
		}
		for _, before := range node.Control {
			if g.Node(before).Op.Name != "Input" { // which is nothing to wait for
				needed[before] = true
			}
		}
	}
	slices.Reverse(nodes)
	return nodes
}

// A drawing is a part of a graph on its way into another.
type drawing struct {
	g      *graph.Graph
	b      *graph.Builder
	inputs map[string]graph.Value
	drawn  map[graph.Value]graph.Value // by value of g; of a sparse input's values, and what follows from them, all cells
	reads  map[int]graph.Value         // of Variables, by resource
	parts  map[graph.Value]sparsePart  // values of g
}

// A sparsePart is one of the three values that a sparse input is in a net's graph: its offsets, columns or values, the last also as changed
// one by one.
type sparsePart struct {
	kind  feedKind
	input string
}

func (d *drawing) node(node *graph.Node) error {
	out := d.g.Value(node.ID, 0)
	switch {
	case node.Op.Name == "Input":
		return d.input(out)
	case node.Op.Name == "Read":
		d.drawn[out] = d.read(node.Resources[0])
		return nil
	case node.Op.Effect != graph.Pure:
		return fmt.Errorf("the scores depend on its effect (%v), and a graph for export has none", node.Op.Effect)
	case node.Op.Name == "SparseMatMul":
		return d.product(node, out)
	}
	in := make([]graph.Value, len(node.Inputs))
	for i, v := range node.Inputs {
		in[i] = d.drawn[v]
		p, sparse := d.parts[v]
		if !sparse {
			continue
		}
		if p.kind != feedValues || !keepsZeros(node.Op.Name) {
			return fmt.Errorf("it uses the entries (%v) of sparse input %q, which is dense rows in a graph for export", v, p.input)
		}
		d.parts[out] = p
	}
	first := d.b.Repeat(node, in...)
	for i := range node.Types {
		d.drawn[d.g.Value(node.ID, i)] = first.Output(i)
	}
	return nil
}

// keepsZeros says which operations do the same to the entries of a sparse input as to all of its cells.
func keepsZeros(op string) bool {
	switch op {
	case "Square", "Neg", "Tanh", "ReLU", "Sqrt", "Cast", "StopGradient":
		return true
	}
	return false
}

// input finds what takes an input's place.
func (d *drawing) input(v graph.Value) error {
	f, err := newFeed(d.g, v, graph.Value{})
	if err != nil {
		return err
	}
	x, ok := d.inputs[f.name]
	if !ok {
		return fmt.Errorf("the graph has no input %q", f.name)
	}
	switch f.kind {
	case feedIndptr, feedIndices:
		d.parts[v] = sparsePart{f.kind, f.name}
	case feedValues:
		if x = flat(x); len(x.Shape()) != 2 {
			return fmt.Errorf("input %q is %v, want rows of columns", f.name, x.Type())
		}
		d.parts[v], d.drawn[v] = sparsePart{f.kind, f.name}, x
	default:
		if want := v.Shape(); !x.Shape().Equal(want) {
			x = graph.Reshape(x, want...)
		}
		d.drawn[v] = x
	}
	return nil
}

// read reads a Variable, once.
func (d *drawing) read(id int) graph.Value {
	if v, ok := d.reads[id]; ok {
		return v
	}
	r := d.g.Resources()[id]
	shape, _ := r.Types[0].Shape.Fixed() // a Variable's is
	d.reads[id] = d.b.Variable(r.Name, r.Types[0].DType, shape, r.Init).Read()
	return d.reads[id]
}

// product draws a SparseMatMul. A net may have weights for more columns than the data has: the first ones are the data's.
func (d *drawing) product(node *graph.Node, out graph.Value) error {
	name := d.parts[node.Inputs[0]].input
	for i, kind := range []feedKind{feedIndptr, feedIndices, feedValues} {
		if p, sparse := d.parts[node.Inputs[i]]; !sparse || p != (sparsePart{kind, name}) {
			return errors.New("its operands are not the parts of one sparse input, which alone is dense rows in a graph for export")
		}
	}
	x, w := d.drawn[node.Inputs[2]], d.drawn[node.Inputs[3]]
	have, want := x.Shape()[1], w.Shape()[0]
	if have.Fixed() && want.Fixed() && have.N > want.N {
		return fmt.Errorf("input %q has %d columns, and the net weights for %d", name, have.N, want.N)
	}
	if have.Fixed() && want.Fixed() && have.N < want.N {
		w = graph.Slice(w, graph.Range{Stop: have.N})
	}
	d.drawn[out] = graph.MatMul(x, w)
	return nil
}
