package kernel

import "unsafe"

// Gemv is y = A·x, where A is m×n and row-major with rows lda apart. Each y[i] has the bits of Dot of its row and x.
func Gemv[T Float](isa ISA, m, n int, a []T, lda int, x, y []T) {
	x = x[:n]
	i := 0
	if g := dotRows[T](isa, m); g > 0 && n >= lanes {
		inside(a, false, m, n, lda)
		for ; g > 0; g = dotRows[T](isa, m-i) {
			dotGroup(isa, n, a[i*lda:], lda, x, y[i:i+g])
			i += g
		}
	}
	for ; i < m; i++ {
		y[i] = Dot(isa, a[i*lda:][:n], x)
	}
}

// dotGroup is y = A·x for as many rows as a kernel takes.
func dotGroup[T Float](isa ISA, n int, a []T, lda int, x, y []T) {
	const few = 16 // blocks: clearing a tree for each row takes long
	if n > few*BlockLen {
		dotBlocks(isa, n, a, lda, x, y)
		return
	}
	var sums [few][8]T
	blocks := 0
	for j := 0; j < n; j += BlockLen {
		dots[T](isa, len(y), &stripe{
			a: unsafe.Pointer(&a[j]), row: lda * sizeOf[T](), x: unsafe.Pointer(&x[j]), n: min(BlockLen, n-j), out: unsafe.Pointer(&sums[blocks]),
		})
		blocks++
	}
	for width := 1; width < blocks; width *= 2 { // as a tree adds them
		for i := 0; i+width < blocks; i += 2 * width {
			for r := range y {
				sums[i][r] += sums[i+width][r]
			}
		}
	}
	copy(y, sums[0][:])
}

// dotBlocks is dotGroup for any number of blocks.
func dotBlocks[T Float](isa ISA, n int, a []T, lda int, x, y []T) {
	var sums [8]tree[T]
	var block [8]T
	for j := 0; j < n; j += BlockLen {
		dots[T](isa, len(y), &stripe{
			a: unsafe.Pointer(&a[j]), row: lda * sizeOf[T](), x: unsafe.Pointer(&x[j]), n: min(BlockLen, n-j), out: unsafe.Pointer(&block),
		})
		for r := range y {
			sums[r].add(block[r])
		}
	}
	for r := range y {
		y[r] = sums[r].sum()
	}
}

// A stripe is the argument of the kernels that pass once over some rows. Strides are in bytes.
type stripe struct {
	a     unsafe.Pointer // offset 0: the first row
	row   int            // 8: from row to row
	x     unsafe.Pointer // 16: the vector, or the rows' factors
	n     int            // 24: columns
	out   unsafe.Pointer // 32
	start start          // 40
	ahead int            // 48: from the first row to the first of those that come next, 0 if they are not to be fetched
}

// A start is what the sums of a leaf kernel begin with, and so what happens to out.
type start int

const (
	chain   start = iota // from out: the rows go on where others ended
	fresh                // from zero: out is overwritten
	sibling              // from zero, and then added to out: a leaf and, in one pass, its pair
)

// LeafRows is the number of rows of a leaf, a sum over rows: each element is one chain in ascending rows, from zero (of fused
// multiply-adds, where there is a factor). Leaves are added pairwise, as a LeafTree does.
const LeafRows = 8

// Leaf is g[j] = the sum over i of d[i] * a[i*lda+j], for at most LeafRows rows.
func Leaf[T Float](isa ISA, rows, n int, a []T, lda int, d, g []T) {
	leaf(isa, rows, n, a, lda, d, g, 0)
}

// leaf is Leaf, whose kernel may fetch what is so many bytes ahead.
func leaf[T Float](isa ISA, rows, n int, a []T, lda int, d, g []T, ahead int) {
	g = g[:n]
	if rows == 0 || isa < AVX2 {
		clear(g)
		reads(a, false, rows, n, lda)
		for i := range rows {
			accumulate(isa, g, d[i], a[i*lda:][:n])
		}
		return
	}
	inside(a, false, rows, n, lda)
	s := stripe{row: lda * sizeOf[T](), start: fresh, ahead: ahead}
	for i := 0; i < rows; s.start = chain {
		r := 1
		switch left := rows - i; {
		case left >= 8:
			r = 8
		case left >= 4:
			r = 4
		}
		stripes(isa, r, n, a[i*lda:], d[i:][:r], g, s)
		i += r
	}
}

// stripes runs a leaf kernel over n columns, some microseconds at a time.
func stripes[T Float](isa ISA, rows, n int, a, d, g []T, s stripe) {
	const cols = 16384
	s.x = unsafe.Pointer(&d[0])
	for j := 0; j < n; j += cols {
		s.a, s.out, s.n = unsafe.Pointer(&a[j]), unsafe.Pointer(&g[j]), min(cols, n-j)
		addRows[T](isa, rows, &s)
	}
}

// GemvT is y = Aᵀ·x, where A is m×n: the sum over rows i of x[i] times row i, as a LeafTree of leaves of LeafRows rows.
func GemvT[T Float](isa ISA, m, n int, a []T, lda int, x, y []T, t *LeafTree[T]) {
	t.Reset(n)
	for i := 0; i < m; i += LeafRows {
		rows := min(LeafRows, m-i)
		Leaf(isa, rows, n, a[i*lda:], lda, x[i:], t.Leaf())
		t.Push(isa)
	}
	t.Sum(isa, y)
}

// LinearLeaves is the fused step of a linear model over m dense rows, which reads them from memory once. A leaf at a time, it
// computes margins z[i] = x[i]·w + bias (with the bits of Dot, then one addition), lets derive turn them into derivatives in place,
// and adds derivative times row to the leaf while its rows are still in cache. derive gets the index among the m of the first row of
// z. The leaves are pushed onto t, which is at the index of the first of them.
func LinearLeaves[T Float](isa ISA, m, n int, x []T, ld int, w []T, bias T, derive func(first int, z []T), t *LeafTree[T]) {
	// The rows of a leaf, 320 KB at 10,000 columns of float32, are in the second-level cache when they are read again. Reading them
	// while the next ones come from memory was measured to be no faster. Half of those are fetched meanwhile with AVX2.
	for i := 0; i < m; i += LeafRows {
		rows, ahead := min(LeafRows, m-i), 0
		if m-i >= 2*LeafRows {
			ahead = LeafRows * ld * sizeOf[T]()
		}
		linearLeaf(isa, rows, n, x[i*ld:], ld, w, bias, i, derive, t, ahead)
	}
}

// linearLeaf is LinearLeaves of one leaf, whose first row is number first.
func linearLeaf[T Float](isa ISA, rows, n int, x []T, ld int, w []T, bias T, first int, derive func(first int, z []T), t *LeafTree[T], ahead int) {
	z := t.z[:rows]
	Gemv(isa, rows, n, x, ld, w, z)
	for j := range z {
		z[j] += bias
	}
	derive(first, z)
	if pair := t.pair(); pair != nil && isa >= AVX2 && rows == 8 && n > 0 {
		inside(x, false, rows, n, ld)
		stripes(isa, rows, n, x, z, pair, stripe{row: ld * sizeOf[T](), start: sibling, ahead: ahead})
		t.paired(isa)
		return
	}
	leaf(isa, rows, n, x, ld, z, t.Leaf(), ahead)
	t.Push(isa)
}

// LinearRows is LinearLeaves of rows that lie apart, with its bits. Those of a leaf are copied next to one another first: they come from memory
// once, and are read twice from the cache that they were copied to.
func LinearRows[T Float](isa ISA, rows [][]T, w []T, bias T, derive func(first int, z []T), t *LeafTree[T]) {
	n := len(w)
	near := room(&t.near, LeafRows*n)
	for i := 0; i < len(rows); i += LeafRows {
		m := min(LeafRows, len(rows)-i)
		for r := range m {
			if next := i + r + 1; next < len(rows) {
				Fetch(rows[next])
			}
			copy(near[r*n:(r+1)*n], rows[i+r])
		}
		linearLeaf(isa, m, n, near, n, w, bias, i, derive, t, 0)
	}
}

// ReadSum reads all of x and does as little else as one can: the bound for kernels that read memory once. It returns the sum of
// x, whose order and so last bits depend on the ISA; a rest of less than 1 KiB is not read.
func ReadSum(isa ISA, x []float32) float32 {
	var s float32
	if isa < AVX2 {
		for _, v := range x {
			s += v
		}
		return s
	}
	const chunk = 1 << 16 // 256 KiB: some tens of microseconds
	for ; len(x) >= 256; x = x[min(chunk, len(x)):] {
		s += readSum(isa, unsafe.Pointer(&x[0]), min(chunk, len(x))/256*1024)
	}
	return s
}
