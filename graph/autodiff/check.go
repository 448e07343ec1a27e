package autodiff

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// Evaluate computes fetches of a graph from feeds. Package exec and package graphtest have such functions; random nodes must draw the same
// numbers every time.
type Evaluate func(g *graph.Graph, feeds map[graph.Value]*tensor.Tensor, fetches []graph.Value) ([]*tensor.Tensor, error)

// CheckOptions of CheckNumeric. Evaluate is required; Feeds has a tensor for every input that y depends on.
type CheckOptions struct {
	Evaluate Evaluate
	Feeds    map[graph.Value]*tensor.Tensor
	Step     float64 // of the central difference; 0: 1e-6 for F64, 5e-3 for F32
	Relative float64 // allowed difference relative to the larger of 1 and the values; 0: 1e-5 for F64, 1e-2 for F32
	Indices  int     // elements of each operand to move, spread evenly; 0: 64
	Seed     uint64  // of the weights that outputs are added with
}

// CheckNumeric compares the rule of every operation that y depends on with central differences, at the operands that the feeds give it.
// The error names the operation, the operand and the index. Operations without a gradient are passed over. Feeds at a kink, such as 0
// for ReLU, have no derivative to compare with.
func CheckNumeric(g *graph.Graph, y graph.Value, o CheckOptions) error {
	if o.Evaluate == nil || !g.Contains(y) {
		return errors.New("autodiff: CheckNumeric needs Evaluate, and a value of the graph")
	}
	var values []graph.Value
	nodes := checked(g, y)
	for _, n := range nodes {
		values = append(values, n.Inputs...)
		for _, k := range outputsOf(n) {
			values = append(values, g.Value(n.ID, k))
		}
	}
	at, err := o.Evaluate(g, o.Feeds, values)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		here := at[:len(n.Inputs)+len(outputsOf(n))]
		at = at[len(here):]
		if err := checkNode(n, here[:len(n.Inputs)], here[len(n.Inputs):], o); err != nil {
			return fmt.Errorf("autodiff: %s (%s): %w", n.Op.Name, n.Name, err)
		}
	}
	return nil
}

// checked is the nodes that y depends on and that have a rule, in creation order.
func checked(g *graph.Graph, y graph.Value) []*graph.Node {
	need := make([]bool, y.Node()+1)
	need[y.Node()] = true
	for id := y.Node(); id >= 0; id-- {
		for _, v := range g.Node(id).Inputs {
			need[v.Node()] = need[v.Node()] || need[id]
		}
	}
	var out []*graph.Node
	for id, wanted := range need {
		n := g.Node(id)
		if r, ok := ruleOf(n.Op.Name); wanted && ok && r.vjp != nil && n.Op.Name != "StopGradient" && differentiable(n) {
			out = append(out, n)
		}
	}
	return out
}

// differentiable reports whether some operand and some output is computed with floating-point numbers.
func differentiable(n *graph.Node) bool {
	in, out := false, false
	for _, v := range n.Inputs {
		in = in || v.DType().Float()
	}
	for _, t := range n.Types {
		out = out || t.DType.Float()
	}
	return in && out
}

// probe is one node alone: a scalar made of its outputs, and the gradients of that by its operands.
type probe struct {
	g        *graph.Graph
	o        CheckOptions
	feeds    map[graph.Value]*tensor.Tensor
	total    graph.Value
	operands []graph.Value
}

func checkNode(n *graph.Node, at, results []*tensor.Tensor, o CheckOptions) error {
	p := &probe{o: o, feeds: map[graph.Value]*tensor.Tensor{}}
	b := graph.NewBuilder()
	var xs []graph.Value
	for i, v := range n.Inputs {
		x := b.Input(fmt.Sprintf("operand_%d", i), v.DType(), v.Shape()...)
		p.operands, p.feeds[x] = append(p.operands, x), at[i].Clone()
		if v.DType().Float() {
			xs = append(xs, x)
		}
	}
	p.weigh(b, b.Repeat(n, p.operands...), outputsOf(n), results)
	var fetches []graph.Value
	for _, d := range Gradients(p.total, xs, Options{Dense: true}) {
		fetches = append(fetches, d.Dense)
	}
	var err error
	if p.g, err = b.Build(); err != nil {
		return err
	}
	grads, err := o.Evaluate(p.g, p.feeds, fetches)
	if err != nil {
		return err
	}
	for i, x := range xs {
		if err := p.compare(x, grads[i]); err != nil {
			return err
		}
	}
	return nil
}

// weigh makes the total: every element of the outputs that can carry a gradient, times a random weight. The weights also bind the named
// axes that the node's attributes have.
func (p *probe) weigh(b *graph.Builder, v graph.Value, outputs []int, results []*tensor.Tensor) {
	rng := rand.New(rand.NewPCG(p.o.Seed, 1))
	for i, k := range outputs {
		y := v.Output(k)
		w := b.Input(fmt.Sprintf("weight_%d", i), y.DType(), y.Shape()...)
		t := tensor.New(results[i].DType(), results[i].Shape()...)
		for j := range t.Len() {
			set(t, j, 0.5+rng.Float64())
		}
		p.feeds[w] = t
		part := graph.Cast(graph.Sum(graph.Mul(y, w), nil, false), graph.F64)
		if p.total.IsZero() {
			p.total = part
		} else {
			p.total = graph.Add(p.total, part)
		}
	}
}

// outputsOf is the outputs that a loss may depend on: not the mask of Dropout, the gates of LSTMCell, or what a Scan stacks for its
// gradient.
func outputsOf(n *graph.Node) []int {
	count := len(n.Types)
	switch n.Op.Name {
	case "Dropout":
		count = 1
	case "LSTMCell":
		count = 2
	case "Scan":
		count = len(n.Body.Outputs())
	}
	var out []int
	for k := range count {
		if n.Types[k].DType.Float() {
			out = append(out, k)
		}
	}
	return out
}

// compare moves elements of x up and down.
func (p *probe) compare(x graph.Value, grad *tensor.Tensor) error {
	t := p.feeds[x]
	step, relative := p.o.Step, p.o.Relative
	if step == 0 {
		step = map[graph.DType]float64{graph.F32: 5e-3, graph.F64: 1e-6}[t.DType()]
	}
	if relative == 0 {
		relative = map[graph.DType]float64{graph.F32: 1e-2, graph.F64: 1e-5}[t.DType()]
	}
	count := min(max(p.o.Indices, 0), t.Len())
	if p.o.Indices == 0 {
		count = min(64, t.Len())
	}
	for k := range count {
		i := k * t.Len() / count
		numeric, err := p.difference(x, i, step)
		if err != nil {
			return err
		}
		rule := get(grad, i)
		if !(math.Abs(rule-numeric) <= relative*max(1, math.Abs(rule), math.Abs(numeric))) {
			return fmt.Errorf("%v of shape %v, element %d: the rule gives %g, the central difference %g", x, t.Shape(), i, rule, numeric)
		}
	}
	return nil
}

func (p *probe) difference(x graph.Value, i int, step float64) (float64, error) {
	t := p.feeds[x]
	old := get(t, i)
	defer set(t, i, old)
	var y, at [2]float64
	for k, d := range [2]float64{step, -step} {
		set(t, i, old+d)
		at[k] = get(t, i) // what the step became in F32
		out, err := p.o.Evaluate(p.g, p.feeds, []graph.Value{p.total})
		if err != nil {
			return 0, err
		}
		y[k] = get(out[0], 0)
	}
	return (y[0] - y[1]) / (at[0] - at[1]), nil
}

func get(t *tensor.Tensor, i int) float64 {
	if t.DType() == graph.F32 {
		return float64(tensor.Flat[float32](t)[i])
	}
	return tensor.Flat[float64](t)[i]
}

func set(t *tensor.Tensor, i int, x float64) {
	if t.DType() == graph.F32 {
		tensor.Flat[float32](t)[i] = float32(x)
	} else {
		tensor.Flat[float64](t)[i] = x
	}
}
