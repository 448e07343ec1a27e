package autodiff

import (
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

func softmaxGrad(c *context) {
	g, last := c.dy(0), []int{len(c.inShape(0)) - 1}
	if c.need(0) {
		c.add(0, graph.SoftmaxGrad(g, c.in(1)))
	}
	if c.need(1) {
		dy, y := c.in(0), c.in(1)
		c.add(1, graph.Sub(graph.Mul(g, graph.Sub(dy, graph.Sum(graph.Mul(dy, y), last, true))),
			graph.Mul(dy, graph.Sum(graph.Mul(g, y), last, true))))
	}
}

// column gives one value a row the rank of rows, so that it broadcasts along them.
func column(v graph.Value, rank int) graph.Value {
	s := slices.Repeat(graph.Shape{graph.N(1)}, rank)
	s[0] = v.Shape()[0]
	return graph.Reshape(v, s...)
}

// others is all axes but the first.
func others(rank int) []int {
	axes := make([]int, 0, rank)
	for i := 1; i < rank; i++ {
		axes = append(axes, i)
	}
	return axes
}

func softmaxCrossEntropyGrad(c *context) {
	g := c.dy(0)
	if c.need(0) {
		c.add(0, graph.SoftmaxGrad(graph.Mul(g, column(c.in(2), 2)), graph.Softmax(c.in(0))))
	}
	if c.need(2) {
		one := graph.BroadcastTo(c.scalar(1), c.inShape(2)...)
		c.add(2, graph.Sum(graph.Mul(g, graph.SoftmaxCrossEntropyGrad(c.in(0), c.in(1), one)), []int{1}, false))
	}
}

func sigmoidCrossEntropy(c *context) {
	dy := c.dy(0)
	if c.need(0) {
		c.add(0, graph.SigmoidCrossEntropyGrad(c.in(0), c.in(1), dy))
	}
	if c.need(1) {
		c.add(1, graph.Neg(graph.Mul(c.in(0), column(dy, len(c.inShape(0))))))
	}
}

func sigmoidCrossEntropyGrad(c *context) {
	g, rank := c.dy(0), len(c.inShape(0))
	weighted := graph.Mul(g, column(c.in(2), rank))
	if c.need(0) {
		c.add(0, graph.SigmoidGrad(weighted, graph.Sigmoid(c.in(0))))
	}
	if c.need(1) {
		c.add(1, graph.Neg(weighted))
	}
	if c.need(2) {
		c.add(2, graph.Sum(graph.Mul(g, graph.Sub(graph.Sigmoid(c.in(0)), c.in(1))), others(rank), false))
	}
}

// window is the geometry of a convolution.
func (c *context) window() graph.Window {
	return graph.Window{Strides: [2]int(c.n.Ints("strides")), Pads: [4]int(c.n.Ints("pads"))}
}

func conv(c *context) {
	strides, pads, dz := c.n.Ints("strides"), c.n.Ints("pads"), c.before()
	if c.need(0) {
		c.add(0, graph.Conv2DGradInput(dz, c.in(1), c.inShape(0), strides, pads))
	}
	if c.need(1) {
		c.add(1, graph.Conv2DGradFilter(c.in(0), dz, c.inShape(1), strides, pads))
	}
	if c.need(2) {
		c.add(2, graph.Sum(dz, []int{0, 1, 2}, false))
	}
}

func convGradInput(c *context) {
	g := c.dy(0)
	if c.need(0) {
		c.add(0, graph.Conv2D(g, c.in(1), graph.Value{}, graph.Linear, c.window()))
	}
	if c.need(1) {
		c.add(1, graph.Conv2DGradFilter(g, c.in(0), c.inShape(1), c.n.Ints("strides"), c.n.Ints("pads")))
	}
}

func convGradFilter(c *context) {
	g := c.dy(0)
	if c.need(0) {
		c.add(0, graph.Conv2DGradInput(c.in(1), g, c.inShape(0), c.n.Ints("strides"), c.n.Ints("pads")))
	}
	if c.need(1) {
		c.add(1, graph.Conv2D(c.in(0), g, graph.Value{}, graph.Linear, c.window()))
	}
}

// lstm goes from h′ and c′ to z, and from there through the products.
func lstm(c *context) {
	if c.has(2) {
		c.b.Fail(noGradient(c.n, "its gates are for its first derivative only"))
		return
	}
	dz, dc := graph.LSTMCellGrad(c.out(2), c.in(2), c.out(1), c.dy(0), c.dy(1))
	for i, f := range []func() graph.Value{
		func() graph.Value { return graph.MatMulT(dz, c.in(3), false, true) },
		func() graph.Value { return graph.MatMulT(dz, c.in(4), false, true) },
		func() graph.Value { return dc },
		func() graph.Value { return graph.MatMulT(c.in(0), dz, true, false) },
		func() graph.Value { return graph.MatMulT(c.in(1), dz, true, false) },
		func() graph.Value { return graph.Sum(dz, []int{0}, false) },
	} {
		if c.need(i) {
			c.add(i, f())
		}
	}
}
