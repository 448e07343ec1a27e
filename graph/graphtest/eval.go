// Package graphtest is the dumb version of package exec: it evaluates a graph in float64, one node after another, by loops over indices.
// Tests of graph, autodiff, exec and onnx take it as their oracle.
//
// The types: an Array is a tensor of float64s; a Machine holds what lives between steps. The loop that a test writes:
//
//	m := graphtest.NewMachine()
//	out, err := m.Run(g, graphtest.Feeds{x: graphtest.Of([]float64{1, 2}, 2)}, y)
package graphtest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// Array is a row-major tensor. Integers and bools (0, 1) are held as float64 too.
type Array struct {
	Shape []int
	Data  []float64
}

// Of makes an Array of data, which it keeps.
func Of(data []float64, shape ...int) Array { return Array{shape, data} }

// Zeros makes an Array.
func Zeros(shape ...int) Array { return Array{shape, make([]float64, product(shape))} }

// Scalar makes an Array without axes.
func Scalar(x float64) Array { return Array{nil, []float64{x}} }

// FromLiteral copies a literal.
func FromLiteral(l *graph.Literal) Array {
	a := Zeros(l.Shape...)
	for i := range a.Data {
		a.Data[i] = l.At(i)
	}
	return a
}

// Clone copies a.
func (a Array) Clone() Array { return Array{slices.Clone(a.Shape), slices.Clone(a.Data)} }

func product(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// Feeds gives values to graph values.
type Feeds map[graph.Value]Array

// Machine holds what lives between steps. Its fields may be set and read freely.
type Machine struct {
	Vars     map[string]Array // by Variable name; one that is missing is an error when read
	Versions map[string]int
	Queues   map[string][][]Array
	Sent     map[string]Array // by key
	Accums   map[string]*Accum
	Rules    map[string]Rule
	Seed     uint64
	Step     int64
	Shard    int
}

// Accum is an accumulator: a sum, how many gradients are in it, and its step.
type Accum struct {
	Sum   Array
	Count int
	Rows  []int // gradients that touched each row, for MeanPerRow
	Step  int
}

// Rule updates p and slots in place from gradient g and scalar parameters.
type Rule func(p, g Array, slots []Array, params []float64)

// NewMachine is a Machine without any state.
func NewMachine() *Machine {
	return &Machine{
		Vars: map[string]Array{}, Versions: map[string]int{}, Queues: map[string][][]Array{}, Sent: map[string]Array{},
		Accums: map[string]*Accum{}, Rules: map[string]Rule{},
	}
}

// Eval runs one step of a graph without state.
func Eval(g *graph.Graph, feeds Feeds, fetches ...graph.Value) ([]Array, error) {
	return NewMachine().Run(g, feeds, fetches...)
}

// run is one evaluation of a graph or body.
type run struct {
	m    *Machine
	g    *graph.Graph
	axes graph.Axes
	path []int // of enclosing Scans
	vals map[graph.Value]Array
	ops  map[string]kernel
}

// call is one node being evaluated.
type call struct {
	*run
	n  *graph.Node
	in []Array
}

// Run evaluates what fetches need, in creation order, and returns their values. A fetch of a node without outputs runs it and gives an
// empty Array.
func (m *Machine) Run(g *graph.Graph, feeds Feeds, fetches ...graph.Value) ([]Array, error) {
	r := &run{m: m, g: g, axes: graph.Axes{}, vals: map[graph.Value]Array{}, ops: kernels()}
	for v, a := range feeds {
		if err := g.TypeOf(v).Shape.Bind(r.axes, a.Shape); err != nil {
			return nil, fmt.Errorf("graphtest: feed %v: %w", v, err)
		}
		r.vals[v] = a
	}
	return r.fetch(fetches)
}

func (r *run) fetch(fetches []graph.Value) ([]Array, error) {
	needed := r.needed(fetches)
	for _, id := range slices.Sorted(maps.Keys(needed)) {
		if err := r.node(r.g.Node(id)); err != nil {
			return nil, err
		}
	}
	out := make([]Array, len(fetches))
	for i, v := range fetches {
		out[i] = r.vals[v]
	}
	return out, nil
}

// needed is the nodes that fetches depend on, stopping at feeds.
func (r *run) needed(fetches []graph.Value) map[int]bool {
	need := map[int]bool{}
	var visit func(id int)
	visit = func(id int) {
		if need[id] {
			return
		}
		need[id] = true
		n := r.g.Node(id)
		for _, v := range n.Inputs {
			if _, fed := r.vals[v]; !fed {
				visit(v.Node())
			}
		}
		for _, c := range n.Control {
			visit(c)
		}
	}
	for _, v := range fetches {
		if _, fed := r.vals[v]; !fed {
			visit(v.Node())
		}
	}
	return need
}

func (r *run) node(n *graph.Node) error {
	if n.Op.Name == "Input" {
		if _, fed := r.vals[r.g.Value(n.ID, 0)]; !fed {
			return fmt.Errorf("graphtest: input %q is not fed", n.Name)
		}
		return nil
	}
	k := r.ops[n.Op.Name]
	if k == nil {
		return fmt.Errorf("graphtest: %s: no reference kernel", n.Op.Name)
	}
	c := &call{run: r, n: n}
	for _, v := range n.Inputs {
		c.in = append(c.in, r.vals[v])
	}
	out, err := k(c)
	if err != nil {
		return fmt.Errorf("graphtest: %s: %w", n.Name, err)
	}
	for i, a := range out {
		want, err := n.Types[i].Shape.Sizes(r.axes)
		if err != nil {
			return fmt.Errorf("graphtest: %s: %w", n.Name, err)
		}
		if a.Data != nil && !slices.Equal(a.Shape, want) {
			return fmt.Errorf("graphtest: %s: output %d has shape %v, inferred %v", n.Name, i, a.Shape, want)
		}
		v := r.g.Value(n.ID, i)
		if _, fed := r.vals[v]; !fed {
			r.vals[v] = a
		}
	}
	return nil
}

// sizes binds a shape attribute.
func (c *call) sizes(name string) ([]int, error) { return c.n.Shape(name).Sizes(c.axes) }

// resource is what the node's effect is on.
func (c *call) resource() *graph.Resource { return c.g.Resources()[c.n.Resources[0]] }

type kernel func(c *call) ([]Array, error)

// kernels is every operation's reference.
func kernels() map[string]kernel {
	all := map[string]kernel{}
	for _, group := range []map[string]kernel{elementKernels, linearKernels, shapeKernels, networkKernels, stateKernels} {
		maps.Copy(all, group)
	}
	all["Scan"] = scan
	return all
}

// HasKernel reports whether an operation can be evaluated.
func HasKernel(op string) bool { return op == "Input" || kernels()[op] != nil }

func out(a Array) ([]Array, error) { return []Array{a}, nil }

// each calls f with every index of shape in row-major order.
func each(shape []int, f func(i int, at []int)) {
	at := make([]int, len(shape))
	for i := range product(shape) {
		f(i, at)
		for k := len(at) - 1; k >= 0; k-- {
			if at[k]++; at[k] < shape[k] {
				break
			}
			at[k] = 0
		}
	}
}

// offset is where an index lies in an array whose axes of size 1 are repeated and whose front axes may be missing.
func offset(shape, at []int) int {
	at = at[len(at)-len(shape):]
	o := 0
	for k, s := range shape {
		o *= s
		if s != 1 {
			o += at[k]
		}
	}
	return o
}

func scan(c *call) ([]Array, error) {
	carries, xs := c.n.Int("carries"), c.n.Int("xs")
	body := c.n.Body
	carry := slices.Clone(c.in[:carries])
	length := c.in[carries].Shape[0]
	out := make([]Array, len(c.n.Types))
	stacked := slices.Clone(body.Outputs()[carries:])
	for n := range body.Nodes() {
		for i := range n.Types {
			stacked = append(stacked, body.Value(n.ID, i))
		}
	}
	for t := range length {
		if c.n.Bool("reverse") {
			t = length - 1 - t
		}
		r := &run{m: c.m, g: body, axes: c.axes, path: append(slices.Clip(c.path), c.n.ID, t), vals: map[graph.Value]Array{}, ops: c.ops}
		for i, v := range body.Inputs() {
			switch {
			case i < carries:
				r.vals[v] = carry[i]
			case i < carries+xs:
				x := c.in[i]
				size := product(x.Shape[1:])
				r.vals[v] = Array{x.Shape[1:], x.Data[t*size : (t+1)*size]}
			default:
				r.vals[v] = c.in[i]
			}
		}
		var all []graph.Value
		for n := range body.Nodes() {
			if len(n.Types) > 0 {
				all = append(all, body.Value(n.ID, 0))
			}
		}
		if _, err := r.fetch(all); err != nil {
			return nil, err
		}
		for i := range carry {
			carry[i] = r.vals[body.Outputs()[i]]
		}
		for i, v := range stacked {
			a := r.vals[v]
			o := &out[carries+i]
			if o.Data == nil {
				*o = Zeros(append([]int{length}, a.Shape...)...)
			}
			copy(o.Data[t*len(a.Data):], a.Data)
		}
	}
	copy(out, carry)
	if length == 0 {
		for i := carries; i < len(out); i++ {
			s, err := c.n.Types[i].Shape.Sizes(c.axes)
			if err != nil {
				return nil, err
			}
			out[i] = Zeros(s...)
		}
	}
	return out, nil
}

func round32(x float64) float64 { return float64(float32(x)) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func cast(x float64, dt graph.DType) float64 {
	switch dt {
	case graph.F32:
		return round32(x)
	case graph.Bool:
		return truth(x != 0)
	case graph.I32, graph.I64, graph.U8:
		return math.Trunc(x)
	}
	return x
}
