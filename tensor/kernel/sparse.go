package kernel

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"
)

// A CSR is a sparse matrix by rows: row r holds Values[k] at column Indices[k], for k in [Indptr[r], Indptr[r+1]). Indptr may start
// above 0, so that a run of rows is the same matrix with a shorter Indptr. Columns need not ascend, and may repeat: they add up.
type CSR[T Float] struct {
	Indptr  []int64
	Indices []int32
	Values  []T
}

// Rows is the number of rows.
func (a CSR[T]) Rows() int { return len(a.Indptr) - 1 }

// Row is the columns and values of row r.
func (a CSR[T]) Row(r int) ([]int32, []T) {
	from, to := a.Indptr[r], a.Indptr[r+1]
	return a.Indices[from:to], a.Values[from:to]
}

// SparseMatMul is dst[r,:] = Σ Values[k] · b[Indices[k],:], in ascending k from zero. dst has n columns and row stride ldd, b row
// stride ldb; any cut by rows or columns gives the same bits.
func SparseMatMul[T Float](isa ISA, dst []T, ldd int, a CSR[T], b []T, ldb, n int) {
	far := n == ldb && len(b) >= farCells
	for r := range a.Rows() {
		if far && r+1 < a.Rows() {
			next, _ := a.Row(r + 1)
			FetchRows(b, next, n)
		}
		idx, val := a.Row(r)
		row := dst[r*ldd:][:n]
		switch {
		case n == 1 && ldb == 1:
			row[0] = SparseDot(idx, val, b)
		case isa >= AVX2 && n > 0 && len(idx) > 0 && len(idx)*n <= shortCall:
			checkRows(idx, (len(b)-n)/ldb)
			if single[T]() {
				csrRowF32(isa, &as32(row)[0], &as32(b)[0], unsafe.SliceData(as32(val)), unsafe.SliceData(idx), len(idx), n, ldb)
			} else {
				csrRowF64(isa, &as64(row)[0], &as64(b)[0], unsafe.SliceData(as64(val)), unsafe.SliceData(idx), len(idx), n, ldb)
			}
		default:
			clear(row)
			for k, c := range idx {
				Axpy(isa, row, val[k], b[int(c)*ldb:][:n])
			}
		}
	}
}

// farCells is from how many cells on rows of a matrix are asked for before their turn: fewer are in the second-level cache.
const farCells = 1 << 16

// checkRows panics unless all numbers of rows are in [0, last]: assembly does not check.
func checkRows(idx []int32, last int) {
	for _, c := range idx {
		if c < 0 || int(c) > last {
			panic(fmt.Sprintf("kernel: row %d of a matrix whose last is %d", c, last))
		}
	}
}

// SparseMatMulT adds the gradient of b, aᵀ·dy: dw[c,:] += Values[k] · dy[r,:] for each k with column c, in ascending k, leaving the
// rows of dw that a does not name untouched. Only columns in [from, to) are served, so that threads can share the rows of dw.
func SparseMatMulT[T Float](isa ISA, dw []T, ldw int, a CSR[T], dy []T, ldy, n, from, to int) {
	if n == 0 || from >= to {
		return
	}
	_ = dw[from*ldw : (to-1)*ldw+n]
	for r := range a.Rows() {
		idx, val := a.Row(r)
		row := dy[r*ldy:][:n]
		switch {
		case len(idx) == 0:
		case n == 1:
			for k, c := range idx {
				if from <= int(c) && int(c) < to {
					dw[int(c)*ldw] += T(val[k] * row[0])
				}
			}
		case isa >= AVX2 && len(idx)*n <= shortCall:
			s := scatter{len(idx), n, ldw, from, to - from}
			if single[T]() {
				csrScatterF32(isa, &as32(dw)[0], &as32(row)[0], &as32(val)[0], &idx[0], &s)
			} else {
				csrScatterF64(isa, &as64(dw)[0], &as64(row)[0], &as64(val)[0], &idx[0], &s)
			}
		default:
			for k, c := range idx {
				if from <= int(c) && int(c) < to {
					out := dw[int(c)*ldw:][:n]
					for j, d := range row {
						out[j] += T(val[k] * d)
					}
				}
			}
		}
	}
}

// shortCall is how many products one call of assembly may take, so that it does not delay the collector; rows beyond are added term
// by term.
const shortCall = 1 << 17

// A scatter is one row's terms: how many, their columns in dw, the distance of its rows, and which are served. The assembly knows its
// layout.
type scatter struct{ terms, n, ld, from, count int }

// SparseDot is Σ values[k] · x[indices[k]], in ascending k from zero.
func SparseDot[T Float](indices []int32, values, x []T) T {
	var s T
	for k, c := range indices {
		s += T(values[k] * x[c])
	}
	return s
}

// Seen is scratch for Touched: a bit for each column, and above them one for each 64 of those that are not all zero, so that a few columns of many are
// found without a look at the others. All are zero between calls.
type Seen struct{ bits, groups []uint64 }

// NewSeen is that for so many columns.
func NewSeen(columns int) *Seen {
	n := (columns + 63) / 64
	return &Seen{make([]uint64, n), make([]uint64, (n+63)/64)}
}

// Columns is for how many it is, or a few more.
func (s *Seen) Columns() int { return 64 * len(s.bits) }

// Touched appends to dst the columns among these, ascending and once each.
func Touched(dst, columns []int32, seen *Seen) []int32 {
	words, groups := seen.bits, seen.groups
	for _, c := range columns {
		w := uint32(c) / 64
		words[w] |= 1 << (uint32(c) % 64)
		groups[w/64] |= 1 << (w % 64)
	}
	for i, group := range groups {
		if group == 0 {
			continue
		}
		groups[i] = 0
		for ; group != 0; group &= group - 1 {
			w := 64*i + bits.TrailingZeros64(group)
			for word := words[w]; word != 0; word &= word - 1 {
				dst = append(dst, int32(64*w+bits.TrailingZeros64(word)))
			}
			words[w] = 0
		}
	}
	return dst
}

// Unite returns the numbers that are in a or in b, in dst's memory if there is room. All ascend, once each. It does not branch on which is less, since
// nobody could foretell.
func Unite(dst, a, b []int32) []int32 {
	dst = slices.Grow(dst[:0], len(a)+len(b))[:len(a)+len(b)]
	if len(a) > 0 && len(b) > 0 && a[len(a)-1] < b[0] { // parts of one list
		copy(dst[copy(dst, a):], b)
		return dst
	}
	n, i, j := 0, 0, 0
	for i < len(a) && j < len(b) {
		x, y := int64(a[i]), int64(b[j])
		dst[n] = int32(min(x, y))
		n++
		i -= int((x - y - 1) >> 63) // by 1 where x <= y
		j -= int((y - x - 1) >> 63)
	}
	n += copy(dst[n:], a[i:])
	n += copy(dst[n:], b[j:])
	return dst[:n]
}

// Places returns where the numbers b are among a, in dst's memory if there is room. Both ascend, once each, none is negative, and a has all of b.
func Places(dst, a, b []int32) []int32 {
	dst = slices.Grow(dst[:0], len(b))[:len(b)]
	for i, n := 0, 0; n < len(b); i++ {
		dst[n] = int32(i)
		n -= int((int64(a[i]^b[n]) - 1) >> 63) // by 1 where they are equal
	}
	return dst
}

// GatherRows is dst[i,:] = src[rows[i],:]: rows that lie far apart, end to end. Rows of the lengths that most sparse models have are copied without a
// call, so that the memory of many of them is waited for at once.
func GatherRows[T any](dst, src []T, rows []int32, cols int) {
	switch cols {
	case 1:
		gatherEach(dst, src, rows)
	case 2:
		gatherEach(arrays[[2]T](dst), arrays[[2]T](src), rows)
	case 3:
		gatherEach(arrays[[3]T](dst), arrays[[3]T](src), rows)
	case 4:
		gatherEach(arrays[[4]T](dst), arrays[[4]T](src), rows)
	case 8:
		gatherEach(arrays[[8]T](dst), arrays[[8]T](src), rows)
	case 16:
		gatherEach(arrays[[16]T](dst), arrays[[16]T](src), rows)
	default:
		src = src[:len(src):len(src)]
		for i, r := range rows {
			copy(dst[i*cols:(i+1)*cols], src[int(r)*cols:(int(r)+1)*cols])
		}
	}
}

// ScatterRows is dst[rows[i],:] = src[i,:], in ascending i: back from where GatherRows has put them.
func ScatterRows[T any](dst, src []T, rows []int32, cols int) {
	switch cols {
	case 1:
		scatterEach(dst, src, rows)
	case 2:
		scatterEach(arrays[[2]T](dst), arrays[[2]T](src), rows)
	case 3:
		scatterEach(arrays[[3]T](dst), arrays[[3]T](src), rows)
	case 4:
		scatterEach(arrays[[4]T](dst), arrays[[4]T](src), rows)
	case 8:
		scatterEach(arrays[[8]T](dst), arrays[[8]T](src), rows)
	case 16:
		scatterEach(arrays[[16]T](dst), arrays[[16]T](src), rows)
	default:
		dst = dst[:len(dst):len(dst)]
		for i, r := range rows {
			copy(dst[int(r)*cols:(int(r)+1)*cols], src[i*cols:(i+1)*cols])
		}
	}
}

func gatherEach[A any](dst, src []A, rows []int32) {
	dst = dst[:len(rows)]
	for i, r := range rows {
		dst[i] = src[r]
	}
}

func scatterEach[A any](dst, src []A, rows []int32) {
	src = src[:len(rows)]
	for i, r := range rows {
		dst[r] = src[i]
	}
}

// arrays is x as arrays A of its elements, whole ones.
func arrays[A, T any](x []T) []A {
	var a A
	var e T
	return unsafe.Slice((*A)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(e))/int(unsafe.Sizeof(a)))
}

// ScatterAddRows is dst[rows[i],:] += x[i,:], in ascending i.
func ScatterAddRows[T Float](isa ISA, dst []T, rows []int32, x []T, cols int) {
	if isa < AVX2 || cols < 2 || cols > shortCall {
		dst = dst[:len(dst):len(dst)]
		for i, r := range rows {
			to := dst[int(r)*cols:][:cols]
			for k, v := range x[i*cols:][:cols] {
				to[k] += v
			}
		}
		return
	}
	for some := shortCall / cols; len(rows) > 0; {
		n := min(some, len(rows))
		checkRows(rows[:n], len(dst)/cols-1)
		if _ = x[:n*cols]; single[T]() {
			addRowsF32(isa, &as32(dst)[0], &as32(x)[0], &rows[0], n, cols)
		} else {
			addRowsF64(isa, &as64(dst)[0], &as64(x)[0], &rows[0], n, cols)
		}
		rows, x = rows[n:], x[n*cols:]
	}
}
