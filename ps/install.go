package ps

import (
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium/protocol"
)

// stranger answers a directory that is not the placement's, or not the one that this lane follows: it would wait for ever.
func (s *ServerState) stranger(from Name, c *Config) {
	why := fmt.Sprintf("the directory of %s is %s, as its placement says, and not %s", s.name, s.p.Directory, from)
	if from == s.p.Directory {
		why = fmt.Sprintf("%s follows a directory that was at %s before this one, and nobody succeeds it: begin with new servers and clients", s.name, from)
	}
	s.refuse(from, why)
	s.send(from, &accept{version: c.Version, lane: s.self, text: "ps: " + why})
}

// install makes the directory's decisions this lane's.
func (s *ServerState) install(c *Config) {
	if c.Version <= s.config.Version {
		if s.loads == 0 {
			s.accept(c.Version, s.late)
		}
		if s.cut.saved && c.Version == s.config.Version {
			s.send(s.p.Directory, &s.cut.job.result)
		}
		return
	}
	if err := s.p.check(s.name, c); err != nil {
		s.fatal = err.Error()
	}
	if s.fatal != "" {
		s.accept(c.Version, false)
		return
	}
	s.log(s.p.Directory, &install{config: c})
	late, past := false, max(s.m, s.haves[s.self]) // in exact mode others may count rounds that this lane has told to be complete
	for i := range c.Clients {
		m := c.Clients[i]
		if i == len(s.clients) {
			s.clients = append(s.clients, &session{Member: m, number: uint16(i), next: m.Start, gapAt: gap{-1, 0}, gen: 1})
			late = late || m.Start < past
			s.hi = max(s.hi, m.Start)
			continue
		}
		old := s.clients[i]
		switch {
		case old.State == Awaited || old.State == Active && m.State == Active:
			if m.Start > old.next && old.next == old.Start { // it joins later than was planned
				old.next = m.Start
			}
			old.Member = m
			late = late || m.State == Active && !old.done && old.next == m.Start && old.next < past // also if it was refused in an earlier version
		case m.State == Ending:
			old.State = m.State
			s.dropPieces(old)
		case m.State == Ended && old.State != Ended:
			s.end(old, m)
		}
	}
	if s.config.Version == 0 && len(c.Clients) > 0 { // a run that goes on from a snapshot begins at its clock
		start := c.Clients[0].Start
		for _, m := range c.Clients {
			start = min(start, m.Start)
		}
		s.m = max(s.m, start)
		s.haves[s.self] = s.m
	}
	first := len(s.tables)
	for i := first; i < len(c.Tables); i++ {
		if err := s.addTable(&c.Tables[i]); err != nil {
			s.fatal = err.Error()
			break // what follows would have its number
		}
	}
	s.load(&c.From, c.Tables, first)
	if c.Cut != s.cut.Cut {
		late = s.setCut(c.Cut) || late
	} else {
		late = late || s.cut.taken && s.cut.job == nil // also if it was refused in an earlier version
	}
	s.config = c
	for l, m := range s.ahead {
		if m != nil && m.version <= c.Version {
			s.ahead[l] = nil
			s.hears(m)
		}
	}
	if s.loads > 0 {
		s.owed = true
		return
	}
	s.late = late
	s.accept(c.Version, late)
	s.advance()
	s.unpark()
}

func (s *ServerState) accept(version uint64, late bool) {
	a := &accept{version: version, lane: s.self, refused: late, text: s.fatal, m: s.m, hi: s.hi}
	for _, c := range s.clients {
		if c.done {
			a.ends = append(a.ends, maxClock)
		} else {
			a.ends = append(a.ends, c.next)
		}
	}
	s.send(s.p.Directory, a)
}

func (s *ServerState) addTable(d *Definition) error {
	t := newTable(d, &s.p)
	if err := t.equip(s.o.Updaters); err != nil {
		return err
	}
	if len(t.owners) != t.cut.shards {
		return fmt.Errorf("ps: table %q: %d owners of %d shards", d.Spec.Name, len(t.owners), t.cut.shards)
	}
	n := t.bytesOf(int(s.self)/s.p.Lanes, s.p.Lanes)
	if s.o.Bytes > 0 && n > s.o.Bytes-s.taken {
		return fmt.Errorf("ps: table %q: %d × %d cells of %s take %d bytes of %s, which has %d, and other tables take %d of them", d.Spec.Name, d.Spec.Rows, d.Spec.Cols, d.Spec.Cell, n, s.name, s.o.Bytes, s.taken)
	}
	s.taken += n
	l := &laneTable{table: t, shards: make([]store, t.cut.shards)}
	for k, o := range t.owners {
		if o == s.self {
			l.here = append(l.here, k)
		}
	}
	var r *room
	if t.cut.bounds != nil {
		r = newRoom(t, l.here)
	}
	for _, k := range l.here {
		l.shards[k] = newStore(t, k, r)
	}
	s.tables = append(s.tables, l)
	s.loose = s.loose || l.spec.Mode == ASP
	s.cuts = s.cuts || l.spec.Mode == BSP
	if d.Saved && len(l.here) > 0 && s.o.Store == nil {
		return errors.New("ps: a restore wants ServerOptions.Store")
	}
	return nil
}

func (s *ServerState) dropPieces(c *session) {
	if len(c.early) > 0 {
		s.tear(c, c.next, c.next+1)
		c.early = nil
	}
	for _, m := range c.pieces {
		drop(m)
	}
	c.pieces = nil
}

// end ends a lost client's session at the last round that is complete everywhere. Of its later rounds, those that wait are dropped.
// What was applied as it came, or by this lane in BSP while another had not got it, stays: it is torn.
func (s *ServerState) end(c *session, m Member) {
	s.dropPieces(c)
	for len(c.queue) > 0 && c.queue[len(c.queue)-1].stamp >= m.End {
		for _, b := range c.queue[len(c.queue)-1].pieces {
			drop(b)
		}
		c.queue = c.queue[:len(c.queue)-1]
	}
	if from := max(m.End, c.Start); from < c.next && !s.p.Exact {
		s.tear(c, from, c.next)
	}
	c.Member = m
	s.forget(c)
	c.lists.forget()
}

// tear tells of rounds of c that are torn.
func (s *ServerState) tear(c *session, from, to Clock) {
	t := Torn{Client: c.Name, Lane: int(s.self), From: from, To: to}
	if f := s.o.Trace.Torn; f != nil {
		f(t)
	}
	s.out = append(s.out, protocol.Report{Fact: t})
}

// Torn is a fact: rounds of a lost client that this lane had, From up to before To, and another had not.
type Torn struct {
	Client   Name
	Lane     int
	From, To Clock
}
