package kernel

import (
	"encoding/binary"
	"math"
)

// The kernels of codecs. Each element has the same bits on every ISA.

// RoundBias makes the last bits of a small float32's sum with it the nearest whole number, ties to even, in two's complement.
const RoundBias = 3 << 22

const biasBits = 0x4b400000 // of RoundBias

// Peak is the largest |x[i]|, and 0 of nothing. A NaN is larger than all numbers.
func Peak(isa ISA, x []float32) float32 {
	var top uint32 // the bits of absolute values are in their order, with NaN above all
	if n := codeVectors(isa, len(x)); n > 0 {
		top = peakBits(&x[0], n)
		x = x[n:]
	}
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(top)
}

// ToInt8 is q[i] = x[i]·by, rounded to the nearest whole number, ties to even, as an int8. No product may be beyond ±127.
func ToInt8(isa ISA, q []byte, x []float32, by float32) {
	q = q[:len(x)]
	if n := codeVectors(isa, len(x)); n > 0 {
		toInt8(&q[0], &x[0], n, by)
		q, x = q[n:], x[n:]
	}
	for i, v := range x {
		q[i] = byte(math.Float32bits(float32(v*by) + RoundBias))
	}
}

// ToInt8Keep is ToInt8, and leaves in x what it drops: x[i] -= q[i]·scale, or 0 where that is not finite.
func ToInt8Keep(isa ISA, q []byte, x []float32, by, scale float32) {
	q = q[:len(x)]
	if n := codeVectors(isa, len(x)); n > 0 {
		toInt8Keep(&q[0], &x[0], n, by, scale)
		q, x = q[n:], x[n:]
	}
	for i, v := range x {
		q[i] = byte(math.Float32bits(float32(v*by) + RoundBias))
		x[i] = finiteOr0(v - float32(float32(int8(q[i]))*scale))
	}
}

// FromInt8 is dst[i] = q[i]·scale, of q[i] as an int8.
func FromInt8(isa ISA, dst []float32, q []byte, scale float32) {
	q = q[:len(dst)]
	if n := codeVectors(isa, len(dst)); n > 0 {
		fromInt8(&dst[0], &q[0], n, scale)
		dst, q = dst[n:], q[n:]
	}
	for i := range dst {
		dst[i] = float32(int8(q[i])) * scale
	}
}

// AddInt8 is dst[i] += q[i]·scale, of q[i] as an int8.
func AddInt8(isa ISA, dst []float32, q []byte, scale float32) {
	q = q[:len(dst)]
	if n := codeVectors(isa, len(dst)); n > 0 {
		addInt8(&dst[0], &q[0], n, scale)
		dst, q = dst[n:], q[n:]
	}
	for i := range dst {
		dst[i] += float32(float32(int8(q[i])) * scale)
	}
}

// AbsSum adds |x[i]| to s[i%4].
func AbsSum(isa ISA, s *[4]float64, x []float32) {
	if n := codeVectors(isa, len(x)); n > 0 {
		absSum(s, &x[0], n)
		x = x[n:]
	}
	for i, v := range x {
		s[i&3] += math.Abs(float64(v))
	}
}

// SquareSum adds x[i]², which float64 holds exactly, to s[i%4].
func SquareSum(isa ISA, s *[4]float64, x []float32) {
	if n := codeVectors(isa, len(x)); n > 0 {
		squareSum(s, &x[0], n)
		x = x[n:]
	}
	for i, v := range x {
		s[i&3] += float64(float64(v) * float64(v))
	}
}

// Signs makes bit i%8 of p[i/8] the sign of x[i]: 1 below zero. Bits beyond the last are 0.
func Signs(isa ISA, p []byte, x []float32) {
	p = p[:(len(x)+7)/8]
	if n := codeVectors(isa, len(x)); n > 0 {
		signs(&p[0], &x[0], n)
		p, x = p[n/8:], x[n:]
	}
	clear(p)
	for i, v := range x {
		p[i>>3] |= byte(math.Float32bits(v)>>31) << (i & 7)
	}
}

// KeepSigns leaves in x what Signs with a scale drops: x[i] -= ±scale, with the sign of x[i] before, or 0 where that is not finite.
func KeepSigns(isa ISA, x []float32, scale float32) {
	if n := codeVectors(isa, len(x)); n > 0 {
		keepSigns(&x[0], n, scale)
		x = x[n:]
	}
	up := math.Float32bits(scale)
	for i, v := range x {
		x[i] = finiteOr0(v - math.Float32frombits(up^math.Float32bits(v)&0x80000000))
	}
}

// FromSigns is dst[i] = ±scale, with the signs of p.
func FromSigns(isa ISA, dst []float32, p []byte, scale float32) {
	p = p[:(len(dst)+7)/8]
	if n := codeVectors(isa, len(dst)); n > 0 {
		fromSigns(&dst[0], &p[0], n, scale)
		dst, p = dst[n:], p[n/8:]
	}
	up := math.Float32bits(scale)
	for i := range dst {
		dst[i] = math.Float32frombits(up ^ uint32(p[i>>3]>>(i&7))<<31)
	}
}

// AddSigns is dst[i] += ±scale, with the signs of p.
func AddSigns(isa ISA, dst []float32, p []byte, scale float32) {
	p = p[:(len(dst)+7)/8]
	if n := codeVectors(isa, len(dst)); n > 0 {
		addSigns(&dst[0], &p[0], n, scale)
		dst, p = dst[n:], p[n/8:]
	}
	up := math.Float32bits(scale)
	for i := range dst {
		dst[i] += math.Float32frombits(up ^ uint32(p[i>>3]>>(i&7))<<31)
	}
}

// Codes writes the levels of x, each plus most, as codes of width bits, the first in the lowest, and returns how many bytes these are: of
// eight values width bytes. x has RoundBias plus the level, whole numbers from -most to most; of the last eight values those beyond the
// last are code 0. What is written beyond the codes, up to the end of p, is any.
func Codes(isa ISA, p []byte, x []float32, width, most int) (size int) {
	size = (len(x)*width + 7) / 8
	p = p[:max(len(p), size)]
	if groups := codeGroups(isa, len(x), len(p), width); groups > 0 {
		codes(&p[0], &x[0], groups, width, most)
		x, p = x[8*groups:], p[groups*width:]
	}
	bias := uint32(biasBits - most)
	for ; len(x) >= 8 && len(p) >= 8; x, p = x[8:], p[width:] {
		var word uint64
		for k := 7; k >= 0; k-- {
			word = word<<(width&63) + uint64(math.Float32bits(x[k])-bias)
		}
		binary.LittleEndian.PutUint64(p, word)
	}
	for len(x) > 0 {
		var word uint64
		for i, v := range x[:min(8, len(x))] {
			word |= uint64(math.Float32bits(v)-bias) << (i * width)
		}
		x = x[min(8, len(x)):]
		for k := range min(width, len(p)) {
			p[k] = byte(word >> (8 * k))
		}
		p = p[min(width, len(p)):]
	}
	return size
}

// FromCodes is dst[i] = (c - most)·scale, of the codes c that Codes writes.
func FromCodes(isa ISA, dst []float32, p []byte, width, most int, scale float32) {
	if groups := codeGroups(isa, len(dst), len(p), width); groups > 0 {
		fromCodes(&dst[0], &p[0], groups, width, most, scale)
		dst, p = dst[8*groups:], p[groups*width:]
	}
	for ; len(dst) >= 8 && len(p) >= 8; dst, p = dst[8:], p[width:] {
		word := binary.LittleEndian.Uint64(p)
		for k := range dst[:8] {
			dst[k] = float32(int(word&(1<<width-1))-most) * scale
			word >>= width & 63
		}
	}
	for i := range dst {
		dst[i] = float32(codeAt(p, i, width)-most) * scale
	}
}

// AddCodes is dst[i] += (c - most)·scale, of the codes c that Codes writes.
func AddCodes(isa ISA, dst []float32, p []byte, width, most int, scale float32) {
	if groups := codeGroups(isa, len(dst), len(p), width); groups > 0 {
		addCodes(&dst[0], &p[0], groups, width, most, scale)
		dst, p = dst[8*groups:], p[groups*width:]
	}
	for ; len(dst) >= 8 && len(p) >= 8; dst, p = dst[8:], p[width:] {
		word := binary.LittleEndian.Uint64(p)
		for k := range dst[:8] {
			dst[k] += float32(float32(int(word&(1<<width-1))-most) * scale)
			word >>= width & 63
		}
	}
	for i := range dst {
		dst[i] += float32(float32(codeAt(p, i, width)-most) * scale)
	}
}

// codeAt is the i-th code of p, of at most 8 bits.
func codeAt(p []byte, i, width int) int {
	at := i * width
	word := uint32(p[at>>3])
	if at>>3+1 < len(p) {
		word |= uint32(p[at>>3+1]) << 8
	}
	return int(word >> (at & 7) & (1<<width - 1))
}

// codeGroups is how many groups of eight values are the assembly's, which takes 8 bytes for each, whatever the width.
func codeGroups(isa ISA, values, bytes, width int) int {
	if isa < AVX2 || bytes < 8 {
		return 0
	}
	return min(values/8, (bytes-8)/width+1)
}

// AtLeast writes to at the index i of each x[i] that is as large as least or larger, in their order, plus from, and returns how many these
// are; at has as much room as x has values. Sizes are the bits of |x[i]|, and least is 1 or more: NaN is larger than all numbers.
func AtLeast(isa ISA, at []int32, x []float32, least uint32, from int32) (n int) {
	at = at[:len(x)]
	vectors := codeVectors(isa, len(x))
	if vectors > 0 {
		n = atLeast(&at[0], &x[0], vectors, int32(least-1), from)
	}
	for i, v := range x[vectors:] {
		if math.Float32bits(v)&0x7fffffff >= least {
			at[n] = from + int32(vectors+i)
			n++
		}
	}
	return n
}

// codeUnit is how many values the assembly takes at once.
const codeUnit = 8

// codeVectors is how many of n values are the assembly's.
func codeVectors(isa ISA, n int) int {
	if isa < AVX2 {
		return 0
	}
	return n &^ (codeUnit - 1)
}

func finiteOr0(x float32) float32 {
	if x-x != 0 {
		return 0
	}
	return x
}
