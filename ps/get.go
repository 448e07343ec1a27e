package ps

import (
	"cmp"
	"math"
	"slices"
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
	held  []*values // sparse rows are put together once all pieces are here
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
	if g.cols != nil {
		c.pullCells(g)
	} else {
		for _, row := range g.rows {
			g.hits = append(g.hits, c.pin(g.t, row))
		}
		c.pullRows(g)
	}
	w := &wait{id: id, w: g.w, get: g, deadline: c.now + c.o.RoundTimeout}
	if g.pulls == 0 {
		c.arrived(w)
		return
	}
	c.Misses++
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
		c.ring.add(r)
		c.ring.weigh(r)
	}
	r.pins++
	r.used = true
	return r
}

func (c *ClientState) unpin(g *getCall) {
	for _, r := range g.hits {
		r.pins--
	}
	g.hits = nil
	if c.ring.bytes > c.ring.limit {
		c.evict()
	}
}

// arrived answers a read whose rows are here, and reports whether they are.
func (c *ClientState) arrived(w *wait) bool {
	g := w.get
	if g.cols == nil {
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
		}
	}
}

// pullSegments asks one lane for segments.
func (c *ClientState) pullSegments(g *getCall, l *laneLink, segs []segmentOf) {
	known := func(s segmentOf) int {
		if s.seg().v >= 0 && s.seg().version > 0 {
			return 1
		}
		return 0
	}
	slices.SortFunc(segs, func(a, b segmentOf) int {
		return cmp.Or(cmp.Compare(a.seg().shard, b.seg().shard), cmp.Compare(known(a), known(b)), cmp.Compare(a.r.row, b.r.row), cmp.Compare(a.i, b.i))
	})
	segs = slices.CompactFunc(segs, func(a, b segmentOf) bool { return a.r == b.r && a.i == b.i }) // a row may be asked for twice
	var p *pulling
	size := 0
	whole := g.t.cut.wholeRows()
	for len(segs) > 0 {
		if p == nil {
			p = c.joinPull(g, l)
		}
		if p == nil || size > maxPiece/2 || len(p.msg.secs) >= maxSections {
			p = c.newPull(g, l)
			size = 0
		}
		s := segs[0].seg()
		q := section{table: g.t.id, shard: uint32(s.shard), form: formRange, row: segs[0].r.row, from: s.from, n: int(s.to - s.from)}
		if known(segs[0]) == 1 {
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
			for n < len(segs) && n < maxPiece/16 && segs[n].seg().shard == s.shard && known(segs[n]) == known(segs[0]) {
				n++
			}
			for _, x := range segs[:n] {
				q.rows = append(q.rows, x.r.row)
				q.version = min(q.version, x.seg().version)
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
		size += q.size() + sectionHead
		segs = segs[n:]
	}
}

// joinPull returns a question of this step to the same lane that can also ask for rows of g's table; nil: there is none. A question that
// is nearly full, or about sparse rows, is left as it is.
func (c *ClientState) joinPull(g *getCall, l *laneLink) *pulling {
	for _, p := range c.asked {
		if p.lane == l && p.at == g.at && p.msg.need == g.need && p.msg.subscribe == (g.t.spec.Mode == ESSP) && p.cells == nil &&
			p.t.spec.Mode == g.t.spec.Mode && !p.t.spec.Sparse && !g.t.spec.Sparse && p.t != g.t && len(p.msg.secs) < 16 && p.msg.Size() < maxPiece/16 {
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
		subscribe: g.t.spec.Mode == ESSP && g.cols == nil, gen: l.gen,
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
		if p == nil || p.msg.Size() > maxPiece/2 || len(p.msg.secs) >= maxSections {
			p = c.newPull(g, l)
			pulls[l.lane] = p
		}
		q := section{
			table: g.t.id, shard: uint32(shard), form: formCells, rows: []int64{g.rows[0]}, ends: []int64{int64(n)}, cols: slices.Clone(g.cols[at : at+n]),
		}
		l.lists.name(&q)
		p.cells = append(p.cells, at*size)
		p.msg.secs = append(p.msg.secs, q)
		at += n
	}
	g.v = maxClock
}

// sendPulls sends the requests that a step made.
func (c *ClientState) sendPulls() {
	for _, p := range c.asked {
		c.Pulls++
		for i := range p.msg.secs {
			c.KeysSent += uint64(p.msg.secs[i].keyBytes())
		}
		c.send(p.lane.server, p.msg)
	}
	clear(c.asked)
	c.asked = c.asked[:0]
}

// onValues takes an answer, or rows that a lane sends unasked.
func (c *ClientState) onValues(l *laneLink, m *values) {
	push := m.id == 0
	next := push && m.gen == l.gen && m.pushes == l.pushes+1
	c.hear(l, &m.status, push)
	for i := range m.secs {
		c.BytesReceived += uint64(len(m.secs[i].cells))
	}
	if push {
		if next {
			c.onPush(l, m)
		}
		return
	}
	k := slices.IndexFunc(c.pulls, func(p *pulling) bool { return p.id == m.id })
	if k < 0 || m.pieces == 0 || m.piece >= m.pieces {
		return
	}
	p := c.pulls[k]
	if p.lane != l {
		return
	}
	if p.seen == nil || len(p.seen) != int(m.pieces) {
		if m.pieces > math.MaxUint16*16 {
			return
		}
		p.seen, p.left, p.held = make([]bool, m.pieces), int(m.pieces), nil
		for _, s := range p.segs {
			if s.seg().pull == p {
				s.seg().landed = 0
			}
		}
	}
	if p.seen[m.piece] {
		return
	}
	if p.t.spec.Sparse && p.cells == nil {
		p.held = append(p.held, m.keep())
	} else {
		for i := range m.secs {
			if !c.land(p, l, m, &m.secs[i]) {
				return
			}
		}
	}
	p.seen[m.piece] = true
	if p.left--; p.left > 0 {
		return
	}
	if p.held != nil {
		c.landSparse(p, l)
	}
	for _, s := range p.segs {
		if s.seg().pull == p {
			s.seg().pull = nil
		}
	}
	for _, g := range p.calls {
		g.pulls--
		if p.cells != nil {
			g.v = min(g.v, m.m)
		}
	}
	k = slices.Index(c.pulls, p)
	c.pulls = slices.Delete(c.pulls, k, k+1)
}

// keep copies what m holds, so that its memory can be returned.
func (m *values) keep() *values {
	n := &values{status: m.status, id: m.id, piece: m.piece, sub: m.sub, secs: slices.Clone(m.secs)}
	for i := range n.secs {
		s := &n.secs[i]
		s.rows, s.ends, s.cols, s.cells = slices.Clone(s.rows), slices.Clone(s.ends), slices.Clone(s.cols), slices.Clone(s.cells)
	}
	return n
}

// land puts one section of an answer where it belongs. False: it makes no sense.
func (c *ClientState) land(p *pulling, l *laneLink, m *values, s *section) bool {
	t := p.tableOf(s.table)
	if t == nil {
		return false
	}
	size := t.spec.Cell.Size()
	if s.form != formSame && len(s.cells) != s.n*size {
		return false
	}
	if p.cells != nil {
		k := int(s.part) - 1
		if k < 0 || k >= len(p.cells) || s.form != formRange {
			return false
		}
		g, at := p.calls[0], p.cells[k]+int(s.from)*size
		if s.from < 0 || s.from > int64(len(g.out)) || at+len(s.cells) > len(g.out) {
			return false
		}
		copy(g.out[at:], s.cells)
		for i := at / size; i < at/size+s.n; i++ {
			g.owns[i] = m.ownOf(s)
		}
		return true
	}
	set := func(row, from int64, n int, cells []byte) bool {
		r, seg := t.segmentAt(row, from)
		if seg == nil || seg.pull != p && (seg.landed > 0 || int64(n) < seg.to-seg.from) {
			return true // no longer wanted, or asked for anew: then only whole segments are of use
		}
		if v, own := c.value(seg); seg.landed == 0 && (v > m.m || v == m.m && own > m.ownOf(s)) {
			seg.pull = nil // an answer that was overtaken
			return true
		}
		if cells == nil {
			c.Unchanged++
			if seg.v < 0 {
				return false
			}
		} else {
			if from < seg.from || from+int64(n) > seg.to {
				return false
			}
			if seg.landed == 0 {
				r.writable()
			}
			if r.cells == nil {
				r.room()
				c.ring.weigh(r)
			}
			r.land(from, n, cells)
			if seg.landed += n; seg.landed < int(seg.to-seg.from) {
				seg.v, seg.gen = -1, 0
				return true
			}
		}
		c.settle(l, seg, p, m, s)
		return true
	}
	switch s.form {
	case formRange:
		return s.n > 0 && set(s.row, s.from, s.n, s.cells)
	case formRows:
		n := int(t.spec.Cols)
		if s.n != len(s.rows)*n {
			return false
		}
		for i, row := range s.rows {
			if !set(row, 0, n, s.cells[i*n*size:(i+1)*n*size]) {
				return false
			}
		}
	case formSame:
		for _, row := range s.rows {
			if !set(row, s.from, 0, nil) {
				return false
			}
		}
	default:
		return false
	}
	return true
}

// settle marks a segment as what an answer says.
func (c *ClientState) settle(l *laneLink, seg *cachedSegment, p *pulling, m *values, s *section) {
	last := seg.pull == p
	seg.v, seg.own, seg.version, seg.pull, seg.landed = m.m, m.ownOf(s), s.version, nil, 0
	seg.at = p.at
	seg.gen = 0
	if m.sub && last && !seg.quiet && m.gen == l.gen && m.pushes == l.pushes {
		seg.gen, seg.pushes = l.gen, m.pushes
	}
}

// dropping reports whether an unsubscription from a segment is on its way, which may come before or after a request.
func (l *laneLink) dropping(t *clientTable, row, from int64) bool {
	is := func(s section) bool { return s.table == t.id && s.row == row && s.from == from }
	if slices.ContainsFunc(l.drop, is) {
		return true
	}
	for _, b := range l.unacked {
		if slices.ContainsFunc(b.drop, is) {
			return true
		}
	}
	return false
}

// ownOf returns the clock below which a section has the asker's own rounds.
func (m *values) ownOf(s *section) Clock {
	if s.mark {
		return m.own + 1
	}
	return m.own
}

// segmentAt finds the segment of a cell; nil if its row is not in the cache.
func (t *clientTable) segmentAt(row, col int64) (*cachedRow, *cachedSegment) {
	if t.byRow != nil && (row < 0 || row >= int64(len(t.byRow))) {
		return nil, nil
	}
	r := t.find(row)
	if r == nil {
		return nil, nil
	}
	for i := range r.segs {
		if s := &r.segs[i]; s.from <= col && col < s.to {
			return r, &r.segs[i]
		}
	}
	return nil, nil
}

// landSparse puts sparse rows together from all pieces of an answer.
func (c *ClientState) landSparse(p *pulling, l *laneLink) {
	slices.SortFunc(p.held, func(a, b *values) int { return cmp.Compare(a.piece, b.piece) })
	begun := map[*cachedRow]bool{}
	size := p.t.spec.Cell.Size()
	for _, m := range p.held {
		for i := range m.secs {
			s := &m.secs[i]
			if s.form != formCells && s.form != formRange {
				c.land(p, l, m, s)
				continue
			}
			if s.form == formRange { // a block of a row that is too long to be one
				c.land(p, l, m, s)
				continue
			}
			start := int64(0)
			for k, row := range s.rows {
				if k >= len(s.ends) || s.ends[k] < start || s.ends[k] > int64(len(s.cols)) || int64(len(s.cells)) < s.ends[k]*int64(size) {
					break
				}
				cols, cells := s.cols[start:s.ends[k]], s.cells[start*int64(size):s.ends[k]*int64(size)]
				start = s.ends[k]
				r, seg := p.t.segmentAt(row, 0)
				if seg == nil || seg.pull != p && !begun[r] {
					continue
				}
				if v, own := c.value(seg); !begun[r] && (v > m.m || v == m.m && own > m.ownOf(s)) {
					seg.pull = nil
					continue
				}
				if !begun[r] {
					r.cols, r.cells, r.n = nil, nil, 0
					begun[r] = true
				}
				r.appendCells(cols, cells)
				c.ring.weigh(r)
				c.settle(l, seg, p, m, s)
			}
		}
	}
}

// appendCells adds cells to a sparse row.
func (r *cachedRow) appendCells(cols []int64, p []byte) {
	size := r.t.spec.Cell.Size()
	n := r.n + len(cols)
	if w := words(n, size); w > len(r.cells) {
		r.cells = append(r.cells, make([]uint64, w-len(r.cells))...)
	}
	from := int64(r.n)
	r.n = n
	r.cols = append(r.cols, cols...)
	switch r.t.spec.Cell {
	case Float32:
		landCells[float32](r, from, len(cols), p)
	case Float64:
		landCells[float64](r, from, len(cols), p)
	case Int32:
		landCells[int32](r, from, len(cols), p)
	default:
		landCells[int64](r, from, len(cols), p)
	}
}

// onPush takes rows that changed.
func (c *ClientState) onPush(l *laneLink, m *values) {
	for i := range m.secs {
		s := &m.secs[i]
		if int(s.table) >= len(c.tables) {
			continue
		}
		t := c.tables[s.table]
		size := t.spec.Cell.Size()
		one := func(row, from int64, n int, cells []byte) {
			r, seg := t.segmentAt(row, from)
			if seg == nil || seg.gen != l.gen || seg.v < 0 && seg.landed == 0 || from < seg.from || from+int64(n) > seg.to || len(cells) != n*size {
				return
			}
			c.Pushed++
			if seg.landed == 0 {
				r.writable()
			}
			r.land(from, n, cells)
			if seg.landed += n; seg.landed < int(seg.to-seg.from) {
				seg.v = -1
				return
			}
			seg.pull = nil // whatever is asked for is older
			seg.v, seg.own, seg.version, seg.landed, seg.pushes = m.m, m.ownOf(s), s.version, 0, m.pushes
		}
		switch s.form {
		case formRange:
			one(s.row, s.from, s.n, s.cells)
		case formRows:
			n := int(t.spec.Cols)
			if len(s.cells) != len(s.rows)*n*size {
				continue
			}
			for k, row := range s.rows {
				one(row, 0, n, s.cells[k*n*size:(k+1)*n*size])
			}
		case formCells:
			start := int64(0)
			for k, row := range s.rows {
				if k >= len(s.ends) || s.ends[k] < start || s.ends[k] > int64(len(s.cols)) || int64(len(s.cells)) < s.ends[k]*int64(size) {
					break
				}
				cols, cells := s.cols[start:s.ends[k]], s.cells[start*int64(size):s.ends[k]*int64(size)]
				start = s.ends[k]
				r, seg := t.segmentAt(row, 0)
				if seg == nil || seg.gen != l.gen || seg.v < 0 {
					continue
				}
				c.Pushed++
				if seg.pushes != m.pushes || !slices.Contains(s.rows[:k], row) && seg.version != s.version { // the first piece of the row
					r.cols, r.cells, r.n = nil, nil, 0
				}
				r.appendCells(cols, cells)
				c.ring.weigh(r)
				seg.pull = nil
				seg.v, seg.own, seg.version, seg.pushes = m.m, m.ownOf(s), s.version, m.pushes
			}
		}
	}
}
