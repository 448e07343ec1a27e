// Package raw has numbers as the bytes that they are in files and on wires, little-endian: where the machine is too, as all are that Trivium
// is built for, by a look at the same memory.
package raw

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// A Number is what has such bytes.
type Number interface {
	float32 | float64 | int32 | int64 | uint64
}

// InPlace reports whether numbers in memory are what they are on a wire.
func InPlace() bool { return inPlace }

var inPlace = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Bytes returns the memory of v as it goes over a wire: v's own memory where that is what it is, else a copy.
func Bytes[T Number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	size := int(unsafe.Sizeof(v[0]))
	if inPlace {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*size)
	}
	p := make([]byte, 0, len(v)*size)
	for _, x := range v {
		p = appendNumber(p, x)
	}
	return p
}

func appendNumber[T Number](p []byte, x T) []byte {
	le := binary.LittleEndian
	switch x := any(x).(type) {
	case float32:
		return le.AppendUint32(p, math.Float32bits(x))
	case float64:
		return le.AppendUint64(p, math.Float64bits(x))
	case int32:
		return le.AppendUint32(p, uint32(x))
	case int64:
		return le.AppendUint64(p, uint64(x))
	case uint64:
		return le.AppendUint64(p, x)
	}
	return p
}

// Of returns the numbers that p holds: a look at p where it is aligned and the machine is little-endian, else a copy. What is left over at p's
// end, less than a number, is not looked at.
func Of[T Number](p []byte) []T {
	var x T
	size := unsafe.Sizeof(x)
	n := len(p) / int(size)
	if n == 0 {
		return nil
	}
	if inPlace && uintptr(unsafe.Pointer(unsafe.SliceData(p)))%size == 0 {
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), n)
	}
	v := make([]T, n)
	Copy(v, p)
	return v
}

// Floats returns the memory of x as float32s of the same bits.
func Floats(x []int32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// Copy copies numbers that p holds to dst, as many as there are in both, and returns how many those are.
func Copy[T Number](dst []T, p []byte) int {
	var x T
	size := int(unsafe.Sizeof(x))
	n := min(len(dst), len(p)/size)
	if inPlace {
		copy(Bytes(dst[:n]), p)
		return n
	}
	for i := range n {
		dst[i] = at[T](p[i*size:])
	}
	return n
}

func at[T Number](p []byte) (x T) {
	le := binary.LittleEndian
	switch q := any(&x).(type) {
	case *float32:
		*q = math.Float32frombits(le.Uint32(p))
	case *float64:
		*q = math.Float64frombits(le.Uint64(p))
	case *int32:
		*q = int32(le.Uint32(p))
	case *int64:
		*q = int64(le.Uint64(p))
	case *uint64:
		*q = le.Uint64(p)
	}
	return x
}
