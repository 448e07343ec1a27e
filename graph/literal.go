package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/tensor"
)

// Literal is a constant tensor: row-major elements in little-endian order. It is never written after it entered a graph.
type Literal struct {
	DType DType
	Shape []int
	Data  []byte
	err   error // of Fill: what no element can be
}

// Number is what a Literal can be made of.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8 | ~bool
}

// LiteralOf copies flat, whose length must be the product of shape, into a Literal.
func LiteralOf[T Number](flat []T, shape ...int) (Literal, error) {
	l := Literal{Shape: slices.Clone(shape)}
	n := 1
	for _, s := range shape {
		n *= s
	}
	if n != len(flat) {
		return Literal{}, fmt.Errorf("graph: literal of shape %v: want %d elements, given %d", shape, n, len(flat))
	}
	switch v := any(flat).(type) {
	case []float32:
		l.DType, l.Data = F32, make([]byte, 0, 4*n)
		for _, x := range v {
			l.Data = binary.LittleEndian.AppendUint32(l.Data, math.Float32bits(x))
		}
	case []float64:
		l.DType, l.Data = F64, make([]byte, 0, 8*n)
		for _, x := range v {
			l.Data = binary.LittleEndian.AppendUint64(l.Data, math.Float64bits(x))
		}
	case []int32:
		l.DType, l.Data = I32, make([]byte, 0, 4*n)
		for _, x := range v {
			l.Data = binary.LittleEndian.AppendUint32(l.Data, uint32(x))
		}
	case []int64:
		l.DType, l.Data = I64, make([]byte, 0, 8*n)
		for _, x := range v {
			l.Data = binary.LittleEndian.AppendUint64(l.Data, uint64(x))
		}
	case []uint8:
		l.DType, l.Data = U8, slices.Clone(v)
	case []bool:
		l.DType, l.Data = Bool, make([]byte, n)
		for i, x := range v {
			if x {
				l.Data[i] = 1
			}
		}
	default:
		return Literal{}, fmt.Errorf("graph: literal: elements of a named type %T; convert them first", flat)
	}
	return l, nil
}

// Fill is a Literal of the given type and shape whose elements are all x, rounded to the type, towards 0 where it is one of integers. Of a type
// or shape that no value has there are no elements, nor of integers that cannot hold x, and a graph refuses it.
func Fill(dt DType, x float64, shape ...int) Literal {
	l, t := Literal{DType: dt, Shape: slices.Clone(shape)}, Type{dt, Of(shape...)}
	if checkType(t) != nil {
		return l
	}
	if !holds(dt, x) {
		l.err = fmt.Errorf("literal %v: want a number that %v can hold, given %v", t, dt, x)
		return l
	}
	n, _ := t.Shape.Elements()
	l.Data = make([]byte, 0, n*dt.Size())
	for range n {
		l.Data = appendElement(l.Data, dt, x)
	}
	return l
}

// holds reports whether an element can be x, rounded: an integer has no infinity to round to.
func holds(dt DType, x float64) bool {
	x = math.Trunc(x)
	switch dt {
	case I32:
		return math.MinInt32 <= x && x <= math.MaxInt32
	case I64:
		return math.MinInt64 <= x && x < 1<<63 // math.MaxInt64 is none of float64
	case U8:
		return 0 <= x && x <= math.MaxUint8
	}
	return true
}

func appendElement(p []byte, dt DType, x float64) []byte {
	switch dt {
	case F32:
		return binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(x)))
	case F64:
		return binary.LittleEndian.AppendUint64(p, math.Float64bits(x))
	case I32:
		return binary.LittleEndian.AppendUint32(p, uint32(int32(x)))
	case I64:
		return binary.LittleEndian.AppendUint64(p, uint64(int64(x)))
	case U8:
		return append(p, uint8(x))
	case Bool:
		if x != 0 {
			return append(p, 1)
		}
		return append(p, 0)
	case BF16:
		return binary.LittleEndian.AppendUint16(p, uint16(tensor.ToBFloat16(float32(x))))
	case F16:
		return binary.LittleEndian.AppendUint16(p, uint16(tensor.ToFloat16(float32(x))))
	}
	return append(p, make([]byte, dt.Size())...)
}

// Len is the number of elements.
func (l Literal) Len() int {
	if s := l.DType.Size(); s > 0 {
		return len(l.Data) / s
	}
	return 0
}

// At is element i as a float64.
func (l Literal) At(i int) float64 {
	le := binary.LittleEndian
	switch l.DType {
	case F32:
		return float64(math.Float32frombits(le.Uint32(l.Data[4*i:])))
	case F64:
		return math.Float64frombits(le.Uint64(l.Data[8*i:]))
	case I32:
		return float64(int32(le.Uint32(l.Data[4*i:])))
	case I64:
		return float64(int64(le.Uint64(l.Data[8*i:])))
	case U8, Bool:
		return float64(l.Data[i])
	case BF16:
		return float64(tensor.BFloat16(le.Uint16(l.Data[2*i:])).Float32())
	case F16:
		return float64(tensor.Float16(le.Uint16(l.Data[2*i:])).Float32())
	}
	return math.NaN()
}

func (l Literal) String() string {
	const shown = 8
	s := fmt.Sprintf("%v%v{", l.DType, Of(l.Shape...))
	for i := range min(l.Len(), shown) {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprint(l.At(i))
	}
	if l.Len() > shown {
		s += " ..."
	}
	return s + "}"
}
