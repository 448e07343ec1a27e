package kernel

import "math"

// The element-wise kernels. dst may be an operand itself, but must not overlap one otherwise; all slices have dst's length or more.
// Every product is rounded before it is added to something, so that each element has the same bits on every ISA, Go included.

// Add is dst[i] = a[i] + b[i].
func Add[T Float](isa ISA, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			addF32(isa, as32(dst), as32(a), as32(b))
		} else {
			addF64(isa, as64(dst), as64(a), as64(b))
		}
		return
	}
	read(a)
	read(b)
	wrote(dst)
	addGo(dst, a, b)
}

//go:norace
func addGo[T Float](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Sub is dst[i] = a[i] - b[i].
func Sub[T Float](isa ISA, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			subF32(isa, as32(dst), as32(a), as32(b))
		} else {
			subF64(isa, as64(dst), as64(a), as64(b))
		}
		return
	}
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

// Mul is dst[i] = a[i] * b[i].
func Mul[T Float](isa ISA, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			mulF32(isa, as32(dst), as32(a), as32(b))
		} else {
			mulF64(isa, as64(dst), as64(a), as64(b))
		}
		return
	}
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// Div is dst[i] = a[i] / b[i].
func Div[T Float](isa ISA, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			divF32(isa, as32(dst), as32(a), as32(b))
		} else {
			divF64(isa, as64(dst), as64(a), as64(b))
		}
		return
	}
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// Max is the larger of a[i] and b[i], or NaN where either is: a[i] if it is greater or NaN, else b[i].
func Max[T Float](isa ISA, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			maxF32(isa, as32(dst), as32(a), as32(b))
		} else {
			maxF64(isa, as64(dst), as64(a), as64(b))
		}
		return
	}
	for i := range dst {
		dst[i] = nanOr(a[i], larger(a[i], b[i]))
	}
}

// Min is the smaller of a[i] and b[i], or NaN where either is: a[i] if it is less or NaN, else b[i].
func Min[T Float](isa ISA, dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			minF32(isa, as32(dst), as32(a), as32(b))
		} else {
			minF64(isa, as64(dst), as64(a), as64(b))
		}
		return
	}
	for i := range dst {
		dst[i] = nanOr(a[i], smaller(a[i], b[i]))
	}
}

// larger and smaller are what the instructions VMAXPS and VMINPS compute.
func larger[T Float](a, b T) T {
	if a > b {
		return a
	}
	return b
}

func smaller[T Float](a, b T) T {
	if a < b {
		return a
	}
	return b
}

// nanOr is a if that is NaN, else b.
func nanOr[T Float](a, b T) T {
	if a != a {
		return a
	}
	return b
}

// Neg is dst[i] = -x[i].
func Neg[T Float](isa ISA, dst, x []T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			negF32(isa, as32(dst), as32(x))
		} else {
			negF64(isa, as64(dst), as64(x))
		}
		return
	}
	for i := range dst {
		dst[i] = -x[i]
	}
}

// Abs is dst[i] = |x[i]|.
func Abs[T Float](isa ISA, dst, x []T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			absF32(isa, as32(dst), as32(x))
		} else {
			absF64(isa, as64(dst), as64(x))
		}
		return
	}
	for i := range dst {
		dst[i] = abs(x[i])
	}
}

// Square is dst[i] = x[i] * x[i].
func Square[T Float](isa ISA, dst, x []T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			squareF32(isa, as32(dst), as32(x))
		} else {
			squareF64(isa, as64(dst), as64(x))
		}
		return
	}
	for i := range dst {
		dst[i] = x[i] * x[i]
	}
}

// Sqrt is the correctly rounded square root.
func Sqrt[T Float](isa ISA, dst, x []T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			sqrtF32(isa, as32(dst), as32(x))
		} else {
			sqrtF64(isa, as64(dst), as64(x))
		}
		return
	}
	for i := range dst {
		dst[i] = sqrt(x[i])
	}
}

// ReLU is 0 if 0 > x[i], else x[i]: a NaN passes, so that a diverging run is seen.
func ReLU[T Float](isa ISA, dst, x []T) {
	if isa >= AVX2 {
		MaxScalar(isa, dst, x, 0)
		return
	}
	// A branch on the sign of a number is often mispredicted; on the bits, the compiler does without one.
	x = x[:len(dst)]
	if single[T]() {
		out := as32(dst)
		for i, v := range as32(x) {
			b := math.Float32bits(v)
			if b-0x80000001 < 0x7f800000 { // from the smallest number below 0 to -Inf
				b = 0
			}
			out[i] = math.Float32frombits(b)
		}
		return
	}
	out := as64(dst)
	for i, v := range as64(x) {
		b := math.Float64bits(v)
		if b-0x8000000000000001 < 0x7ff0000000000000 {
			b = 0
		}
		out[i] = math.Float64frombits(b)
	}
}

// ReLUGrad is dy[i] if y[i] > 0, else +0; y is the input or the output of ReLU. The gradient at 0 is 0.
func ReLUGrad[T Float](isa ISA, dst, dy, y []T) {
	dy, y = dy[:len(dst)], y[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			reluGradF32(isa, as32(dst), as32(dy), as32(y))
		} else {
			reluGradF64(isa, as64(dst), as64(dy), as64(y))
		}
		return
	}
	if single[T]() {
		out, dy := as32(dst), as32(dy)
		for i, v := range as32(y) {
			b := math.Float32bits(dy[i])
			if math.Float32bits(v)-1 >= 0x7f800000 { // neither a number above 0 nor Inf
				b = 0
			}
			out[i] = math.Float32frombits(b)
		}
		return
	}
	out, d := as64(dst), as64(dy)
	for i, v := range as64(y) {
		b := math.Float64bits(d[i])
		if math.Float64bits(v)-1 >= 0x7ff0000000000000 {
			b = 0
		}
		out[i] = math.Float64frombits(b)
	}
}

// Axpy is y[i] += alpha * x[i].
func Axpy[T Float](isa ISA, y []T, alpha T, x []T) {
	Triad(isa, y, y, alpha, x)
}

// Triad is dst[i] = a[i] + s * b[i], McCalpin's measure of memory bandwidth.
func Triad[T Float](isa ISA, dst, a []T, s T, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			triadF32(isa, as32(dst), as32(a), as32(b), float32(s))
		} else {
			triadF64(isa, as64(dst), as64(a), as64(b), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = a[i] + T(s*b[i])
	}
}

// AddInto is p[i] += u[i]: how every strategy applies an update.
func AddInto[T Float](isa ISA, p, u []T) { Add(isa, p, p, u) }

// ScaleInto is g[i] = sum[i] / weight, a true division: the one place where a sum over rows becomes a mean.
func ScaleInto[T Float](isa ISA, g, sum []T, weight T) { DivScalar(isa, g, sum, weight) }

// Fill is dst[i] = s.
func Fill[T Float](isa ISA, dst []T, s T) {
	for i := range min(64, len(dst)) {
		dst[i] = s
	}
	for n := 64; n < len(dst); {
		n += copy(dst[n:min(len(dst), n+piece)], dst[:n])
	}
}
