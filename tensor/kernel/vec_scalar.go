package kernel

// The element-wise kernels of a slice and a number.

// AddScalar is dst[i] = x[i] + s.
func AddScalar[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			addScalarF32(isa, as32(dst), as32(x), float32(s))
		} else {
			addScalarF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = x[i] + s
	}
}

// ScalarSub is dst[i] = s - x[i]. (For x[i] - s add -s: it has the same bits.)
func ScalarSub[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			scalarSubF32(isa, as32(dst), as32(x), float32(s))
		} else {
			scalarSubF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = s - x[i]
	}
}

// Scale is dst[i] = x[i] * s.
func Scale[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			scaleF32(isa, as32(dst), as32(x), float32(s))
		} else {
			scaleF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = x[i] * s
	}
}

// DivScalar is dst[i] = x[i] / s, a true division.
func DivScalar[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			divScalarF32(isa, as32(dst), as32(x), float32(s))
		} else {
			divScalarF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = x[i] / s
	}
}

// ScalarDiv is dst[i] = s / x[i].
func ScalarDiv[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			scalarDivF32(isa, as32(dst), as32(x), float32(s))
		} else {
			scalarDivF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = s / x[i]
	}
}

// MaxScalar is the larger of s and x[i]: s if s > x[i], else x[i].
func MaxScalar[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			maxScalarF32(isa, as32(dst), as32(x), float32(s))
		} else {
			maxScalarF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = larger(s, x[i])
	}
}

// Clip is x[i], or s or -s, whichever is nearer, where it is beyond them; s >= 0. NaN stays NaN.
func Clip[T Float](isa ISA, dst, x []T, s T) {
	x = x[:len(dst)]
	if isa >= AVX2 {
		if single[T]() {
			clipF32(isa, as32(dst), as32(x), float32(s))
		} else {
			clipF64(isa, as64(dst), as64(x), float64(s))
		}
		return
	}
	for i := range dst {
		dst[i] = larger(-s, smaller(s, x[i]))
	}
}
