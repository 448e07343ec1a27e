package ps

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
)

// hear takes what a lane says of itself.
func (c *ClientState) hear(l *laneLink, s *status, push bool) {
	l.heard, l.rto, l.tries = c.now, c.o.Retry, 0
	if s.m > l.m {
		c.progress(func(w *wait) bool { return l.m < w.needs() || w.flow && c.crowded(l) })
		c.heldUp(l, s.holder)
	}
	if s.m >= l.m {
		l.m, l.holder = s.m, s.holder
	}
	for len(l.kept) > 0 && l.kept[0].stamp < l.m {
		l.keeps -= l.kept[0].bytes
		l.kept = tail(l.kept)
	}
	if s.gen == l.gen {
		switch {
		case push && s.pushes == l.pushes+1:
			l.pushes++
		case s.pushes > l.pushes: // one is missing: rows that were subscribed may be behind
			c.resubscribe(l)
		}
		if !push && s.gen == l.gen && s.pushes == l.pushes && s.m > l.pushedM {
			l.pushedM, l.pushedOwn = s.m, s.pushed
		}
	}
	l.held = max(l.held, s.own)
	n := 0
	for n < len(l.unacked) && l.unacked[n].stamp < s.own {
		b := l.unacked[n]
		l.inflight -= b.bytes
		c.keep(l, b)
		if b.last {
			c.acked(b.stamp)
		}
		n++
	}
	if n > 0 {
		c.progress(func(w *wait) bool { return w.flow || w.acked })
	}
	l.unacked = slices.Delete(l.unacked, 0, n)
	switch {
	case s.gap == 1 && s.own < l.held: // it is an old message, or the lane has lost rounds: the answer tells
		c.ask(l)
	case s.gap == 1:
		for _, b := range l.unacked {
			if b.stamp > s.own || b.stamp == s.own && b.piece >= s.piece {
				c.resend(b)
			}
		}
	case s.gap == 2: // from the first that lacks its keys: those behind it were out of place
		l.lists.forget()
		from := false
		for i, b := range l.unacked {
			if from = from || b.lacksKeys(); from {
				l.unacked[i] = b.withKeys()
				c.resend(l.unacked[i])
			}
		}
		c.repull(l, true)
	}
	c.m = l.m
	for _, o := range c.lanes {
		c.m = min(c.m, o.m)
	}
}

// progress gives those more time that wait for what came to pass: more rounds, which are as many as they need, or batches that are held.
func (c *ClientState) progress(waitedFor func(w *wait) bool) {
	for _, w := range c.waits {
		if waitedFor(w) {
			w.deadline = c.now + c.o.RoundTimeout
		}
	}
}

// heldUp books what workers have waited for a lane's M, which moves on, as waited for the client that held it back: with the way of its round
// and of the answer. What the way of this client's own round takes is no other's doing, nor what its workers wait for each other.
func (c *ClientState) heldUp(l *laneLink, by uint16) {
	for _, w := range c.waits {
		if !c.needsRound(w, l) {
			continue
		}
		if by != c.number && int(by) < len(c.config.Clients) {
			for len(w.w.waited) <= int(by) {
				w.w.waited = append(w.w.waited, 0)
			}
			w.w.waited[by] += c.now - w.since
		}
		w.since = c.now
	}
}

// needsRound reports whether a worker waits for a lane's M.
func (c *ClientState) needsRound(w *wait, l *laneLink) bool {
	if g := w.get; g != nil {
		return !g.silent && l.m < g.need && slices.ContainsFunc(c.pulls, func(p *pulling) bool { return p.lane == l && slices.Contains(p.calls, g) })
	}
	return l.m < w.clock || w.flow && c.crowded(l)
}

// resubscribe starts a new generation, and asks for what the lane owes.
func (c *ClientState) resubscribe(l *laneLink) {
	c.unsubscribe(l)
	c.ask(l)
}

// unsubscribe ends a generation: nothing of this lane is taken as sent unasked until it is read again.
func (c *ClientState) unsubscribe(l *laneLink) {
	for _, r := range c.ring.rows { // what they were good for, they stay good for
		for i := range r.segs {
			if s := &r.segs[i]; s.gen == l.gen && s.lane == l.lane {
				s.v, s.own = c.value(s)
				s.gen = 0
			}
		}
	}
	l.gen++
	l.pushes = 0
	l.drop = nil
}

func (c *ClientState) ask(l *laneLink) {
	if !c.joined {
		return
	}
	p := &probe{lane: l.lane, client: c.number, session: c.session, epoch: c.config.Epoch, gen: l.gen, stamp: c.clock, held: l.held, m: l.m}
	if n := len(l.unacked); n > 0 {
		b := l.unacked[n-1]
		if p.stamp, p.piece = b.stamp, b.piece+1; b.last {
			p.stamp, p.piece = b.stamp+1, 0
		}
	}
	c.send(l.server, p)
	c.repull(l, false)
}

func (c *ClientState) resend(b *batch) {
	b.holds.take()
	c.Resent++
	c.send(c.p.server(int(b.lane)), b)
}

func (m *batch) lacksKeys() bool {
	return slices.ContainsFunc(m.secs, func(s section) bool { return s.listed })
}

// withKeys is the batch with all keys in it: what was sent is not changed.
func (m *batch) withKeys() *batch {
	n := *m
	n.secs = slices.Clone(m.secs)
	for i := range n.secs {
		n.secs[i].listed = false
	}
	return &n
}

// repull asks again for what a lane has not answered.
func (c *ClientState) repull(l *laneLink, keys bool) {
	for _, p := range c.pulls {
		if p.lane != l {
			continue
		}
		m := *p.msg
		m.gen = l.gen
		if keys {
			m.secs = slices.Clone(m.secs)
			for i := range m.secs {
				m.secs[i].listed = false
			}
		}
		p.msg = &m
		c.send(l.server, &m)
	}
}

// owes reports whether a lane owes an answer.
func (c *ClientState) owes(l *laneLink) bool {
	if len(l.unacked) > 0 {
		return true
	}
	for _, p := range c.pulls {
		if p.lane == l {
			return true
		}
	}
	return false
}

// arm sets the timer while something is owed.
func (c *ClientState) arm() {
	if c.armed || c.err != nil {
		return
	}
	owed := !c.joined || len(c.creates) > 0 || len(c.waits) > 0 || c.cut.At > 0 && !c.cut.told || len(c.cut.states) > 0
	for _, l := range c.lanes {
		owed = owed || c.owes(l)
	}
	if owed {
		c.armed = true
		c.out = append(c.out, protocol.SetTimer{ID: timerRetry, After: c.o.Retry})
	}
}

const maxRetry = 2 * time.Second

func (c *ClientState) retry() {
	if !c.joined {
		c.sayHello()
	}
	for _, x := range c.creates {
		c.send(c.p.Directory, &create{client: c.number, session: c.session, req: x.id, spec: x.spec})
	}
	c.tellProgress()
	for _, l := range c.lanes {
		if !c.owes(l) && !c.waitsFor(l) || c.now-max(l.heard, l.asked) < l.rto {
			continue
		}
		l.tries++
		l.asked = c.now
		l.rto = min(2*l.rto, maxRetry)
		l.rto += time.Duration(draw.Below(c.session, uint64(l.lane)+64, l.tries, uint64(l.rto)/4+1)) // so that not all ask at once
		c.ask(l)
	}
	kept := c.waits[:0]
	for _, w := range c.waits {
		if w.deadline > 0 && c.now >= w.deadline && w.id != 0 {
			if w.get != nil {
				c.unpin(w.get)
			}
			c.answer(w.id, nil, fmt.Errorf("%s: no progress in %v", c.describe(w), c.o.RoundTimeout))
			continue
		}
		kept = append(kept, w)
	}
	clear(c.waits[len(kept):])
	c.waits = kept
}

// keep counts what a lane that holds b keeps of it until M passes it: a piece with a section of a BSP table, or its weights alone.
func (c *ClientState) keep(l *laneLink, b *batch) {
	if c.bsp == nil || b.stamp < l.m {
		return
	}
	k := keptRound{b.stamp, roundOverhead, c.bsp.id}
	if i := slices.IndexFunc(b.secs, func(s section) bool { return c.tables[s.table].spec.Mode == BSP }); i >= 0 {
		k.bytes, k.table = k.bytes+b.bytes, b.secs[i].table
	} else if !b.last || len(b.weights) == 0 {
		return
	}
	l.keeps += k.bytes
	l.kept = append(l.kept, k)
}

// crowded reports whether a lane keeps too much until M comes, beside what is on its way. The client's last round alone is never too much:
// what M waits for may come after it.
func (c *ClientState) crowded(l *laneLink) bool {
	return l.inflight+l.keeps > c.o.Inflight && len(l.kept) > 0 && l.kept[0].stamp < c.clock-1
}

// waitsFor reports whether a Clock or Barrier waits for a lane's M.
func (c *ClientState) waitsFor(l *laneLink) bool {
	for _, w := range c.waits {
		if w.get == nil && c.needsRound(w, l) {
			return true
		}
	}
	return false
}

// describe says what a call waits for: table, row, clock, M, and who holds it back.
func (c *ClientState) describe(w *wait) string {
	what, need := "clock", w.needs()
	lanes := c.lanes
	if g := w.get; g != nil {
		what = fmt.Sprintf("read %q row %d", g.t.spec.Name, g.rows[0])
		if len(g.rows) > 1 {
			what = fmt.Sprintf("read %q rows %d to %d", g.t.spec.Name, g.rows[0], g.rows[len(g.rows)-1])
		}
		lanes = nil
		for _, p := range c.pulls {
			if slices.Contains(p.calls, g) {
				lanes = append(lanes, p.lane)
			}
		}
	} else {
		switch {
		case w.barrier:
			what = "barrier"
		case w.acked:
			what = "finish"
		}
		if c.m >= need { // it waits for what is under way
			lanes = slices.DeleteFunc(slices.Clone(lanes), func(l *laneLink) bool { return l.inflight <= c.o.Inflight && (!w.acked || len(l.unacked) == 0) })
		}
	}
	s := fmt.Sprintf("ps: %s by worker %d of %s at clock %d", what, w.w.index, c.self, w.w.clock)
	if w.flow && w.w.unsent > c.o.Inflight {
		slow := w.w
		for _, o := range c.workers {
			if !o.finished && o.clock < slow.clock {
				slow = o
			}
		}
		if slow == w.w {
			return s + fmt.Sprintf(": waits for workers that were not made: %d of the %d that Options.Workers names are there", len(c.workers), c.o.Workers)
		}
		return s + fmt.Sprintf(": %d bytes of its rounds wait for worker %d, which is at clock %d", w.w.unsent, slow.index, slow.clock)
	}
	if i := slices.IndexFunc(c.lanes, c.crowded); i >= 0 && w.flow && c.m >= need {
		l := c.lanes[i]
		s += fmt.Sprintf(": %d bytes of its rounds of table %q are not applied yet", l.keeps, c.tables[l.kept[0].table].spec.Name)
		lanes, need = c.lanes[i:i+1], l.kept[0].stamp+1
	}
	var slow *laneLink
	for _, l := range lanes {
		if slow == nil || l.m < slow.m {
			slow = l
		}
	}
	switch {
	case slow == nil:
		return s
	case slow.m >= need:
		return s + fmt.Sprintf(": no answer from %s (last heard %v ago)", slow.server, (c.now-slow.heard).Round(time.Millisecond))
	}
	s += fmt.Sprintf(": waits for clock %d, and %s is at %d", need, slow.server, slow.m)
	if int(slow.holder) < len(c.config.Clients) {
		s += fmt.Sprintf(", held by %s", c.config.Clients[slow.holder].Name)
	}
	if n := len(c.workers); slow.holder == c.number && n < c.o.Workers {
		s += fmt.Sprintf(", which has %d of the %d workers that Options.Workers names", n, c.o.Workers)
	}
	return s
}
