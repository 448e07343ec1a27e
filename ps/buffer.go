package ps

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// deltas are what one worker added to one table in one round, or to one part of it.
//
// Rows of at most shortRow cells lie whole in an arena, longer ones each in a buffer that knows which runs of it were touched, sparse
// ones as lists. What was not touched holds what may be added without changing a bit.
type deltas[T Number] struct {
	t     *clientTable
	isa   kernel.ISA
	part  uint32
	rows  []int64 // in the order of first touch
	near  int     // the place of the row that was found last, before the last
	mixed bool    // they are not ascending, or were not asked for so: an index has them
	index keyIndex
	arena []T // short rows, one after the other
	long  []*longRow[T]
	lists []list[T] // sparse
	spare []*longRow[T]
	order []int32
	hold  *hold // who sends from this memory
	over  *overflow
}

// An overflow is the first cell whose deltas, each a number, add up to none.
type overflow struct {
	row, col int64
	sum      any
}

const (
	// shortRow is the largest number of cells of a row that is kept whole.
	shortRow = 1024
	// group is the number of neighbouring cells of a long row that are sent together.
	group = 64
)

// A longRow is the deltas of a row that may lie in several shards.
type longRow[T Number] struct {
	cells   []T
	touched []uint64 // a bit for each group; the others hold anything
}

// A list is the deltas of a sparse row, in the order of their coming.
type list[T Number] struct {
	cols   []int64
	cells  []T
	sorted bool // and each column is there once
}

func newDeltas[T Number](t *clientTable, part uint32) *deltas[T] {
	return &deltas[T]{t: t, isa: kernel.Best(), part: part, hold: new(hold)}
}

func (d *deltas[T]) empty() bool { return len(d.rows) == 0 }

// find returns the place of a row, -1: not touched. Rows that came in order are mostly found in it too, from the one that was found last.
func (d *deltas[T]) find(row int64) int32 {
	n := len(d.rows)
	switch {
	case n == 0:
		return -1
	case d.rows[n-1] == row:
		return int32(n - 1)
	case d.mixed:
		return d.index.find(row, 0)
	case row > d.rows[n-1]:
		return -1
	case row < d.rows[0]:
		return -1
	case row == d.rows[0]: // from the front again
		d.near = 0
		return 0
	case d.rows[d.near] == row:
		return int32(d.near)
	case d.rows[d.near+1] == row: // there is one: the last is none of these
		d.near++
		return int32(d.near)
	}
	d.mix()
	return d.index.find(row, 0)
}

// mix begins to find rows by an index.
func (d *deltas[T]) mix() {
	d.mixed = true
	for i, row := range d.rows {
		d.index.put(row, 0, int32(i))
	}
}

// place returns that of a row, made if it is new. A short row that is about to be written whole is not filled first.
func (d *deltas[T]) place(row int64, whole bool) (i int32, fresh bool) {
	if i = d.find(row); i >= 0 {
		return i, false
	}
	i = int32(len(d.rows))
	if !d.mixed && i > 0 && row < d.rows[i-1] {
		d.mix()
	}
	d.rows = append(d.rows, row)
	if d.mixed {
		d.index.put(row, 0, i)
	}
	n := int(d.t.spec.Cols)
	switch {
	case d.t.spec.Sparse:
		if len(d.lists) < cap(d.lists) {
			d.lists = d.lists[:i+1] // with the memory of a round before
			l := &d.lists[i]
			l.cols, l.cells, l.sorted = l.cols[:0], l.cells[:0], true
		} else {
			d.lists = append(d.lists, list[T]{sorted: true})
		}
	case n <= shortRow:
		k := len(d.arena)
		d.arena = slices.Grow(d.arena, n)[:k+n]
		if !whole {
			d.blank(d.arena[k:])
		}
	default:
		var l *longRow[T]
		if k := len(d.spare); k > 0 {
			l, d.spare = d.spare[k-1], d.spare[:k-1]
			clear(l.touched)
		} else {
			l = &longRow[T]{cells: make([]T, n), touched: make([]uint64, (n+group*64-1)/(group*64))}
		}
		d.long = append(d.long, l)
	}
	return i, true
}

// blank fills what may be added without changing a bit.
func (d *deltas[T]) blank(v []T) {
	x := nothing[T]()
	for i := range v {
		v[i] = x
	}
}

func (d *deltas[T]) short(i int32) []T {
	n := int(d.t.spec.Cols)
	return d.arena[int(i)*n : int(i)*n+n]
}

func (d *deltas[T]) inc(row, col int64, x T) {
	i, _ := d.place(row, false)
	switch {
	case d.t.spec.Sparse:
		x = d.lists[i].add(col, x)
	case d.t.spec.Cols <= shortRow:
		p := &d.arena[int64(i)*d.t.spec.Cols+col]
		*p += x
		x = *p
	default:
		l := d.long[i]
		d.touch(l, col, col+1)
		l.cells[col] += x
		x = l.cells[col]
	}
	if x-x != 0 {
		d.overflows(row, col, x)
	}
}

// overflows keeps the first sum that is no number.
func (d *deltas[T]) overflows(row, col int64, sum T) {
	if d.over == nil {
		d.over = &overflow{row, col, sum}
	}
}

// sum adds x to v, which are cells of a row from column from on.
func (d *deltas[T]) sum(row, from int64, v, x []T) {
	addInto(d.isa, v, x)
	if i := firstNotFinite(d.isa, v); i >= 0 {
		d.overflows(row, from+int64(i), v[i])
	}
}

// overflow returns the first cell whose sum is no number, nil: there is none. Where the same column of a sparse row comes again later, it is
// added only when the row is sorted: a row whose cells might overflow then is looked through.
func (d *deltas[T]) overflow() *overflow {
	for i := range d.lists {
		l := &d.lists[i]
		if l.sorted || d.over != nil {
			continue
		}
		var most T
		for _, x := range l.cells {
			most += max(x, -x)
		}
		if most-most != 0 {
			c := list[T]{cols: l.cols, cells: l.cells}
			c.sort()
			if k := firstNotFinite(d.isa, c.cells); k >= 0 {
				d.overflows(d.rows[i], c.cols[k], c.cells[k])
			}
		}
	}
	return d.over
}

// add returns what the last cell holds then.
func (l *list[T]) add(col int64, x T) T {
	if n := len(l.cols); n > 0 && l.cols[n-1] >= col {
		if l.cols[n-1] == col {
			l.cells[n-1] += x
			return l.cells[n-1]
		}
		l.sorted = false
	}
	l.cols, l.cells = append(l.cols, col), append(l.cells, x)
	return x
}

// sort sorts by column; a column that is there several times gets the sum, in the order of their coming.
func (l *list[T]) sort() {
	if l.sorted {
		return
	}
	order := make([]int32, len(l.cols))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(l.cols[a], l.cols[b]) })
	cols, cells := make([]int64, 0, len(order)), make([]T, 0, len(order))
	for _, i := range order {
		if n := len(cols); n > 0 && cols[n-1] == l.cols[i] {
			cells[n-1] += l.cells[i]
			continue
		}
		cols, cells = append(cols, l.cols[i]), append(cells, l.cells[i])
	}
	l.cols, l.cells, l.sorted = cols, cells, true
}

// touch makes the groups of cells a to b part of the deltas.
func (d *deltas[T]) touch(l *longRow[T], a, b int64) {
	for g, end := a/group, ceilGroup(b); g < end; {
		next := l.until(g, end)
		if !l.has(g) {
			d.blank(l.cells[g*group : min(next*group, int64(len(l.cells)))])
			l.mark(g, next)
		}
		g = next
	}
}

func ceilGroup(n int64) int64 { return (n + group - 1) / group }

// has reports whether group g was touched.
func (l *longRow[T]) has(g int64) bool { return l.touched[g/64]>>(g%64)&1 != 0 }

// until returns the first group after g, and below end, that was touched where g was not, or the other way round; end: there is none.
func (l *longRow[T]) until(g, end int64) int64 {
	as := -(l.touched[g/64] >> (g % 64) & 1)
	others := (l.touched[g/64] ^ as) >> (g % 64) << (g % 64)
	for w := g / 64; ; others = l.touched[w] ^ as {
		if others != 0 {
			return min(64*w+int64(bits.TrailingZeros64(others)), end)
		}
		if w++; 64*w >= end {
			return end
		}
	}
}

// mark says that groups a to b were touched.
func (l *longRow[T]) mark(a, b int64) {
	for a < b {
		w := a / 64
		to := min(b-64*w, 64)
		l.touched[w] |= ^uint64(0) >> (64 - to) >> (a % 64) << (a % 64)
		a = 64*w + to
	}
}

func (d *deltas[T]) dense(row, from int64, x []T) {
	n := int64(len(x))
	whole := n == d.t.spec.Cols
	i, fresh := d.place(row, whole)
	switch {
	case d.t.spec.Sparse:
		for k, v := range x {
			if y := d.lists[i].add(from+int64(k), v); y-y != 0 {
				d.overflows(row, from+int64(k), y)
			}
		}
	case d.t.spec.Cols <= shortRow:
		if fresh && whole {
			copy(d.short(i), x)
		} else {
			d.sum(row, from, d.short(i)[from:from+n], x)
		}
	default:
		d.denseLong(row, d.long[i], from, x)
	}
}

// many adds x to whole rows, ascending, one after the other.
func (d *deltas[T]) many(rows []int64, x []T) {
	n := int(d.t.spec.Cols)
	if k := len(d.rows); !d.t.spec.Sparse && n <= shortRow && !d.mixed && (k == 0 || d.rows[k-1] < rows[0]) { // none was touched before
		d.rows, d.arena = append(d.rows, rows...), append(d.arena, x...)
		return
	}
	for i, row := range rows {
		d.dense(row, 0, x[i*n:(i+1)*n])
	}
}

// denseLong adds x to a long row: untouched groups that x covers are copied, which is one pass of memory less.
func (d *deltas[T]) denseLong(row int64, l *longRow[T], from int64, x []T) {
	to := from + int64(len(x))
	first, end := ceilGroup(from), to/group // of the groups that x covers
	if to == int64(len(l.cells)) {
		end = ceilGroup(to)
	}
	part := func(a, b int64) {
		if a < b {
			d.touch(l, a, b)
			d.sum(row, a, l.cells[a:b], x[a-from:b-from])
		}
	}
	part(from, min(first*group, to))
	for g := first; g < end; {
		next := l.until(g, end)
		a, b := g*group, min(next*group, to)
		if l.has(g) {
			d.sum(row, a, l.cells[a:b], x[a-from:b-from])
		} else {
			copy(l.cells[a:b], x[a-from:b-from])
			l.mark(g, next)
		}
		g = next
	}
	part(max(end*group, first*group), to)
}

// overlay adds what columns from on of a row have to dst.
func (d *deltas[T]) overlay(row, from int64, dst []T) {
	i := d.find(row)
	if i < 0 {
		return
	}
	to := from + int64(len(dst))
	switch {
	case d.t.spec.Sparse:
		l := &d.lists[i]
		for k, c := range l.cols {
			if c >= from && c < to {
				dst[c-from] += l.cells[k]
			}
		}
	case d.t.spec.Cols <= shortRow:
		addInto(d.isa, dst, d.short(i)[from:to])
	default:
		l := d.long[i]
		for a, b := range l.runs(from, to) {
			addInto(d.isa, dst[a-from:b-from], l.cells[a:b])
		}
	}
}

// overlayCells adds what single columns, ascending, have.
func (d *deltas[T]) overlayCells(row int64, cols []int64, dst []T) {
	i := d.find(row)
	if i < 0 {
		return
	}
	if d.t.spec.Sparse { // as many steps as there are deltas, however many columns are asked for
		for j, x := range d.lists[i].cols {
			if k, found := slices.BinarySearch(cols, x); found {
				dst[k] += d.lists[i].cells[j]
			}
		}
		return
	}
	for k, c := range cols {
		if d.t.spec.Cols <= shortRow {
			dst[k] += d.short(i)[c]
		} else if l := d.long[i]; l.has(c / group) {
			dst[k] += l.cells[c]
		}
	}
}

// runs walks the touched runs between columns from and to.
func (l *longRow[T]) runs(from, to int64) func(yield func(a, b int64) bool) {
	return func(yield func(a, b int64) bool) {
		for g, end := from/group, ceilGroup(to); g < end; {
			next := l.until(g, end)
			if l.has(g) && !yield(max(g*group, from), min(next*group, to)) {
				return
			}
			g = next
		}
	}
}

// merge adds o to d: the workers of a client, in their order, make one batch.
func (d *deltas[T]) merge(other any) {
	o := other.(*deltas[T])
	for k, row := range o.rows {
		i, fresh := d.place(row, d.t.spec.Cols <= shortRow)
		switch {
		case d.t.spec.Sparse:
			for j, c := range o.lists[k].cols {
				d.lists[i].add(c, o.lists[k].cells[j])
			}
		case d.t.spec.Cols <= shortRow:
			if fresh {
				copy(d.short(i), o.short(int32(k)))
			} else {
				addInto(d.isa, d.short(i), o.short(int32(k)))
			}
		default:
			for a, b := range o.long[k].runs(0, d.t.spec.Cols) {
				d.denseLong(row, d.long[i], a, o.long[k].cells[a:b])
			}
		}
	}
}

// reset empties d, and keeps its memory.
func (d *deltas[T]) reset() {
	if d.mixed {
		d.index.clear()
		d.mixed = false
	}
	d.near = 0
	d.rows, d.arena, d.lists, d.over = d.rows[:0], d.arena[:0], d.lists[:0], nil
	d.spare = append(d.spare, d.long...)
	d.long = d.long[:0]
}

func (d *deltas[T]) sender() *hold { return d.hold }

// bytes is about what d takes of memory.
func (d *deltas[T]) bytes() int {
	cells, keys := len(d.arena), len(d.rows)
	for _, l := range d.long {
		cells += len(l.cells)
	}
	for i := range d.lists {
		cells, keys = cells+len(d.lists[i].cells), keys+len(d.lists[i].cols)
	}
	return cells*d.t.spec.Cell.Size() + 8*keys
}

// buffered is the deltas of any type of cell.
type buffered interface {
	empty() bool
	merge(o any)
	reset()
	overflow() *overflow
	sections(emit emitter)
	bytes() int
	sender() *hold
	partOf() uint32
	setPart(part uint32)
}

func (d *deltas[T]) partOf() uint32 { return d.part }

func (d *deltas[T]) setPart(part uint32) { d.part = part }

func newBuffered(t *clientTable, part uint32) buffered {
	switch t.spec.Cell {
	case Float64:
		return newDeltas[float64](t, part)
	case Int32:
		return newDeltas[int32](t, part)
	case Int64:
		return newDeltas[int64](t, part)
	}
	return newDeltas[float32](t, part)
}
