package kernel

import "unsafe"

// A Float is an element that kernels compute with.
type Float interface{ float32 | float64 }

// single says whether T is float32. It is a constant of each instantiation, so that the branch on it costs nothing.
func single[T Float]() bool {
	var x T
	return unsafe.Sizeof(x) == 4
}

// as32 and as64 are the identity, for the branch where T is known.
func as32[T Float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func as64[T Float](x []T) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
