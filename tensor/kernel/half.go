package kernel

import (
	"encoding/binary"
	"math"
)

// A Half is a floating-point format of two bytes. Bytes hold it little-endian, at any address.
type Half uint8

const (
	// F16 is IEEE 754 binary16: 11 bits of precision, from 6e-8 to 65504. What is larger becomes infinite.
	F16 Half = iota
	// BF16 is the upper half of a float32: 8 bits of precision, and float32's range.
	BF16
)

// Narrow is dst[2i:2i+2] = x[i], rounded to nearest, ties to even. A NaN stays one.
func Narrow(isa ISA, h Half, dst []byte, x []float32) {
	dst = dst[:2*len(x)]
	if n := halfVectors(isa, len(x)); n > 0 {
		narrowHalf(h, dst, x[:n])
		dst, x = dst[2*n:], x[n:]
	}
	if h == BF16 {
		for i, v := range x {
			binary.LittleEndian.PutUint16(dst[2*i:], ToBF16(v))
		}
		return
	}
	toF16(dst, x)
}

// NarrowKeep is an encoding with error feedback: e[i] += x[i], then dst[2i:2i+2] = e[i], rounded as by Narrow, then e[i] -= what that is; 0
// where this is not finite.
func NarrowKeep(isa ISA, h Half, dst []byte, e, x []float32) {
	dst, x = dst[:2*len(e)], x[:len(e)]
	if n := halfVectors(isa, len(e)); n > 0 {
		narrowKeepHalf(h, dst, e[:n], x)
		dst, e, x = dst[2*n:], e[n:], x[n:]
	}
	for i, v := range x {
		e[i] += v
	}
	Narrow(Go, h, dst, e)
	for i := range e {
		p := binary.LittleEndian.Uint16(dst[2*i:])
		v := FromBF16(p)
		if h == F16 {
			v = FromF16(p)
		}
		if e[i] -= v; e[i]-e[i] != 0 {
			e[i] = 0
		}
	}
}

// Widen is dst[i] = p[2i:2i+2]; it is exact.
func Widen(isa ISA, h Half, dst []float32, p []byte) {
	p = p[:2*len(dst)]
	if n := halfVectors(isa, len(dst)); n > 0 {
		widenHalf(h, dst[:n], p)
		dst, p = dst[n:], p[2*n:]
	}
	if h == BF16 {
		for i := range dst {
			dst[i] = FromBF16(binary.LittleEndian.Uint16(p[2*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] = FromF16(binary.LittleEndian.Uint16(p[2*i:]))
	}
}

// WidenAdd is dst[i] += p[2i:2i+2].
func WidenAdd(isa ISA, h Half, dst []float32, p []byte) {
	p = p[:2*len(dst)]
	if n := halfVectors(isa, len(dst)); n > 0 {
		widenAddHalf(h, dst[:n], p)
		dst, p = dst[n:], p[2*n:]
	}
	if h == BF16 {
		for i := range dst {
			dst[i] += FromBF16(binary.LittleEndian.Uint16(p[2*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] += FromF16(binary.LittleEndian.Uint16(p[2*i:]))
	}
}

// halfUnit is how many numbers the assembly converts at once.
const halfUnit = 8

// halfVectors is how many of n numbers are the assembly's.
func halfVectors(isa ISA, n int) int {
	if isa < AVX2 {
		return 0
	}
	return n &^ (halfUnit - 1)
}

// ToF16 is x in F16, rounded as by Narrow.
func ToF16(x float32) uint16 {
	var p [2]byte
	toF16(p[:], []float32{x})
	return binary.LittleEndian.Uint16(p[:])
}

// toF16 has no branch that depends on the size of a value: gradients lie on both sides of the smallest normal number, 6e-5, at random.
// The two products let the processor's own rounding cut the mantissa at the right place, also below that number (Dukhan, FP16). It is a
// loop because the compiler does not inline it: a call for each number would cost as much as the number.
func toF16(dst []byte, x []float32) {
	for i, v := range x {
		w := math.Float32bits(v)
		base := float32(math.Float32frombits(w&0x7fffffff)*0x1p112) * 0x1p-110
		bias := max((w+w)&0xff000000, 0x71000000)
		b := math.Float32bits(math.Float32frombits(bias>>1+0x07800000) + float32(base))
		h := b>>13&0x7c00 + b&0x0fff
		if w+w > 0xff000000 {
			h = 0x7e00
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(w>>16&0x8000|h))
	}
}

// FromF16 is the number h in F16.
func FromF16(h uint16) float32 {
	w := uint32(h) << 16
	two := w + w
	b := math.Float32bits(math.Float32frombits(two>>4+0x70000000) * 0x1p-112)
	low := math.Float32bits(math.Float32frombits(two>>17|0x3f000000) - 0.5)
	if two < 1<<27 { // zero and what is below the smallest normal number: a move, since a branch would be mispredicted
		b = low
	}
	return math.Float32frombits(w&0x80000000 | b)
}

// ToBF16 is x in BF16, rounded as by Narrow.
func ToBF16(x float32) uint16 {
	w := math.Float32bits(x)
	h := (w + 0x7fff + w>>16&1) >> 16
	if w&0x7fffffff > 0x7f800000 {
		h = w>>16 | 0x40 // stays NaN when cut
	}
	return uint16(h)
}

// FromBF16 is the number h in BF16.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
