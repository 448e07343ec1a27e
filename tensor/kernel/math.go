package kernel

import "math"

func sqrt[T Float](x T) T { return T(math.Sqrt(float64(x))) } // for float32 too: float64 has more than twice its digits

func abs[T Float](x T) T { return T(math.Abs(float64(x))) }

// Exp is e to the power x[i].
func Exp[T Float](isa ISA, dst, x []T) { each(dst, x, math.Exp) }

// Log is the natural logarithm.
func Log[T Float](isa ISA, dst, x []T) { each(dst, x, math.Log) }

// Tanh is the hyperbolic tangent.
func Tanh[T Float](isa ISA, dst, x []T) { each(dst, x, math.Tanh) }

// Sigmoid is 1 / (1 + e^-x).
func Sigmoid[T Float](isa ISA, dst, x []T) {
	each(dst, x, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })
}

// Erf is the error function.
func Erf[T Float](isa ISA, dst, x []T) { each(dst, x, math.Erf) }

// GELU is x·Φ(x), with the exact Φ.
func GELU[T Float](isa ISA, dst, x []T) {
	each(dst, x, func(x float64) float64 { return x * 0.5 * math.Erfc(-x/math.Sqrt2) })
}

func each[T Float](dst, x []T, f func(float64) float64) {
	for i := range dst {
		dst[i] = T(f(float64(x[i])))
	}
}

// TanhGrad is dy · (1 - y²) of the output y.
func TanhGrad[T Float](isa ISA, dst, dy, y []T) {
	for i := range dst {
		dst[i] = dy[i] * (1 - T(y[i]*y[i]))
	}
}

// SigmoidGrad is dy · y · (1 - y) of the output y.
func SigmoidGrad[T Float](isa ISA, dst, dy, y []T) {
	for i := range dst {
		dst[i] = dy[i] * T(y[i]*(1-y[i]))
	}
}

// GELUGrad is dy · (Φ(x) + x·φ(x)) of the input x.
func GELUGrad[T Float](isa ISA, dst, dy, x []T) {
	for i := range dst {
		v := float64(x[i])
		g := 0.5*math.Erfc(-v/math.Sqrt2) + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi)
		dst[i] = dy[i] * T(g)
	}
}
