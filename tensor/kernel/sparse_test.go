package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// sparse is a random matrix, some of whose rows are empty and some of whose columns repeat, and the same matrix dense.
func sparse[T Float](r *rand.Rand, rows, cols int) (CSR[T], []T) {
	a, dense := CSR[T]{Indptr: []int64{0}}, make([]T, rows*cols)
	for i := range rows {
		for range r.IntN(2 * cols) {
			c, v := r.IntN(cols), T(r.NormFloat64())
			a.Indices, a.Values = append(a.Indices, int32(c)), append(a.Values, v)
			dense[i*cols+c] += v
		}
		a.Indptr = append(a.Indptr, int64(len(a.Indices)))
	}
	return a, dense
}

func testSparse[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	for _, n := range []int{1, 2, 5, 16, 63, 64, 65, 100, 200} {
		const rows, cols = 9, 7
		a, _ := sparse[T](r, rows, cols)
		ldb, ldd := n+r.IntN(3), n+r.IntN(3)
		b, dy := plain[T](r, cols*ldb), plain[T](r, rows*ldd)
		product, grad := make([]T, rows*ldd), plain[T](r, cols*ldb)
		start := slices.Clone(grad)
		for i := range rows { // the contract, spelt out
			for j := range n {
				var s T
				for k := a.Indptr[i]; k < a.Indptr[i+1]; k++ {
					s += T(a.Values[k] * b[int(a.Indices[k])*ldb+j])
					grad[int(a.Indices[k])*ldb+j] += T(a.Values[k] * dy[i*ldd+j])
				}
				product[i*ldd+j] = s
			}
		}
		for _, isa := range Available() {
			name := fmt.Sprintf("%d columns of %T on %v", n, T(0), isa)
			got := make([]T, rows*ldd)
			SparseMatMul(isa, got, ldd, a, b, ldb, n)
			wantSame(t, "product, "+name, got, product)
			clear(got) // in four parts: rows 0-3 and 4-8, each in two by columns
			half := n / 2
			for _, part := range []CSR[T]{{a.Indptr[:5], a.Indices, a.Values}, {a.Indptr[4:], a.Indices, a.Values}} {
				dst := got
				if part.Rows() == 5 {
					dst = got[4*ldd:]
				}
				SparseMatMul(isa, dst, ldd, part, b, ldb, half)
				SparseMatMul(isa, dst[half:], ldd, part, b[half:], ldb, n-half)
			}
			wantSame(t, "product in parts, "+name, got, product)
			dw := slices.Clone(start)
			SparseMatMulT(isa, dw, ldb, a, dy, ldd, n, 0, 3)
			SparseMatMulT(isa, dw, ldb, a, dy, ldd, n, 3, cols)
			wantSame(t, "gradient, "+name, dw, grad)
		}
	}
}

func TestSparseF32(t *testing.T) { testSparse[float32](t) }
func TestSparseF64(t *testing.T) { testSparse[float64](t) }

// TestSparseNothing: a matrix without columns times one without rows is zeros, as is an empty row.
func TestSparseNothing(t *testing.T) {
	for _, isa := range Available() {
		got := plain[float32](rand.New(rand.NewPCG(1, 1)), 6)
		SparseMatMul(isa, got, 3, CSR[float32]{Indptr: []int64{0, 0, 0}}, nil, 3, 3)
		wantSame(t, isa.String(), got, make([]float32, 6))
	}
}

func TestSparseLongRow(t *testing.T) { // longer than one call of assembly takes
	const terms, n, cols = 3000, 50, 4
	r := rand.New(rand.NewPCG(17, 17))
	a := CSR[float32]{[]int64{0, terms}, make([]int32, terms), plain[float32](r, terms)}
	for i := range a.Indices {
		a.Indices[i] = int32(r.IntN(cols))
	}
	b, dy := plain[float32](r, cols*n), plain[float32](r, n)
	want, wantDw := make([]float32, n), make([]float32, cols*n)
	SparseMatMul(GoExact, want, n, a, b, n, n)
	SparseMatMulT(GoExact, wantDw, n, a, dy, n, n, 0, cols)
	for _, isa := range Available() {
		got, dw := make([]float32, n), make([]float32, cols*n)
		SparseMatMul(isa, got, n, a, b, n, n)
		SparseMatMulT(isa, dw, n, a, dy, n, n, 0, cols)
		wantSame(t, "a long row on "+isa.String(), got, want)
		wantSame(t, "the gradient of a long row on "+isa.String(), dw, wantDw)
	}
}

func TestSparseColumnOutside(t *testing.T) {
	for _, isa := range Available() {
		for _, c := range []int32{3, -1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("column %d of 3 on %v: no panic", c, isa)
					}
				}()
				SparseMatMul(isa, make([]float32, 4), 4, CSR[float32]{[]int64{0, 1}, []int32{c}, []float32{1}}, make([]float32, 12), 4, 4)
			}()
		}
	}
}

func TestTouched(t *testing.T) {
	for _, c := range []struct {
		columns int
		idx     []int32
		want    []int32
	}{
		{200, []int32{190, 3, 64, 3, 63, 190}, []int32{3, 63, 64, 190}},
		{1 << 20, []int32{1 << 19, 7, 1<<20 - 1, 7}, []int32{7, 1 << 19, 1<<20 - 1}}, // few columns far apart
		{10, nil, nil},
	} {
		seen := NewSeen(c.columns)
		if got := Touched([]int32{-5}, c.idx, seen); got[0] != -5 || !slices.Equal(got[1:], c.want) {
			t.Errorf("Touched of %v is %v, want %v after -5", c.idx, got, c.want)
		}
		if seen.Columns() < c.columns {
			t.Errorf("it is for %d columns, want %d", seen.Columns(), c.columns)
		}
		for i, w := range slices.Concat(seen.bits, seen.groups) {
			if w != 0 {
				t.Errorf("Touched of %v left bits in word %d", c.idx, i)
			}
		}
	}
}

// TestGatherRows: rows of all lengths that are copied in their own way, and of others, there and back.
func TestGatherRows(t *testing.T) {
	for cols := 1; cols <= 20; cols++ {
		const n = 7
		src := make([]float32, n*cols)
		for i := range src {
			src[i] = float32(i)
		}
		rows := []int32{4, 0, 6, 4}
		dst := make([]float32, len(rows)*cols+1)
		GatherRows(dst, src, rows, cols)
		back := make([]float32, n*cols)
		ScatterRows(back, dst, rows, cols)
		for i, r := range rows {
			for k := range cols {
				if want := float32(int(r)*cols + k); dst[i*cols+k] != want || back[int(r)*cols+k] != want {
					t.Fatalf("%d columns: row %d, column %d is %v, and %v where it was, want %v", cols, r, k, dst[i*cols+k], back[int(r)*cols+k], want)
				}
			}
		}
		for _, r := range []int{1, 2, 3, 5} {
			if back[r*cols] != 0 {
				t.Errorf("%d columns: row %d was written", cols, r)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d columns: a row that is not there: no panic", cols)
				}
			}()
			GatherRows(dst, src[:5*cols], []int32{5}, cols)
		}()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d columns: to a row that is not there: no panic", cols)
				}
			}()
			ScatterRows(back[:5*cols], dst, []int32{5}, cols)
		}()
	}
}

// TestUnite: the numbers of either list, ascending, and where those of each are among them.
func TestUnite(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	list := func(n, below int) []int32 {
		var x []int32
		for range n {
			x = append(x, int32(r.IntN(below)))
		}
		slices.Sort(x)
		return slices.Compact(x)
	}
	var all, places []int32
	for range 500 {
		a, b := list(r.IntN(20), 40), list(r.IntN(20), 40)
		switch r.IntN(4) {
		case 0: // behind one another
			for i := range b {
				b[i] += 40
			}
		case 1:
			b = slices.Clone(a)
		case 2:
			b = append(b, math.MaxInt32)
		}
		want := slices.Concat(a, b)
		slices.Sort(want)
		want = slices.Compact(want)
		if all = Unite(all, a, b); !slices.Equal(all, want) {
			t.Fatalf("%v and %v make %v", a, b, all)
		}
		for _, x := range [][]int32{a, b} {
			places = Places(places, all, x)
			for i, p := range places {
				if all[p] != x[i] {
					t.Fatalf("%d is said to be at %d of %v", x[i], p, all)
				}
			}
			if len(places) != len(x) {
				t.Fatalf("%d places of %d numbers", len(places), len(x))
			}
		}
	}
}

func TestScatterAddRows(t *testing.T) { // case 15: Gather of rows 0,0,1,1,2 has gradient 2, 2, 1
	for _, isa := range Available() {
		dx, y, rows := make([]float32, 6), make([]float32, 10), []int32{0, 0, 1, 1, 2}
		Fill(isa, y, 1)
		ScatterAddRows(isa, dx, rows, y, 2)
		wantSame(t, "ScatterAddRows", dx, []float32{2, 2, 2, 2, 1, 1})
	}
}

func testScatterAddRows[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(15, 15))
	for _, cols := range []int{1, 2, 3, 7, 8, 9, 16, 31, 100, shortCall / 3, shortCall + 1} {
		rows := []int32{4, 0, 4, 2, 4, 1, 0}
		dst, x := plain[T](r, 5*cols), plain[T](r, len(rows)*cols)
		want := slices.Clone(dst)
		for i, row := range rows {
			for k := range cols {
				want[int(row)*cols+k] += x[i*cols+k]
			}
		}
		for _, isa := range Available() {
			got := slices.Clone(dst)
			ScatterAddRows(isa, got, rows, x, cols)
			wantSame(t, fmt.Sprintf("%d columns of %T on %v", cols, T(0), isa), got, want)
			for _, bad := range []int32{-1, 5} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("row %d of 5 on %v: no panic", bad, isa)
						}
					}()
					ScatterAddRows(isa, got, []int32{0, bad}, x, cols)
				}()
			}
		}
	}
}

func TestScatterAddRowsF32(t *testing.T) { testScatterAddRows[float32](t) }
func TestScatterAddRowsF64(t *testing.T) { testScatterAddRows[float64](t) }
