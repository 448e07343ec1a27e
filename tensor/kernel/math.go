package kernel

import (
	"math"

	"github.com/trivium-ml/trivium/internal/elementary"
)

func sqrt[T Float](x T) T { return T(math.Sqrt(float64(x))) } // for float32 too: float64 has more than twice its digits

func abs[T Float](x T) T { return T(math.Abs(float64(x))) }

// each applies the function of T's size.
func each[T Float](dst, x []T, f32 func(float32) float32, f64 func(float64) float64) {
	x = x[:len(dst)]
	if single[T]() {
		for i, v := range as32(x) {
			as32(dst)[i] = f32(v)
		}
		return
	}
	for i, v := range as64(x) {
		as64(dst)[i] = f64(v)
	}
}

// Exp is e to the power x[i].
func Exp[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 && single[T]() {
		expF32(isa, as32(dst), as32(x[:len(dst)]))
		return
	}
	each(dst, x, exp32, elementary.Exp)
}

// Log is the natural logarithm: -Inf of 0, NaN of what is negative.
func Log[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 && single[T]() {
		logF32(isa, as32(dst), as32(x[:len(dst)]))
		return
	}
	each(dst, x, log32, elementary.Log)
}

// Tanh is the hyperbolic tangent.
func Tanh[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 && single[T]() {
		tanhF32(isa, as32(dst), as32(x[:len(dst)]))
		return
	}
	each(dst, x, tanh32, tanh64)
}

// Sigmoid is 1 / (1 + e^-x), accurate where it is almost 0 too.
func Sigmoid[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 && single[T]() {
		sigmoidF32(isa, as32(dst), as32(x[:len(dst)]))
		return
	}
	each(dst, x, func(x float32) float32 { s, _ := sigmoid32(x); return s }, func(x float64) float64 { s, _ := sigmoid64(x); return s })
}

// Erf is the error function.
func Erf[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 && single[T]() {
		erfF32(isa, as32(dst), as32(x[:len(dst)]))
		return
	}
	each(dst, x, erf32, erf64)
}

// GELU is x·Φ(x), Φ being the distribution function of the standard normal distribution, not an approximation of it.
func GELU[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 && single[T]() {
		geluF32(isa, as32(dst), as32(x[:len(dst)]))
		return
	}
	each(dst, x, gelu32, gelu64)
}

// TanhGrad is dy · (1 - y²) of the output y.
func TanhGrad[T Float](isa ISA, dst, dy, y []T) {
	dy, y = dy[:len(dst)], y[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			tanhGradF32(isa, as32(dst), as32(dy), as32(y))
		} else {
			tanhGradF64(isa, as64(dst), as64(dy), as64(y))
		}
		return
	}
	for i := range dst {
		dst[i] = dy[i] * (1 - T(y[i]*y[i]))
	}
}

// SigmoidGrad is dy · y · (1 - y) of the output y.
func SigmoidGrad[T Float](isa ISA, dst, dy, y []T) {
	dy, y = dy[:len(dst)], y[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			sigmoidGradF32(isa, as32(dst), as32(dy), as32(y))
		} else {
			sigmoidGradF64(isa, as64(dst), as64(dy), as64(y))
		}
		return
	}
	for i := range dst {
		dst[i] = dy[i] * T(y[i]*(1-y[i]))
	}
}

// GELUGrad is dy · (Φ(x) + x·φ(x)) of the input x.
func GELUGrad[T Float](isa ISA, dst, dy, x []T) {
	dy, x = dy[:len(dst)], x[:len(dst)]
	if single[T]() {
		dst, dy, x := as32(dst), as32(dy), as32(x)
		if isa >= AVX2 {
			geluGradF32(isa, dst, dy, x)
			return
		}
		for i, v := range x {
			dst[i] = float32(float64(dy[i]) * geluSlope32(v))
		}
		return
	}
	for i := range dst {
		dst[i] = dy[i] * T(geluSlope64(float64(x[i])))
	}
}
