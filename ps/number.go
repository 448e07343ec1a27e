package ps

import (
	"math"

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
