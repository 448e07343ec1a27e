package kernel

import (
	"math/bits"
	"unsafe"
)

// A zeros is the argument of the kernel that leaves out the zeros of op(A): m rows of C of n vectors, at most eight, of whose last so many
// columns are C's as tail says, and at most 64 terms of each sum, of which those count that the row's word has a bit for. Rows of B are whole
// vectors. Steps and strides are in bytes.
//
//	C[i,:] = (opens ? 0 : C[i,:]) + Σ a[i*aRow + p*aStep] · B[p,:], in ascending p
type zeros struct {
	a           unsafe.Pointer // offset 0
	aRow, aStep int            // 8, 16
	b           unsafe.Pointer // 24
	bRow        int            // 32
	c           unsafe.Pointer // 40
	cRow        int            // 48
	words       *uint64        // 56
	m, n        int            // 64, 72
	opens       int            // 80
	tail        int            // 88
}

const (
	zerosTerms   = 64  // bits of a word; their rows of B stay in first-level cache
	zerosRows    = 128 // of C: some microseconds
	zerosVectors = 8   // of C: a fused multiply-add of each takes as long as one's result is waited for
)

// GemmZeros is C = epilogue(op(A)·B) for an A that has many zeros: it is Gemm, but that terms whose element of A is zero are left out
// (of float64 it is Gemm). The bits are those of Gemm, but for two cases: a zero does not meet an infinity or a NaN of B, and a sum of
// nothing but products that round to -0 may keep that sign. They do not depend on the ISA (Go excepted), nor on how C is cut.
func GemmZeros[T Float](isa ISA, ta bool, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, ep Epilogue[T], w *Workspace[T]) {
	if m <= 0 || n <= 0 || k <= 0 || !single[T]() {
		Gemm(isa, ta, false, m, n, k, a, lda, b, ldb, c, ldc, ep, w)
		return
	}
	inside(a, ta, m, k, lda)
	inside(b, false, k, n, ldb)
	inside(c, false, m, n, ldc)
	if isa < AVX2 {
		reads(a, ta, m, k, lda)
		reads(b, false, k, n, ldb)
	}
	lanes := 16
	if isa >= AVX2 {
		lanes = tilingOf[float32](isa).lanes
	}
	most := roundUp(ceil(n, ceil(n, zerosVectors*lanes)), lanes)
	for j := 0; j < n; j += most {
		cols := min(most, n-j)
		e := Epilogue[float32]{Act: ep.Act, Accumulate: ep.Accumulate}
		if ep.Bias != nil {
			e.Bias = as32(ep.Bias[j : j+cols])
		}
		z := zerosProduct{isa: isa, ta: ta, n: cols, width: roundUp(cols, lanes), lda: lda, ldb: ldb, ldc: ldc, ep: e, w: any(w).(*Workspace[float32])}
		z.run(m, k, as32(a), as32(b[j:]), as32(c[j:]))
	}
}

// A zerosProduct is GemmZeros of at most eight vectors of columns. Sums are computed in C, but where that is read and written often, for a few
// terms each time, and its rows are not whole vectors on whole lines; then, and those of later blocks of terms, in a buffer in which they are.
type zerosProduct struct {
	isa           ISA
	ta            bool
	n, width      int
	lda, ldb, ldc int
	ep            Epilogue[float32]
	w             *Workspace[float32]
	words         [zerosRows]uint64
}

func (z *zerosProduct) run(m, k int, a, b, c []float32) {
	rows := min(m, zerosRows)
	if z.ta { // whose words are of as many terms, turned
		rows = min(m, zerosTerms)
		b, z.ldb = z.wholeVectors(k, b)
	}
	buf := room(&z.w.c, 2*rows*z.width)
	for i := 0; i < m; i += rows {
		mi, ci := min(rows, m-i), c[i*z.ldc:]
		total, block, ld := buf[:mi*z.width], buf[mi*z.width:2*mi*z.width], z.width
		direct := !z.ep.Accumulate && (z.ta || z.n == z.width && z.ldc%16 == 0 && misaligned(ci) == 0)
		if direct {
			total, ld = ci, z.ldc
		}
		for first := 0; first < k; first += depth32 {
			to, ldt := total, ld
			if first > 0 {
				to, ldt = block, z.width
			}
			for p := first; p < min(first+depth32, k); p += zerosTerms {
				z.terms(i, mi, p, min(zerosTerms, min(first+depth32, k)-p), p == first, a, b, to, ldt)
			}
			for r := 0; first > 0 && r < mi; r++ {
				AddInto(z.isa, total[r*ld:][:z.n], block[r*z.width:])
			}
		}
		if !direct || z.ep.Bias != nil || z.ep.Act != ActNone {
			finish(z.isa, mi, z.n, total, ld, ci, z.ldc, z.ep)
		}
	}
}

// terms adds k terms from p on to the sums of m rows from i on.
func (z *zerosProduct) terms(i, m, p, k int, opens bool, a, b, c []float32, ldc int) {
	row, step := z.lda, 1
	if z.ta {
		row, step = 1, z.lda
	}
	a, b = a[i*row+p*step:], b[p*z.ldb:]
	ldb := z.ldb
	if !z.ta {
		b, ldb = z.wholeVectors(k, b)
	}
	if z.isa < AVX2 {
		zerosGo(z.isa, opens, m, k, z.n, a, row, step, b, ldb, c, ldc)
		return
	}
	words := z.words[:]
	if z.ta {
		clear(words[k:zerosTerms])
		present(z.isa, a, z.lda, k, m, words)
		turnBits((*[zerosTerms]uint64)(words))
	} else {
		present(z.isa, a, z.lda, m, k, words)
	}
	lanes := tilingOf[float32](z.isa).lanes
	t := zeros{
		a: unsafe.Pointer(&a[0]), aRow: 4 * row, aStep: 4 * step, b: unsafe.Pointer(&b[0]), bRow: 4 * ldb, c: unsafe.Pointer(&c[0]), cRow: 4 * ldc,
		words: &words[0], m: m, n: z.width / lanes, tail: z.n - (z.width - lanes),
	}
	if opens {
		t.opens = 1
	}
	multiplyZeros(z.isa, &t)
}

// turnBits transposes a matrix of bits, of which x has a row in each word (Warren, "Hacker's Delight", 7-3).
func turnBits(x *[64]uint64) {
	mask := uint64(1<<32 - 1)
	for d := 32; d > 0; d >>= 1 {
		for i := 0; i < 64; i = (i + d + 1) &^ d {
			swap := (x[i]>>d ^ x[i+d]) & mask
			x[i] ^= swap << d
			x[i+d] ^= swap
		}
		mask ^= mask << (d / 2)
	}
}

// wholeVectors returns rows of B so that each is whole vectors on whole lines, in a copy where they are not.
func (z *zerosProduct) wholeVectors(rows int, b []float32) ([]float32, int) {
	if z.n == z.width && z.ldb%16 == 0 && misaligned(b) == 0 {
		return b, z.ldb
	}
	dst := room(&z.w.b, rows*z.width)
	if z.isa < AVX2 {
		for r := range rows {
			clear(dst[r*z.width+copy(dst[r*z.width:][:z.width], b[r*z.ldb:][:z.n]):][:z.width-z.n])
		}
		return dst, z.width
	}
	two := 2 * tilingOf[float32](z.isa).lanes
	for j := 0; j < z.n; j += two {
		copyBlock[float32](z.isa, &block{
			src: unsafe.Pointer(&b[j]), sRow: 4 * z.ldb, rows: min(two, z.n-j), cols: rows, dst: unsafe.Pointer(&dst[j]), dRow: 4 * z.width,
		})
	}
	return dst, z.width
}

// zerosGo is the portable twin of the kernels.
//
//go:norace
func zerosGo(isa ISA, opens bool, m, k, n int, a []float32, row, step int, b []float32, ldb int, c []float32, ldc int) {
	for i := range m {
		sum := c[i*ldc:][:n]
		if opens {
			clear(sum)
		}
		for p := range k {
			if x := a[i*row+p*step]; x != 0 {
				accumulate(isa, sum, x, b[p*ldb:])
			}
		}
	}
}

// MostlyZeros says whether GemmZeros of A and a B of n columns is faster than Gemm: whether so much of A is zero, judged by 256 of its
// elements, always the same. Of few columns a product is too short to be worth looking for zeros.
func MostlyZeros[T Float](a []T, n int) bool {
	const looked, most, columns = 256, 256 * 3 / 10, 48
	if len(a) < looked || n < columns || !single[T]() {
		return false
	}
	left := most
	for i := range uint64(looked) {
		at, _ := bits.Mul64(i*0x9e3779b97f4a7c15, uint64(len(a))) // multiples of the golden section: even, and in step with no row
		if a[at] != 0 {
			if left--; left < 0 {
				return false
			}
		}
	}
	return true
}
