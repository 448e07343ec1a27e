package kernel

import (
	"math/bits"
	"unsafe"
)

// A zeros is the argument of the kernels that leave out the zeros of A: m rows of A, at most 64 columns of it, and n vectors of columns of
// C, at most eight. Strides are in bytes.
//
//	sum:     C[i,:] = (opens ? 0 : C[i,:]) + Σ A[i,p] · B[p,:], in ascending p < k
//	scatter: C[p,:] += A[i,p] · B[i,:], in ascending i
type zeros struct {
	a       unsafe.Pointer // offset 0
	aRow    int            // 8
	b       unsafe.Pointer // 16
	bRow    int            // 24
	c       unsafe.Pointer // 32
	cRow    int            // 40
	m, k, n int            // 48, 56, 64
	opens   int            // 72
}

const (
	zerosColumns = 64  // of A: bits of a register; their rows of B or C stay in first-level cache
	zerosRows    = 128 // of A: some microseconds
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
	width := roundUp(ceil(n, ceil(n, zerosVectors*lanes)), lanes)
	for j := 0; j < n; j += width {
		cols := min(width, n-j)
		e := Epilogue[float32]{Act: ep.Act, Accumulate: ep.Accumulate}
		if ep.Bias != nil {
			e.Bias = as32(ep.Bias[j : j+cols])
		}
		if ta {
			zerosScatter(isa, m, cols, width, k, as32(a), lda, as32(b[j:]), ldb, as32(c[j:]), ldc, e, any(w).(*Workspace[float32]))
		} else {
			zerosSum(isa, m, cols, width, k, as32(a), lda, as32(b[j:]), ldb, as32(c[j:]), ldc, e, any(w).(*Workspace[float32]))
		}
	}
}

// zerosSum is GemmZeros of a row-major A and at most eight vectors of columns.
func zerosSum(isa ISA, m, n, width, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, ep Epilogue[float32], w *Workspace[float32]) {
	rows := min(m, zerosRows)
	s := zeroSums{room(&w.c, 2*rows*width), isa, n, width, ldc, ep}
	for i := 0; i < m; i += rows {
		mi := min(rows, m-i)
		for first := 0; first < k; first += depth32 {
			to, ld := s.of(first == 0, mi, c[i*ldc:])
			for p := first; p < min(first+depth32, k); p += zerosColumns {
				kp := min(zerosColumns, min(first+depth32, k)-p)
				bp, ldp := wholeVectors(isa, kp, n, width, b[p*ldb:], ldb, w)
				zerosTile(isa, false, p == first, mi, kp, width, a[i*lda+p:], lda, bp, ldp, to, ld)
			}
			s.add(first == 0, mi, c[i*ldc:])
		}
		s.finish(mi, c[i*ldc:])
	}
}

// zerosScatter is GemmZeros of a transposed A and at most eight vectors of columns.
func zerosScatter(isa ISA, m, n, width, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, ep Epilogue[float32], w *Workspace[float32]) {
	b, ldb = wholeVectors(isa, k, n, width, b, ldb, w)
	rows := min(m, zerosColumns)
	s := zeroSums{room(&w.c, 2*rows*width), isa, n, width, ldc, ep}
	for i := 0; i < m; i += rows {
		mi := min(rows, m-i)
		for first := 0; first < k; first += depth32 {
			to, ld := s.of(first == 0, mi, c[i*ldc:])
			for r := range mi {
				clear(to[r*ld:][:width])
			}
			last := min(first+depth32, k)
			for p := first; p < last; p += zerosRows {
				zerosTile(isa, true, false, min(zerosRows, last-p), mi, width, a[p*lda+i:], lda, b[p*ldb:], ldb, to, ld)
			}
			s.add(first == 0, mi, c[i*ldc:])
		}
		s.finish(mi, c[i*ldc:])
	}
}

// zeroSums are where sums are computed: in C, where its rows are whole vectors on whole lines, or in a buffer in which they are, for rows of
// the first block of terms and as many of a later one.
type zeroSums struct {
	buf      []float32
	isa      ISA
	n, width int
	ldc      int
	ep       Epilogue[float32]
}

func (s *zeroSums) direct(c []float32) bool {
	return s.n == s.width && s.ldc%16 == 0 && misaligned(c) == 0 && !s.ep.Accumulate
}

// of returns where the sums of a block of terms of m rows go, and the distance of its rows.
func (s *zeroSums) of(first bool, m int, c []float32) ([]float32, int) {
	switch {
	case !first:
		return s.buf[m*s.width:], s.width
	case s.direct(c):
		return c, s.ldc
	}
	return s.buf, s.width
}

// add adds the sums of a later block to those of the ones before it.
func (s *zeroSums) add(first bool, m int, c []float32) {
	switch block := s.buf[m*s.width:]; {
	case first:
	case s.direct(c):
		for r := range m {
			AddInto(s.isa, c[r*s.ldc:][:s.n], block[r*s.width:])
		}
	default:
		AddInto(s.isa, s.buf[:m*s.width], block)
	}
}

// finish does what is to be done to sums.
func (s *zeroSums) finish(m int, c []float32) {
	switch {
	case !s.direct(c):
		finish(s.isa, m, s.n, s.buf, s.width, c, s.ldc, s.ep)
	case s.ep.Bias != nil || s.ep.Act != ActNone:
		finish(s.isa, m, s.n, c, s.ldc, c, s.ldc, s.ep)
	}
}

// zerosTile runs a kernel, or its portable twin.
func zerosTile(isa ISA, scatter, opens bool, m, k, width int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	if isa < AVX2 {
		zerosGo(isa, scatter, opens, m, k, width, a, lda, b, ldb, c, ldc)
		return
	}
	t := zeros{
		a: unsafe.Pointer(&a[0]), aRow: 4 * lda, b: unsafe.Pointer(&b[0]), bRow: 4 * ldb, c: unsafe.Pointer(&c[0]), cRow: 4 * ldc,
		m: m, k: k, n: width / tilingOf[float32](isa).lanes,
	}
	if opens {
		t.opens = 1
	}
	multiplyZeros(isa, scatter, &t)
}

// wholeVectors returns rows of n columns of B so that each is whole vectors on whole lines, in a copy where they are not.
func wholeVectors(isa ISA, rows, n, width int, b []float32, ldb int, w *Workspace[float32]) ([]float32, int) {
	if n == width && ldb%16 == 0 && misaligned(b) == 0 {
		return b, ldb
	}
	dst := room(&w.b, rows*width)
	if isa < AVX2 {
		for r := range rows {
			clear(dst[r*width+copy(dst[r*width:][:width], b[r*ldb:][:n]):][:width-n])
		}
		return dst, width
	}
	two := 2 * tilingOf[float32](isa).lanes
	for j := 0; j < n; j += two {
		copyBlock[float32](isa, &block{
			src: unsafe.Pointer(&b[j]), sRow: 4 * ldb, rows: min(two, n-j), cols: rows, dst: unsafe.Pointer(&dst[j]), dRow: 4 * width,
		})
	}
	return dst, width
}

// zerosGo is the portable twin of the kernels.
//
//go:norace
func zerosGo(isa ISA, scatter, opens bool, m, k, width int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	if opens {
		for i := range m {
			clear(c[i*ldc:][:width])
		}
	}
	for i := range m {
		for p := range k {
			x := a[i*lda+p]
			switch {
			case x == 0:
			case scatter:
				accumulate(isa, c[p*ldc:][:width], x, b[i*ldb:])
			default:
				accumulate(isa, c[i*ldc:][:width], x, b[p*ldb:])
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
