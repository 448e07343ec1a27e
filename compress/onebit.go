package compress

import (
	"encoding/binary"
	"math"
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
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	scale := c.scale(x)
	all, out := grow(dst, c.MaxLen(len(x)))
	binary.LittleEndian.PutUint32(out, math.Float32bits(scale))
	out = out[4:]
	for i := range out {
		eight := x[8*i : min(8*i+8, len(x))]
		var b byte
		for j, v := range eight {
			b |= byte(math.Float32bits(v)>>31) << j
		}
		out[i] = b
	}
	if e != nil {
		up := math.Float32bits(scale)
		for i, v := range x {
			x[i] = dropped(v - math.Float32frombits(up^math.Float32bits(v)&0x80000000))
		}
	}
	return all, nil
}

// scale sums in four lanes, always the same, in float64.
func (c OneBit) scale(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	var s [4]float64
	n := float64(len(x))
	for i, v := range x {
		d := math.Abs(float64(v))
		if c.L2 {
			d *= d
		}
		s[i&3] += d
	}
	mean := ((s[0] + s[1]) + (s[2] + s[3])) / n
	if c.L2 {
		mean = math.Sqrt(mean)
	}
	if mean-mean != 0 {
		mean = math.NaN() // one NaN for all, also for an infinite value
	}
	return float32(mean)
}

func (c OneBit) DecodeAdd(dst []float32, src []byte) error {
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	up, bits := binary.LittleEndian.Uint32(src), src[4:]
	for i := range dst {
		dst[i] += math.Float32frombits(up ^ uint32(bits[i>>3]>>(i&7))<<31)
	}
	return nil
}

func (c OneBit) Decode(dst []float32, src []byte) error {
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	up, bits := binary.LittleEndian.Uint32(src), src[4:]
	for i := range dst {
		dst[i] = math.Float32frombits(up ^ uint32(bits[i>>3]>>(i&7))<<31)
	}
	return nil
}
