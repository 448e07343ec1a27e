package ps

import (
	"cmp"
	"slices"
)

// applyEarly applies what is complete of a large round, shard by shard, so that little of it waits in memory: a shard applies a round
// with its last piece. What is BSP waits for the cut.
func (s *ServerState) applyEarly(c *session, m *batch) {
	for i := range m.secs {
		q := &m.secs[i]
		if !q.mark || s.tables[q.table].spec.Mode == BSP {
			continue
		}
		g := s.groups[:0]
		for _, p := range c.pieces {
			for k := range p.secs {
				if x := &p.secs[k]; !x.done && x.table == q.table && x.shard == q.shard {
					g = append(g, x)
				}
			}
		}
		s.groups = g
		s.part = roundPart{secs: s.part.secs, cut: s.cutState(c.next)}
		s.applySections(g, m.weights)
		for _, x := range g {
			x.done, x.cells = true, nil
		}
		clear(s.groups)
		c.early = append(c.early, shardKey(q))
	}
	for _, p := range c.pieces {
		if p.release != nil && !slices.ContainsFunc(p.secs, func(x section) bool { return !x.done }) {
			drop(p)
		}
	}
}

// roundHeld has all pieces of c's next round: it counts from now on.
func (s *ServerState) roundHeld(c *session) {
	stamp, pieces := c.next, c.pieces
	c.next++
	c.pieces = nil
	s.hi = max(s.hi, c.next)
	last := pieces[len(pieces)-1]
	for i := range last.drop { // while the memory of its rows is not returned yet
		q := &last.drop[i]
		s.tables[q.table].shards[q.shard].subscribe(q, c.number, false)
	}
	bytes := 0
	for _, m := range pieces {
		bytes += m.bytes
	}
	if f := s.o.Trace.Applied; f != nil {
		f(int(s.self), int(c.number), stamp, bytes)
	}
	c.early = c.early[:0]
	s.part = roundPart{secs: s.part.secs, cut: s.cutState(stamp)}
	s.applyRounds([]*round{{stamp, pieces}}, false)
	wait := pieces[:0]
	for _, m := range pieces {
		if s.cuts && slices.ContainsFunc(m.secs, func(q section) bool { return s.tables[q.table].spec.Mode == BSP }) {
			wait = append(wait, m)
		} else {
			drop(m)
		}
	}
	clear(pieces[len(wait):])
	switch {
	case len(wait) > 0:
		c.queue = append(c.queue, round{stamp, wait})
	case s.cuts && len(last.weights) > 0: // what others add at the cut is divided by the weights of all
		c.queue = append(c.queue, round{stamp, []*batch{{weights: last.weights}}})
	}
	if c.done = last.finish; c.done { // nobody waits for it any more: it may stay behind, and be gone
		s.forget(c)
		c.lists.forget()
	}
	before := s.m
	if last.asks {
		s.asker = c
	}
	s.advance()
	s.asker = nil
	switch {
	case last.finish || last.prompt:
		s.tell(c, 0)
	case s.m == before:
		s.owe(c)
	}
}

func (s *ServerState) cutState(stamp Clock) cutState {
	switch {
	case s.cut.At == 0 || s.cut.taken:
		return cutNone
	case stamp >= s.cut.At:
		return cutAfter
	}
	return cutBefore
}

// applyRounds applies what rounds, in client order, hold of tables that are BSP, or of those that are not.
func (s *ServerState) applyRounds(rounds []*round, bsp bool) {
	g := s.groups[:0]
	var ws []weight
	for _, r := range rounds {
		for _, m := range r.pieces {
			for i := range m.secs {
				if q := &m.secs[i]; !q.done && (s.tables[q.table].spec.Mode == BSP) == bsp {
					g = append(g, q)
				}
			}
		}
		ws = append(ws, r.pieces[0].weights...)
	}
	s.groups = g
	s.applySections(g, ws)
	clear(s.groups)
}

// applySections applies sections that are in client order, shard by shard.
func (s *ServerState) applySections(g []*section, ws []weight) {
	if len(g) == 0 {
		return
	}
	if f := s.o.Trace.Applies; f != nil {
		f(int(s.self), true)
		defer f(int(s.self), false)
	}
	s.part.sum, s.part.divide = foldParts(len(ws), func(i int) (uint32, float64) { return ws[i].part, ws[i].sum }, func(a, b float64) float64 { return a + b })
	if !slices.IsSortedFunc(g, sectionOrder) {
		slices.SortStableFunc(g, sectionOrder)
	}
	for len(g) > 0 {
		n := 1
		for n < len(g) && g[n].table == g[0].table && g[n].shard == g[0].shard {
			n++
		}
		s.part.secs = g[:n]
		s.tables[g[0].table].shards[g[0].shard].apply(&s.part)
		g = g[n:]
	}
}

func sectionOrder(a, b *section) int {
	return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.shard, b.shard))
}

// advance moves M to the rounds that every live client completed.
func (s *ServerState) advance() {
	before, slowest := s.complete, s.holder
	s.complete, s.holder = s.hi, noHolder
	live := false
	for _, c := range s.clients {
		if !c.counts() {
			continue
		}
		if !live || c.next < s.complete {
			s.complete, s.holder, live = c.next, c.number, true
		}
	}
	if !live && s.complete < s.cut.At { // nobody is left to come to the cut
		s.complete, s.hi = s.cut.At, s.cut.At
	}
	if s.complete > before {
		s.slowest = slowest // the only one that was left
	}
	to := s.complete
	if s.p.Exact && s.p.lanes() > 1 {
		if s.complete > s.haves[s.self] {
			s.haves[s.self] = s.complete
			s.tellLanes(false)
		}
		to = min(to, slices.Min(s.haves))
	}
	if to <= s.m {
		return
	}
	var rounds []*round
	for s.m < to {
		rounds = rounds[:0]
		for _, c := range s.clients {
			if len(c.queue) > 0 && c.queue[0].stamp == s.m {
				rounds = append(rounds, &c.queue[0])
			}
		}
		if len(rounds) > 0 {
			s.part = roundPart{secs: s.part.secs, cut: s.cutState(s.m)}
			s.applyRounds(rounds, true)
		}
		for _, c := range s.clients {
			if len(c.queue) > 0 && c.queue[0].stamp == s.m {
				for _, m := range c.queue[0].pieces {
					drop(m)
				}
				c.queue = tail(c.queue)
			}
		}
		s.m++
		s.checkCut()
	}
	s.push()
	s.unpark()
	for _, c := range s.clients {
		switch {
		case c.State != Active || c.Session == 0 || c.told == s.m: // an answer has told it
		case s.loose || c == s.asker:
			s.owe(c)
		default:
			s.tell(c, 0)
		}
	}
}

// tail is a queue without its first. The others, which may be many, stay where they are.
func tail[T any](q []T) []T {
	clear(q[:1])
	if len(q) == 1 {
		return q[:0]
	}
	return q[1:]
}

// noHolder: nobody holds M back.
const noHolder = 1<<16 - 1

// counts reports whether M waits for c.
func (c *session) counts() bool { return c.State != Ended && !c.done }

// hears takes what another lane has. Of a configuration that is not here yet it may count rounds without a client that is over there, and
// whose last round, of which that lane knows that it is void, is complete here: it is put by until the configuration comes.
func (s *ServerState) hears(m *have) (news bool) {
	switch {
	case m.version > s.config.Version:
		if x := s.ahead[m.lane]; x == nil || x.version < m.version || x.version == m.version && x.complete < m.complete {
			s.ahead[m.lane] = m
			return true
		}
	case m.complete > s.haves[m.lane]:
		s.haves[m.lane] = m.complete
		return true
	}
	return false
}

func (s *ServerState) tellLanes(reply bool) {
	for l := range s.p.lanes() {
		if l != int(s.self) {
			s.send(s.p.server(l), &have{lane: s.self, to: uint16(l), epoch: s.config.Epoch, version: s.config.Version, complete: s.complete, reply: reply})
		}
	}
}
