package ps

import (
	"cmp"
	"slices"
	"sort"

	"github.com/trivium-ml/trivium/internal/raw"
)

// sections emits d as sections, in the order of shards: rows ascending within each.
func (d *deltas[T]) sections(emit emitter) {
	d.order = d.order[:0]
	for i := range d.rows {
		d.order = append(d.order, int32(i))
	}
	if d.mixed {
		slices.SortFunc(d.order, func(a, b int32) int { return cmp.Compare(d.rows[a], d.rows[b]) })
	}
	switch {
	case d.t.spec.Sparse:
		d.sparseSections(emit)
	case d.t.spec.Cols <= shortRow && d.t.cut.wholeRows():
		d.rowSections(emit)
	case d.t.spec.Cols <= shortRow:
		for _, i := range d.order {
			d.rangeSections(d.rows[i], 0, d.short(i), emit)
		}
	default:
		for _, i := range d.order {
			l := d.long[i]
			if d.t.spec.Optimizer != "" { // it steps a row as a whole, whichever servers have the cells that were added to
				d.touch(l, 0, d.t.spec.Cols)
			}
			for a, b := range l.runs(0, d.t.spec.Cols) {
				d.rangeSections(d.rows[i], a, l.cells[a:b], emit)
			}
		}
	}
}

// rangeSections emits a run of columns of one row, cut at shards and at what a message holds. The cells are sent from where they lie.
func (d *deltas[T]) rangeSections(row, from int64, x []T, emit emitter) {
	most := int64(maxPiece / d.t.spec.Cell.Size())
	for end := from + int64(len(x)); from < end; {
		shard, _, to := d.t.cut.segment(row, from)
		n := min(to, end, from+most) - from
		emit(section{table: d.t.id, shard: uint32(shard), form: formRange, part: d.part, row: row, from: from, n: int(n), cells: raw.Bytes(x[:n])}, d.hold)
		x, from = x[n:], from+n
	}
}

// rowSections emits rows whole, or, where few cells of them are not zero, those cells.
func (d *deltas[T]) rowSections(emit emitter) {
	n := int(d.t.spec.Cols)
	most := max(1, maxPiece/(n*d.t.spec.Cell.Size()+8))
	d.byShard(func(shard uint32, order []int32) {
		if d.t.spec.Optimizer == "" && n >= 4 && d.few(order) {
			d.cellSections(shard, order, emit)
			return
		}
		for len(order) > 0 {
			k := min(most, len(order))
			c := section{table: d.t.id, shard: shard, form: formRows, part: d.part, n: k * n}
			if i := int(order[0]); !d.mixed && int(order[k-1]) == i+k-1 { // as they came: from where they lie
				c.rows, c.cells = d.rows[i:i+k:i+k], raw.Bytes(d.arena[i*n:(i+k)*n])
				emit(c, d.hold)
			} else {
				cells := make([]T, 0, k*n)
				c.rows = make([]int64, 0, k)
				for _, i := range order[:k] {
					c.rows = append(c.rows, d.rows[i])
					cells = append(cells, d.short(i)...)
				}
				c.cells = raw.Bytes(cells)
				emit(c, nil)
			}
			order = order[k:]
		}
	})
}

// few reports whether the rows would be smaller as single cells: less than a third of them are not zero.
func (d *deltas[T]) few(order []int32) bool {
	n := 0
	for _, i := range order[:min(len(order), 16)] { // a sample: rows of one table are alike
		for _, x := range d.short(i) {
			if x != 0 {
				n++
			}
		}
	}
	return 3*n < min(len(order), 16)*int(d.t.spec.Cols)
}

func (d *deltas[T]) cellSections(shard uint32, order []int32, emit emitter) {
	b := d.newCells(shard, emit)
	for _, i := range order {
		for c, x := range d.short(i) {
			if x != 0 {
				b.add(d.rows[i], int64(c), x)
			}
		}
	}
	b.flush()
}

func (d *deltas[T]) sparseSections(emit emitter) {
	for i := range d.rows {
		d.lists[i].sort()
	}
	if d.t.cut.wholeRows() {
		d.byShard(func(shard uint32, order []int32) {
			b := d.newCells(shard, emit)
			for _, i := range order {
				for k, c := range d.lists[i].cols {
					b.add(d.rows[i], c, d.lists[i].cells[k])
				}
			}
			b.flush()
		})
		return
	}
	packers := make([]*cellPacker[T], d.t.cut.shards) // rows in blocks, each of which has a shard of its own
	for _, i := range d.order {
		l := &d.lists[i]
		for k := 0; k < len(l.cols); {
			shard, _, to := d.t.cut.segment(d.rows[i], l.cols[k])
			b := packers[shard]
			if b == nil {
				b = d.newCells(uint32(shard), emit)
				packers[shard] = b
			}
			b.apart = true
			for ; k < len(l.cols) && l.cols[k] < to; k++ {
				b.add(d.rows[i], l.cols[k], l.cells[k])
			}
		}
	}
	for _, b := range packers {
		if b != nil {
			b.flush()
		}
	}
}

// byShard calls f with the rows of each shard, ascending.
func (d *deltas[T]) byShard(f func(shard uint32, order []int32)) {
	c := d.t.cut
	if c.bounds == nil && c.shards > 1 {
		slices.SortStableFunc(d.order, func(a, b int32) int { return cmp.Compare(c.shardOf(d.rows[a], 0), c.shardOf(d.rows[b], 0)) })
	}
	for at := 0; at < len(d.order); {
		shard, n := c.shardOf(d.rows[d.order[at]], 0), 1
		if c.bounds != nil {
			n = sort.Search(len(d.order)-at, func(n int) bool { return d.rows[d.order[at+n]] >= c.bounds[shard+1]/d.t.spec.Cols })
		}
		for c.bounds == nil && at+n < len(d.order) && c.shardOf(d.rows[d.order[at+n]], 0) == shard {
			n++
		}
		f(uint32(shard), d.order[at:at+n])
		at += n
	}
}

// A cellPacker packs cells with their columns.
type cellPacker[T Number] struct {
	base  section
	c     section
	cells []T
	per   int
	apart bool // the next cell begins a block
	emit  emitter
}

func (d *deltas[T]) newCells(shard uint32, emit emitter) *cellPacker[T] {
	b := section{table: d.t.id, shard: shard, form: formCells, part: d.part}
	return &cellPacker[T]{base: b, c: b, per: d.t.spec.Cell.Size() + 8, emit: emit}
}

func (b *cellPacker[T]) add(row, col int64, x T) {
	if 16*len(b.c.rows)+b.per*(len(b.cells)+1)+16 > maxPiece {
		b.flush()
	}
	if n := len(b.c.rows); n == 0 || b.apart || b.c.rows[n-1] != row {
		b.c.rows, b.c.ends, b.apart = append(b.c.rows, row), append(b.c.ends, int64(len(b.cells))), false
	}
	b.c.cols, b.cells = append(b.c.cols, col), append(b.cells, x)
	b.c.ends[len(b.c.ends)-1]++
}

func (b *cellPacker[T]) flush() {
	if len(b.cells) > 0 {
		b.c.n, b.c.cells = len(b.cells), raw.Bytes(b.cells)
		b.emit(b.c, nil)
	}
	b.c, b.cells = b.base, nil
}
