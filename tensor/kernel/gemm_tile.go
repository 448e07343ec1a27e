package kernel

import "unsafe"

// A tile is the argument of a micro-kernel: a row of tiles of C, each as wide as two vectors (or one). Steps and strides are in bytes.
//
//	for each panel of columns, until n are done:
//	    sum[i][j] = 0
//	    for p := range k: sum[i][j] = fma(a[i*aRow + p*aStep], b[p*bStep + j], sum[i][j])
//	    the epilogue; c[i*cRow + j] = sum[i][j]
//	    b += bPanel, c += a panel's width
type tile struct {
	a           unsafe.Pointer // offset 0
	aRow, aStep int            // 8, 16
	b           unsafe.Pointer // 24
	bStep       int            // 32
	bPanel      int            // 40
	c           unsafe.Pointer // 48
	cRow        int            // 56
	bias        unsafe.Pointer // 64
	m, n, k     int            // 72, 80, 88
	flags       int            // 96
	deltas      unsafe.Pointer // 104: if not nil, k steps through A, in place of aStep

	_ [4]uintptr // 112: where the kernel is in b, c, bias and n

	ahead ahead // 144

	_ [3]uintptr // 184: where the kernel is in ahead.at, the steps left, and the start of the run
}

// An ahead says which memory a kernel for AVX-512 fetches into cache while it computes, two lines in each of its steps over k, unless it works
// on an image: what the next tile needs, whose lines lie too far apart for the processor to see them coming. With AVX2 nothing is: steps are
// shorter, and lines that come too soon drive out others (on Zen 3 they cost 5 to 20 % of a product). at is a number, not a
// pointer, because it may be past the end of a slice; nothing is read there.
type ahead struct {
	at    uintptr // of the first panel
	step  int     // from one step to the next, in a run of steps
	row   int     // from one run to the next
	run   int     // steps in a run
	panel int     // from one panel to the next
}

// What a micro-kernel does with its sums before it stores them, in this order.
const (
	tileAdd  = 1 << iota // add them to C
	tileBias             // add the bias
	tileReLU
)

// A block is the argument of a kernel that transposes or copies, p < cols. Strides are in bytes. Transposing takes a vector of rows at
// most: with AVX-512 it writes just those, with AVX2 a whole vector, zero beyond them. Copying takes two vectors of rows at most, and
// writes one or two whole vectors.
//
//	transposed: dst[p*dRow + j] = src[j*sRow + p]
//	copied:     dst[p*dRow + j] = src[p*sRow + j]
type block struct {
	src  unsafe.Pointer // offset 0
	sRow int            // 8
	rows int            // 16
	cols int            // 24
	dst  unsafe.Pointer // 32
	dRow int            // 40
}

// A tiling is the shape of the tiles of an ISA.
type tiling struct {
	lanes          int  // of a vector
	wide, narrow   int  // most rows of a tile that is two vectors wide, and of one that is one wide
	readsWholeRows bool // micro-kernels read whole vectors of B at its right edge

	// columns of B are worked on at a time. With 256 of them 384 rows of float32, or 192 of float64, are 384 KiB, which leaves room in a
	// second-level cache of 1 MiB, as processors with AVX-512 have at least. Those with AVX2 alone have as little as 512 KiB.
	columns int
	packs   int // groups of rows from which on a copy of B pays
}

func tilingOf[T Float](isa ISA) tiling {
	t := tiling{lanes: 16, wide: 14, narrow: 28, columns: 256, packs: 40}
	switch {
	case isa == AVX512 && secondLevel >= 2<<20: // then A is read half as often
		t.columns = 512
	case isa == AVX2:
		t = tiling{lanes: 8, wide: 6, narrow: 12, readsWholeRows: true, columns: 192, packs: 12}
	}
	if !single[T]() {
		t.lanes /= 2
	}
	return t
}

// An operand is a matrix that tiles are read from.
type operand[T Float] struct {
	data        []T
	row, column int // distance of its neighbours, in elements
}

func (o operand[T]) at(i, j int) unsafe.Pointer {
	if len(o.data) == 0 {
		return nil // the sum is empty
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(o.data)), (i*o.row+j*o.column)*sizeOf[T]())
}

func sizeOf[T Float]() int {
	var x T
	return int(unsafe.Sizeof(x))
}

// gemmAsm is Gemm by micro-kernels.
func gemmAsm[T Float](isa ISA, ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, ep Epilogue[T], w *Workspace[T]) {
	kc := depth[T]()
	if ep.Accumulate && k > kc {
		// C is added to once, after all blocks: their sums need a place of their own.
		sums := room(&w.c, m*n)
		gemmBlocks(isa, ta, tb, m, n, k, a, lda, b, ldb, sums, n, Epilogue[T]{}, w)
		finish(isa, m, n, sums, n, c, ldc, ep)
		return
	}
	if swaps[T](isa, ta, tb, m, n, k) && !ep.Accumulate {
		sums := room(&w.c, m*n)
		gemmBlocks(isa, !tb, !ta, n, m, k, b, ldb, a, lda, sums, m, Epilogue[T]{}, w)
		transpose(isa, n, m, sums, m, c, ldc)
		if ep.Bias != nil || ep.Act != ActNone {
			finish(isa, m, n, c, ldc, c, ldc, ep)
		}
		return
	}
	gemmBlocks(isa, ta, tb, m, n, k, a, lda, b, ldb, c, ldc, ep, w)
}

// swaps says whether Cᵀ = op(B)ᵀ·op(A)ᵀ is the faster product, in spite of transposing C.
func swaps[T Float](isa ISA, ta, tb bool, m, n, k int) bool {
	if isa != AVX512 { // its transposing kernel writes just what it should
		return false
	}
	l := tilingOf[T](isa).lanes
	switch {
	case ta && !tb: // B is narrow: much of a vector would be idle
		wide := roundUp(n, l)
		return m >= 4*l && (n < 3*l && wide*7 > n*8 || k >= 256 && wide*10 > n*11)
	case tb && !ta: // A is the smaller one to transpose
		return 2*m*(k+n) < k*n
	}
	return false
}

// transpose copies a matrix of rows × cols to dst, which is cols × rows.
func transpose[T Float](isa ISA, rows, cols int, src []T, lds int, dst []T, ldd int) {
	size, l := sizeOf[T](), tilingOf[T](isa).lanes
	const most = 4096 // columns of a call: some microseconds
	for i := 0; i < rows; i += l {
		for j := 0; j < cols; j += most {
			turnBlock[T](isa, &block{
				src: unsafe.Pointer(&src[i*lds+j]), sRow: lds * size, rows: min(l, rows-i), cols: min(most, cols-j),
				dst: unsafe.Pointer(&dst[j*ldd+i]), dRow: ldd * size,
			})
		}
	}
}

// gemmBlocks is Gemm by blocks of k.
func gemmBlocks[T Float](isa ISA, ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, ep Epilogue[T], w *Workspace[T]) {
	kc := depth[T]()
	p := product[T]{isa: isa, tiling: tilingOf[T](isa), tb: tb, m: m, n: n, k: k, c: c, ldc: ldc, ep: ep, w: w}
	p.a = operand[T]{a, lda, 1}
	if ta {
		p.a = operand[T]{a, 1, lda}
	}
	p.b = operand[T]{b, ldb, 1}
	for first := 0; first < max(k, 1); first += kc {
		p.block(first, min(kc, k-first), first == 0, first+kc >= k)
	}
}

// A product is a Gemm under way.
type product[T Float] struct {
	isa ISA
	tiling
	tb      bool
	m, n, k int
	a, b    operand[T]
	c       []T
	ldc     int
	ep      Epilogue[T]
	w       *Workspace[T]
}

// flags says what the micro-kernel does with the sums of one block of k.
func (p *product[T]) flags(opens, closes bool) int {
	flags := 0
	if !opens || p.ep.Accumulate {
		flags |= tileAdd
	}
	if closes && p.ep.Bias != nil {
		flags |= tileBias
	}
	if closes && p.ep.Act == ActReLU {
		flags |= tileReLU
	}
	return flags
}

// A part is a range of columns of C that is computed in tiles of one width, and where op(B) is read from meanwhile.
type part struct {
	j0, cols     int
	wide         bool
	few          bool // at most fewColumns, computed by a kernel of their own
	rows         int  // of a tile, at most
	b            unsafe.Pointer
	bStep, panel int // bytes
}

// parts cuts columns j0 to j0+cols into tiles two vectors wide and, where the last ones fit it, one vector wide. Parts may be empty.
func (p *product[T]) parts(j0, cols int) [2]part {
	width := 2 * p.lanes
	rest := cols % width
	if rest > p.lanes {
		rest = 0
	}
	return [2]part{
		{j0: j0, cols: cols - rest, wide: true, rows: p.wide},
		{j0: j0 + cols - rest, cols: rest, rows: p.narrow},
	}
}

// fewColumns is how many columns at most a vector of four rows has.
const fewColumns = 4

// fews says whether the last columns are few enough that most of a narrow tile's lanes would be idle, and A can be read as their kernel
// does.
func (p *product[T]) fews(q *part) bool {
	return p.isa == AVX512 && single[T]() && q.cols > 0 && q.cols <= fewColumns && p.a.column == 1 && p.m > 1
}

// set gives a tile the arguments of the micro-kernel for rows of C from i0 to i1 and the columns of a part, but for A. It writes them one
// by one: a tile that is copied just after it was made is read in larger pieces than it was written, for which a processor waits.
func (p *product[T]) set(t *tile, q *part, c []T, i0, i1, k, flags int) {
	t.b, t.bStep, t.bPanel = q.b, q.bStep, q.panel
	t.c, t.cRow = unsafe.Pointer(&c[i0*p.ldc+q.j0]), p.ldc*sizeOf[T]()
	t.m, t.n, t.k, t.flags = i1-i0, q.cols, k, flags
	if flags&tileBias != 0 {
		t.bias = unsafe.Pointer(&p.ep.Bias[q.j0])
	}
}

// block adds the terms first to first+k of the sums.
func (p *product[T]) block(first, k int, opens, closes bool) {
	flags, size := p.flags(opens, closes), sizeOf[T]()
	for j0 := 0; j0 < p.n; j0 += p.columns {
		cols := min(p.columns, p.n-j0)
		parts := p.parts(j0, cols)
		most := parts[0].rows
		if parts[0].cols == 0 {
			most = parts[1].rows
		}
		groups := (p.m + most - 1) / most
		parts[1].few = p.fews(&parts[1])
		p.readB(&parts, first, k, groups)
		packs, from := p.packsA(k, cols), 0
		var t tile
		for g := range groups {
			i0, i1 := g*p.m/groups, (g+1)*p.m/groups
			a, aRow, aStep := p.a.at(i0, first), p.a.row*size, p.a.column*size
			if packs {
				a, aRow, aStep = p.packA(i0, i1-i0, first, k)
			}
			for q := range parts {
				if parts[q].cols > 0 && !parts[q].few {
					p.set(&t, &parts[q], p.c, i0, i1, k, flags)
					t.a, t.aRow, t.aStep = a, aRow, aStep
					if p.isa == AVX512 {
						p.setAhead(&t.ahead, &parts[q], g, groups, first, k)
					}
					multiply[T](p.isa, parts[q].wide, &t)
				}
			}
			if q := &parts[1]; q.few {
				if g+1 < groups && (g+2)*p.m/groups-from <= q.rows && !packs {
					continue // two groups at a time
				}
				p.set(&t, q, p.c, from, i1, k, flags)
				t.a, t.aRow, t.aStep = p.a.at(from, first), p.a.row*size, size
				if packs {
					t.a, t.aRow = a, aRow
				}
				multiplyFew(p.isa, &t)
			}
			if closes && p.ep.Act > ActReLU {
				activateRows(p.isa, p.ep.Act, i1-from, cols, p.c[from*p.ldc+j0:], p.ldc)
			}
			from = i1
		}
	}
}

// setAhead says what to fetch while group g of the rows of a block is worked on: the rows after them, or at first, where B is not packed, its
// next panel.
func (p *product[T]) setAhead(f *ahead, q *part, g, groups, first, k int) {
	const line = 64
	size := sizeOf[T]()
	f.step, f.row, f.run, f.panel = 0, 0, max(k, 1), 0
	if packed := q.bStep == q.panel/f.run; g == 0 && !packed {
		f.at, f.step, f.panel = uintptr(q.b)+uintptr(q.panel), q.bStep, q.panel
		return
	}
	next, after := (g+1)*p.m/groups, (g+2)*p.m/groups
	if g+1 == groups {
		next, after, first = 0, p.m/groups, first+k
		if first >= p.k {
			f.at = uintptr(q.b)
			return
		}
	}
	f.at = uintptr(p.a.at(next, first))
	if p.a.column != 1 { // columns of memory: one step, one row of them
		f.step = p.a.column * size
		return
	}
	// Each panel fetches its share of the rows, evenly over its steps: more would drive out what is being worked on.
	width := p.lanes
	if q.wide {
		width *= 2
	}
	rows := ceil(after-next, ceil(q.cols, width))
	f.run = max(f.run/max(rows, 1), ceil(k*size, 2*line), 1)
	f.step, f.row, f.panel = ceil(k*size, f.run), p.a.row*size, rows*p.a.row*size
}

// activateRows applies a function to rows that are in first-level cache, in as few calls as their layout allows.
func activateRows[T Float](isa ISA, act Activation, m, n int, c []T, ldc int) {
	if ldc == n {
		activate(isa, act, c[:m*n], c[:m*n])
		return
	}
	for i := range m {
		row := c[i*ldc:][:n]
		activate(isa, act, row, row)
	}
}

// readB decides where the parts read k rows of op(B) from, for a number of groups of rows of C.
func (p *product[T]) readB(parts *[2]part, first, k, groups int) {
	size := sizeOf[T]()
	buf := p.w.b
	if n := (parts[0].cols + parts[1].cols + 3*p.lanes) * k; (p.packsAnyB(parts, groups) || parts[1].few) && k > 0 {
		buf = room(&p.w.b, n)
	}
	for i := range parts {
		q := &parts[i]
		if q.cols == 0 {
			continue
		}
		width := p.lanes
		if q.wide {
			width *= 2
		}
		if k == 0 {
			continue
		}
		if q.few {
			p.copyFew(buf, first, k, q)
			continue
		}
		if p.packsB(q.cols, width, groups) {
			p.packB(buf, first, k, q.j0, q.cols, width)
			q.b, q.bStep, q.panel = unsafe.Pointer(unsafe.SliceData(buf)), width*size, k*width*size
			buf = buf[(q.cols+width-1)/width*width*k:]
			continue
		}
		q.b, q.bStep, q.panel = p.b.at(first, q.j0), p.b.row*size, width*size
	}
}

// copyFew copies the few last columns of k rows of op(B), fewColumns to a row. A vector is written at a time, of which the next row covers
// the rest.
func (p *product[T]) copyFew(buf []T, first, k int, q *part) {
	size := sizeOf[T]()
	q.b, q.bStep, q.panel = unsafe.Pointer(unsafe.SliceData(buf)), fewColumns*size, fewColumns*k*size
	if p.tb {
		for r := range k {
			for j := range q.cols {
				buf[r*fewColumns+j] = p.b.data[(q.j0+j)*p.b.row+first+r]
			}
		}
		return
	}
	copyBlock[T](p.isa, &block{
		src: p.b.at(first, q.j0), sRow: p.b.row * size, rows: q.cols, cols: k, dst: q.b, dRow: fewColumns * size,
	})
}

func (p *product[T]) packsAnyB(parts *[2]part, groups int) bool {
	return p.packsB(parts[0].cols, 2*p.lanes, groups) || p.packsB(parts[1].cols, p.lanes, groups)
}

// packsB says whether to copy columns of B into panels: where it must be transposed, or AVX2 would read beyond its right edge, or it is
// read often enough. A stride of a large power of two, whose rows share a few sets of the cache, is worth a copy sooner (measured), as is one
// that makes every vector of AVX-512 lie in two lines.
func (p *product[T]) packsB(cols, width, groups int) bool {
	if p.tb || p.readsWholeRows && cols%width != 0 {
		return true
	}
	stride, from := p.b.row*sizeOf[T](), p.packs
	switch {
	case p.b.row <= width:
		return false
	case stride%4096 == 0:
		from = 6
	case stride%2048 == 0:
		from = 10
	case p.isa == AVX512 && stride%64 != 0:
		from = 16
	}
	return groups >= from
}

// packsA says whether to copy rows of A. They are read in place, unless they are 4,096 bytes apart or a multiple, and so all in one set of
// the first-level cache, which has a place for each of the six rows of a tile of AVX2, but not for fourteen; or they are columns in memory, where
// a line for each of k steps fills that cache for the many tiles of AVX2, or these are a large power of two apart.
func (p *product[T]) packsA(k, cols int) bool {
	size := sizeOf[T]()
	if k < 64 || cols < 4*p.lanes {
		return false
	}
	if p.a.column == 1 {
		return p.isa == AVX512 && p.a.row*size%4096 == 0
	}
	return p.isa == AVX2 && k >= 256 || p.a.column*size%2048 == 0
}

// packB copies columns j0 to j0+cols of k rows of op(B) into panels of width columns: panel, row, column. The last panel has its full
// width, with AVX2 filled with zeros.
func (p *product[T]) packB(buf []T, first, k, j0, cols, width int) {
	size := sizeOf[T]()
	for j := 0; j < cols; j += width {
		dst, n := buf[j*k:][:width*k], min(width, cols-j)
		if !p.tb {
			copyBlock[T](p.isa, &block{
				src: unsafe.Pointer(&p.b.data[first*p.b.row+j0+j]), sRow: p.b.row * size, rows: n, cols: k,
				dst: unsafe.Pointer(&dst[0]), dRow: width * size,
			})
			continue
		}
		for v := 0; v < width; v += p.lanes {
			rows := min(p.lanes, n-v)
			if rows <= 0 {
				for r := range k {
					clear(dst[r*width+v:][:p.lanes])
				}
				continue
			}
			turnBlock[T](p.isa, &block{
				src: unsafe.Pointer(&p.b.data[(j0+j+v)*p.b.row+first]), sRow: p.b.row * size, rows: rows, cols: k,
				dst: unsafe.Pointer(&dst[v]), dRow: width * size,
			})
		}
	}
}

// packA copies m rows of op(A), so that they do not share sets of the first-level cache.
func (p *product[T]) packA(i0, m, first, k int) (a unsafe.Pointer, aRow, aStep int) {
	size := sizeOf[T]()
	buf := room(&p.w.a, m*k+2*p.lanes) // whole vectors are written
	if p.a.column == 1 {
		for i := range m {
			copy(buf[i*k:(i+1)*k], p.a.data[(i0+i)*p.a.row+first:])
		}
		return unsafe.Pointer(unsafe.SliceData(buf)), k * size, size
	}
	copyBlock[T](p.isa, &block{
		src: unsafe.Pointer(&p.a.data[first*p.a.column+i0]), sRow: p.a.column * size, rows: m, cols: k,
		dst: unsafe.Pointer(&buf[0]), dRow: m * size,
	})
	return unsafe.Pointer(unsafe.SliceData(buf)), size, m * size
}
