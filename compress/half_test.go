package compress_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
)

// A format is a floating-point format of two bytes, as IEEE 754 defines one: the conversions are written apart from those of the program.
type format struct{ bias, fraction int }

func (f format) infinity() uint16 { return uint16((2*f.bias + 1) << f.fraction) }

// wide is the number h.
func (f format) wide(h uint16) float32 {
	sign, code := 1.0, int(h&0x7fff)
	if h>>15 != 0 {
		sign = -1
	}
	exponent, digits := code>>f.fraction, code&(1<<f.fraction-1)
	switch {
	case exponent == 2*f.bias+1 && digits != 0:
		return float32(math.NaN())
	case exponent == 2*f.bias+1:
		return float32(math.Inf(int(sign)))
	case exponent > 0:
		digits += 1 << f.fraction
	}
	return float32(math.Copysign(math.Ldexp(float64(digits), max(exponent, 1)-f.bias-f.fraction), sign))
}

// narrow is the number next to x, of two the even one. NaN is not asked for.
func (f format) narrow(x float32) uint16 {
	a, sign := math.Abs(float64(x)), uint16(math.Float32bits(x)>>16&0x8000)
	if a > math.MaxFloat32 {
		return sign | f.infinity()
	}
	_, exponent := math.Frexp(max(a, math.SmallestNonzeroFloat32)) // of 0 it is 0, as of 0.5
	exponent = max(exponent-1, 1-f.bias)
	units := int(math.RoundToEven(math.Ldexp(a, f.fraction-exponent)))
	return sign | uint16(min((exponent+f.bias-1)<<f.fraction+units, int(f.infinity()))) // one unit too many becomes the next exponent
}

// All 65,536 values survive, and rounding is to the nearest, here and in package tensor.
func TestHalfIsTheNearest(t *testing.T) {
	all := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(all[2*i:], uint16(i))
	}
	for _, k := range []struct {
		codec compress.Codec
		format
		wide   func(uint16) float32
		narrow func(float32) uint16
	}{
		{compress.F16{}, format{15, 10}, func(h uint16) float32 { return tensor.Float16(h).Float32() }, func(x float32) uint16 { return uint16(tensor.ToFloat16(x)) }},
		{compress.BF16{}, format{127, 7}, func(h uint16) float32 { return tensor.BFloat16(h).Float32() }, func(x float32) uint16 { return uint16(tensor.ToBFloat16(x)) }},
	} {
		x := make([]float32, 1<<16)
		if err := k.codec.Decode(x, all); err != nil {
			t.Fatal(err)
		}
		back, _ := k.codec.Encode(nil, x, nil)
		for i, v := range x {
			want := k.format.wide(uint16(i))
			for _, v := range []float32{v, k.wide(uint16(i))} {
				if (v != v) != (want != want) || v == v && math.Float32bits(v) != math.Float32bits(want) {
					t.Fatalf("%s: %#04x is %v, want %v", k.codec, i, v, want)
				}
			}
			if v == v && binary.LittleEndian.Uint16(back[2*i:]) != uint16(i) {
				t.Fatalf("%s: %#04x came back as %#04x", k.codec, i, back[2*i:2*i+2])
			}
		}
		// Every 8,191st float32.
		x = x[:0]
		for b := uint64(0); b < 1<<32; b += 8191 {
			x = append(x, math.Float32frombits(uint32(b)))
		}
		p, _ := k.codec.Encode(nil, x, nil)
		for i, v := range x {
			if v != v {
				continue
			}
			want := k.format.narrow(v)
			if got := binary.LittleEndian.Uint16(p[2*i:]); got != want || k.narrow(v) != want {
				t.Fatalf("%s: %v (%#08x) becomes %#04x, of package tensor %#04x, want %#04x", k.codec, v, math.Float32bits(v), got, k.narrow(v), want)
			}
		}
	}
}

func TestHalfExactIntegers(t *testing.T) {
	x := make([]float32, 4097)
	for i := range x {
		x[i] = float32(i - 2048)
	}
	p, _ := compress.F16{}.Encode(nil, x, nil)
	y := make([]float32, len(x))
	if err := (compress.F16{}).Decode(y, p); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("%v became %v", x[i], y[i])
		}
	}
}
