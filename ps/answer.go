package ps

import (
	"fmt"
	"slices"
)

// onPull answers a request, or parks it under the clock that it needs.
func (s *ServerState) onPull(from Name, m *pull) {
	c := s.session(from, m.client, m.session, m.epoch)
	if c == nil {
		return
	}
	if n := *m; len(m.secs) > 0 {
		n.secs = slices.Clone(m.secs) // they may be given their keys
		m = &n
	}
	for i := range m.secs {
		q := &m.secs[i]
		st, err := s.storeOf(q)
		if err == nil && q.list != 0 && !c.lists.resolve(q) {
			s.tell(c, 2)
			return
		}
		if err == nil {
			err = st.check(q, false)
		}
		if err != nil {
			s.refuse(from, err.Error())
			s.send(from, &refused{text: fmt.Sprintf("ps: %s refuses a read of %s: %v", s.name, c.Name, err)})
			return
		}
	}
	if m.need > s.m || m.own > c.next {
		for i, w := range s.parked {
			if w.from == from && w.id == m.id {
				s.parked[i] = &waiting{from, m}
				return
			}
		}
		s.parked = append(s.parked, &waiting{from, m})
		s.tellParked(1)
		return
	}
	s.answer(c, m)
}

func (s *ServerState) answer(c *session, m *pull) {
	var ms []*values
	sub := m.subscribe && m.gen == c.gen && !c.done
	p := packer{early: c.early, full: func(v *values) { ms = append(ms, v) }}
	for i := range m.secs {
		q := &m.secs[i]
		st := s.tables[q.table].shards[q.shard]
		if sub {
			st.subscribe(q, c.number, true)
		}
		st.read(q, i, p.add)
	}
	p.flush()
	if len(ms) == 0 {
		ms = append(ms, &values{})
	}
	for i, v := range ms {
		v.status, v.id, v.piece, v.pieces = s.status(c), m.id, uint32(i), uint32(len(ms))
		v.sub = sub
		s.send(c.Name, v)
	}
	c.told, c.owed = s.m, false
}

// unpark answers what waited for the clock that has come.
func (s *ServerState) unpark() {
	kept := s.parked[:0]
	for _, w := range s.parked {
		c := s.clients[w.client]
		switch {
		case c.State != Active || c.Session != w.session:
		case w.need > s.m || w.own > c.next:
			kept = append(kept, w)
		default:
			s.answer(c, w.pull)
		}
	}
	change := len(kept) - len(s.parked)
	clear(s.parked[len(kept):])
	s.parked = kept
	s.tellParked(change)
}

func (s *ServerState) tellParked(change int) {
	if f := s.o.Trace.Parked; f != nil && change != 0 {
		f(int(s.self), change)
	}
}

// push sends rows that changed to those who subscribed to them.
func (s *ServerState) push() {
	for _, c := range s.clients {
		c.pushed = c.next
	}
	for _, t := range s.tables {
		if t.spec.Mode != ESSP {
			continue
		}
		for _, k := range t.here {
			for _, c := range s.clients {
				if c.State != Active {
					continue
				}
				p := packer{early: c.early, full: func(m *values) {
					c.pushes++
					m.status = s.status(c)
					s.send(c.Name, m)
				}}
				t.shards[k].changed(c.number, p.add)
				p.flush()
			}
			t.shards[k].settle()
		}
	}
}

// A packer packs sections into messages of at most a piece.
type packer struct {
	early []uint64 // shards that have a round of the receiver more than the others
	full  func(m *values)
	m     *values
	size  int
	alone bool // it is one section's cells, where they lie
}

func (p *packer) add(c section, h *hold) {
	c.mark = slices.Contains(p.early, shardKey(&c))
	n := c.size() + 8
	alone := h != nil && len(c.cells) >= inPlace // sent from where it lies
	switch {
	case p.m == nil:
	case p.alone && c.small() && len(p.m.secs) <= besideSections:
		c.beside = true
	case !p.alone && alone && smallOnes(p.m.secs):
		putBeside(p.m.secs)
		p.alone = true
	case p.alone || alone || p.size+n > maxPiece || len(p.m.secs) >= maxSections:
		p.flush()
	}
	if p.m == nil {
		p.m, p.size, p.alone = &values{}, 0, alone
	}
	p.m.holds.add(h)
	p.m.secs = append(p.m.secs, c)
	p.size += n
}

func (p *packer) flush() {
	if p.m != nil {
		p.full(p.m)
		p.m = nil
	}
}
