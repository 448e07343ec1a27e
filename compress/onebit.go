package compress

import (
	"encoding/binary"
	"math"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// OneBit sends the sign of each value and one scale: their mean absolute value (L1: the best in squares, Bernstein et al. 2018), or
// their root mean square (L2), which keeps the norm. A value that is not finite makes the whole message NaN.
type OneBit struct{ L2 bool }

func (c OneBit) String() string {
	if c.L2 {
		return "1bit:l2"
	}
	return "1bit"
}

func (OneBit) MaxLen(n int) int { return 4 + (n+7)/8 }

func (c OneBit) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	isa, x := kernel.Best(), src
	if e != nil {
		if err := e.begin(c, len(src)); err != nil {
			return dst, err
		}
		x = e.cells
	}
	// Four sums, always the same, in float64, of pieces that stay in the first-level cache.
	var s [4]float64
	for at := 0; at < len(x); at += onebitPiece {
		piece := x[at:min(at+onebitPiece, len(x))]
		if e != nil {
			kernel.Add(isa, piece, piece, src[at:])
		}
		if c.L2 {
			kernel.SquareSum(isa, &s, piece)
		} else {
			kernel.AbsSum(isa, &s, piece)
		}
	}
	scale := c.scale((s[0]+s[1])+(s[2]+s[3]), len(x))
	all, out := grow(dst, c.MaxLen(len(x)))
	binary.LittleEndian.PutUint32(out, math.Float32bits(scale))
	out = out[4:]
	for at := 0; at < len(x); at += onebitPiece {
		piece := x[at:min(at+onebitPiece, len(x))]
		kernel.Signs(isa, out[at/8:], piece)
		if e != nil {
			kernel.KeepSigns(isa, piece, scale)
		}
	}
	return all, nil
}

// onebitPiece is a multiple of the sums, and of the signs in a byte.
const onebitPiece = 4096

// scale is that of n values with a sum of absolute values, or squares.
func (c OneBit) scale(sum float64, n int) float32 {
	if n == 0 {
		return 0
	}
	mean := sum / float64(n)
	if c.L2 {
		mean = math.Sqrt(mean)
	}
	if mean-mean != 0 {
		mean = math.NaN() // one NaN for all, also for an infinite value
	}
	return float32(mean)
}

func (c OneBit) DecodeAdd(dst []float32, src []byte) error {
	return c.decode(dst, src, kernel.AddSigns)
}

func (c OneBit) Decode(dst []float32, src []byte) error { return c.decode(dst, src, kernel.FromSigns) }

func (c OneBit) decode(dst []float32, src []byte, apply func(isa kernel.ISA, dst []float32, p []byte, scale float32)) error {
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	apply(kernel.Best(), dst, src[4:], math.Float32frombits(binary.LittleEndian.Uint32(src)))
	return nil
}
