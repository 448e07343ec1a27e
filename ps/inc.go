package ps

import (
	"errors"
	"fmt"
)

// deltas is the buffer of the round under way.
func (t Table[T]) deltas(part int) *deltas[T] {
	s := t.w.s
	if part == 0 && t.r.round == s.now {
		return t.r.last
	}
	d := t.w.d
	d.Lock()
	b := s.buffer(t.t, uint32(part)).(*deltas[T])
	d.Unlock()
	if part == 0 {
		t.r.last, t.r.round = b, s.now
	}
	return b
}

func (t Table[T]) checkOpen() error {
	if t.w.s.finished {
		return errors.New("ps: inc: the worker is finished")
	}
	return nil
}

// Inc adds delta to a cell, once Clock is called. With an optimizer the delta is a gradient; of a dense row it is 0 where nothing is added, and
// the row is stepped as a whole. So for the whole family.
func (t Table[T]) Inc(row, col int64, delta T) error {
	if err := t.checkRow("inc", row); err != nil {
		return err
	}
	if col < 0 || col >= t.t.spec.Cols {
		return fmt.Errorf("ps: inc %q: row %d: column %d: want 0 to %d", t.t.spec.Name, row, col, t.t.spec.Cols-1)
	}
	if t.w.s.finished {
		return t.checkOpen()
	}
	if delta-delta != 0 {
		t.refuse(row, col, delta)
		return nil
	}
	t.deltas(0).inc(row, col, delta)
	return nil
}

// refuse keeps the first delta that is no number: Clock says so, and sends nothing.
func (t Table[T]) refuse(row, col int64, delta T) {
	s := t.w.s
	if s.bad == nil {
		s.bad = fmt.Errorf("ps: clock: table %q, row %d, column %d: worker %d of %s added %v in round %d", t.t.spec.Name, row, col, s.index, s.c.self, delta, s.clock)
	}
}

func (t Table[T]) checkCols(op string, row int64, cols []int64, ascending bool) error {
	for i, c := range cols {
		if c < 0 || c >= t.t.spec.Cols {
			return fmt.Errorf("ps: %s %q: row %d: column %d: want 0 to %d", op, t.t.spec.Name, row, c, t.t.spec.Cols-1)
		}
		if ascending && i > 0 && c <= cols[i-1] {
			return fmt.Errorf("ps: %s %q: row %d: column %d follows %d: want ascending columns, each once", op, t.t.spec.Name, row, c, cols[i-1])
		}
	}
	return nil
}

// BatchInc adds to some columns of a row, ascending.
func (t Table[T]) BatchInc(row int64, cols []int64, deltas []T) error {
	if err := t.checkRow("inc", row); err != nil {
		return err
	}
	if len(cols) != len(deltas) {
		return fmt.Errorf("ps: inc %q: row %d: %d columns and %d deltas", t.t.spec.Name, row, len(cols), len(deltas))
	}
	if err := t.checkCols("inc", row, cols, true); err != nil {
		return err
	}
	if err := t.checkOpen(); err != nil {
		return err
	}
	if i := firstNotFinite(t.t.isa, deltas); i >= 0 {
		t.refuse(row, cols[i], deltas[i])
		return nil
	}
	d := t.deltas(0)
	for i, c := range cols {
		d.inc(row, c, deltas[i])
	}
	return nil
}

// DenseInc adds to the columns of a row from column from on.
func (t Table[T]) DenseInc(row, from int64, deltas []T) error { return t.IncPart(0, row, from, deltas) }

// IncPart is DenseInc of a partial sum: part is the Node of a subtree of the virtual shards (see package shards), and the server adds
// the parts of all workers along the tree. Part 0 is DenseInc.
func (t Table[T]) IncPart(part int, row, from int64, deltas []T) error {
	if err := t.checkRow("inc", row); err != nil {
		return err
	}
	if from < 0 || from > t.t.spec.Cols-int64(len(deltas)) {
		return fmt.Errorf("ps: inc %q: row %d: columns %d to %d: want 0 to %d", t.t.spec.Name, row, from, from+int64(len(deltas))-1, t.t.spec.Cols-1)
	}
	if err := t.checkPart(part, row); err != nil {
		return err
	}
	if err := t.checkOpen(); err != nil {
		return err
	}
	if len(deltas) == 0 {
		return nil
	}
	d := t.deltas(part)
	// In blocks, so that the second look at them finds them in the cache.
	for at := 0; at < len(deltas); at += 1 << 14 {
		x := deltas[at:min(at+1<<14, len(deltas))]
		if i := firstNotFinite(t.t.isa, x); i >= 0 {
			t.refuse(row, from+int64(at+i), x[i])
			return nil
		}
		if len(x) == len(deltas) {
			d.dense(row, from, x)
		} else {
			d.dense(row, from+int64(at), x)
		}
	}
	return nil
}

func (t Table[T]) checkPart(part int, row int64) error {
	if part < 0 || part > maxPart {
		return fmt.Errorf("ps: inc %q: row %d: part %d: want 0, or the Node of a shards.Subtree", t.t.spec.Name, row, part)
	}
	return nil
}

// IncRows adds to whole rows, ascending, each once, the deltas of one after the other: as IncPart does to each.
func (t Table[T]) IncRows(part int, rows []int64, deltas []T) error {
	if err := t.check("inc"); err != nil || len(rows) == 0 {
		return err
	}
	if err := t.checkAll("inc", rows); err != nil {
		return err
	}
	if err := t.checkAscending("inc", rows); err != nil {
		return err
	}
	n := int(t.t.spec.Cols)
	if len(deltas) != len(rows)*n {
		return fmt.Errorf("ps: inc %q: %d rows of %d cells, and %d deltas", t.t.spec.Name, len(rows), n, len(deltas))
	}
	if err := t.checkPart(part, rows[0]); err != nil {
		return err
	}
	if err := t.checkOpen(); err != nil {
		return err
	}
	if i := firstNotFinite(t.t.isa, deltas); i >= 0 {
		t.refuse(rows[i/n], int64(i%n), deltas[i])
		return nil
	}
	t.deltas(part).many(rows, deltas)
	return nil
}
