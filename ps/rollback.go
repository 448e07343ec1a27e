package ps

import (
	"fmt"
	"slices"
	"strings"
)

// A RolledBackError says that a server has lost rounds that it had acknowledged: its process has begun anew, alone or from a snapshot. Whoever
// went on would read tables without them and believe that they are there, so every call of the client returns it from then on. The job's
// processes go on together, from a snapshot (DirectoryOptions.Restore).
type RolledBackError struct {
	Server Name
	Lane   int      // of all lanes of the placement
	Tables []string // that have shards at this lane
	Client Name     // none: it is an error of the directory, which counts no rounds
	Acked  Clock    // the client's rounds below it had been acknowledged
	Held   Clock    // those below it are held now
	Heard  Clock    // the rounds that all clients had completed there, as far as the client had heard
	Clock  Clock    // the rounds that they have completed there now
}

func (e *RolledBackError) Error() string {
	s, tables := fmt.Sprintf("ps: %s has lost what it held", e.Server), ""
	if len(e.Tables) > 0 {
		tables = " of " + strings.Join(quoted(e.Tables), ", ")
	}
	if e.Client == (Name{}) {
		s += tables
	} else {
		s += fmt.Sprintf(": of %s it had acknowledged the rounds below clock %d, and holds those below %d; its shards%s were at clock %d, and are at %d", e.Client, e.Acked, e.Held, tables, e.Heard, e.Clock)
	}
	return s + ": all processes are to go on from a snapshot"
}

// quoted are the first names, quoted: a sentence has no room for thousands.
func quoted(names []string) (q []string) {
	const most = 8
	for i, n := range names {
		if i == most {
			return append(q, fmt.Sprintf("and %d others", len(names)-most))
		}
		q = append(q, fmt.Sprintf("%q", n))
	}
	return q
}

// rolledBack hears what a lane holds that has lost what it had acknowledged, from itself or from the directory.
func (c *ClientState) rolledBack(from Name, m *behind) {
	if m.session != c.session || !c.joined || int(m.lane) >= len(c.lanes) {
		return
	}
	l := c.lanes[m.lane]
	if from != l.server && from != c.p.Directory {
		return
	}
	e := &RolledBackError{Server: l.server, Lane: int(l.lane), Client: c.self, Acked: l.held, Held: m.own, Heard: l.m, Clock: m.m}
	for _, t := range c.tables {
		if slices.Contains(t.owners, l.lane) {
			e.Tables = append(e.Tables, t.spec.Name)
		}
	}
	c.fail(e)
}

// behind answers a client that takes for held here what is not.
func (s *ServerState) behind(to Name, session uint64, own Clock) {
	s.send(to, &behind{lane: s.self, session: session, own: own, m: s.m})
}

// unknown refuses a message of a session that this lane has not: it is told to a client before it is let in, so that either the lane has
// lost it, or it follows a directory that never let it in.
func (s *ServerState) unknown(from Name, client uint16, id uint64, e Epoch) {
	s.refuse(from, fmt.Sprintf("a message of client %d, epoch %d, that is not of this session and epoch %d", client, e, s.config.Epoch))
	s.behind(from, id, 0)
}

// forgot answers a directory that takes for accepted here what is not.
func (s *ServerState) forgot(m *install) {
	s.send(s.p.Directory, &accept{
		version: m.config.Version, lane: s.self, forgot: true,
		text: fmt.Sprintf("ps: %s has lost what it held: it had accepted version %d of what the directory decides, and has %d", s.name, m.accepted, s.config.Version),
	})
}

// rolledBack ends the job: a lane has lost what it held.
func (d *DirectoryState) rolledBack(lane int) {
	if d.err != nil {
		return
	}
	e := &RolledBackError{Server: d.p.server(lane), Lane: lane}
	for i := range d.config.Tables {
		t := &d.config.Tables[i]
		if owners := newTable(t, &d.p).owners; slices.Contains(owners, uint16(lane)) {
			e.Tables = append(e.Tables, t.Spec.Name)
		}
	}
	d.lost = &behind{lane: uint16(lane)}
	d.fail(e)
}

// ended tells a client why the job has ended.
func (d *DirectoryState) ended(m *Member) {
	if d.lost == nil {
		d.refuse(m.Name, 0, d.err.Error())
		return
	}
	x := *d.lost
	x.session = m.Session
	d.send(m.Name, &x)
}
