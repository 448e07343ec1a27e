package ps

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Number is a type of cell.
type Number interface {
	float32 | float64 | int32 | int64
}

// A Cell names a type of cell. The zero value is Float32.
type Cell uint8

// The types of cells.
const (
	Float32 Cell = iota
	Float64
	Int32
	Int64
)

func (c Cell) String() string { return name(c, "float32", "float64", "int32", "int64") }

// Size is the number of bytes of a cell.
func (c Cell) Size() int {
	if c == Float32 || c == Int32 {
		return 4
	}
	return 8
}

// float reports whether a round's weights divide what is added to such cells.
func (c Cell) float() bool { return c == Float32 || c == Float64 }

// holds reports whether a cell can be x, rounded where it is floating point. What a conversion makes of other numbers, machines differ in.
func (c Cell) holds(x float64) bool {
	switch c {
	case Float32:
		return finite.Is(float64(float32(x)))
	case Int32:
		return x == math.Trunc(x) && x >= math.MinInt32 && x <= math.MaxInt32
	case Int64:
		return x == math.Trunc(x) && x >= math.MinInt64 && x < -math.MinInt64
	}
	return finite.Is(x)
}

func cellOf[T Number]() Cell {
	var x T
	switch any(x).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int32:
		return Int32
	}
	return Int64
}

// name returns the name of a small enumeration's value.
func name[E ~uint8](e E, names ...string) string {
	if int(e) < len(names) {
		return names[e]
	}
	return "unknown"
}

// littleEndian is true where cells in memory are what they are on the wire.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// asBytes returns the memory of v as it goes over a wire: v's own memory on little-endian machines, else a copy.
func asBytes[T Number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	size := int(unsafe.Sizeof(v[0]))
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*size)
	}
	p := make([]byte, 0, len(v)*size)
	for _, x := range v {
		p = appendCell(p, x)
	}
	return p
}

func appendCell[T Number](p []byte, x T) []byte {
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
	}
	return p
}

// asCells returns the cells that p holds: a view where p is aligned and the machine is little-endian, else a copy. What is left over
// at p's end, less than a cell, is not looked at; decoders check lengths before.
func asCells[T Number](p []byte) []T {
	var x T
	size := int(unsafe.Sizeof(x))
	n := len(p) / size
	if n == 0 {
		return nil
	}
	if littleEndian && uintptr(unsafe.Pointer(unsafe.SliceData(p)))%uintptr(size) == 0 {
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), n)
	}
	v := make([]T, n)
	if littleEndian {
		copy(asBytes(v), p)
		return v
	}
	for i := range v {
		v[i] = cellAt[T](p[i*size:])
	}
	return v
}

func cellAt[T Number](p []byte) (x T) {
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
	}
	return x
}

// addInto is p += d, one addition a cell.
func addInto[T Number](isa kernel.ISA, p, d []T) {
	switch p := any(p).(type) {
	case []float32:
		if len(p) >= 32 { // shorter, the call costs more than it saves
			kernel.AddInto(isa, p, any(d).([]float32))
			return
		}
	case []float64:
		if len(p) >= 32 {
			kernel.AddInto(isa, p, any(d).([]float64))
			return
		}
	}
	d = d[:len(p)]
	for i := range p {
		p[i] += d[i]
	}
}

// nothing is what may be added to any cell without changing a bit: -0 for floating point, since -0 + 0 is 0.
func nothing[T Number]() (x T) {
	switch q := any(&x).(type) {
	case *float32:
		*q = float32(math.Copysign(0, -1))
	case *float64:
		*q = math.Copysign(0, -1)
	}
	return x
}

// oneNaN makes every NaN of v the one that exact mode has: see kernel.OneNaN.
func oneNaN[T Number](isa kernel.ISA, v []T) {
	switch v := any(v).(type) {
	case []float32:
		kernel.OneNaN(isa, v)
	case []float64:
		kernel.OneNaN(isa, v)
	}
}

// firstNotFinite returns the index of the first cell of v that is NaN or infinite, or -1.
func firstNotFinite[T Number](isa kernel.ISA, v []T) int {
	if len(v) >= 64 { // a sum of squares is finite only if all are: nearly always that is all there is to do
		switch x := any(v).(type) {
		case []float32:
			if s := kernel.SumSquares(isa, x); s-s == 0 {
				return -1
			}
		case []float64:
			if s := kernel.SumSquares(isa, x); s-s == 0 {
				return -1
			}
		}
	}
	// x - x is 0 for finite x alone; four sums keep the additions from waiting for one another.
	var a, b, c, d T
	i := 0
	for ; i+4 <= len(v); i += 4 {
		a += v[i] - v[i]
		b += v[i+1] - v[i+1]
		c += v[i+2] - v[i+2]
		d += v[i+3] - v[i+3]
	}
	for ; i < len(v); i++ {
		a += v[i] - v[i]
	}
	if a == 0 && b == 0 && c == 0 && d == 0 {
		return -1
	}
	for i, x := range v {
		if x-x != 0 {
			return i
		}
	}
	return -1
}
