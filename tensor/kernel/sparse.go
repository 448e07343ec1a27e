package kernel

// A CSR is a sparse matrix by rows: row r holds Values[k] at column Indices[k], for k in [Indptr[r], Indptr[r+1]). Indptr may start
// above 0, so that a run of rows is the same matrix with a shorter Indptr. Columns need not ascend, and may repeat: they add up.
type CSR[T Float] struct {
	Indptr  []int64
	Indices []int32
	Values  []T
}

// Rows is the number of rows.
func (a CSR[T]) Rows() int { return len(a.Indptr) - 1 }

// SparseMatMul is dst[r,:] = Σ Values[k] · b[Indices[k],:], in ascending k from zero. dst has n columns and row stride ldd, b row
// stride ldb; any cut by rows or columns gives the same bits.
func SparseMatMul[T Float](isa ISA, dst []T, ldd int, a CSR[T], b []T, ldb, n int) {
	for r := range a.Rows() {
		row := dst[r*ldd:][:n]
		clear(row)
		for k := a.Indptr[r]; k < a.Indptr[r+1]; k++ {
			Axpy(isa, row, a.Values[k], b[int(a.Indices[k])*ldb:][:n])
		}
	}
}

// SparseMatMulT adds the gradient of b, aᵀ·dy: dw[c,:] += Values[k] · dy[r,:] for each k with column c, in ascending k, leaving the
// rows of dw that a does not name untouched. Only columns in [from, to) are served, so that threads can share the rows of dw.
func SparseMatMulT[T Float](isa ISA, dw []T, ldw int, a CSR[T], dy []T, ldy, n, from, to int) {
	for r := range a.Rows() {
		row := dy[r*ldy:][:n]
		for k := a.Indptr[r]; k < a.Indptr[r+1]; k++ {
			if c := int(a.Indices[k]); from <= c && c < to {
				Axpy(isa, dw[c*ldw:][:n], a.Values[k], row)
			}
		}
	}
}

// SparseDot is Σ values[k] · x[indices[k]], in ascending k from zero.
func SparseDot[T Float](indices []int32, values, x []T) T {
	var s T
	for k, c := range indices {
		s += T(values[k] * x[c])
	}
	return s
}

// Touched appends to dst the columns that a names, ascending and once each. seen has one bit a column, rounded up to words, all
// zero before and after.
func Touched[T Float](dst []int32, a CSR[T], seen []uint64) []int32 { return dst }

// GatherRows is dst[i,:] = x[rows[i],:], of cols columns.
func GatherRows[T Float](isa ISA, dst, x []T, rows []int32, cols int) {
	for i, r := range rows {
		copy(dst[i*cols:(i+1)*cols], x[int(r)*cols:])
	}
}

// ScatterAddRows is dst[rows[i],:] += x[i,:], in ascending i.
func ScatterAddRows[T Float](isa ISA, dst []T, rows []int32, x []T, cols int) {
	for i, r := range rows {
		AddInto(isa, dst[int(r)*cols:][:cols], x[i*cols:])
	}
}

// ZeroRows is dst[rows[i],:] = 0.
func ZeroRows[T Float](dst []T, rows []int32, cols int) {
	for _, r := range rows {
		clear(dst[int(r)*cols:][:cols])
	}
}
