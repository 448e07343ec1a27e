package kernel

// ColSums is dst[c] = the sum over rows of x[r*ld+c], for c < len(dst): the gradient of a bias. Leaves of LeafRows rows are added one
// row after the other, from zero, and leaves pairwise. Any cut by columns gives the same bits, and so does a cut into parts of
// LeafRows·2^k rows whose sums are added along the tree of FoldSums.
func ColSums[T Float](isa ISA, dst, x []T, rows, ld int) {
	if rows <= LeafRows {
		colSumLeaf(isa, dst, x, rows, ld)
		return
	}
	for c := 0; c < len(dst); c += strip {
		colSumStrip(isa, dst[c:min(c+strip, len(dst))], x[c:], rows, ld)
	}
}

const strip = 64 // columns whose stack of partial sums fits in first-level cache

func colSumStrip[T Float](isa ISA, dst, x []T, rows, ld int) {
	var partials [28][strip]T // 2^28 leaves
	w, depth := len(dst), 0
	for leaf := 0; leaf*LeafRows < rows; leaf++ {
		r := leaf * LeafRows
		colSumLeaf(isa, partials[depth][:w], x[r*ld:], min(LeafRows, rows-r), ld)
		depth++
		for m := leaf; m&1 == 1; m >>= 1 {
			depth--
			AddInto(isa, partials[depth-1][:w], partials[depth][:w])
		}
	}
	for ; depth > 1; depth-- {
		AddInto(isa, partials[depth-2][:w], partials[depth-1][:w])
	}
	copy(dst, partials[0][:w])
}

// colSumLeaf adds up to LeafRows rows in ascending order, from zero.
func colSumLeaf[T Float](isa ISA, dst, x []T, rows, ld int) {
	if isa >= AVX2 && rows > 0 && len(dst) > 0 {
		_ = x[(rows-1)*ld+len(dst)-1]
		for c := 0; c < len(dst); c += piece {
			n := min(piece, len(dst)-c)
			if single[T]() {
				colSumLeafF32(isa, &as32(dst)[c], &as32(x)[c], rows, n, ld)
			} else {
				colSumLeafF64(isa, &as64(dst)[c], &as64(x)[c], rows, n, ld)
			}
		}
		return
	}
	clear(dst)
	for r := range rows {
		row := x[r*ld:][:len(dst)]
		for c, v := range row {
			dst[c] += v
		}
	}
}
