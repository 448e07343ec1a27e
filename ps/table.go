package ps

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// A Table is a worker's access to one.
type Table[T Number] struct {
	w *Worker
	t *clientTable
	r *reader[T]
}

// reader is what reads need again and again.
type reader[T Number] struct {
	scratch []T
	one     [1]int64
	last    *deltas[T] // of the round under way, part 0
	round   *workerRound
	pulled  []byte // memory of an answer that was taken; nil: it is in use
}

// TableOf returns a table of the worker's client.
func TableOf[T Number](w *Worker, name string) (Table[T], error) {
	w.d.Lock()
	defer w.d.Unlock()
	t := w.s.c.byName[name]
	if t == nil {
		var there []string
		for _, t := range w.s.c.tables {
			there = append(there, t.spec.Name)
		}
		return Table[T]{}, fmt.Errorf("ps: no table is called %q; there are %q", name, there)
	}
	if c := cellOf[T](); c != t.spec.Cell {
		return Table[T]{}, fmt.Errorf("ps: table %q: its cells are %s, and it was asked for with %s", name, t.spec.Cell, c)
	}
	return Table[T]{w: w, t: t, r: &reader[T]{}}, nil
}

// Spec is the table's definition, of the zero Table the zero Spec.
func (t Table[T]) Spec() Spec {
	if t.t == nil {
		return Spec{}
	}
	return t.t.spec
}

// check refuses the zero Table, as whoever did not look at the error of TableOf has it.
func (t Table[T]) check(op string) error {
	if t.t == nil {
		return fmt.Errorf("ps: %s of the zero Table: want one that TableOf returned", op)
	}
	return nil
}

func (t Table[T]) checkRow(op string, row int64) error {
	if err := t.check(op); err != nil {
		return err
	}
	if t.t.spec.Rows > 0 && (row < 0 || row >= t.t.spec.Rows) {
		return fmt.Errorf("ps: %s %q: row %d: want 0 to %d", op, t.t.spec.Name, row, t.t.spec.Rows-1)
	}
	return nil
}

// Get copies a row into dst, which has length Cols, waiting as the mode demands, and returns its value clock.
func (t Table[T]) Get(ctx context.Context, row int64, dst []T) (Clock, error) {
	if err := t.checkRow("get", row); err != nil {
		return 0, err
	}
	if int64(len(dst)) != t.t.spec.Cols {
		return 0, fmt.Errorf("ps: get %q: row %d: want %d cells, found room for %d", t.t.spec.Name, row, t.t.spec.Cols, len(dst))
	}
	s, d := t.w.s, t.w.d
	d.Lock()
	if r := t.t.find(row); r != nil && s.c.err == nil {
		if v, ok := s.c.fresh(r, s); ok {
			r.used = true
			t.t.counted(s.clock, v, true)
			t.copy(r, dst)
			return t.saw(v, true), nil
		}
	}
	d.Unlock()
	t.r.one[0] = row
	g, v, err := t.fetch(ctx, t.r.one[:])
	if err != nil {
		return 0, err
	}
	r := g.hits[0]
	r.pins++ // until it is copied
	s.reads++
	s.c.unpin(g)
	r.pins--
	s.reads--
	t.copy(r, dst)
	return t.saw(v, !g.missed), nil
}

func (t Table[T]) saw(v Clock, cached bool) Clock { return t.w.told(t.t, v, cached) }

// told tells who wants to know of a read.
func (w *Worker) told(t *clientTable, v Clock, cached bool) Clock {
	if w.saw != nil {
		w.saw(t.spec.Name, v, cached)
	}
	return v
}

func (t Table[T]) call(ctx context.Context, g *getCall) (Clock, error) {
	w := t.w
	if w.waits != nil {
		w.d.Lock()
		behind := needOf(t.t, w.s.clock) > w.s.c.ended()
		w.d.Unlock()
		w.waits(t.t.spec.staleness(), behind)
		defer w.came()
	}
	v, err := w.d.Call(ctx, g)
	if err != nil {
		return 0, err
	}
	return v.(Clock), nil
}

// fetch has rows in the cache, and returns with the lock held. Between the answer and the lock another worker's read may have begun to
// land on them: then they are asked for again.
func (t Table[T]) fetch(ctx context.Context, rows []int64) (*getCall, Clock, error) {
	s, d := t.w.s, t.w.d
	missed := false
	for {
		g := &getCall{w: s, t: t.t, rows: rows}
		v, err := t.call(ctx, g)
		if err != nil {
			return nil, 0, err
		}
		missed = missed || g.missed
		d.Lock()
		torn := false
		for _, r := range g.hits {
			_, ok := s.c.fresh(r, s)
			torn = torn || !ok
		}
		if !torn {
			g.missed = missed
			t.t.counted(s.clock, v, !missed)
			return g, v, nil
		}
		s.c.unpin(g)
		d.Unlock()
	}
}

// copyLocked is the number of cells up to which a row is copied under the lock: above, others would wait.
const copyLocked = 4096

// copy copies a row with the worker's own later deltas to dst, and unlocks.
func (t Table[T]) copy(r *cachedRow, dst []T) {
	d, s := t.w.d, t.w.s
	if len(dst) <= copyLocked || t.t.spec.Sparse {
		t.read(r, dst)
		d.Unlock()
		return
	}
	own := make([]Clock, len(r.segs))
	for i := range r.segs {
		_, own[i] = s.c.value(&r.segs[i])
	}
	over := t.pending(r)
	cells := r.cells
	from := viewOf[T](cells, r.n) // another's answer may take its place meanwhile
	r.views++
	r.pins++
	s.reads++
	d.Unlock()
	copy(dst, from)
	d.Lock()
	r.pins--
	r.unview(cells)
	if over {
		t.overlay(r, dst, own)
	}
	s.c.endRead(s)
	d.Unlock()
}

// read copies a row with the worker's own deltas.
func (t Table[T]) read(r *cachedRow, dst []T) {
	t.readBase(r, dst)
	t.overlay(r, dst, nil)
}

func (t Table[T]) readBase(r *cachedRow, dst []T) {
	if !t.t.spec.Sparse || r.cols == nil && r.n == len(dst) {
		copy(dst, viewOf[T](r.cells, r.n))
		return
	}
	fill(&t.t.spec.Init, r.row, 0, dst)
	cells := viewOf[T](r.cells, r.n)
	for i, c := range r.cols {
		dst[c] = cells[i]
	}
}

// overlay adds the worker's deltas that a row lacks. own has what each segment has, if that was found out before.
func (t Table[T]) overlay(r *cachedRow, dst []T, own []Clock) {
	if t.t.spec.Optimizer != "" {
		return // gradients are no deltas
	}
	s := t.w.s
	for i := range r.segs {
		seg := &r.segs[i]
		var o Clock
		if own != nil {
			o = own[i]
		} else {
			_, o = s.c.value(seg)
		}
		for _, b := range s.sent {
			if b.stamp >= o {
				t.overlayRound(b, r.row, seg.from, dst[seg.from:seg.to])
			}
		}
		t.overlayRound(s.now, r.row, seg.from, dst[seg.from:seg.to])
	}
}

func (t Table[T]) overlayRound(b *workerRound, row, from int64, dst []T) {
	for _, x := range b.of(t.t) {
		x.(*deltas[T]).overlay(row, from, dst)
	}
}

// GetRows copies rows into dst, one after the other. No rows are read without asking anybody, with Now as their value clock.
func (t Table[T]) GetRows(ctx context.Context, rows []int64, dst []T) (Clock, error) {
	if err := t.checkRows(rows, len(dst)); err != nil {
		return 0, err
	}
	return t.getRows(ctx, rows, dst)
}

func (t Table[T]) getRows(ctx context.Context, rows []int64, dst []T) (Clock, error) {
	if len(rows) == 0 {
		return t.w.Now(), nil
	}
	g, v, err := t.fetch(ctx, rows)
	if err != nil {
		return 0, err
	}
	cols := int(t.t.spec.Cols)
	for i, r := range g.hits {
		t.read(r, dst[i*cols:(i+1)*cols])
	}
	t.w.s.c.unpin(g)
	t.w.d.Unlock()
	return t.saw(v, !g.missed), nil
}

// A Future is a read under way.
type Future struct {
	wait func(ctx context.Context) (Clock, error)
}

// Wait waits for the read, and fills what it was given.
func (f *Future) Wait(ctx context.Context) (Clock, error) { return f.wait(ctx) }

// GetAsync begins to fetch rows; Wait copies them into dst, as the worker finds them then.
func (t Table[T]) GetAsync(ctx context.Context, rows []int64, dst []T) *Future {
	if err := t.checkRows(rows, len(dst)); err != nil {
		return &Future{func(context.Context) (Clock, error) { return 0, err }}
	}
	rows = slices.Clone(rows) // the caller's may be others by the time it waits
	t.Prefetch(rows...)
	return &Future{func(ctx context.Context) (Clock, error) { return t.getRows(ctx, rows, dst) }}
}

// checkRows checks that rows are some of the table's and fill room for so many cells.
func (t Table[T]) checkRows(rows []int64, room int) error {
	if err := t.check("get"); err != nil {
		return err
	}
	if want := len(rows) * int(t.t.spec.Cols); room != want {
		return fmt.Errorf("ps: get %q: %d rows: want %d cells, found room for %d", t.t.spec.Name, len(rows), want, room)
	}
	return t.checkAll("get", rows)
}

// checkAll is checkRow of all rows.
func (t Table[T]) checkAll(op string, rows []int64) error {
	if t.t.spec.Rows > 0 {
		for _, r := range rows {
			if uint64(r) >= uint64(t.t.spec.Rows) {
				return t.checkRow(op, r)
			}
		}
	}
	return nil
}

func (t Table[T]) checkAscending(op string, rows []int64) error {
	last := int64(math.MinInt64)
	for i, r := range rows {
		if r <= last && i > 0 {
			return fmt.Errorf("ps: %s %q: row %d follows %d: want ascending rows, each once", op, t.t.spec.Name, r, last)
		}
		last = r
	}
	return nil
}

// View calls f with a row, in place where nothing is to be laid over it. f must not keep its argument, nor change it.
func (t Table[T]) View(ctx context.Context, row int64, f func([]T)) (Clock, error) {
	if err := t.checkRow("view", row); err != nil {
		return 0, err
	}
	if t.t.spec.Cols > maxWhole {
		return 0, fmt.Errorf("ps: view %q: row %d: it has %d cells, and one of at most %d is read whole: see GetCells", t.t.spec.Name, row, t.t.spec.Cols, int64(maxWhole))
	}
	s, d := t.w.s, t.w.d
	t.r.one[0] = row
	g := &getCall{w: s, t: t.t, rows: t.r.one[:]}
	var v Clock
	d.Lock()
	r := t.t.find(row)
	fresh := false
	if r != nil && s.c.err == nil {
		if v, fresh = s.c.fresh(r, s); fresh {
			r.used = true
			r.pins++
			g.hits = append(g.hits, r)
			t.t.counted(s.clock, v, true)
		}
	}
	if !fresh {
		d.Unlock()
		var err error
		if g, v, err = t.fetch(ctx, t.r.one[:]); err != nil {
			return 0, err
		}
		r = g.hits[0]
	}
	if t.t.spec.Sparse || t.pending(r) {
		x := slices.Grow(t.r.scratch, int(t.t.spec.Cols))[:t.t.spec.Cols]
		t.r.scratch = nil // f may take another view
		t.read(r, x)
		s.c.unpin(g)
		d.Unlock()
		f(x)
		t.r.scratch = x[:0]
		return t.saw(v, !g.missed), nil
	}
	cells := r.cells
	x := viewOf[T](cells, r.n) // another's answer may take its place meanwhile
	r.views++
	d.Unlock()
	f(x)
	d.Lock()
	r.unview(cells)
	s.c.unpin(g)
	d.Unlock()
	return t.saw(v, !g.missed), nil
}

// pending reports whether the worker has deltas to lay over a row.
func (t Table[T]) pending(r *cachedRow) bool {
	if t.t.spec.Optimizer != "" {
		return false
	}
	has := func(b *workerRound) bool {
		return slices.ContainsFunc(b.of(t.t), func(x buffered) bool { return x.(*deltas[T]).find(r.row) >= 0 })
	}
	s := t.w.s
	if has(s.now) {
		return true
	}
	for i := range r.segs {
		_, own := s.c.value(&r.segs[i])
		for _, b := range s.sent {
			if b.stamp >= own && has(b) {
				return true
			}
		}
	}
	return false
}

// Prefetch begins to fetch rows that are soon read, and does not wait. It leaves out what Rows does.
// What the next round reads, Clock asks for with a message less.
func (t Table[T]) Prefetch(rows ...int64) {
	if gets := t.w.silent([]Wanted{t.Rows(rows...)}); len(gets) > 0 {
		_, _ = t.w.d.Call(context.Background(), prefetchCall{gets}) // it is answered at once; what fails, fails the Get
	}
}

// Wanted is rows of a table, for Worker.Clock.
type Wanted struct {
	t    *clientTable
	rows []int64
}

// Rows names rows of the table. Rows that do not exist are left out, since Get will say so, and those that are too long to be read whole.
func (t Table[T]) Rows(rows ...int64) Wanted {
	w := Wanted{t: t.t}
	for _, r := range rows {
		if t.checkRow("prefetch", r) == nil && t.t.spec.Cols <= maxWhole {
			w.rows = append(w.rows, r)
		}
	}
	return w
}

// silent returns reads that nobody waits for.
func (w *Worker) silent(wanted []Wanted) (gets []*getCall) {
	for _, r := range wanted {
		if len(r.rows) > 0 {
			gets = append(gets, &getCall{w: w.s, t: r.t, rows: r.rows, silent: true})
		}
	}
	return gets
}
