package kernel

import "unsafe"

//go:noescape
func dots4F32AVX512(t *stripe)

//go:noescape
func dots4F64AVX512(t *stripe)

//go:noescape
func dots8F64AVX512(t *stripe)

//go:noescape
func dots8F32AVX2(t *stripe)

//go:noescape
func dots8F64AVX2(t *stripe)

//go:noescape
func dots4F32AVX2(t *stripe)

//go:noescape
func dots4F64AVX2(t *stripe)

//go:noescape
func leaf8F32AVX512(t *stripe)

//go:noescape
func leaf8F64AVX512(t *stripe)

//go:noescape
func leaf4F32AVX512(t *stripe)

//go:noescape
func leaf1F32AVX512(t *stripe)

//go:noescape
func leaf4F64AVX512(t *stripe)

//go:noescape
func leaf1F64AVX512(t *stripe)

//go:noescape
func leaf8F32AVX2(t *stripe)

//go:noescape
func leaf4F32AVX2(t *stripe)

//go:noescape
func leaf1F32AVX2(t *stripe)

//go:noescape
func leaf8F64AVX2(t *stripe)

//go:noescape
func leaf4F64AVX2(t *stripe)

//go:noescape
func leaf1F64AVX2(t *stripe)

//go:noescape
func readAVX512(x unsafe.Pointer, n int) float32

//go:noescape
func readAVX2(x unsafe.Pointer, n int) float32

// dotRows returns how many of m rows dots takes at once, 0 if there is no such kernel.
func dotRows[T Float](isa ISA, m int) int {
	switch {
	case m >= 8 && (isa == AVX2 || isa == AVX512 && !single[T]()):
		return 8
	case isa >= AVX2 && m >= 4:
		return 4
	}
	return 0
}

// dots runs the kernel for a number of rows that dotRows returned.
func dots[T Float](isa ISA, rows int, t *stripe) {
	switch {
	case isa == AVX512 && rows == 8:
		dots8F64AVX512(t)
	case rows == 8 && single[T]():
		dots8F32AVX2(t)
	case rows == 8:
		dots8F64AVX2(t)
	case isa == AVX512 && single[T]():
		dots4F32AVX512(t)
	case isa == AVX512:
		dots4F64AVX512(t)
	case single[T]():
		dots4F32AVX2(t)
	default:
		dots4F64AVX2(t)
	}
}

// addRows adds rows (8, 4 or 1) with factors to a vector.
func addRows[T Float](isa ISA, rows int, t *stripe) {
	switch {
	case isa == AVX512 && single[T]() && rows == 8:
		leaf8F32AVX512(t)
	case isa == AVX512 && rows == 8:
		leaf8F64AVX512(t)
	case isa == AVX512 && single[T]() && rows == 4:
		leaf4F32AVX512(t)
	case isa == AVX512 && single[T]():
		leaf1F32AVX512(t)
	case isa == AVX512 && rows == 4:
		leaf4F64AVX512(t)
	case isa == AVX512:
		leaf1F64AVX512(t)
	case single[T]() && rows == 8:
		leaf8F32AVX2(t)
	case rows == 8:
		leaf8F64AVX2(t)
	case single[T]() && rows == 4:
		leaf4F32AVX2(t)
	case single[T]():
		leaf1F32AVX2(t)
	case rows == 4:
		leaf4F64AVX2(t)
	default:
		leaf1F64AVX2(t)
	}
}

func readSum(isa ISA, x unsafe.Pointer, n int) float32 {
	if isa == AVX512 {
		return readAVX512(x, n)
	}
	return readAVX2(x, n)
}
