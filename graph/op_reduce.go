package graph

import "fmt"

var reduceAttrs = []AttrSpec{{"axes", KindInts, "ascending axes to reduce"}, {"keep", KindBool, "keep them with size 1"}}

// reduceOps fold axes.
var reduceOps = []Op{
	{Name: "Sum", Min: 1, Max: 1, Attrs: reduceAttrs, Doc: "sum over axes", infer: reduce},
	{Name: "Mean", Min: 1, Max: 1, Attrs: reduceAttrs, Doc: "mean over axes", infer: reduce},
	{Name: "ReduceMax", Min: 1, Max: 1, Attrs: reduceAttrs, Doc: "maximum over axes; ties share the gradient evenly", infer: reduce},
	{
		Name: "ArgMax", Min: 1, Max: 1, Doc: "index of the first maximum along an axis, i64",
		Attrs: []AttrSpec{{"axis", KindInt, "axis to search"}, {"keep", KindBool, "keep it with size 1"}}, infer: inferArgMax,
	},
	{
		Name: "SumTo", Min: 1, Max: 1, Doc: "undoes BroadcastTo: sums over the axes that broadcasting to a's shape would repeat",
		Attrs: []AttrSpec{{"shape", KindShape, "shape of the result"}}, infer: inferSumTo,
	},
}

func reduce(c *inference) ([]Type, error) {
	axes := c.ints("axes")
	if err := checkAxes(axes, c.in[0].Shape); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, reduced(c.in[0].Shape, axes, c.bool("keep"))}}, computes(c.in...)
}

func inferArgMax(c *inference) ([]Type, error) {
	axes := []int{c.int("axis")}
	if err := checkAxes(axes, c.in[0].Shape); err != nil {
		return nil, err
	}
	return []Type{{I64, reduced(c.in[0].Shape, axes, c.bool("keep"))}}, computes(c.in...)
}

func inferSumTo(c *inference) ([]Type, error) {
	to := c.shape("shape")
	if !CanBroadcast(to, c.in[0].Shape) {
		return nil, fmt.Errorf("%v does not broadcast to %v", to, c.in[0].Shape)
	}
	return []Type{{c.in[0].DType, to}}, computes(c.in...)
}

func reduction(op string, a Value, axes []int, keep bool) Value {
	return apply(op, []Attr{attrInts(normalAxes(axes, len(a.Shape()))), attrBool(keep)}, a)
}

// Sum adds over axes, all when nil; negative axes count from the end. keep leaves them with size 1. Gradient: dy, broadcast.
func Sum(a Value, axes []int, keep bool) Value { return reduction("Sum", a, axes, keep) }

// Mean is the sum over axes divided by the number of elements summed. Gradient: dy broadcast, divided by that number.
func Mean(a Value, axes []int, keep bool) Value { return reduction("Mean", a, axes, keep) }

// ReduceMax is the maximum over axes: NaN if there is one, −Inf of no elements. Gradient: dy, shared evenly among the elements equal to
// the maximum.
func ReduceMax(a Value, axes []int, keep bool) Value { return reduction("ReduceMax", a, axes, keep) }

// ArgMax is the i64 index of the first maximum along an axis: of the first NaN if there is one, −1 of no elements. It has no gradient.
func ArgMax(a Value, axis int, keep bool) Value {
	if axis < 0 {
		axis += len(a.Shape())
	}
	return apply("ArgMax", []Attr{attrInt(axis), attrBool(keep)}, a)
}

// SumTo sums a to shape, which broadcasts to a's. Gradient: BroadcastTo.
func SumTo(a Value, shape ...Dim) Value { return apply("SumTo", []Attr{attrShape(shape)}, a) }
