package autodiff

import (
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// rule is how one operation passes gradients from its outputs to its operands: its vector-Jacobian product, or why it has none.
type rule struct {
	vjp  func(c *context)
	none string
}

const (
	notFloat = "its result is not a floating-point number that depends smoothly on its operands"
	source   = "it has no operands"
	effect   = "it is an effect, and effects are not differentiated"
	once     = "it is a gradient for which no second derivative is defined"
)

// ruleOf finds an operation's rule. Scan is not in the table because its rule walks again.
func ruleOf(op string) (rule, bool) {
	if op == "Scan" {
		return rule{vjp: scan}, true
	}
	r, ok := rules[op]
	return r, ok
}

var rules = map[string]rule{
	// Element-wise.
	"Add":          {vjp: add},
	"Sub":          {vjp: sub},
	"Mul":          {vjp: func(c *context) { c.times(0, 1); c.times(1, 0) }},
	"Div":          {vjp: div},
	"Neg":          {vjp: func(c *context) { c.add(0, graph.Neg(c.dy(0))) }},
	"Exp":          {vjp: func(c *context) { c.add(0, graph.Mul(c.dy(0), c.out(0))) }},
	"Log":          {vjp: func(c *context) { c.add(0, graph.Div(c.dy(0), c.in(0))) }},
	"Sqrt":         {vjp: func(c *context) { c.add(0, graph.Div(graph.Mul(c.dy(0), c.scalar(0.5)), c.out(0))) }},
	"Square":       {vjp: func(c *context) { c.add(0, graph.Mul(c.dy(0), graph.Mul(c.scalar(2), c.in(0)))) }},
	"Tanh":         {vjp: func(c *context) { c.add(0, graph.TanhGrad(c.dy(0), c.out(0))) }},
	"Sigmoid":      {vjp: func(c *context) { c.add(0, graph.SigmoidGrad(c.dy(0), c.out(0))) }},
	"ReLU":         {vjp: func(c *context) { c.add(0, graph.ReLUGrad(c.dy(0), c.out(0))) }},
	"Max":          {vjp: maximum},
	"Where":        {vjp: where},
	"Less":         {none: notFloat},
	"Equal":        {none: notFloat},
	"Cast":         {vjp: cast},
	"StopGradient": {vjp: func(c *context) {}},
	"ReLUGrad": {vjp: func(c *context) { // of y: zero wherever it is defined
		if c.need(0) {
			c.add(0, graph.ReLUGrad(c.dy(0), c.in(1)))
		}
	}},
	"TanhGrad":    {vjp: tanhGrad},
	"SigmoidGrad": {vjp: sigmoidGrad},

	// Linear algebra.
	"MatMul":                  {vjp: matmul},
	"Dense":                   {vjp: dense},
	"Transpose":               {vjp: transpose},
	"SparseMatMul":            {vjp: sparse},
	"SparseMatMulGradRows":    {none: once},
	"SparseMatMulGradWeights": {none: once},
	"SparseMatMulGradValues":  {none: once},

	// Reductions.
	"Sum":       {vjp: func(c *context) { c.add(0, c.spread(c.dy(0))) }},
	"Mean":      {vjp: func(c *context) { c.add(0, c.spread(graph.Div(c.dy(0), c.folded()))) }},
	"ReduceMax": {vjp: reduceMax},
	"ArgMax":    {none: notFloat},
	"SumTo":     {vjp: func(c *context) { c.add(0, graph.BroadcastTo(c.dy(0), c.inShape(0)...)) }},

	// Shapes.
	"Input":       {none: source},
	"Const":       {none: source},
	"Size":        {none: source},
	"Reshape":     {vjp: func(c *context) { c.add(0, graph.Reshape(c.dy(0), c.inShape(0)...)) }},
	"BroadcastTo": {vjp: func(c *context) { c.add(0, c.dy(0)) }},
	"Concat":      {vjp: concat},
	"Slice": {vjp: func(c *context) {
		c.add(0, graph.SliceGrad(c.dy(0), c.inShape(0), c.n.Ints("start"), c.n.Ints("stop"), c.n.Ints("step")))
	}},
	"SliceGrad": {vjp: func(c *context) {
		c.add(0, graph.SliceAt(c.dy(0), c.n.Ints("start"), c.n.Ints("stop"), c.n.Ints("step")))
	}},
	"OneHot": {none: notFloat},

	// Indices.
	"Gather": {vjp: func(c *context) { c.addRows(0, c.in(1), c.dy(0), nil) }},
	"ScatterAdd": {vjp: func(c *context) {
		if c.need(0) {
			c.add(0, c.dy(0))
		}
		if c.need(2) {
			c.add(2, graph.Gather(c.dy(0), c.in(1)))
		}
	}},

	// Networks.
	"Softmax":                 {vjp: func(c *context) { c.add(0, graph.SoftmaxGrad(c.dy(0), c.out(0))) }},
	"SoftmaxGrad":             {vjp: softmaxGrad},
	"SoftmaxCrossEntropy":     {vjp: func(c *context) { c.add(0, graph.SoftmaxCrossEntropyGrad(c.in(0), c.in(1), c.dy(0))) }},
	"SoftmaxCrossEntropyGrad": {vjp: softmaxCrossEntropyGrad},
	"SigmoidCrossEntropy":     {vjp: sigmoidCrossEntropy},
	"SigmoidCrossEntropyGrad": {vjp: sigmoidCrossEntropyGrad},
	"Conv2D":                  {vjp: conv},
	"Conv2DGradInput":         {vjp: convGradInput},
	"Conv2DGradFilter":        {vjp: convGradFilter},
	"MaxPool": {vjp: func(c *context) {
		c.add(0, graph.MaxPoolGrad(c.dy(0), c.out(1), c.inShape(0), c.n.Ints("window"), c.n.Ints("strides"), c.n.Ints("pads")))
	}},
	"MaxPoolGrad":  {none: once},
	"Dropout":      {vjp: func(c *context) { c.add(0, graph.Mul(c.dy(0), c.out(1))) }},
	"LSTMCell":     {vjp: lstm},
	"LSTMCellGrad": {none: once},

	// State and exchange.
	"Read":       {none: source},
	"Assign":     {none: effect},
	"AssignAdd":  {none: effect},
	"Apply":      {none: effect},
	"Enqueue":    {none: effect},
	"Dequeue":    {none: source},
	"AccumApply": {none: effect},
	"AccumTake":  {none: effect},
	"Send":       {none: effect},
	"Recv":       {none: source},
}

func add(c *context) {
	for i := range 2 {
		if c.need(i) {
			c.add(i, c.dy(0))
		}
	}
}

func sub(c *context) {
	if c.need(0) {
		c.add(0, c.dy(0))
	}
	if c.need(1) {
		c.add(1, graph.Neg(c.dy(0)))
	}
}

// times contributes dy times the other operand.
func (c *context) times(i, other int) {
	if c.need(i) {
		c.add(i, graph.Mul(c.dy(0), c.in(other)))
	}
}

func div(c *context) {
	q := graph.Div(c.dy(0), c.in(1))
	if c.need(0) {
		c.add(0, q)
	}
	if c.need(1) {
		c.add(1, graph.Neg(graph.Mul(q, c.out(0))))
	}
}

func maximum(c *context) {
	a, b, dy := c.in(0), c.in(1), c.dy(0)
	tie, half, zero := graph.Equal(a, b), graph.Mul(dy, c.scalar(0.5)), c.scalar(0)
	if c.need(0) {
		c.add(0, graph.Where(tie, half, graph.Where(graph.Less(b, a), dy, zero)))
	}
	if c.need(1) {
		c.add(1, graph.Where(tie, half, graph.Where(graph.Less(a, b), dy, zero)))
	}
}

func where(c *context) {
	if c.need(1) {
		c.add(1, graph.Where(c.in(0), c.dy(0), c.scalar(0)))
	}
	if c.need(2) {
		c.add(2, graph.Where(c.in(0), c.scalar(0), c.dy(0)))
	}
}

func cast(c *context) {
	dy, want := c.dy(0), gradType(c.inType(0).DType)
	if dy.DType() != want {
		dy = graph.Cast(dy, want)
	}
	c.add(0, dy)
}

func tanhGrad(c *context) {
	g := c.dy(0)
	if c.need(0) {
		c.add(0, graph.TanhGrad(g, c.in(1)))
	}
	if c.need(1) {
		c.add(1, graph.Mul(graph.Mul(g, c.in(0)), graph.Mul(c.scalar(-2), c.in(1))))
	}
}

func sigmoidGrad(c *context) {
	g := c.dy(0)
	if c.need(0) {
		c.add(0, graph.SigmoidGrad(g, c.in(1)))
	}
	if c.need(1) {
		c.add(1, graph.Mul(graph.Mul(g, c.in(0)), graph.Sub(c.scalar(1), graph.Mul(c.scalar(2), c.in(1)))))
	}
}

func matmul(c *context) {
	ta, tb, dy := c.n.Bool("ta"), c.n.Bool("tb"), c.dy(0)
	if c.need(0) {
		if ta {
			c.add(0, graph.MatMulT(c.in(1), dy, tb, true))
		} else {
			c.add(0, graph.MatMulT(dy, c.in(1), false, !tb))
		}
	}
	if c.need(1) {
		if tb {
			c.add(1, graph.MatMulT(dy, c.in(0), true, ta))
		} else {
			c.add(1, graph.MatMulT(c.in(0), dy, !ta, false))
		}
	}
}

// before is the gradient before the activation of Dense or Conv2D.
func (c *context) before() graph.Value {
	dy := c.dy(0)
	switch graph.Activation(c.n.Str("act")) {
	case graph.WithReLU:
		return graph.ReLUGrad(dy, c.out(0))
	case graph.WithTanh:
		return graph.TanhGrad(dy, c.out(0))
	case graph.WithSigma:
		return graph.SigmoidGrad(dy, c.out(0))
	}
	return dy
}

func dense(c *context) {
	dz := c.before()
	if c.need(0) {
		c.add(0, graph.MatMulT(dz, c.in(1), false, true))
	}
	if c.need(1) {
		c.add(1, graph.MatMulT(c.in(0), dz, true, false))
	}
	if c.need(2) {
		c.add(2, graph.Sum(dz, []int{0}, false))
	}
}

func transpose(c *context) {
	perm := c.n.Ints("perm")
	inverse := make([]int, len(perm))
	for i, p := range perm {
		inverse[p] = i
	}
	c.add(0, graph.Transpose(c.dy(0), inverse...))
}

func sparse(c *context) {
	dy := c.dy(0)
	if c.need(2) {
		c.add(2, graph.SparseMatMulGradValues(c.in(0), c.in(1), c.in(3), dy))
	}
	if !c.need(3) {
		return
	}
	indptr, indices, values := c.in(0), c.in(1), c.in(2)
	var wide func() graph.Value
	if rows := c.inShape(3)[0]; rows.Fixed() {
		wide = func() graph.Value { return graph.SparseMatMulGradWeights(indptr, indices, values, dy, rows.N) }
	}
	c.addRows(3, indices, graph.SparseMatMulGradRows(indptr, values, dy), wide)
}

// kept is operand 0's shape with the reduced axes at size 1.
func (c *context) kept() graph.Shape {
	s := slices.Clone(c.inShape(0))
	for _, a := range c.n.Ints("axes") {
		s[a] = graph.N(1)
	}
	return s
}

// spread repeats what has the shape of a reduction's result along the reduced axes.
func (c *context) spread(v graph.Value) graph.Value {
	if s := c.kept(); !v.Shape().Equal(s) {
		v = graph.Reshape(v, s...)
	}
	if s := c.inShape(0); !v.Shape().Equal(s) {
		v = graph.BroadcastTo(v, s...)
	}
	return v
}

// folded is the number of elements that a reduction folds into one.
func (c *context) folded() graph.Value {
	var dims graph.Shape
	for _, a := range c.n.Ints("axes") {
		dims = append(dims, c.inShape(0)[a])
	}
	if n, fixed := dims.Elements(); fixed {
		return c.scalar(float64(n))
	}
	return c.b.Size(gradType(c.n.Types[0].DType), dims...)
}

func reduceMax(c *context) {
	largest := c.spread(c.out(0))
	chosen := graph.Cast(graph.Equal(c.in(0), largest), c.inType(0).DType)
	ties := graph.Sum(chosen, c.n.Ints("axes"), c.n.Bool("keep"))
	c.add(0, graph.Mul(chosen, c.spread(graph.Div(c.dy(0), ties))))
}

// concat slices dy. At most one operand is dynamic along the axis; those behind it are counted from the end.
func concat(c *context) {
	axis, dy := c.n.Int("axis"), c.dy(0)
	rank := len(dy.Shape())
	behind := 0
	for i := range c.n.Inputs {
		if d := c.inShape(i)[axis]; d.Fixed() {
			behind += d.N
		}
	}
	before, dynamic := 0, false
	for i := range c.n.Inputs {
		start, stop, step := make([]int, rank), slices.Repeat([]int{graph.End}, rank), slices.Repeat([]int{1}, rank)
		d := c.inShape(i)[axis]
		if d.Fixed() {
			behind -= d.N
		}
		start[axis] = before
		switch {
		case !d.Fixed():
			dynamic = true
			if behind > 0 {
				stop[axis] = -behind
			}
		case dynamic:
			start[axis] = -behind - d.N
			if behind > 0 {
				stop[axis] = -behind
			}
		default:
			before += d.N
			stop[axis] = before
		}
		if c.need(i) && d != graph.N(0) {
			c.add(i, graph.SliceAt(dy, start, stop, step))
		}
	}
}
