package ps

import (
	"slices"

	"github.com/trivium-ml/trivium/internal/raw"
)

const (
	// maxPiece is the largest payload of one message in bytes, so that with its head it fits a frame of 1 MiB.
	maxPiece = 1<<20 - 1<<14
	// maxSections of one message, so that its head fits the rest.
	maxSections = (1<<14 - 512) / sectionHead
	// inPlace is the size in bytes from which cells are sent from where they lie, in a frame of their own: to copy less costs no more than
	// to keep it unchanged meanwhile.
	inPlace = 1 << 14
	// copyBelow is the size in bytes below which an answer copies cells: that costs less than to keep them unchanged until it is sent,
	// and so does a small part of a large shard, since all of it is copied if it changes meanwhile.
	copyBelow = 1 << 10
)

// emitter takes sections of an answer, with the hold on their memory, if it is not their own.
type emitter func(c section, h *hold)

// read emits the values of what q asks for, whose number in the request is k.
func (s *shard[T]) read(q *section, k int, emit emitter) {
	base := section{table: q.table, shard: q.shard, version: s.tick + 1, part: uint32(k) + 1}
	if q.form == formRows && q.mark {
		s.readPlain(q, base, emit)
		return
	}
	s.tells()
	switch q.form {
	case formRange:
		s.readRange(q, base, emit)
	case formRows:
		if s.t.spec.Sparse {
			s.readSparse(q, base, emit)
		} else {
			s.readRows(q, base, emit)
		}
	case formCells:
		s.readCells(q, base, emit)
	}
}

func (s *shard[T]) readRange(q *section, base section, emit emitter) {
	base.row, base.form = q.row, formRange
	size := s.t.spec.Cell.Size()
	i := s.find(q.row, q.from)
	if i >= 0 && q.version > 0 && s.segs[i].version < q.version {
		base.form, base.rows = formSame, []int64{q.row}
		base.from = q.from
		emit(base, nil)
		return
	}
	var cells []T
	var h *hold
	switch {
	case s.live != nil:
		a, _, from := s.span(i)
		a += int(q.from - from)
		cells, h = s.live.cells[a:a+q.n], s.live.hold
	case s.t.spec.Sparse || i < 0:
		cells = make([]T, q.n)
		s.fill(q.row, q.from, cells)
		if i >= 0 {
			r := s.rows[i]
			for k, c := range r.cols {
				if c >= q.from && c < q.from+int64(q.n) {
					cells[c-q.from] = r.cells[k]
				}
			}
		}
	default:
		r := s.rows[i]
		cells = slices.Clone(r.cells[q.from-r.from:][:q.n])
	}
	if h != nil && (q.n*size < copyBelow || q.n*size < inPlace && q.n < len(s.live.cells)/64) {
		cells, h = slices.Clone(cells), nil
	}
	for at := 0; at < q.n; at += maxPiece / size {
		n := min(maxPiece/size, q.n-at)
		c := base
		c.from, c.n, c.cells = q.from+int64(at), n, raw.Bytes(cells[at:at+n])
		emit(c, h)
	}
}

// warmReads is warm of rows that are read.
func (s *shard[T]) warmReads(rows []int64) {
	for _, r := range rows[:min(warmRows, len(rows))] {
		s.warmed += s.live.cells[(r*s.t.spec.Cols)-s.lo]
		if s.told {
			s.warmedSteps += uint32(s.segs[r-s.first].version)
		}
	}
}

func (s *shard[T]) readRows(q *section, base section, emit emitter) {
	cols := int(s.t.spec.Cols)
	size := cols * s.t.spec.Cell.Size()
	if size > maxPiece || size >= copyBelow && s.live != nil && len(q.rows)*cols >= len(s.live.cells)/4 { // large rows, or most of the shard
		for _, r := range q.rows {
			s.readRange(&section{row: r, n: cols, version: q.version}, base, emit)
		}
		return
	}
	same := base
	same.form = formSame
	most := max(1, maxPiece/(size+8))
	rows := make([]int64, 0, min(len(q.rows), most))
	cells := make([]T, 0, cap(rows)*cols)
	flush := func() {
		if len(rows) == 0 {
			return
		}
		c := base
		c.form, c.rows, c.n, c.cells = formRows, rows, len(cells), raw.Bytes(cells)
		emit(c, nil)
		rows, cells = nil, nil
	}
	for k, r := range q.rows {
		if k%warmRows == 0 && s.live != nil {
			s.warmReads(q.rows[k:])
		}
		i := s.find(r, 0)
		if q.version > 0 && i >= 0 && s.segs[i].version < q.version {
			same.rows = append(same.rows, r)
			continue
		}
		rows = append(rows, r)
		switch {
		case s.live != nil:
			a, b, _ := s.span(i)
			cells = append(cells, s.live.cells[a:b]...)
		case i >= 0:
			cells = append(cells, s.rows[i].cells...)
		default:
			n := len(cells)
			cells = slices.Grow(cells, cols)[:n+cols]
			s.fill(r, 0, cells[n:])
		}
		if len(rows) == most {
			flush()
		}
	}
	flush()
	for len(same.rows) > 0 {
		c, n := same, min(len(same.rows), maxPiece/8)
		c.rows, same.rows = same.rows[:n], same.rows[n:]
		emit(c, nil)
	}
}

// sparsePiece is the number of cells of a sparse row in a piece that is full: the row goes on in the next one, if only with none.
func sparsePiece(c Cell) int { return (maxPiece - 16) / (c.Size() + 8) }

// readSparse answers with the columns that rows have. The others hold what Init says, which the reader computes.
func (s *shard[T]) readSparse(q *section, base section, emit emitter) {
	per := s.t.spec.Cell.Size() + 8
	var c section
	var cells []T
	flush := func() {
		if len(c.rows) > 0 {
			c.n, c.cells = len(cells), raw.Bytes(cells)
			emit(c, nil)
		}
		c, cells = base, nil
		c.form = formCells
	}
	flush()
	for _, r := range q.rows {
		i := s.find(r, 0)
		var cols []int64
		var x []T
		if i >= 0 {
			cols, x = s.rows[i].cols, s.rows[i].cells
		}
		if 16*len(c.rows)+per*(len(c.cols)+len(cols)) > maxPiece {
			flush()
		}
		for most := sparsePiece(s.t.spec.Cell); ; {
			n := min(len(cols), most)
			c.cols, cells = append(c.cols, cols[:n]...), append(cells, x[:n]...)
			c.rows, c.ends = append(c.rows, r), append(c.ends, int64(len(c.cols)))
			if cols, x = cols[n:], x[n:]; n < most {
				break
			}
			flush()
		}
	}
	flush()
}

// readCells answers with the cells in the order of the request, without their keys. from counts those before.
func (s *shard[T]) readCells(q *section, base section, emit emitter) {
	cells := make([]T, 0, len(q.cols))
	start := int64(0)
	for k, r := range q.rows {
		cols := q.cols[start:q.ends[k]]
		start = q.ends[k]
		i := s.find(r, cols[0])
		switch {
		case i < 0 && s.t.spec.Keep.Kind == KeepRowNorm:
			whole := make([]T, s.t.spec.Cols)
			s.fill(r, 0, whole)
			for _, c := range cols {
				cells = append(cells, whole[c])
			}
		case i < 0:
			for _, c := range cols {
				cells = append(cells, T(s.t.spec.Init.value(r, c)))
			}
		case s.live != nil:
			a, _, from := s.span(i)
			for _, c := range cols {
				cells = append(cells, s.live.cells[a+int(c-from)])
			}
		case s.t.spec.Sparse:
			row := s.rows[i]
			for _, c := range cols {
				if j, found := slices.BinarySearch(row.cols, c); found {
					cells = append(cells, row.cells[j])
				} else {
					cells = append(cells, T(s.t.spec.Init.value(r, c)))
				}
			}
		default:
			row := s.rows[i]
			for _, c := range cols {
				cells = append(cells, row.cells[c-row.from])
			}
		}
	}
	for at := 0; at < len(cells); at += maxPiece / 8 {
		n := min(maxPiece/8, len(cells)-at)
		c := base
		c.form, c.from, c.n, c.cells = formRange, int64(at), n, raw.Bytes(cells[at:at+n])
		emit(c, nil)
	}
}

// subscribe makes client one that is sent changes of the rows that q names, or not.
func (s *shard[T]) subscribe(q *section, client uint16, on bool) {
	s.tells()
	one := func(r, col int64) {
		i := s.find(r, col)
		if on {
			i = s.findOrMake(r, col)
		}
		if i >= 0 {
			s.segs[i].subscribe(client, on)
		}
	}
	switch q.form {
	case formRange:
		one(q.row, q.from)
	case formRows, formSame:
		for _, r := range q.rows {
			one(r, q.from)
		}
	case formCells: // of segments, by a column of each
		start := int64(0)
		for i, r := range q.rows {
			one(r, q.cols[start])
			start = q.ends[i]
		}
	}
}

// forget ends all subscriptions of a client.
func (s *shard[T]) forget(client uint16) {
	for i := range s.segs {
		s.segs[i].subscribe(client, false)
	}
}

// changed emits the rows that changed since settle, and that client subscribed to.
func (s *shard[T]) changed(client uint16, emit emitter) {
	var rows []int64
	for _, i := range s.dirty {
		if !s.segs[i].subscribed(client) {
			continue
		}
		if s.t.cut.wholeRows() && s.t.spec.Cols*int64(s.t.spec.Cell.Size()) <= maxPiece {
			if s.live != nil {
				rows = append(rows, s.first+int64(i))
			} else {
				rows = append(rows, s.rows[i].row)
			}
			continue
		}
		q := section{table: s.t.id, shard: uint32(s.index), form: formRange}
		if s.live != nil {
			a, b, from := s.span(i)
			q.row, q.from, q.n = s.first+int64(i), from, b-a
		} else {
			r := s.rows[i]
			q.row, q.from, q.n = r.row, r.from, int(min(s.t.cut.block, s.t.spec.Cols-r.from))
		}
		s.read(&q, 0, emit)
	}
	if len(rows) > 0 {
		slices.Sort(rows)
		s.read(&section{table: s.t.id, shard: uint32(s.index), form: formRows, rows: rows}, 0, emit)
	}
}

// settle forgets what changed.
func (s *shard[T]) settle() {
	for _, i := range s.dirty {
		if w := s.segs[i].watch; w != nil {
			w.dirty = false
			s.segs[i].unwatch()
		}
	}
	s.dirty = s.dirty[:0]
}

// store is a shard of any type of cell.
type store interface {
	check(c *section, update bool) error
	apply(p *roundPart)
	read(q *section, k int, emit emitter)
	subscribe(q *section, client uint16, on bool)
	forget(client uint16)
	changed(client uint16, emit emitter)
	settle()
	image() image
	kept(f func(Kept) error) error
	restore(p []byte, o *object) error
	merge()
}

func newStore(t *table, index int, r *room) store {
	switch t.spec.Cell {
	case Float64:
		return newShard[float64](t, index, r)
	case Int32:
		return newShard[int32](t, index, r)
	case Int64:
		return newShard[int64](t, index, r)
	}
	return newShard[float32](t, index, r)
}
