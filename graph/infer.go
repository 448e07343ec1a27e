package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Broadcast is NumPy's rule: axes are aligned at the end, and an axis of size 1 stretches. Names stretch like sizes; a named axis meets
// itself or a 1, because anything else could fail for some binding.
func Broadcast(a, b Shape) (Shape, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out, shared := a, true // shapes are never written once they are seen, so one that fits may be shared
	off := len(a) - len(b)
	for i, d := range b {
		switch e := a[off+i]; {
		case d == e || d == N(1):
		case e == N(1):
			if shared {
				out, shared = slices.Clone(a), false
			}
			out[off+i] = d
		default:
			return nil, fmt.Errorf("%v and %v do not broadcast: axis %d is %v against %v", a, b, off+i, e, d)
		}
	}
	return out, nil
}

// CanBroadcast reports whether a value of shape from may be repeated to shape to.
func CanBroadcast(from, to Shape) bool {
	s, err := Broadcast(from, to)
	return err == nil && s.Equal(to)
}

func sameDType(in []Type) error {
	for i, t := range in[1:] {
		if t.DType != in[0].DType {
			return fmt.Errorf("element types differ: %v and operand %d %v; Cast one of them", in[0].DType, i+1, t.DType)
		}
	}
	return nil
}

// computes refuses element types that arithmetic is not defined on.
func computes(in ...Type) error {
	for i, t := range in {
		if t.DType != F32 && t.DType != F64 {
			return fmt.Errorf("operand %d is %v, want f32 or f64; Cast it", i, t.DType)
		}
	}
	return sameDType(in)
}

func wantInteger(what string, t Type) error {
	if !integer(t.DType) {
		return fmt.Errorf("%s are %v, want i32, i64 or u8", what, t.DType)
	}
	return nil
}

func wantRank(what string, t Type, rank int) error {
	if len(t.Shape) != rank {
		return fmt.Errorf("%s is %v, want %d axes", what, t, rank)
	}
	return nil
}

func wantShape(what string, t Type, dims ...Dim) error {
	if !t.Shape.Equal(dims) {
		return fmt.Errorf("%s is %v, want %v", what, t, Shape(dims))
	}
	return nil
}

func one(dt DType, s Shape) ([]Type, error) { return []Type{{dt, s}}, nil }

// normalAxes turns axes counted from the end into axes counted from 0, sorts them, and reads nil as all. A repeated or missing axis is
// left for inference to refuse.
func normalAxes(axes []int, rank int) []int {
	out := make([]int, 0, rank)
	if axes == nil {
		for i := range rank {
			out = append(out, i)
		}
		return out
	}
	for _, a := range axes {
		if a < 0 {
			a += rank
		}
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}

func checkAxes(axes []int, s Shape) error {
	for i, a := range axes {
		if a < 0 || a >= len(s) || i > 0 && axes[i-1] >= a {
			return fmt.Errorf("axes %v of %v: out of range or repeated", axes, s)
		}
	}
	return nil
}

// reduced drops the axes, or keeps them with size 1.
func reduced(s Shape, axes []int, keep bool) Shape {
	out := make(Shape, 0, len(s))
	for i, d := range s {
		if !slices.Contains(axes, i) {
			out = append(out, d)
		} else if keep {
			out = append(out, N(1))
		}
	}
	return out
}

// count is a number of elements: a fixed factor and the dynamic axes, sorted.
type count struct {
	fixed int
	axes  []Dim
}

func countOf(s Shape) (count, error) {
	c := count{fixed: 1}
	for _, d := range s {
		if !d.Fixed() {
			c.axes = append(c.axes, d)
			continue
		}
		if d.N > 0 && c.fixed > maxElements/d.N {
			return c, fmt.Errorf("%v has more than %d elements", s, maxElements)
		}
		c.fixed *= d.N
	}
	slices.SortFunc(c.axes, func(a, b Dim) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.N, b.N)) })
	return c, nil
}

// reshaped checks that given holds as many elements as from, and works out the one axis that may be given as N(-1).
func reshaped(from, given Shape) (Shape, error) {
	to := slices.Clone(given)
	open := -1
	for i, d := range to {
		switch {
		case d == N(-1) && open < 0:
			open, to[i] = i, N(1)
		case d == N(-1):
			return nil, fmt.Errorf("shape %v leaves two axes to be worked out", given)
		case d.Fixed() && d.N < 0:
			return nil, fmt.Errorf("shape %v has a negative axis", given)
		}
	}
	have, err := countOf(from)
	if err != nil {
		return nil, err
	}
	want, err := countOf(to)
	if err != nil {
		return nil, err
	}
	if open >= 0 {
		left, ok := have.without(want)
		switch {
		case want.fixed == 0:
			return nil, fmt.Errorf("the open axis of %v may have any size", given)
		case !ok:
			return nil, fmt.Errorf("%v does not hold as many elements as %v, whichever size or dynamic axis the open one is", given, from)
		}
		to[open] = left
		return to, nil
	}
	if have.fixed != want.fixed || !slices.Equal(have.axes, want.axes) {
		return nil, fmt.Errorf("%v does not hold as many elements as %v", given, from)
	}
	return to, nil
}

// without is the one axis that part lacks of c: a size, or a dynamic axis.
func (c count) without(part count) (Dim, bool) {
	if part.fixed == 0 || c.fixed%part.fixed != 0 {
		return Dim{}, false
	}
	left := N(c.fixed / part.fixed)
	if left == N(1) && len(c.axes) == len(part.axes)+1 {
		at := 0 // where they begin to differ
		for at < len(part.axes) && part.axes[at] == c.axes[at] {
			at++
		}
		return c.axes[at], slices.Equal(part.axes[at:], c.axes[at+1:])
	}
	return left, slices.Equal(part.axes, c.axes)
}

// End as a stop of Slice is the end of the axis.
const End = 1<<62 - 1

// ResolveSlice gives the first index and the number of indices that start, stop and step choose of an axis of the given size. Negative
// start and stop count from the end. Nothing is clamped: what lies outside the axis is an error.
func ResolveSlice(start, stop, step, size int) (first, n int, err error) {
	lo, hi := start, stop
	if lo < 0 {
		lo += size
	}
	if hi == End {
		hi = size
	} else if hi < 0 {
		hi += size
	}
	if step < 1 || lo < 0 || hi < lo || hi > size {
		return 0, 0, fmt.Errorf("slice %s of an axis of %d", sliceString(start, stop, step), size)
	}
	if hi == lo {
		return lo, 0, nil
	}
	return lo, 1 + (hi-lo-1)/step, nil // a step may be as large as an int: nothing is added to it
}

func sliceString(start, stop, step int) string {
	s := fmt.Sprintf("%d:", start)
	if stop != End {
		s += fmt.Sprint(stop)
	}
	if step != 1 {
		s += fmt.Sprintf(":%d", step)
	}
	return s
}

// slicedDim is the length of a slice of a fixed or dynamic axis.
func slicedDim(d Dim, start, stop, step int) (Dim, error) {
	if d.Fixed() {
		_, n, err := ResolveSlice(start, stop, step, d.N)
		return N(n), err
	}
	far := func(i int) bool { return i < -maxElements || i > maxElements } // so that no sum below overflows
	if far(start) || stop != End && far(stop) || far(step) || step < 1 {
		return d, fmt.Errorf("slice %s is out of range", sliceString(start, stop, step))
	}
	fromEnd, back := stop < 0 || stop == End, -stop
	if stop == End {
		back = 0
	}
	switch {
	case start >= 0 && fromEnd: // the axis without start at its front and back at its end
		if step != 1 {
			return d, fmt.Errorf("slice %s with a step of dynamic axis %v has no known length", sliceString(start, stop, step), d)
		}
		return d.Plus(-start - back), nil
	case (start < 0) == fromEnd:
		n := stop - start
		if fromEnd {
			n = -start - back
		}
		if n < 0 {
			return d, fmt.Errorf("slice %s ends before it starts", sliceString(start, stop, step))
		}
		return N((n + step - 1) / step), nil
	}
	return d, fmt.Errorf("slice %s of dynamic axis %v has no known length", sliceString(start, stop, step), d)
}
