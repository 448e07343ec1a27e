package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// pastMost is the size in bytes up to which a row is read past the cache: of a longer one, what the cache saves is more than what it costs.
const pastMost = 1 << 10

// past reports whether rows of t can be read past the cache: dense and short ones, that lie whole and in order in their shards.
func (t *table) past() bool {
	return t.cut.bounds != nil && t.cut.wholeRows() && !t.spec.Sparse && t.spec.Cols*int64(t.spec.Cell.Size()) <= pastMost
}

// A Read is rows of a table and where they go, for Worker.Pull, which may be given it again.
type Read struct {
	w    *Worker
	err  error
	get  func(ctx context.Context) (Clock, error) // through the cache; nil: past it
	call func() *getCall                          // one of each Pull's own: to that of one that failed an answer may still come
	take func(g *getCall)                         // the answer, and over it what the worker added
}

// Into names rows of the table, ascending, each once, that Worker.Pull copies to dst, one after the other, as long as rows stay as they are.
// Of no rows it reads what GetRows does.
func (t Table[T]) Into(rows []int64, dst []T) Read {
	if err := t.checkRows(rows, len(dst)); err != nil {
		return Read{err: err}
	}
	if err := t.checkAscending("pull", rows); err != nil {
		return Read{err: err}
	}
	if len(rows) == 0 || !t.t.past() {
		return Read{w: t.w, get: func(ctx context.Context) (Clock, error) { return t.GetRows(ctx, rows, dst) }}
	}
	named := slices.Clone(rows) // the question may be sent again
	return Read{
		w: t.w,
		call: func() *getCall {
			g := &getCall{w: t.w.s, t: t.t, rows: named, past: true}
			g.out, t.r.pulled = slices.Grow(t.r.pulled[:0], len(dst)*t.t.spec.Cell.Size())[:len(dst)*t.t.spec.Cell.Size()], nil
			return g
		},
		take: func(g *getCall) {
			raw.Copy(dst, g.out)
			g.out, t.r.pulled = nil, g.out // nobody else has it: the call is answered
			t.w.d.Lock()
			t.overlayPast(g, dst)
			t.t.pulled(g)
			t.t.counted(g.at, g.v, false)
			t.w.d.Unlock()
		},
	}
}

// Pull reads rows of tables past the cache, all at once, and returns the least of their value clocks, as the pull of keys of the dmlc parameter
// server does (Li et al. 2014). It is for many short rows of which a worker reads each about once a round, such as those of a batch's features:
// kept between rounds, a row takes more memory and time than its cells do on their way. It waits as Get does, of all tables for that which needs
// most, and after an error nothing in what Into named is of use. Rows that are sparse, hashed, split over shards or longer than 1 KiB it reads as
// GetRows does, one table after the other.
func (w *Worker) Pull(ctx context.Context, reads ...Read) (Clock, error) {
	past := false
	for _, r := range reads {
		switch {
		case r.err != nil:
			return 0, r.err
		case r.w == nil:
			return 0, errNothing
		case r.w != w:
			return 0, fmt.Errorf("ps: pull by worker %d of %s: rows of a table of another worker, which are its own to read", w.s.index, w.s.c.self)
		}
		past = past || r.get == nil
	}
	if len(reads) == 0 {
		return 0, errNothing
	}
	v := maxClock
	if past {
		calls, err := w.pull(ctx, reads)
		if err != nil {
			return 0, err
		}
		for _, g := range calls {
			v = min(v, w.told(g.t, g.v, false))
		}
	}
	for _, r := range reads {
		if r.get == nil {
			continue
		}
		x, err := r.get(ctx)
		if err != nil {
			return 0, err
		}
		v = min(v, x)
	}
	return v, nil
}

var errNothing = errors.New("ps: pull: want rows that Table.Into names")

// pull reads those of reads that go past the cache, by the calls that it returns.
func (w *Worker) pull(ctx context.Context, reads []Read) ([]*getCall, error) {
	calls := make([]*getCall, 0, len(reads))
	for _, r := range reads {
		if r.get == nil {
			calls = append(calls, r.call())
		}
	}
	if w.waits != nil {
		staleness, behind := calls[0].t.spec.staleness(), false
		w.d.Lock()
		for _, g := range calls {
			staleness = min(staleness, g.t.spec.staleness())
			behind = behind || needOf(g.t, w.s.clock) > w.s.c.ended()
		}
		w.d.Unlock()
		w.waits(staleness, behind)
		defer w.came()
	}
	if _, err := w.d.Call(ctx, pullCall{calls}); err != nil {
		return nil, err
	}
	k := 0
	for _, r := range reads { // each whole before the next: it may be the same
		if r.get == nil {
			r.take(calls[k])
			k++
		}
	}
	w.d.Lock()
	defer w.d.Unlock()
	for _, g := range calls {
		w.s.c.unpin(g) // one of them has begun
	}
	return calls, nil
}

// pull begins reads past the cache. The first of those that need most waits for all.
func (c *ClientState) pull(id uint64, calls []*getCall) {
	first := slices.MaxFunc(calls, func(a, b *getCall) int { return cmp.Compare(needOf(a.t, a.w.clock), needOf(b.t, b.w.clock)) })
	for _, g := range calls {
		g.at, g.need, g.v = g.w.clock, needOf(g.t, g.w.clock), maxClock
		c.pullPast(g, first)
	}
	first.begun, first.missed = true, true
	first.w.reads++
	c.waits = append(c.waits, &wait{id: id, w: first.w, get: first, deadline: c.now + c.o.RoundTimeout, since: c.now})
}

// pullPast asks for g's rows. Their cells come in the order of the question, without their keys.
func (c *ClientState) pullPast(g, first *getCall) {
	t := g.t
	size := int(t.spec.Cols) * t.spec.Cell.Size()
	if t.spec.Optimizer == "" {
		g.owns = make([]Clock, len(g.rows))
	}
	pulls := make([]*pulling, len(c.lanes))
	for at := 0; at < len(g.rows); {
		shard, _, _ := t.cut.segment(g.rows[at], 0)
		n, _ := slices.BinarySearch(g.rows[at:], t.cut.bounds[shard+1]/t.spec.Cols)
		n = min(n, maxPiece/16)
		l := c.lanes[t.owners[shard]]
		p := pulls[l.lane]
		if p == nil || p.bytes > maxPiece/2 || len(p.msg.secs) >= maxSections {
			p = c.newPull(g, l)
			if pulls[l.lane] = p; g != first {
				p.calls = append(p.calls, first)
				first.pulls++
			}
		}
		q := section{table: t.id, shard: uint32(shard), form: formRows, mark: true, rows: g.rows[at : at+n]}
		l.lists.name(&q)
		p.bytes += q.full() + sectionHead
		p.cells = append(p.cells, at*size)
		p.msg.secs = append(p.msg.secs, q)
		at += n
	}
}

// overlayPast adds what the worker added to rows since its rounds that are in them.
func (t Table[T]) overlayPast(g *getCall, dst []T) {
	n := int(t.t.spec.Cols)
	for i, own := range g.owns {
		row := dst[i*n : (i+1)*n]
		for _, b := range t.w.s.sent {
			if b.stamp >= own {
				t.overlayRound(b, g.rows[i], 0, row)
			}
		}
		t.overlayRound(t.w.s.now, g.rows[i], 0, row)
	}
}

// pulled has the cache not be read with less of g's rows than g had, where it has any of them.
func (t *clientTable) pulled(g *getCall) {
	if t.cached == 0 {
		return
	}
	for _, row := range g.rows {
		if r := t.find(row); r != nil {
			r.segs[0].seen = max(r.segs[0].seen, g.v)
		}
	}
}

// readPlain answers with the cells of rows in the order of the request, without their keys. from counts those before.
func (s *shard[T]) readPlain(q *section, base section, emit emitter) {
	cols := int(s.t.spec.Cols)
	most := maxPiece / (cols * s.t.spec.Cell.Size())
	for at := 0; at < len(q.rows); at += most {
		rows := q.rows[at:min(at+most, len(q.rows))]
		cells := make([]T, len(rows)*cols)
		var near [256]int32 // the rows' numbers here
		for k := 0; k < len(rows); k += len(near) {
			few := near[:min(len(near), len(rows)-k)]
			for i := range few {
				few[i] = int32(rows[k+i] - s.first)
			}
			kernel.GatherRows(cells[k*cols:], s.live.cells, few, cols)
		}
		c := base
		c.form, c.from, c.n, c.cells = formRange, int64(at*cols), len(cells), raw.Bytes(cells)
		emit(c, nil)
	}
}
