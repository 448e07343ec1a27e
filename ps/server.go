package ps

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/protocol"
)

// A ServerState is one lane of a server: the shards that the directory gave it, the rounds of each client that it holds, and their
// min clock M. It is a protocol.Machine; Serve drives one for each lane.
type ServerState struct {
	p    Placement
	o    ServerOptions
	self uint16 // lane
	name Name

	config  *Config
	tables  []*laneTable
	taken   int64 // bytes of this server, by all its lanes
	clients []*session

	index    uint64  // of the log
	m        Clock   // the rounds that every live client completed, and, in exact mode, has completed at every lane
	complete Clock   // the same, here
	hi       Clock   // the highest clock of any client
	haves    []Clock // exact: by lane
	ahead    []*have // the same, of configurations that are not here yet
	holder   uint16  // the client that holds complete back
	slowest  uint16  // the one that held it back until it came to where it is
	parked   []*waiting
	cut      laneCut
	saves    saves
	loads    int // restores that are under way
	listing  *listJob
	jobs     map[uint64]*loadJob
	owed     bool // the version is to be accepted once they are done
	out      []protocol.Command
	codecs   codecs

	part   roundPart
	groups []*section
	asker  *session // its batch is at hand, and a question follows
	fatal  string
	late   bool // what the configuration asks for is past
	owing  bool // timerOwed is set
	loose  bool // there is an ASP table: then no Clock waits for M
	cuts   bool // there is a BSP table
}

// ServerOptions are a server's. The zero value works.
type ServerOptions struct {
	Updaters map[string]trivium.Optimizer // by the name that Spec.Optimizer gives; elementwise. One may be a Counter
	Store    Store                        // where snapshots are; nil: there are none
	Bytes    int64                        // of this server that tables may take from the start, such as its memory; 0: as Placement.ServerBytes says
	Retry    time.Duration                // between questions to other servers, in exact mode; 0: 50 ms
	Trace    ServerTrace
	Log      *slog.Logger // of what is refused; nil discards
}

// A ServerTrace has functions that are called as things happen; nil ones are not. They must not block.
type ServerTrace struct {
	Applied func(lane int, client int, stamp Clock, bytes int) // a round is held whole
	Refused func(from Name, why string)                        // a frame that nobody can read, for any part of this process, or a message that makes no sense
	Logged  func(lane int, e Entry)                            // e's cells are valid until it returns
	Applies func(lane int, begin bool)                         // what one round or several bring is added to the cells from now on, or is so
	Parked  func(lane int, change int)                         // so many reads more wait for a clock, or fewer
	Torn    func(t Torn)                                       // rounds of a lost client are torn
}

// A laneTable is a table with the shards that lie here.
type laneTable struct {
	*table
	shards []store // by number; nil: elsewhere
	here   []int
}

// A session is what a lane knows of a client.
type session struct {
	Member
	number uint16
	next   Clock // rounds below it are held whole: the watermark
	pieces []*batch
	queue  []round // whole rounds with sections of BSP tables, or with weights for those that others have, that are not applied yet
	done   bool    // finished
	lists  keyLists
	gapAt  gap
	early  []uint64 // shards that applied the round next already
	gen    uint32
	pushes uint64
	pushed Clock
	told   Clock // the M of the last status that it was sent
	owed   bool  // it is to be told of rounds that are held
}

type gap struct {
	stamp Clock
	piece int
}

// A round is the pieces of one.
type round struct {
	stamp  Clock
	pieces []*batch
}

type waiting struct {
	from Name
	*pull
}

// NewServerState returns lane number lane of the placement's.
func NewServerState(p Placement, lane int, o ServerOptions) (*ServerState, error) {
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	if lane < 0 || lane >= p.lanes() {
		return nil, fmt.Errorf("ps: lane %d of %d", lane, p.lanes())
	}
	if o.Retry == 0 {
		o.Retry = 50 * time.Millisecond
	}
	return &ServerState{p: p, o: o, self: uint16(lane), name: p.server(lane), config: &Config{}, haves: make([]Clock, p.lanes()), ahead: make([]*have, p.lanes()), holder: noHolder, slowest: noHolder}, nil
}

const (
	timerHave protocol.TimerID = 1
	timerOwed protocol.TimerID = 2
)

// owedFor is how long a client is kept waiting to hear that a round is held: mostly an answer to a read tells it sooner, and a message is
// saved. Nobody waits for it, except those whose batch says so.
const owedFor = 2 * time.Millisecond

// Step is the machine.
func (s *ServerState) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	s.out = s.out[:0]
	switch in := in.(type) {
	case protocol.Start:
		if s.p.Exact && s.p.lanes() > 1 {
			s.out = append(s.out, protocol.SetTimer{ID: timerHave, After: s.o.Retry})
		}
	case protocol.Message:
		s.message(in.From, in.Body)
	case protocol.Timer:
		if in.ID == timerHave { // what was lost is said again
			if s.complete > s.m {
				s.tellLanes(true)
			}
			s.out = append(s.out, protocol.SetTimer{ID: timerHave, After: s.o.Retry})
		}
		if in.ID == timerOwed {
			s.owing = false
			for _, c := range s.clients {
				if c.owed {
					s.tell(c, 0)
				}
			}
		}
	case protocol.Computed:
		s.computed(in.ID)
	case protocol.LinkLost:
		for _, c := range s.clients {
			if c.Name == in.Peer {
				c.gapAt = gap{-1, 0}
			}
		}
	case protocol.Stop:
		s.out = append(s.out, protocol.Exit{})
	}
	return s.out
}

func (s *ServerState) message(from Name, body protocol.Body) {
	switch m := body.(type) {
	case *batch:
		s.onBatch(from, m)
	case *pull:
		s.onPull(from, m)
	case *probe:
		if c := s.session(from, m.client, m.session, m.epoch); c != nil {
			if m.held > c.next || m.m > s.m {
				s.behind(from, m.session, c.next)
				return
			}
			if m.gen > c.gen {
				c.gen, c.pushes = m.gen, 0
				s.forget(c)
			}
			gap := uint8(0)
			if m.stamp > c.next || m.stamp == c.next && int(m.piece) > len(c.pieces) {
				gap = 1
			}
			s.tell(c, gap)
		}
	case *hello:
		if no := s.p.elsewhere(s.name); no != nil {
			s.send(from, no)
		}
	case *install:
		if from != s.p.Directory || s.config.Version > 0 && m.config.Session != s.config.Session {
			s.stranger(from, m.config)
			return
		}
		if m.accepted > s.config.Version {
			s.forgot(m)
			return
		}
		s.install(m.config)
	case *have:
		if s.p.index(from) != int(m.lane)/s.p.Lanes || m.epoch != s.config.Epoch {
			return
		}
		if s.hears(m) {
			s.log(from, m)
		}
		if m.reply {
			s.send(from, &have{lane: s.self, to: m.lane, epoch: s.config.Epoch, version: s.config.Version, complete: s.complete})
		}
		s.advance()
	}
}

func (s *ServerState) send(to Name, b protocol.Body) {
	s.out = append(s.out, protocol.Send{To: to, Body: b})
}

// forget ends all subscriptions of c.
func (s *ServerState) forget(c *session) {
	for _, t := range s.tables {
		for _, k := range t.here {
			t.shards[k].forget(c.number)
		}
	}
}

// session finds who sent a message, or refuses it.
func (s *ServerState) session(from Name, client uint16, id uint64, e Epoch) *session {
	if int(client) >= len(s.clients) {
		s.unknown(from, client, id, e)
		return nil
	}
	c := s.clients[client]
	switch {
	case c.Name != from || c.Session != id || e != s.config.Epoch:
		s.unknown(from, client, id, e)
		return nil
	case c.State == Ending: // where it ends is being found out
		s.send(from, &refused{text: fmt.Sprintf("ps: %s was counted as lost, and the others go on without it", c.Name)})
		return nil
	case c.State == Ended:
		s.send(from, &refused{text: fmt.Sprintf("ps: %s was counted as lost at clock %d, and the others go on without it", c.Name, c.End)})
		return nil
	}
	return c
}

func (s *ServerState) refuse(from Name, why string) {
	if f := s.o.Trace.Refused; f != nil {
		f(from, why)
	}
	s.out = append(s.out, protocol.Report{Fact: Refused{From: from, Why: why}})
}

// Refused is a fact: a message that does not make sense was dropped.
type Refused struct {
	From Name
	Why  string
}

// status is what c is told with every message.
func (s *ServerState) status(c *session) status {
	holder := s.holder
	if c.told < s.m { // what it waited for has come
		holder = s.slowest
	}
	return status{
		lane: s.self, epoch: s.config.Epoch, m: s.m, own: c.next, piece: uint32(len(c.pieces)), holder: holder, gen: c.gen, pushes: c.pushes, pushed: c.pushed,
	}
}

func (s *ServerState) tell(c *session, gap uint8) {
	st := s.status(c)
	st.gap = gap
	c.told, c.owed = s.m, false
	s.send(c.Name, &clocks{st})
}

// owe has c told soon, if nothing tells it before.
func (s *ServerState) owe(c *session) {
	c.owed = true
	if !s.owing {
		s.owing = true
		s.out = append(s.out, protocol.SetTimer{ID: timerOwed, After: owedFor})
	}
}

// onBatch takes a piece of a round, if it is the next.
func (s *ServerState) onBatch(from Name, m *batch) {
	c := s.session(from, m.client, m.session, m.epoch)
	if c == nil || c.done {
		drop(m)
		if c != nil {
			s.tell(c, 0)
		}
		return
	}
	switch at := (gap{c.next, len(c.pieces)}); {
	case m.stamp < c.next || m.stamp == c.next && int(m.piece) < len(c.pieces): // a repeat: what it says is here
		drop(m)
		s.tell(c, 0)
		return
	case m.stamp > c.next || int(m.piece) > len(c.pieces):
		drop(m)
		if c.gapAt != at { // once: behind a gap everything is out of place
			c.gapAt = at
			s.tell(c, 1)
		}
		return
	}
	m = m.own()
	if lost, err := s.admit(c, m); lost {
		drop(m)
		s.tell(c, 2)
		return
	} else if err != nil {
		drop(m)
		s.refuse(from, err.Error())
		s.send(from, &refused{text: fmt.Sprintf("ps: %s refuses a batch of %s at clock %d: %v", s.name, c.Name, m.stamp, err)})
		return
	}
	c.gapAt = gap{-1, 0}
	s.log(from, m)
	c.pieces = append(c.pieces, m)
	if !m.last {
		s.applyEarly(c, m)
		return
	}
	s.roundHeld(c)
}

func drop(m *batch) {
	if m.release != nil {
		m.release()
		m.release = nil
	}
}

// own returns a copy whose sections are the lane's to change: they are given their keys, and marked when applied.
func (m *batch) own() *batch {
	n := *m
	n.secs = slices.Clone(m.secs)
	return &n
}

// admit checks the sections of a piece; lost: it refers to a key list that is not here.
func (s *ServerState) admit(c *session, m *batch) (lost bool, err error) {
	codec, err := s.codecs.of(m.codec)
	if err != nil {
		return false, err
	}
	for k, secs := range [2][]section{m.secs, m.drop} {
		for i := range secs {
			q := &secs[i]
			st, err := s.storeOf(q)
			if err != nil {
				return false, err
			}
			if q.list != 0 && !c.lists.resolve(q) {
				return true, nil
			}
			if err := st.check(q, k == 0); err != nil {
				return false, fmt.Errorf("table %q: %w", s.tables[q.table].spec.Name, err)
			}
			if q.coded {
				if err := q.decode(codec, &s.tables[q.table].spec); err != nil {
					return false, fmt.Errorf("table %q: %w", s.tables[q.table].spec.Name, err)
				}
			}
		}
	}
	return false, nil
}

func (s *ServerState) storeOf(q *section) (store, error) {
	if int(q.table) >= len(s.tables) {
		return nil, fmt.Errorf("table %d is not known", q.table)
	}
	t := s.tables[q.table]
	if int(q.shard) >= len(t.shards) || t.shards[q.shard] == nil {
		return nil, fmt.Errorf("table %q: shard %d does not lie here", t.spec.Name, q.shard)
	}
	return t.shards[q.shard], nil
}
