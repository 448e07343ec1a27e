package kernel

import "math"

// fma32 is a*b + c rounded once, for every float32, which is what the assembly's fused multiply-add computes.
//
// The product of two float32 is exact in float64, but its sum with c is not: rounding that sum to float64 and the result to float32
// rounds twice. That is wrong only where the first rounding lands on a tie of the second: halfway between two float32, which has one
// bit below the last one of a normal float32, or where the result is denormal and so has fewer bits. Both are rare. Under the race detector
// the pointers in math.Float64bits are not checked: that took half of the time.
//
//go:norace
//go:nocheckptr
func fma32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if bits := math.Float64bits(s); bits&(1<<29-1) == 1<<28 || bits&(1<<63-1) < 897<<52 {
		return fma32Odd(a, b, c)
	}
	return float32(s)
}

// fma32Odd is fma32 wherever it is. It rounds the sum to odd first (an inexact sum takes the neighbour whose last bit is 1), which
// cannot land on a tie, and 53 bits are enough for it to be right (Boldo and Melquiond 2008).
//
//go:noinline
//go:norace
func fma32Odd(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	// The exact error of the addition (Knuth's two-sum).
	v := s - p
	e := (p - (s - v)) + (z - v)
	if e != 0 && !math.IsNaN(e) { // e is NaN where s is infinite or NaN, and then needs no correction
		bits := math.Float64bits(s)
		if bits&1 == 0 {
			if (e > 0) == (s > 0) {
				bits++
			} else {
				bits--
			}
			s = math.Float64frombits(bits)
		}
	}
	return float32(s)
}

// fma is a*b + c rounded once.
//
//go:norace
func fma[T Float](a, b, c T) T {
	if single[T]() {
		return T(fma32(float32(a), float32(b), float32(c)))
	}
	return T(math.FMA(float64(a), float64(b), float64(c)))
}
