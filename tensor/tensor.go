package tensor

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// A Tensor is a dense array of numbers, row-major: the last axis is contiguous. Its elements change; of the rest, Attach alone moves it.
// It does no locking.
type Tensor struct {
	dt    DType
	shape Shape
	data  unsafe.Pointer // first element; nil if there is none
	n     int            // elements
}

// Align is the alignment in bytes of the tensors that New allocates: one cache line, one AVX-512 register.
const Align = 64

// New returns a tensor of zeros. It panics on a negative length and on an invalid type; Shape.Check reports them as errors.
func New(dt DType, shape ...int) *Tensor {
	s := Shape(shape)
	if err := s.Check(dt); err != nil {
		panic(err.Error())
	}
	t := &Tensor{dt: dt, shape: append(Shape(nil), s...), n: s.Len()}
	if t.n > 0 {
		t.data = unsafe.Pointer(unsafe.SliceData(AlignedBytes(t.n * dt.Size())))
	}
	return t
}

// AlignedBytes returns n zeroed bytes that start at a multiple of Align. Large ones are on huge pages where the system has them.
func AlignedBytes(n int) []byte {
	const large = 4 << 20 // holds a whole huge page wherever it starts
	b := make([]byte, n+Align-1)
	if n >= large {
		adviseHuge(b)
	}
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % Align)
	return b[skip : skip+n : skip+n]
}

// Aligned returns n zeroed elements that start at a multiple of Align.
func Aligned[T Elem](n int) []T {
	if n == 0 {
		return nil
	}
	var x T
	b := AlignedBytes(n * int(unsafe.Sizeof(x)))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Huge asks for huge pages beneath s, as Aligned does for large memory: what is large, but used in part, is made without, and asks where
// it will be used. Only pages that lie within s whole are asked for.
func Huge[T Elem](s []T) {
	var x T
	adviseHuge(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(x))))
}

// An Elem is the Go type of an element.
type Elem interface {
	float32 | float64 | int32 | int64 | uint8 | bool | BFloat16 | Float16
}

// TypeOf is the DType of T.
func TypeOf[T Elem]() DType {
	var x T
	switch any(x).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int32:
		return I32
	case int64:
		return I64
	case uint8:
		return U8
	case bool:
		return Bool
	case BFloat16:
		return BF16
	default:
		return F16
	}
}

// Of wraps flat without copying it: the tensor and the slice share their elements.
func Of[T Elem](flat []T, shape ...int) (*Tensor, error) {
	s, dt := Shape(shape), TypeOf[T]()
	if err := s.Check(dt); err != nil {
		return nil, err
	}
	if n := s.Len(); n != len(flat) {
		return nil, fmt.Errorf("tensor: shape %v has %d elements, the slice %d", s, n, len(flat))
	}
	t := &Tensor{dt: dt, shape: append(Shape(nil), s...), n: len(flat)}
	if t.n > 0 {
		t.data = unsafe.Pointer(unsafe.SliceData(flat))
	}
	return t, nil
}

// Scalar returns a tensor without axes that holds x.
func Scalar[T Elem](x T) *Tensor {
	t := New(TypeOf[T]())
	Flat[T](t)[0] = x
	return t
}

// Flat returns the elements of t, in order, shared with it. It panics if T is not t's type.
func Flat[T Elem](t *Tensor) []T {
	if dt := TypeOf[T](); t.dt != dt {
		panic(fmt.Sprintf("tensor: Flat of %v elements on a tensor of %v", dt, t.dt))
	}
	return unsafe.Slice((*T)(t.data), t.n)
}

// DType is the type of the elements.
func (t *Tensor) DType() DType { return t.dt }

// Shape is the length of each axis. The caller must not change it.
func (t *Tensor) Shape() Shape { return t.shape }

// Rank is the number of axes.
func (t *Tensor) Rank() int { return len(t.shape) }

// Dim is the length of axis i.
func (t *Tensor) Dim(i int) int { return t.shape[i] }

// Len is the number of elements.
func (t *Tensor) Len() int { return t.n }

// Bytes returns the memory of t, shared with it, in the byte order of the machine.
func (t *Tensor) Bytes() []byte { return unsafe.Slice((*byte)(t.data), t.n*t.dt.Size()) }

// Rows is a view on [from, to) of axis 0. It panics if t is a scalar or has no such rows.
func (t *Tensor) Rows(from, to int) *Tensor {
	if len(t.shape) == 0 || from < 0 || from > to || to > t.shape[0] {
		panic(fmt.Sprintf("tensor: Rows(%d, %d) of a tensor of shape %v", from, to, t.shape))
	}
	v := &Tensor{dt: t.dt, shape: append(Shape(nil), t.shape...)}
	v.shape[0] = to - from
	if v.n = v.shape.Len(); v.n > 0 {
		v.data = unsafe.Add(t.data, from*(t.n/t.shape[0])*t.dt.Size())
	}
	return v
}

// Reshape is a view with another shape of as many elements; one length may be -1, and is computed.
func (t *Tensor) Reshape(shape ...int) (*Tensor, error) {
	s := append(Shape(nil), shape...)
	free := slices.Index(s, -1)
	if free >= 0 {
		s[free] = 1
	}
	if err := s.Check(t.dt); err != nil {
		return nil, fmt.Errorf("tensor: reshape %v to %v: %w", t.shape, Shape(shape), err)
	}
	rest := s.Len()
	if free >= 0 && rest > 0 {
		s[free] = t.n / rest
	}
	if free >= 0 && rest == 0 || s.Len() != t.n {
		return nil, fmt.Errorf("tensor: reshape %v to %v: the first has %d elements", t.shape, Shape(shape), t.n)
	}
	return &Tensor{dt: t.dt, shape: s, data: t.data, n: t.n}, nil
}

// Clone is a copy with memory of its own.
func (t *Tensor) Clone() *Tensor {
	c := New(t.dt, t.shape...)
	copy(c.Bytes(), t.Bytes())
	return c
}

// String is like f32[2 3]{{1 2 3} {4 5 6}}; of more than 64 elements, only the type and shape.
func (t *Tensor) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v%v", t.dt, t.shape)
	if t.n <= 64 {
		t.format(&b, 0, 0)
	}
	return b.String()
}

func (t *Tensor) format(b *strings.Builder, axis, from int) {
	if axis == len(t.shape) {
		if axis == 0 {
			fmt.Fprintf(b, "{%v}", t.at(from))
		} else {
			fmt.Fprint(b, t.at(from))
		}
		return
	}
	b.WriteByte('{')
	step := t.shape[axis+1:].Len()
	for i := range t.shape[axis] {
		if i > 0 {
			b.WriteByte(' ')
		}
		t.format(b, axis+1, from+i*step)
	}
	b.WriteByte('}')
}

func (t *Tensor) at(i int) any {
	switch t.dt {
	case F32:
		return Flat[float32](t)[i]
	case F64:
		return Flat[float64](t)[i]
	case I32:
		return Flat[int32](t)[i]
	case I64:
		return Flat[int64](t)[i]
	case U8:
		return Flat[uint8](t)[i]
	case Bool:
		return Flat[bool](t)[i]
	case BF16:
		return Flat[BFloat16](t)[i].Float32()
	default:
		return Flat[Float16](t)[i].Float32()
	}
}
