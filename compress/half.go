package compress

import (
	"encoding/binary"
	"math"
)

// F16 is IEEE 754 half precision, rounded to nearest even: 11 bits, from 6e-8 to 65504. What is larger becomes infinite.
type F16 struct{}

// BF16 is the upper half of a float32, rounded to nearest even: 8 bits, with float32's range.
type BF16 struct{}

func (F16) String() string    { return "f16" }
func (F16) Linear() bool      { return true }
func (F16) MaxLen(n int) int  { return 2 * n }
func (BF16) String() string   { return "bf16" }
func (BF16) Linear() bool     { return true }
func (BF16) MaxLen(n int) int { return 2 * n }

func (c F16) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	all, out := grow(dst, 2*len(x))
	toF16(out, x)
	if e != nil {
		for i, v := range x {
			x[i] = dropped(v - fromF16(binary.LittleEndian.Uint16(out[2*i:])))
		}
	}
	return all, nil
}

func (c F16) DecodeAdd(dst []float32, src []byte) error {
	if len(src) != 2*len(dst) {
		return badLen(c, len(dst), 2*len(dst), len(src))
	}
	for i := range dst {
		dst[i] += fromF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return nil
}

func (c F16) Decode(dst []float32, src []byte) error {
	if len(src) != 2*len(dst) {
		return badLen(c, len(dst), 2*len(dst), len(src))
	}
	for i := range dst {
		dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return nil
}

func (c BF16) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	all, out := grow(dst, 2*len(x))
	if e == nil {
		for i, v := range x {
			binary.LittleEndian.PutUint16(out[2*i:], toBF16(v))
		}
		return all, nil
	}
	for i, v := range x {
		h := toBF16(v)
		binary.LittleEndian.PutUint16(out[2*i:], h)
		x[i] = dropped(v - fromBF16(h))
	}
	return all, nil
}

func (c BF16) DecodeAdd(dst []float32, src []byte) error {
	if len(src) != 2*len(dst) {
		return badLen(c, len(dst), 2*len(dst), len(src))
	}
	for i := range dst {
		dst[i] += fromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return nil
}

func (c BF16) Decode(dst []float32, src []byte) error {
	if len(src) != 2*len(dst) {
		return badLen(c, len(dst), 2*len(dst), len(src))
	}
	for i := range dst {
		dst[i] = fromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return nil
}

// toF16 has no branch that depends on the size of a value: gradients lie on both sides of the smallest normal number, 6e-5, at random.
// The two products let the processor's own rounding cut the mantissa at the right place, also below that number (Dukhan, FP16).
func toF16(out []byte, x []float32) {
	for i, v := range x {
		w := math.Float32bits(v)
		base := float32(math.Float32frombits(w&0x7fffffff)*0x1p112) * 0x1p-110
		bias := max((w+w)&0xff000000, 0x71000000)
		b := math.Float32bits(math.Float32frombits(bias>>1+0x07800000) + float32(base))
		h := b>>13&0x7c00 + b&0x0fff
		if w+w > 0xff000000 {
			h = 0x7e00
		}
		binary.LittleEndian.PutUint16(out[2*i:], uint16(w>>16&0x8000|h))
	}
}

// fromF16 is exact.
func fromF16(h uint16) float32 {
	w := uint32(h) << 16
	two := w + w
	b := math.Float32bits(math.Float32frombits(two>>4+0x70000000) * 0x1p-112)
	low := math.Float32bits(math.Float32frombits(two>>17|0x3f000000) - 0.5)
	if two < 1<<27 { // zero and what is below the smallest normal number: a move, since a branch would be mispredicted
		b = low
	}
	return math.Float32frombits(w&0x80000000 | b)
}

func toBF16(x float32) uint16 {
	w := math.Float32bits(x)
	h := (w + 0x7fff + w>>16&1) >> 16
	if w&0x7fffffff > 0x7f800000 {
		h = w>>16 | 0x40 // stays NaN when cut
	}
	return uint16(h)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
