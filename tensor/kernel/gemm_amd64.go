package kernel

// The micro-kernels: see the type tile. At most 14 rows (28 in the narrow ones) with AVX-512, 6 (12) with AVX2; wide tiles are two
// vectors wide, narrow ones one. With AVX2, whole vectors of B are read at the right edge.

//go:noescape
func gemmF32WideAVX512(t *tile)

//go:noescape
func gemmF32NarrowAVX512(t *tile)

// gemmF32FewAVX512 is a tile of at most 28 rows and 4 columns. A's rows are contiguous, and B has 4 numbers a step.
//
//go:noescape
func gemmF32FewAVX512(t *tile)

//go:noescape
func gemmF64WideAVX512(t *tile)

//go:noescape
func gemmF64NarrowAVX512(t *tile)

//go:noescape
func gemmF32WideAVX2(t *tile)

//go:noescape
func gemmF32NarrowAVX2(t *tile)

//go:noescape
func gemmF64WideAVX2(t *tile)

//go:noescape
func gemmF64NarrowAVX2(t *tile)

//go:noescape
func transposeF32AVX512(b *block)

//go:noescape
func transposeF64AVX512(b *block)

//go:noescape
func transposeF32AVX2(b *block)

//go:noescape
func transposeF64AVX2(b *block)

//go:noescape
func copyF32AVX512(b *block)

//go:noescape
func copyF32AVX2(b *block)

//go:noescape
func copyF64AVX512(b *block)

//go:noescape
func copyF64AVX2(b *block)

// multiply runs a micro-kernel.
func multiply[T Float](isa ISA, wide bool, t *tile) {
	switch {
	case isa == AVX512 && single[T]() && wide:
		gemmF32WideAVX512(t)
	case isa == AVX512 && single[T]():
		gemmF32NarrowAVX512(t)
	case isa == AVX512 && wide:
		gemmF64WideAVX512(t)
	case isa == AVX512:
		gemmF64NarrowAVX512(t)
	case single[T]() && wide:
		gemmF32WideAVX2(t)
	case single[T]():
		gemmF32NarrowAVX2(t)
	case wide:
		gemmF64WideAVX2(t)
	default:
		gemmF64NarrowAVX2(t)
	}
}

// multiplyFew runs the micro-kernel of the few last columns.
func multiplyFew(_ ISA, t *tile) { gemmF32FewAVX512(t) }

// turnBlock runs a transposing kernel.
func turnBlock[T Float](isa ISA, b *block) {
	switch {
	case isa == AVX512 && single[T]():
		transposeF32AVX512(b)
	case isa == AVX512:
		transposeF64AVX512(b)
	case single[T]():
		transposeF32AVX2(b)
	default:
		transposeF64AVX2(b)
	}
}

// copyBlock runs a copying kernel.
func copyBlock[T Float](isa ISA, b *block) {
	switch {
	case isa == AVX512 && single[T]():
		copyF32AVX512(b)
	case isa == AVX512:
		copyF64AVX512(b)
	case single[T]():
		copyF32AVX2(b)
	default:
		copyF64AVX2(b)
	}
}

//go:noescape
func zerosAVX512(t *zeros)

//go:noescape
func zerosAVX2(t *zeros)

// presentAVX512 sets bit j of words[i] where a[i*aRow + 4*j] is not zero, for at most 64 columns; aRow is in bytes.
//
//go:noescape
func presentAVX512(a *float32, aRow, rows, columns int, words *uint64)

//go:noescape
func presentAVX2(a *float32, aRow, rows, columns int, words *uint64)

// multiplyZeros runs the kernel that leaves out the zeros of A.
func multiplyZeros(isa ISA, t *zeros) {
	if isa == AVX512 {
		zerosAVX512(t)
	} else {
		zerosAVX2(t)
	}
}

// present says in words which numbers of rows of A are not zero.
func present(isa ISA, a []float32, lda, rows, columns int, words []uint64) {
	if isa == AVX512 {
		presentAVX512(&a[0], 4*lda, rows, columns, &words[0])
	} else {
		presentAVX2(&a[0], 4*lda, rows, columns, &words[0])
	}
}
