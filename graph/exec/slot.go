package exec

import (
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A slot is where a value of one step lies: memory, and the sizes that its axes have now. Nodes hold pointers to slots and read
// them when they run, so that feeding other tensors, or tensors of other sizes, binds nothing anew.
type slot struct {
	p    unsafe.Pointer // first element; nil if there is none
	n    int            // elements
	dims []int
	dt   graph.DType
}

// flat is the elements of a slot, of Go type T.
func flat[T any](s *slot) []T { return unsafe.Slice((*T)(s.p), s.n) }

func (s *slot) bytes() []byte { return unsafe.Slice((*byte)(s.p), s.n*s.dt.Size()) }

// tensor wraps a slot's memory.
func (s *slot) tensor() *tensor.Tensor { return wrap(s.dt, s.p, s.n, s.dims) }

func pointer(t *tensor.Tensor) unsafe.Pointer {
	if t.Len() == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(t.Bytes()))
}

// wrap makes a tensor over memory that already has these sizes.
func wrap(dt graph.DType, p unsafe.Pointer, n int, dims []int) *tensor.Tensor {
	var t *tensor.Tensor
	var err error
	switch dt {
	case graph.F32:
		t, err = tensor.Of(unsafe.Slice((*float32)(p), n), dims...)
	case graph.F64:
		t, err = tensor.Of(unsafe.Slice((*float64)(p), n), dims...)
	case graph.I32:
		t, err = tensor.Of(unsafe.Slice((*int32)(p), n), dims...)
	case graph.I64:
		t, err = tensor.Of(unsafe.Slice((*int64)(p), n), dims...)
	case graph.U8:
		t, err = tensor.Of(unsafe.Slice((*uint8)(p), n), dims...)
	case graph.Bool:
		t, err = tensor.Of(unsafe.Slice((*bool)(p), n), dims...)
	case graph.BF16:
		t, err = tensor.Of(unsafe.Slice((*tensor.BFloat16)(p), n), dims...)
	default:
		t, err = tensor.Of(unsafe.Slice((*tensor.Float16)(p), n), dims...)
	}
	if err != nil {
		panic("exec: a slot that contradicts itself: " + err.Error())
	}
	return t
}

// maxBytes bounds a value, and what lies in the arena: more than a machine has, and so few that no product or sum of sizes overflows.
const maxBytes = 1 << 40

// countable is the product of dims, or -1 if so many elements of size bytes are more than maxBytes.
func countable(dims []int, size int) int {
	n := 1
	for _, d := range dims {
		if d == 0 {
			return 0
		}
		if n > 0 && n <= maxBytes/size/d {
			n *= d
		} else {
			n = -1 // unless there is a 0 to come
		}
	}
	return n
}

// elements is the product of dims.
func elements(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// sameSizes says whether a and b are equal, without the generic call's cost on this hot path.
func sameSizes(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A Number is an element type that kernels count or compare with.
type number interface {
	float32 | float64 | int32 | int64 | uint8
}

// float is an element type that kernels compute with.
type float interface{ float32 | float64 }

// fromLiteral copies a literal into a tensor. Literals are little-endian, as every machine that this package is built for.
func fromLiteral(l *graph.Literal) *tensor.Tensor {
	t := tensor.New(tensor.DType(l.DType), l.Shape...)
	copy(t.Bytes(), l.Data)
	return t
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

// shift makes the slot n elements of what it was, from element from on.
func shift(s *slot, from, n int) {
	s.p, s.n = unsafe.Add(s.p, from*s.dt.Size()), n
}

func alignedBytes(n int) []byte { return tensor.AlignedBytes(n) }
