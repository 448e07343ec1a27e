package ps

import (
	"math"

	"github.com/trivium-ml/trivium/draw"
)

// An InitKind is a way to choose the values of untouched cells.
type InitKind uint8

// The kinds of Init.
const (
	Zero     InitKind = iota
	Constant          // A
	Uniform           // [A, B)
	Normal            // mean A, deviation B
	Xavier            // uniform in ±√(6/(A+B)), A and B being the numbers of inputs and outputs (Glorot and Bengio 2010)
	Kaiming           // normal, deviation √(2/A), A being the number of inputs (He et al. 2015)
)

func (k InitKind) String() string {
	return name(k, "zero", "constant", "uniform", "normal", "xavier", "kaiming")
}

// An Init is the value of an untouched cell, a pure function of seed, row and column.
type Init struct {
	Kind InitKind
	A, B float64
	Seed uint64
}

// value returns the value of an untouched cell. Servers and clients each compute it for themselves, so products are rounded before they are
// added, which not every processor's compiler does by itself.
func (i *Init) value(row, col int64) float64 {
	const stream = 64 // a row has a seed of its own, so any stream will do
	seed := draw.Mix(i.Seed + draw.Weyl*uint64(row))
	switch i.Kind {
	case Zero:
		return 0
	case Constant:
		return i.A
	case Uniform:
		return i.A + float64((i.B-i.A)*unit(draw.Bits(seed, stream, uint64(col))))
	case Normal:
		return i.A + float64(i.B*draw.Normal(seed, stream, uint64(col)))
	case Xavier:
		return math.Sqrt(6/(i.A+i.B)) * (2*unit(draw.Bits(seed, stream, uint64(col))) - 1)
	}
	return math.Sqrt(2/i.A) * draw.Normal(seed, stream, uint64(col))
}

// ends are between which numbers values lie.
func (i *Init) ends() (least, most float64) {
	const far = 9 // deviations: draw.Normal goes to 8.7
	switch i.Kind {
	case Constant:
		return i.A, i.A
	case Uniform:
		return min(i.A, i.A+(i.B-i.A)), max(i.A, i.A+(i.B-i.A)) // as value has it
	case Normal:
		return i.A - far*i.B, i.A + far*i.B
	case Xavier:
		most = math.Sqrt(6 / (i.A + i.B))
	case Kaiming:
		most = far * math.Sqrt(2/i.A)
	}
	return -most, most
}

// unit maps bits to [0, 1).
func unit(b uint64) float64 { return float64(b>>11) / (1 << 53) }

// fill writes the values of untouched cells from column from on.
func fill[T Number](i *Init, row, from int64, dst []T) {
	switch i.Kind {
	case Zero:
		clear(dst)
	case Constant:
		for k := range dst {
			dst[k] = T(i.A)
		}
	default:
		for k := range dst {
			dst[k] = T(i.value(row, from+int64(k)))
		}
	}
}
