package ps

import (
	"cmp"
	"math"
	"slices"
)

// onValues takes an answer, or rows that a lane sends unasked.
func (c *ClientState) onValues(l *laneLink, m *values) {
	push := m.id == 0
	next := push && m.gen == l.gen && m.pushes == l.pushes+1
	c.hear(l, &m.status, push)
	for i := range m.secs {
		c.received(&m.secs[i])
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
		if p.into != nil {
			p.into.reset()
		}
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
	c.progress(func(w *wait) bool { return w.get != nil && slices.Contains(p.calls, w.get) }) // its answer is coming
	if p.left--; p.left > 0 {
		return
	}
	if p.held != nil {
		c.landSparse(p, l)
	}
	if p.into != nil {
		c.swap(p, l)
	}
	for _, s := range p.segs {
		if s.seg().pull == p {
			s.seg().pull = nil
		}
	}
	for _, g := range p.calls {
		g.pulls--
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
	if s.form != formSame && len(s.cells) != s.n*size || p.cells == nil && t.byColumn() {
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
		g.v = min(g.v, m.m) // of each piece: they may be of several answers
		from, to := at/size, at/size+s.n
		if g.past {
			from, to = from/int(t.spec.Cols), (to+int(t.spec.Cols)-1)/int(t.spec.Cols)
		}
		for i := from; i < min(to, len(g.owns)); i++ {
			g.owns[i] = m.ownOf(s)
		}
		return true
	}
	set := func(row, from int64, n int, cells []byte) bool {
		if in := p.into; in != nil && in.r.t == t && in.r.row == row {
			return in.take(m, s, row, from, n, cells)
		}
		r, seg := t.segmentAt(row, from)
		if seg == nil || seg.pull != p && (seg.landed > 0 || int64(n) < seg.to-seg.from || !p.asked(r)) {
			return true // no longer wanted, or asked for anew: then only whole segments are of use, and of a row that was not thrown out since
		}
		if seg.landed > 0 && seg.version != s.version { // of an answer before, whose rest was lost: it is of another time
			seg.landed = 0
		}
		if seg.landed == 0 && c.overtaken(seg, m, s) {
			seg.pull = nil // an answer that was overtaken
			return true
		}
		if cells == nil {
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
				seg.v, seg.gen, seg.version = -1, 0, s.version
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
			if i%warmRows == 0 {
				t.warm(s.rows[i:])
			}
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
		seg.gen = l.gen
	}
}

// dropping reports whether an unsubscription from a segment is on its way, which may come before or after a request.
func (l *laneLink) dropping(t *clientTable, row, from int64) bool {
	is := func(s section) bool {
		switch {
		case s.table != t.id:
			return false
		case s.form == formRange:
			return s.row == row && s.from == from
		}
		for i, found := slices.BinarySearch(s.rows, row); found && i < len(s.rows) && s.rows[i] == row; i++ {
			if s.form == formRows || s.cols[i] == from {
				return true
			}
		}
		return false
	}
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
	begun := map[*cachedRow]uint64{} // the version of what a row has
	for _, m := range p.held {
		for i := range m.secs {
			s := &m.secs[i]
			if s.form != formCells || !p.t.byColumn() { // a block of a row that is too long to be one
				c.land(p, l, m, s)
				continue
			}
			s.eachRow(&p.t.spec, func(row int64, cols []int64, cells []byte) {
				r, seg := p.t.segmentAt(row, 0)
				version, more := begun[r]
				switch {
				case seg == nil || seg.pull != p && !more:
					return
				case more && version != s.version: // of an answer before, whose rest was lost: the row is asked for again
					seg.v, seg.gen, begun[r] = -1, 0, 0 // no answer has version 0: what follows is not of use either
					return
				}
				if !more && c.overtaken(seg, m, s) {
					seg.pull = nil
					return
				}
				if !more {
					r.cols, r.cells, r.n = nil, nil, 0
					begun[r] = s.version
				}
				r.appendCells(cols, cells)
				c.ring.weigh(r)
				c.settle(l, seg, p, m, s)
			})
		}
	}
}

// eachRow calls f with the columns and cells of each row of a section by column, up to one that makes no sense.
func (s *section) eachRow(sp *Spec, f func(row int64, cols []int64, cells []byte)) {
	start, size := int64(0), int64(sp.Cell.Size())
	for k, row := range s.rows {
		if k >= len(s.ends) || s.ends[k] < start || s.ends[k] > int64(len(s.cols)) || int64(len(s.cells)) < s.ends[k]*size {
			return
		}
		cols, cells := s.cols[start:s.ends[k]], s.cells[start*size:s.ends[k]*size]
		if !ascending(cols, sp.Cols) {
			return
		}
		f(row, cols, cells)
		start = s.ends[k]
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
		if (s.form == formCells) != t.byColumn() {
			continue
		}
		size := t.spec.Cell.Size()
		one := func(row, from int64, n int, cells []byte) {
			r, seg := t.segmentAt(row, from)
			if r == nil {
				l.unwanted(t, row, from)
			}
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
			seg.v, seg.own, seg.version, seg.landed = m.m, m.ownOf(s), s.version, 0
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
				if k%warmRows == 0 {
					t.warm(s.rows[k:])
				}
				one(row, 0, n, s.cells[k*n*size:(k+1)*n*size])
			}
		case formCells:
			s.eachRow(&t.spec, func(row int64, cols []int64, cells []byte) {
				r, seg := t.segmentAt(row, 0)
				if r == nil {
					l.unwanted(t, row, 0)
				}
				if seg == nil || seg.gen != l.gen || seg.v < 0 && seg.landed == 0 {
					return
				}
				c.Pushed++
				if seg.landed == 0 {
					r.cols, r.cells, r.n = nil, nil, 0
				}
				r.appendCells(cols, cells)
				c.ring.weigh(r)
				if len(cols) == sparsePiece(t.spec.Cell) { // the rest is in the next message
					seg.v, seg.landed = -1, seg.landed+len(cols)
					return
				}
				seg.pull = nil
				seg.v, seg.own, seg.version, seg.landed = m.m, m.ownOf(s), s.version, 0
			})
		}
	}
}
