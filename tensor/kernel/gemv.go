package kernel

import "unsafe"

// Gemv is y = A·x, where A is m×n and row-major with rows lda apart. Each y[i] has the bits of Dot of its row and x.
func Gemv[T Float](isa ISA, m, n int, a []T, lda int, x, y []T) {
	x = x[:n]
	var at [LeafRows]unsafe.Pointer
	for i := 0; i < m; i += LeafRows {
		rows := rowsAt(at[:], m-i, n, a[min(i*lda, len(a)):], lda)
		dotsOf(isa, rows, x, y[i:][:len(rows)])
	}
}

// rowsAt writes to at the addresses of the rows of an m×n matrix, as many as there is room for, and returns those. Kernels of several rows take
// addresses, since rows may lie anywhere.
func rowsAt[T Float](at []unsafe.Pointer, m, n int, a []T, lda int) []unsafe.Pointer {
	at = at[:min(m, len(at))]
	if n > 0 {
		inside(a, false, len(at), n, lda)
		for i := range at {
			at[i] = unsafe.Add(unsafe.Pointer(&a[0]), i*lda*sizeOf[T]())
		}
	}
	return at
}

// row is the row at an address.
func row[T Float](at unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(at), n) }

// dotsOf is y[i] = row i times x, of at most LeafRows rows.
func dotsOf[T Float](isa ISA, rows []unsafe.Pointer, x, y []T) {
	if len(x) >= lanes {
		for g := dotRows[T](isa, len(rows)); g > 0; g = dotRows[T](isa, len(rows)) {
			dotGroup(isa, rows[:g], x, y[:g])
			rows, y = rows[g:], y[g:]
		}
	}
	for i, at := range rows {
		y[i] = Dot(isa, row[T](at, len(x)), x)
	}
}

// dotGroup is dotsOf of as many rows as a kernel takes.
func dotGroup[T Float](isa ISA, rows []unsafe.Pointer, x, y []T) {
	const few = 16 // blocks: clearing a tree for each row takes long
	if len(x) > few*BlockLen {
		dotBlocks(isa, rows, x, y)
		return
	}
	var sums [few][8]T
	blocks := 0
	var s stripe
	s.take(rows)
	for j := 0; j < len(x); j += BlockLen {
		if j > 0 {
			s.rows = forward(s.rows, BlockLen*sizeOf[T]())
		}
		s.x, s.n, s.out = unsafe.Pointer(&x[j]), min(BlockLen, len(x)-j), unsafe.Pointer(&sums[blocks])
		dots[T](isa, len(y), &s)
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
func dotBlocks[T Float](isa ISA, rows []unsafe.Pointer, x, y []T) {
	var sums [8]tree[T]
	var block [8]T
	var s stripe
	s.take(rows)
	for j := 0; j < len(x); j += BlockLen {
		if j > 0 {
			s.rows = forward(s.rows, BlockLen*sizeOf[T]())
		}
		s.x, s.n, s.out = unsafe.Pointer(&x[j]), min(BlockLen, len(x)-j), unsafe.Pointer(&block)
		dots[T](isa, len(y), &s)
		for r := range y {
			sums[r].add(block[r])
		}
	}
	for r := range y {
		y[r] = sums[r].sum()
	}
}

// A stripe is the argument of the kernels that pass once over some rows.
type stripe struct {
	rows  [LeafRows]unsafe.Pointer // offset 0
	x     unsafe.Pointer           // 64: the vector, or the rows' factors
	n     int                      // 72: columns
	out   unsafe.Pointer           // 80
	start start                    // 88
	next  upcoming                 // 96
}

// upcoming is how many bytes after the first row those lie that are to be fetched meanwhile, since they come next; the first is 0 if none is.
type upcoming [LeafRows / 2]int

// take sets the rows, at most LeafRows: one by one, as they were written. A copy of several at once would wait until they were in the cache.
func (s *stripe) take(rows []unsafe.Pointer) {
	for i := range min(len(rows), len(s.rows)) {
		s.rows[i] = rows[i]
	}
}

// forward returns the addresses so many bytes on.
func forward(rows [LeafRows]unsafe.Pointer, bytes int) [LeafRows]unsafe.Pointer {
	for i, at := range rows {
		if at != nil {
			rows[i] = unsafe.Add(at, bytes)
		}
	}
	return rows
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
	if rows > LeafRows {
		panic("kernel: a leaf has more rows than LeafRows")
	}
	var at [LeafRows]unsafe.Pointer
	leaf(isa, rowsAt(at[:], rows, n, a, lda), d, g[:n], upcoming{})
}

// leaf is Leaf of rows as long as g, whose kernel may fetch what comes next.
func leaf[T Float](isa ISA, rows []unsafe.Pointer, d, g []T, next upcoming) {
	if len(rows) == 0 || isa < AVX2 {
		clear(g)
		for i, at := range rows {
			x := row[T](at, len(g))
			read(x)
			accumulate(isa, g, d[i], x)
		}
		return
	}
	begin := fresh
	for i := 0; i < len(rows); begin = chain {
		r := 1
		switch left := len(rows) - i; {
		case left >= 8:
			r = 8
		case left >= 4:
			r = 4
		}
		stripes(isa, rows[i:i+r], d[i:][:r], g, begin, next)
		i += r
	}
}

// stripes runs a leaf kernel over the columns, some microseconds at a time.
func stripes[T Float](isa ISA, rows []unsafe.Pointer, d, g []T, begin start, next upcoming) {
	const cols = 16384
	var s stripe
	s.take(rows)
	s.x, s.start, s.next = unsafe.Pointer(&d[0]), begin, next
	for j := 0; j < len(g); j += cols {
		if j > 0 {
			s.rows = forward(s.rows, cols*sizeOf[T]())
		}
		s.out, s.n = unsafe.Pointer(&g[j]), min(cols, len(g)-j)
		addRows[T](isa, len(rows), &s)
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
	const few = 512 // columns: the processor itself fetches what comes next of rows that lie next to one another
	var room [2 * LeafRows]unsafe.Pointer
	at := room[:]
	if n < few {
		at = at[:LeafRows]
	}
	for i := 0; i < m; i += LeafRows {
		linearLeaf(isa, rowsAt(at, m-i, n, x[min(i*ld, len(x)):], ld), w[:n], bias, i, derive, t)
	}
}

// LinearRows is LinearLeaves of rows that lie apart, each as long as w.
func LinearRows[T Float](isa ISA, x [][]T, w []T, bias T, derive func(first int, z []T), t *LeafTree[T]) {
	var at [2 * LeafRows]unsafe.Pointer
	for i := 0; i < len(x); i += LeafRows {
		rows := at[:min(len(x)-i, len(at))]
		for r := range rows {
			if len(x[i+r]) != len(w) {
				panic("kernel: a row is not as long as the weights")
			}
			rows[r] = unsafe.Pointer(unsafe.SliceData(x[i+r]))
		}
		linearLeaf(isa, rows, w, bias, i, derive, t)
	}
}

// linearLeaf is LinearLeaves of one leaf, whose first row is number first; rows that come next stand behind its own.
func linearLeaf[T Float](isa ISA, rows []unsafe.Pointer, w []T, bias T, first int, derive func(first int, z []T), t *LeafTree[T]) {
	// The rows of a leaf, 320 KB at 10,000 columns of float32, are in the second-level cache when they are read again. Reading them
	// while the next ones come from memory was measured to be no faster. Half of those are fetched meanwhile with AVX2.
	var next upcoming
	if len(rows) == 2*LeafRows {
		for i := range next {
			next[i] = int(uintptr(rows[LeafRows+i]) - uintptr(rows[0]))
		}
	}
	rows = rows[:min(LeafRows, len(rows))]
	z := t.z[:len(rows)]
	dotsOf(isa, rows, w, z)
	for j := range z {
		z[j] += bias
	}
	derive(first, z)
	if pair := t.pair(); pair != nil && isa >= AVX2 && len(rows) == LeafRows {
		stripes(isa, rows, z, pair, sibling, next)
		t.paired(isa)
		return
	}
	leaf(isa, rows, z, t.Leaf(), next)
	t.Push(isa)
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
