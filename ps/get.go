package ps

import (
	"cmp"
	"slices"

	"github.com/trivium-ml/trivium/protocol"
)

// pulling is a request that a lane has not answered yet.
type pulling struct {
	id    uint64
	lane  *laneLink
	msg   *pull
	t     *clientTable
	more  []*clientTable // of a question about several tables
	at    Clock          // the asker's
	calls []*getCall
	segs  []segmentOf
	cells []int // of a read of single cells: where each section's begin in the call's out
	seen  []bool
	left  int
	bytes int       // of the question, with the keys also where the lane has them
	held  []*values // sparse rows are put together once all pieces are here
	into  *landing  // of a large row; nil: there is none
}

// A segmentOf is a segment of a cached row.
type segmentOf struct {
	r *cachedRow
	i int
}

// tableOf returns the table of that number; nil: the question was not about it.
func (p *pulling) tableOf(id uint32) *clientTable {
	if p.t.id == id {
		return p.t
	}
	for _, t := range p.more {
		if t.id == id {
			return t
		}
	}
	return nil
}

// asked reports whether the question was about that row, and not about one that was there before it.
func (p *pulling) asked(r *cachedRow) bool {
	return slices.ContainsFunc(p.segs, func(s segmentOf) bool { return s.r == r })
}

func (s segmentOf) seg() *cachedSegment { return &s.r.segs[s.i] }

// needOf is what M must be for a read at that clock.
func needOf(t *clientTable, at Clock) Clock {
	switch t.spec.Mode {
	case BSP:
		return at
	case ASP:
		return 0
	}
	return max(at-t.spec.staleness(), 0)
}

// get begins a read: what the cache lacks is asked for, and the call is answered when it is there.
func (c *ClientState) get(id uint64, g *getCall) {
	g.at = g.w.clock
	g.need = needOf(g.t, g.at)
	if !g.silent {
		g.begun = true
		g.w.reads++
	}
	if g.cols != nil {
		c.pullCells(g)
	} else {
		g.hits = slices.Grow(g.hits, len(g.rows))
		for k, row := range g.rows {
			if k%warmRows == 0 {
				g.t.warm(g.rows[k:])
			}
			g.hits = append(g.hits, c.pin(g.t, row))
		}
		c.pullRows(g)
	}
	w := &wait{id: id, w: g.w, get: g, deadline: c.now + c.o.RoundTimeout, since: c.now}
	if g.pulls == 0 {
		c.arrived(w)
		return
	}
	g.missed = true
	c.waits = append(c.waits, w)
}

// pin returns a row of the cache, made if it is not there, that stays until it is unpinned.
func (c *ClientState) pin(t *clientTable, row int64) *cachedRow {
	r := t.find(row)
	if r == nil {
		r = t.newRow(row)
		if t.byRow != nil {
			t.byRow[row] = r
		} else {
			t.rows[row] = r
		}
		t.cached++
		c.ring.add(r)
		c.ring.weigh(r)
	}
	r.pins++
	r.used = true
	return r
}

// unpin ends a read: its rows may be evicted.
func (c *ClientState) unpin(g *getCall) {
	for _, r := range g.hits {
		r.pins--
	}
	g.hits = nil
	if g.begun {
		g.begun = false
		c.endRead(g.w)
	}
	if c.ring.bytes > c.ring.limit {
		c.evict()
	}
}

// endRead lets rounds go that a read of w might still have had laid over it.
func (c *ClientState) endRead(w *WorkerState) {
	w.reads--
	c.prune(w)
}

// arrived answers a read whose rows are here, and reports whether they are.
func (c *ClientState) arrived(w *wait) bool {
	g := w.get
	if g.out == nil {
		g.v = maxClock
		for _, r := range g.hits {
			v, ok := c.fresh(r, g.w)
			if !ok {
				if g.silent { // whoever needs it asks
					break
				}
				c.pullRows(g)
				return false
			}
			g.v = min(g.v, v)
		}
	}
	if g.silent {
		c.unpin(g)
		return true
	}
	c.answer(w.id, g.v, nil)
	return true
}

// pullRows asks for the segments of g's rows that are not fresh.
func (c *ClientState) pullRows(g *getCall) {
	missing := make([][]segmentOf, len(c.lanes))
	for _, r := range g.hits {
		for i := range r.segs {
			s := &r.segs[i]
			if _, ok := c.freshSegment(r, s, g.w); ok {
				continue
			}
			// Another's request will do, if it does not wait for a clock that may never come before this reader goes on.
			if p := s.pull; p != nil && p.at >= g.at && (p.msg.need == g.need || p.msg.need > g.need && p.msg.need <= p.lane.m) {
				if !slices.Contains(p.calls, g) {
					p.calls = append(p.calls, g)
					g.pulls++
				}
				continue
			}
			missing[s.lane] = append(missing[s.lane], segmentOf{r, i})
		}
	}
	for l, segs := range missing {
		if len(segs) > 0 {
			c.pullSegments(g, c.lanes[l], segs)
			c.apart(g, segs)
		}
	}
}

// pullSegments asks one lane for segments.
func (c *ClientState) pullSegments(g *getCall, l *laneLink, segs []segmentOf) {
	segs, keys := c.inOrder(segs)
	var p *pulling
	whole := g.t.cut.wholeRows()
	for len(segs) > 0 {
		if p == nil {
			p = c.joinPull(g, l)
		}
		if p == nil || p.bytes > maxPiece/2 || len(p.msg.secs) >= maxSections {
			p = c.newPull(g, l)
		}
		s := segs[0].seg()
		q := section{table: g.t.id, shard: uint32(s.shard), form: formRange, row: segs[0].r.row, from: s.from, n: int(s.to - s.from)}
		if keys[0].known == 1 {
			q.version = s.version
		}
		n := 1
		if p.msg.subscribe && len(l.drop) > 0 { // what was not sent yet need not be
			l.drop = slices.DeleteFunc(l.drop, func(d section) bool {
				return d.table == g.t.id && slices.ContainsFunc(segs, func(x segmentOf) bool { return x.r.row == d.row && x.seg().from == d.from })
			})
		}
		if whole {
			q = section{table: q.table, shard: q.shard, form: formRows, version: q.version}
			for n < len(segs) && n < maxPiece/16 && keys[n].shard == keys[0].shard && keys[n].known == keys[0].known {
				n++
			}
			q.rows = make([]int64, n)
			for k := range keys[:n] {
				q.rows[k] = keys[k].row
				q.version = min(q.version, keys[k].version)
			}
			l.lists.name(&q)
		}
		for _, x := range segs[:n] {
			y := x.seg()
			y.pull, y.landed = p, 0
			y.quiet = p.msg.subscribe && l.dropping(g.t, x.r.row, y.from)
		}
		p.segs = append(p.segs, segs[:n]...)
		p.msg.secs = append(p.msg.secs, q)
		p.bytes += q.full() + sectionHead
		segs, keys = segs[n:], keys[n:]
	}
}

// A segmentKey is what segments are put in order by, apart from them: they lie far from one another.
type segmentKey struct {
	row     int64
	version uint64
	shard   int32
	known   int32 // 1: the cache has it, if too old
	segmentOf
}

// inOrder puts segments in the order in which a lane is asked for them, each once: a row may be asked for twice. Rows come mostly ascending, and
// need then no sorting. The keys are theirs until the next call.
func (c *ClientState) inOrder(segs []segmentOf) ([]segmentOf, []segmentKey) {
	unknown, known := c.unknown[:0], c.known[:0]
	for _, x := range segs {
		if s := x.seg(); s.v >= 0 && s.version > 0 {
			known = append(known, segmentKey{x.r.row, s.version, int32(s.shard), 1, x})
		} else {
			unknown = append(unknown, segmentKey{x.r.row, s.version, int32(s.shard), 0, x})
		}
	}
	for _, part := range [][]segmentKey{unknown, known} {
		if !slices.IsSortedFunc(part, segmentKey.compare) {
			slices.SortFunc(part, segmentKey.compare)
		}
	}
	keys := slices.Grow(c.keys[:0], len(segs))[:len(segs)]
	merge(keys, unknown, known, segmentKey.compare)
	c.keys, c.unknown, c.known = keys, unknown, known
	keys = slices.CompactFunc(keys, func(a, b segmentKey) bool { return a.segmentOf == b.segmentOf })
	for k := range keys {
		segs[k] = keys[k].segmentOf
	}
	clear(segs[len(keys):])
	return segs[:len(keys)], keys
}

func (a segmentKey) compare(b segmentKey) int {
	return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.known, b.known), cmp.Compare(a.row, b.row), cmp.Compare(a.i, b.i))
}

// joinPull returns a question of this step to the same lane that can also ask for rows of g's table; nil: there is none. A question that
// is nearly full, or about sparse rows, is left as it is.
func (c *ClientState) joinPull(g *getCall, l *laneLink) *pulling {
	for _, p := range c.asked {
		if p.lane == l && p.at == g.at && p.msg.need == g.need && p.msg.subscribe == (g.t.spec.Mode == ESSP) && p.cells == nil &&
			p.t.spec.Mode == g.t.spec.Mode && !p.t.spec.Sparse && !g.t.spec.Sparse && p.t != g.t && len(p.msg.secs) < 16 && p.bytes < maxPiece/16 {
			p.calls = append(p.calls, g)
			g.pulls++
			p.more = append(p.more, g.t)
			return p
		}
	}
	return nil
}

func (c *ClientState) newPull(g *getCall, l *laneLink) *pulling {
	own := Clock(0)
	if g.t.spec.Mode == ASP {
		own = min(g.at, c.clock)
	}
	p := &pulling{id: c.nextID, lane: l, t: g.t, at: g.at, calls: []*getCall{g}}
	c.nextID++
	p.msg = &pull{
		lane: l.lane, client: c.number, session: c.session, epoch: c.config.Epoch, id: p.id, need: g.need, own: own,
		subscribe: g.t.spec.Mode == ESSP && g.out == nil, gen: l.gen,
	}
	g.pulls++
	c.pulls = append(c.pulls, p)
	c.asked = append(c.asked, p)
	return p
}

// pullCells asks for single cells of one row, past the cache.
func (c *ClientState) pullCells(g *getCall) {
	size := g.t.spec.Cell.Size()
	g.out, g.owns = make([]byte, len(g.cols)*size), make([]Clock, len(g.cols))
	pulls := make([]*pulling, len(c.lanes))
	for at := 0; at < len(g.cols); {
		shard, _, to := g.t.cut.segment(g.rows[0], g.cols[at])
		n := 1
		for at+n < len(g.cols) && g.cols[at+n] < to && n < maxPiece/16 {
			n++
		}
		l := c.lanes[g.t.owners[shard]]
		p := pulls[l.lane]
		if p == nil || p.bytes > maxPiece/2 || len(p.msg.secs) >= maxSections {
			p = c.newPull(g, l)
			pulls[l.lane] = p
		}
		q := section{
			table: g.t.id, shard: uint32(shard), form: formCells, rows: []int64{g.rows[0]}, ends: []int64{int64(n)}, cols: slices.Clone(g.cols[at : at+n]),
		}
		l.lists.name(&q)
		p.bytes += q.full() + sectionHead
		p.cells = append(p.cells, at*size)
		p.msg.secs = append(p.msg.secs, q)
		at += n
	}
	g.v = maxClock
}

// sendPulls sends the requests that a step made: each right behind the round's last piece for its lane, which answers while those for other lanes
// of the same server are still on their way.
func (c *ClientState) sendPulls() {
	for _, p := range c.asked {
		c.Pulls++
		if u := p.lane.unacked; len(u) > 0 && u[len(u)-1].stamp >= c.unsent {
			u[len(u)-1].asks = true
		}
		for i := range p.msg.secs {
			c.KeysSent += uint64(p.msg.secs[i].keyBytes())
		}
		at := len(c.out)
		for i, x := range slices.Backward(c.out) {
			if x, ok := x.(protocol.Send); ok && x.To == p.lane.server && precedes(x.Body, p.lane.lane) {
				at = i + 1
				break
			}
		}
		c.out = slices.Insert(c.out, at, protocol.Command(protocol.Send{To: p.lane.server, Body: p.msg}))
	}
	clear(c.asked)
	c.asked = c.asked[:0]
}

// precedes reports whether a question to a lane goes behind b: the last piece of a round for it, or another question.
func precedes(b protocol.Body, lane uint16) bool {
	switch m := b.(type) {
	case *batch:
		return m.lane == lane && m.last
	case *pull:
		return m.lane == lane
	}
	return false
}
