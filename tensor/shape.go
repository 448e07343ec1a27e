package tensor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Shape is the length of each axis, outermost first. The empty Shape is that of a scalar.
type Shape []int

// Len is the number of elements: the product of the lengths.
func (s Shape) Len() int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// Equal says whether s and t have the same axes.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Check returns an error if a length is negative, or the bytes of such a tensor of dt overflow an int.
func (s Shape) Check(dt DType) error {
	if !dt.Valid() {
		return fmt.Errorf("tensor: shape %v: %v is no dtype", s, dt)
	}
	if i := slices.IndexFunc(s, func(d int) bool { return d < 0 }); i >= 0 {
		return fmt.Errorf("tensor: shape %v: the length of axis %d is negative", s, i)
	}
	if slices.Contains(s, 0) {
		return nil
	}
	bytes := dt.Size()
	for _, d := range s {
		if bytes > math.MaxInt/d {
			return fmt.Errorf("tensor: shape %v: a tensor of %v that large has more bytes than an int can count", s, dt)
		}
		bytes *= d
	}
	return nil
}

// String is like [32 784].
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(d))
	}
	b.WriteByte(']')
	return b.String()
}
