package graph

import (
	"fmt"
	"slices"
)

var shapeAttr = AttrSpec{"shape", KindShape, "shape of the result"}

var sliceAttrs = []AttrSpec{{"start", KindInts, "first index of each axis"}, {"stop", KindInts, "index behind the last"}, {"step", KindInts, "distance of indices"}}

// shapeOps make and rearrange values.
var shapeOps = []Op{
	{
		Name: "Input", Doc: "a value that is fed; in a body, one that the control operation gives",
		Attrs: []AttrSpec{{"dtype", KindDType, "element type"}, shapeAttr},
		infer: func(c *inference) ([]Type, error) { return one(c.dtype("dtype"), c.shape("shape")) },
	},
	{Name: "Const", Doc: "a literal", Attrs: []AttrSpec{{"value", KindLiteral, "its elements"}}, infer: inferConst},
	{
		Name: "Size", Doc: "the product of a shape's axes as a scalar: what a dynamic mean divides by",
		Attrs: []AttrSpec{{"dtype", KindDType, "element type"}, {"of", KindShape, "the shape"}}, infer: inferSize,
	},
	{
		Name: "Reshape", Min: 1, Max: 1, Doc: "the same elements in another shape", Attrs: []AttrSpec{shapeAttr},
		infer: func(c *inference) ([]Type, error) {
			s, err := reshaped(c.in[0].Shape, c.shape("shape"))
			return []Type{{c.in[0].DType, s}}, err
		},
	},
	{Name: "BroadcastTo", Min: 1, Max: 1, Doc: "repeats axes of size 1 and adds axes in front", Attrs: []AttrSpec{shapeAttr}, infer: inferBroadcastTo},
	{Name: "Concat", Min: 1, Max: -1, Doc: "operands side by side along an axis", Attrs: []AttrSpec{{"axis", KindInt, "axis to join"}}, infer: inferConcat},
	{Name: "Slice", Min: 1, Max: 1, Doc: "every step-th index from start to stop of each axis", Attrs: sliceAttrs, infer: inferSlice},
	{Name: "SliceGrad", Min: 1, Max: 1, Doc: "zeros of a shape with dy in the place that Slice took", Attrs: append([]AttrSpec{shapeAttr}, sliceAttrs...), infer: inferSliceGrad},
	{
		Name: "OneHot", Min: 1, Max: 1, Doc: "1 at the index, 0 elsewhere, along a new last axis",
		Attrs: []AttrSpec{{"depth", KindInt, "size of the new axis"}, {"dtype", KindDType, "element type"}}, infer: inferOneHot,
	},
}

func inferConst(c *inference) ([]Type, error) {
	l := c.literal("value")
	t := Type{l.DType, Of(l.Shape...)}
	if err := checkType(t); err != nil {
		return nil, err
	}
	if l.err != nil {
		return nil, l.err
	}
	n, _ := t.Shape.Elements()
	if len(l.Data) != n*l.DType.Size() {
		return nil, fmt.Errorf("literal %v: %d bytes, want %d", t, len(l.Data), n*l.DType.Size())
	}
	return []Type{t}, nil
}

func inferSize(c *inference) ([]Type, error) {
	t := Type{c.dtype("dtype"), nil}
	return []Type{t}, checkType(Type{t.DType, c.shape("of")})
}

func inferBroadcastTo(c *inference) ([]Type, error) {
	to := c.shape("shape")
	if !CanBroadcast(c.in[0].Shape, to) {
		return nil, fmt.Errorf("%v does not broadcast to %v", c.in[0].Shape, to)
	}
	return one(c.in[0].DType, to)
}

func inferConcat(c *inference) ([]Type, error) {
	if err := sameDType(c.in); err != nil {
		return nil, err
	}
	axis, out := c.int("axis"), slices.Clone(c.in[0].Shape)
	if axis < 0 || axis >= len(out) {
		return nil, fmt.Errorf("axis %d of %v", axis, out)
	}
	for i, t := range c.in[1:] {
		s := slices.Clone(t.Shape)
		if len(s) != len(out) {
			return nil, fmt.Errorf("operand %d is %v, want %d axes", i+1, t, len(out))
		}
		d := s[axis]
		if s[axis] = out[axis]; !s.Equal(out) {
			return nil, fmt.Errorf("operand %d is %v: axes other than %d differ from %v", i+1, t, axis, c.in[0])
		}
		switch {
		case d.Fixed():
			out[axis] = out[axis].Plus(d.N)
		case out[axis].Fixed():
			out[axis] = d.Plus(out[axis].N)
		default:
			return nil, fmt.Errorf("operand %d: only one operand may be dynamic along axis %d", i+1, axis)
		}
	}
	return one(c.in[0].DType, out)
}

func sliced(s Shape, start, stop, step []int) (Shape, error) {
	if len(start) != len(s) || len(stop) != len(s) || len(step) != len(s) {
		return nil, fmt.Errorf("%d starts, %d stops, %d steps for the %d axes of %v", len(start), len(stop), len(step), len(s), s)
	}
	out := make(Shape, len(s))
	for i, d := range s {
		var err error
		if out[i], err = slicedDim(d, start[i], stop[i], step[i]); err != nil {
			return nil, fmt.Errorf("axis %d: %w", i, err)
		}
	}
	return out, nil
}

func inferSlice(c *inference) ([]Type, error) {
	s, err := sliced(c.in[0].Shape, c.ints("start"), c.ints("stop"), c.ints("step"))
	return []Type{{c.in[0].DType, s}}, err
}

func inferSliceGrad(c *inference) ([]Type, error) {
	to := c.shape("shape")
	s, err := sliced(to, c.ints("start"), c.ints("stop"), c.ints("step"))
	if err != nil {
		return nil, err
	}
	if err := wantShape("dy", c.in[0], s...); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, to}}, computes(c.in...)
}

func inferOneHot(c *inference) ([]Type, error) {
	if dt := c.dtype("dtype"); dt == BF16 || dt == F16 {
		return nil, fmt.Errorf("of %v: that type is for storage; want another, and a Cast", dt)
	}
	s := append(slices.Clip(c.in[0].Shape), N(c.int("depth")))
	return []Type{{c.dtype("dtype"), s}}, wantInteger("indices", c.in[0])
}

// Size is the product of shape's axes as a scalar of type dt, known when axes are bound. Its gradient is none: it depends on no value.
func (b *Builder) Size(dt DType, shape ...Dim) Value {
	return b.root.cur.add(spec{op: "Size", attrs: []Attr{attrDType(dt), attrShape(shape)}})
}

// Reshape is the same elements in row-major order in another shape; one axis may be N(-1) and is worked out, as a size or as
// the one dynamic axis that is left: a [batch,28,28] as N(-1), N(784) is [batch,784]. Gradient: Reshape back.
func Reshape(a Value, shape ...Dim) Value {
	if s, err := reshaped(a.Shape(), shape); err == nil {
		shape = s
	}
	return apply("Reshape", []Attr{attrShape(shape)}, a)
}

// BroadcastTo repeats a to shape. Gradient: SumTo.
func BroadcastTo(a Value, shape ...Dim) Value {
	return apply("BroadcastTo", []Attr{attrShape(shape)}, a)
}

// Concat joins values along an axis; at most one may be dynamic along it. Gradient: slices of dy.
func Concat(axis int, vs ...Value) Value {
	if axis < 0 && len(vs) > 0 {
		axis += len(vs[0].Shape())
	}
	return apply("Concat", []Attr{attrInt(axis)}, vs...)
}

// Range chooses indices of one axis: every Step-th (0 means 1) from Start to Stop. Negative Start and Stop count from the end; the zero
// Stop, like End, is the end of the axis.
type Range struct{ Start, Stop, Step int }

// Slice chooses indices of leading axes; further axes are taken whole. An index outside the axis is an error, at Build or, for dynamic
// axes, at Run. Gradient: SliceGrad.
func Slice(a Value, ranges ...Range) Value {
	rank := len(a.Shape())
	start, stop, step := make([]int, max(rank, len(ranges))), make([]int, max(rank, len(ranges))), make([]int, max(rank, len(ranges)))
	for i := range start {
		stop[i], step[i] = End, 1
		if i < len(ranges) {
			r := ranges[i]
			start[i] = r.Start
			if r.Stop != 0 {
				stop[i] = r.Stop
			}
			if r.Step != 0 {
				step[i] = r.Step
			}
		}
	}
	return SliceAt(a, start, stop, step)
}

// SliceAt is Slice with the attributes of its node: for each axis a first index, an index behind the last (or End) and a step.
func SliceAt(a Value, start, stop, step []int) Value {
	return apply("Slice", []Attr{attrInts(start), attrInts(stop), attrInts(step)}, a)
}

// SliceGrad is zeros of shape with dy where Slice with the same start, stop and step takes from. Gradient: Slice.
func SliceGrad(dy Value, shape Shape, start, stop, step []int) Value {
	return apply("SliceGrad", []Attr{attrShape(shape), attrInts(start), attrInts(stop), attrInts(step)}, dy)
}

// OneHot adds a last axis of size depth that is 1 at the index and 0 elsewhere; an index outside [0, depth) is an error at Run. It has no
// gradient.
func OneHot(indices Value, depth int, dt DType) Value {
	return apply("OneHot", []Attr{attrInt(depth), attrDType(dt)}, indices)
}
