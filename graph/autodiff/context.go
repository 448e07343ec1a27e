package autodiff

import "github.com/trivium-ml/trivium/graph"

// context is what a rule sees: one forward node, the gradients of its outputs, and a place to put those of its operands.
type context struct {
	*tape
	n *graph.Node
}

// reached reports whether a gradient arrived at any output.
func (c *context) reached() bool {
	for i := range c.n.Types {
		if c.has(i) {
			return true
		}
	}
	return false
}

// wanted reports whether the gradient of any operand matters.
func (c *context) wanted() bool {
	for _, v := range c.n.Inputs {
		if c.needs(v) {
			return true
		}
	}
	return false
}

// need reports whether the gradient of operand i matters.
func (c *context) need(i int) bool { return i < len(c.n.Inputs) && c.needs(c.n.Inputs[i]) }

// has reports whether a gradient arrived at output i.
func (c *context) has(i int) bool { return len(c.parts[c.output(i)]) > 0 }

func (c *context) output(i int) graph.Value { return c.nodes.Value(c.n.ID, i) }

// in is operand i.
func (c *context) in(i int) graph.Value { return c.at(c.n.Inputs[i]) }

// inType is the type of operand i; it needs no value.
func (c *context) inType(i int) graph.Type { return c.typeOf(c.n.Inputs[i]) }

func (c *context) inShape(i int) graph.Shape { return c.inType(i).Shape }

// out is output i.
func (c *context) out(i int) graph.Value { return c.at(c.output(i)) }

// dy is the gradient of output i, dense; zeros if none arrived.
func (c *context) dy(i int) graph.Value { return c.sum(c.output(i), graph.Value{}) }

// add contributes v to operand i, summed over the axes that the operand was broadcast along.
func (c *context) add(i int, v graph.Value) {
	if s := c.inShape(i); !v.Shape().Equal(s) {
		v = graph.SumTo(v, s...)
	}
	x := c.n.Inputs[i]
	c.parts[x] = append(c.parts[x], part{dense: v})
}

// addRows contributes rows of values to operand i.
func (c *context) addRows(i int, rows, values graph.Value, wide func() graph.Value) {
	x := c.n.Inputs[i]
	c.parts[x] = append(c.parts[x], part{rows: rows, values: values, wide: wide})
}

// scalar is a constant of dy's type.
func (c *context) scalar(x float64) graph.Value {
	return c.b.Scalar(gradType(c.n.Types[0].DType), x)
}
