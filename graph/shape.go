package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Dim is the size of one axis: N when Name is empty, else N more than the size that the axis Name has in a run ("batch", or the
// "batch+1" entries of a CSR batch's row pointers).
type Dim struct {
	Name string
	N    int
}

// N is an axis of fixed size.
func N(n int) Dim { return Dim{N: n} }

// Axis is a dynamic axis: its size is bound by the tensors fed to a run, and equal wherever the name occurs.
func Axis(name string) Dim { return Dim{Name: name} }

// Plus is the axis that is n longer than d.
func (d Dim) Plus(n int) Dim { return Dim{d.Name, d.N + n} }

// Fixed reports whether the size is known before a run.
func (d Dim) Fixed() bool { return d.Name == "" }

func (d Dim) String() string {
	switch {
	case d.Name == "":
		return strconv.Itoa(d.N)
	case d.N == 0:
		return d.Name
	}
	return fmt.Sprintf("%s%+d", d.Name, d.N)
}

// Shape is the axes of a value, outermost first; an empty Shape is a scalar.
type Shape []Dim

// Of makes a Shape of fixed sizes.
func Of(sizes ...int) Shape {
	s := make(Shape, len(sizes))
	for i, n := range sizes {
		s[i] = N(n)
	}
	return s
}

func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Equal reports whether both shapes have the same axes, names included.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Fixed returns the sizes, and whether all of them are known before a run.
func (s Shape) Fixed() ([]int, bool) {
	sizes := make([]int, len(s))
	for i, d := range s {
		if !d.Fixed() {
			return nil, false
		}
		sizes[i] = d.N
	}
	return sizes, true
}

// Elements is the product of fixed sizes, and whether all of them are known before a run.
func (s Shape) Elements() (int, bool) {
	n := 1
	for _, d := range s {
		if !d.Fixed() {
			return 0, false
		}
		n *= d.N
	}
	return n, true
}

// Axes binds the names of dynamic axes to sizes.
type Axes map[string]int

// Bind records in ax what a tensor of the given sizes says about s. The error names the axis, what was wanted and what was given; ax is
// then partly written and of no use.
func (s Shape) Bind(ax Axes, sizes []int) error {
	if len(sizes) != len(s) {
		return fmt.Errorf("want %d axes %v, given %d: %v", len(s), s, len(sizes), sizes)
	}
	for i, d := range s {
		if d.Fixed() {
			if sizes[i] != d.N {
				return fmt.Errorf("axis %d: want %d, given %d", i, d.N, sizes[i])
			}
			continue
		}
		size := sizes[i] - d.N
		old, ok := ax[d.Name]
		if size < 0 || ok && old != size {
			return fmt.Errorf("axis %d (%v): want %d, given %d", i, d, max(old, 0)+d.N, sizes[i])
		}
		ax[d.Name] = size
	}
	return nil
}

// Sizes replaces names by what ax binds them to. The error names an axis without a binding, or one that would be shorter than nothing.
func (s Shape) Sizes(ax Axes) ([]int, error) {
	sizes := make([]int, len(s))
	for i, d := range s {
		sizes[i] = d.N
		if !d.Fixed() {
			n, ok := ax[d.Name]
			if !ok {
				return nil, fmt.Errorf("axis %d: no feed gives the size of %q", i, d.Name)
			}
			sizes[i] += n
		}
		if sizes[i] < 0 {
			return nil, fmt.Errorf("axis %d (%v): size %d is negative", i, d, sizes[i])
		}
	}
	return sizes, nil
}

// Type is what is known of a value before a run.
type Type struct {
	DType DType
	Shape Shape
}

func (t Type) String() string { return t.DType.String() + t.Shape.String() }

// Equal reports whether element type and axes are the same.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && t.Shape.Equal(u.Shape) }
