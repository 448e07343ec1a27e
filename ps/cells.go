package ps

import (
	"context"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/internal/raw"
)

// GetCells copies single cells of a row into dst; cols are ascending. Where the cache has the row it is read, else only these travel.
// The value clock is the least of these cells': of none of them does it fall from call to call, but other cells of the row may be of another.
// No cells are read as GetRows reads no rows.
func (t Table[T]) GetCells(ctx context.Context, row int64, cols []int64, dst []T) (Clock, error) {
	if err := t.checkRow("get", row); err != nil {
		return 0, err
	}
	if len(cols) != len(dst) {
		return 0, fmt.Errorf("ps: get %q: row %d: %d columns and room for %d cells", t.t.spec.Name, row, len(cols), len(dst))
	}
	if err := t.checkCols("get", row, cols, true); err != nil {
		return 0, err
	}
	if len(cols) == 0 {
		return t.w.Now(), nil
	}
	s, d := t.w.s, t.w.d
	d.Lock()
	if v, all := t.cachedCells(row, cols, dst); all {
		t.t.counted(s.clock, v, true)
		d.Unlock()
		return t.saw(v, true), nil
	}
	d.Unlock()
	t.r.one[0] = row
	g := &getCall{w: s, t: t.t, rows: t.r.one[:], cols: cols}
	v, err := t.call(ctx, g)
	if err != nil {
		return 0, err
	}
	d.Lock()
	copy(dst, raw.Of[T](g.out))
	t.overlayOwn(g, dst)
	c, _ := t.cachedCells(row, cols, dst) // what the cache has of them, perhaps since then, may be older: the next read has it
	v = min(v, c)
	t.t.read(row, cols, v)
	t.t.counted(s.clock, v, false)
	s.c.unpin(g)
	d.Unlock()
	return t.saw(v, false), nil
}

// read notes in the cache that cells of a row were read with that value clock: an answer that is on its way, and lacks more, is not read after them.
func (t *clientTable) read(row int64, cols []int64, v Clock) {
	r := t.find(row)
	if r == nil {
		return
	}
	for i := range r.segs {
		s := &r.segs[i]
		if a, _ := slices.BinarySearch(cols, s.from); a < len(cols) && cols[a] < s.to {
			s.seen = max(s.seen, v)
		}
	}
}

// cachedCells reads those cells that lie in segments that the cache has, also where it lacks others of the row: a read of the row does not ask
// for these segments again. It returns the value clock of these cells, and whether they are all.
func (t Table[T]) cachedCells(row int64, cols []int64, dst []T) (v Clock, all bool) {
	s := t.w.s
	r := t.t.find(row)
	if r == nil || s.c.err != nil {
		return maxClock, false
	}
	v, all = maxClock, true
	for i := range r.segs {
		seg := &r.segs[i]
		a, _ := slices.BinarySearch(cols, seg.from)
		b, _ := slices.BinarySearch(cols, seg.to)
		if a == b {
			continue
		}
		x, ok := s.c.freshSegment(r, seg, s)
		if !ok {
			all = false
			continue
		}
		r.used = true
		v = min(v, x)
		t.readCells(r, seg, cols[a:b], dst[a:b])
	}
	return v, all
}

// overlayOwn adds the worker's deltas that the cells of an answer lack.
func (t Table[T]) overlayOwn(g *getCall, dst []T) {
	if t.t.spec.Optimizer != "" {
		return
	}
	for at := 0; at < len(g.cols); {
		n := 1
		for at+n < len(g.cols) && g.owns[at+n] == g.owns[at] {
			n++
		}
		t.overlayCells(g.rows[0], g.cols[at:at+n], dst[at:at+n], g.owns[at])
		at += n
	}
}

// overlayCells adds what the worker added since its round own.
func (t Table[T]) overlayCells(row int64, cols []int64, dst []T, own Clock) {
	add := func(b *workerRound) {
		for _, x := range b.of(t.t) {
			x.(*deltas[T]).overlayCells(row, cols, dst)
		}
	}
	for _, b := range t.w.s.sent {
		if b.stamp >= own {
			add(b)
		}
	}
	add(t.w.s.now)
}

// readCells reads cells of one segment.
func (t Table[T]) readCells(r *cachedRow, seg *cachedSegment, cols []int64, dst []T) {
	cells := viewOf[T](r.cells, r.n)
	for k, c := range cols {
		switch i, found := slices.BinarySearch(r.cols, c); {
		case r.cols == nil && int(c) < len(cells):
			dst[k] = cells[c]
		case found:
			dst[k] = cells[i]
		default:
			dst[k] = T(t.t.spec.Init.value(r.row, c))
		}
	}
	if t.t.spec.Optimizer == "" {
		_, own := t.w.s.c.value(seg)
		t.overlayCells(r.row, cols, dst, own)
	}
}
