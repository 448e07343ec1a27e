package ps

import (
	"cmp"
	"errors"
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
	clients []*session

	index    uint64  // of the log
	m        Clock   // the rounds that every live client completed, and, in exact mode, has completed at every lane
	complete Clock   // the same, here
	hi       Clock   // the highest clock of any client
	haves    []Clock // exact: by lane
	holder   uint16
	parked   []*waiting
	cut      laneCut
	loads    int // restores that are under way
	jobs     map[uint64]*loadJob
	owed     bool // the version is to be accepted once they are done
	out      []protocol.Command

	now     time.Duration
	part    roundPart
	groups  []*section
	torn    int // rounds of lost clients that had been applied here
	refused int // messages
	fatal   string
	late    bool // what the configuration asks for is past
}

// ServerOptions are a server's. The zero value works.
type ServerOptions struct {
	Updaters map[string]trivium.Optimizer // by the name that Spec.Optimizer gives; elementwise
	Store    Store                        // where snapshots are; nil: there are none
	Retry    time.Duration                // between questions to other servers, in exact mode; 0: 50 ms
	Trace    ServerTrace
	Log      *slog.Logger // of what is refused; nil discards
}

// A ServerTrace has functions that are called as things happen; nil ones are not. They must not block.
type ServerTrace struct {
	Applied func(lane int, client int, stamp Clock, bytes int) // a round is held whole
	Advance func(lane int, m Clock)
	Refused func(from Name, why string)
	Logged  func(lane int, e Entry) // e's cells are valid until it returns
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
	queue  []round // whole rounds with sections of BSP tables that are not applied yet
	done   bool    // finished
	lists  keyLists
	gapAt  gap
	early  []uint64 // shards that applied the round next already
	gen    uint32
	pushes uint64
	pushed Clock
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
	return &ServerState{p: p, o: o, self: uint16(lane), name: p.server(lane), config: &Config{}, haves: make([]Clock, p.lanes())}, nil
}

const timerHave protocol.TimerID = 1

// Step is the machine.
func (s *ServerState) Step(now time.Duration, in protocol.Event) []protocol.Command {
	s.now = now
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
			if m.gen > c.gen {
				c.gen, c.pushes = m.gen, 0
				for _, t := range s.tables {
					for _, k := range t.here {
						t.shards[k].forget(c.number)
					}
				}
			}
			gap := uint8(0)
			if m.stamp > c.next || m.stamp == c.next && int(m.piece) > len(c.pieces) {
				gap = 1
			}
			s.tell(c, gap)
		}
	case *install:
		if from == s.p.Directory {
			s.install(m.config)
		}
	case *have:
		if s.p.index(from) != int(m.lane)/s.p.Lanes || m.epoch != s.config.Epoch {
			return
		}
		if m.complete > s.haves[m.lane] {
			s.haves[m.lane] = m.complete
			s.log(from, m)
		}
		if m.reply {
			s.send(from, &have{lane: s.self, to: m.lane, epoch: s.config.Epoch, complete: s.complete})
		}
		s.advance()
	}
}

func (s *ServerState) send(to Name, b protocol.Body) {
	s.out = append(s.out, protocol.Send{To: to, Body: b})
}

// session finds who sent a message, or refuses it.
func (s *ServerState) session(from Name, client uint16, id uint64, e Epoch) *session {
	if int(client) >= len(s.clients) {
		return nil // its join is not here yet: it sends again
	}
	c := s.clients[client]
	switch {
	case c.Name != from || c.Session != id || e != s.config.Epoch:
		s.refuse(from, fmt.Sprintf("a message of client %d, epoch %d, that is not of this session and epoch %d", client, e, s.config.Epoch))
		return nil
	case c.State == Ended || c.State == Ending:
		s.send(from, &refused{text: fmt.Sprintf("ps: %s was counted as lost at clock %d, and the others go on without it", c.Name, c.End)})
		return nil
	}
	return c
}

func (s *ServerState) refuse(from Name, why string) {
	s.refused++
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
	return status{
		lane: s.self, epoch: s.config.Epoch, m: s.m, own: c.next, piece: uint32(len(c.pieces)), holder: s.holder, gen: c.gen, pushes: c.pushes, pushed: c.pushed,
	}
}

func (s *ServerState) tell(c *session, gap uint8) {
	st := s.status(c)
	st.gap = gap
	s.send(c.Name, &clocks{st})
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

// roundHeld has all pieces of c's next round: it counts from now on.
func (s *ServerState) roundHeld(c *session) {
	stamp, pieces := c.next, c.pieces
	c.next++
	c.pieces = nil
	s.hi = max(s.hi, c.next)
	last := pieces[len(pieces)-1]
	bytes, wait := 0, false
	for _, m := range pieces {
		bytes += m.bytes
		for i := range m.secs {
			wait = wait || s.tables[m.secs[i].table].spec.Mode == BSP
		}
	}
	if f := s.o.Trace.Applied; f != nil {
		f(int(s.self), int(c.number), stamp, bytes)
	}
	c.early = c.early[:0]
	s.part = roundPart{secs: s.part.secs, cut: s.cutState(stamp)}
	s.applyRounds([]*round{{stamp, pieces}}, false)
	if wait {
		c.queue = append(c.queue, round{stamp, pieces})
	} else {
		for _, m := range pieces {
			drop(m)
		}
	}
	for i := range last.drop {
		q := &last.drop[i]
		s.tables[q.table].shards[q.shard].subscribe(q, c.number, false)
	}
	c.done = last.finish
	before := s.m
	s.advance()
	if s.m == before {
		s.tell(c, 0)
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
	to := s.complete
	if s.p.Exact && s.p.lanes() > 1 {
		if s.complete > s.haves[s.self] {
			s.haves[s.self] = s.complete
			s.tellLanes(false)
		}
		s.haves[s.self] = s.complete
		to = slices.Min(s.haves)
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
				c.queue = slices.Delete(c.queue, 0, 1)
			}
		}
		s.m++
		s.checkCut()
	}
	if f := s.o.Trace.Advance; f != nil {
		f(int(s.self), s.m)
	}
	s.push()
	s.unpark()
	for _, c := range s.clients {
		if c.State == Active && c.Session != 0 {
			s.tell(c, 0)
		}
	}
}

// noHolder: nobody holds M back.
const noHolder = 1<<16 - 1

// counts reports whether M waits for c.
func (c *session) counts() bool { return c.State != Ended && !c.done }

func (s *ServerState) tellLanes(reply bool) {
	for l := range s.p.lanes() {
		if l != int(s.self) {
			s.send(s.p.server(l), &have{lane: s.self, to: uint16(l), epoch: s.config.Epoch, complete: s.complete, reply: reply})
		}
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
		return
	}
	s.answer(c, m)
}

func (s *ServerState) answer(c *session, m *pull) {
	var ms []*values
	sub := m.subscribe && m.gen == c.gen
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
	clear(s.parked[len(kept):])
	s.parked = kept
}

// A packer packs sections into messages of at most a piece.
type packer struct {
	early []uint64 // shards that have a round of the receiver more than the others
	full  func(m *values)
	m     *values
	size  int
}

func (p *packer) add(c section, h *hold) {
	c.mark = slices.Contains(p.early, shardKey(&c))
	n := c.size() + 8
	alone := h != nil && len(c.cells) >= inPlace // sent from where it lies
	if p.m != nil && (alone || p.size+n > maxPiece || len(p.m.secs) >= maxSections) {
		p.flush()
	}
	if p.m == nil {
		p.m, p.size = &values{}, 0
	}
	p.m.holds.add(h)
	p.m.secs = append(p.m.secs, c)
	p.size += n
	if alone {
		p.flush()
	}
}

func (p *packer) flush() {
	if p.m != nil {
		p.full(p.m)
		p.m = nil
	}
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
	if s.fatal != "" {
		s.accept(c.Version, false)
		return
	}
	s.log(s.p.Directory, &install{config: c})
	late := false
	for i := range c.Clients {
		m := c.Clients[i]
		if i == len(s.clients) {
			s.clients = append(s.clients, &session{Member: m, number: uint16(i), next: m.Start, gapAt: gap{-1, 0}, gen: 1})
			late = late || m.Start < s.m
			s.hi = max(s.hi, m.Start)
			continue
		}
		old := s.clients[i]
		switch {
		case old.State == Awaited || old.State == Active && m.State == Active:
			if m.Start > old.next && old.next == old.Start { // it joins later than was planned
				old.next = m.Start
			}
			late = late || old.next < s.m && old.next == old.Start && m.Session != old.Session
			old.Member = m
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
	for i := len(s.tables); i < len(c.Tables); i++ {
		if err := s.addTable(&c.Tables[i]); err != nil {
			s.fatal = err.Error()
		}
	}
	if c.Cut != s.cut.Cut {
		late = s.setCut(c.Cut) || late
	}
	s.config = c
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
	l := &laneTable{table: t, shards: make([]store, t.cut.shards)}
	for k, o := range t.owners {
		if o == s.self {
			l.shards[k] = newStore(t, k)
			l.here = append(l.here, k)
		}
	}
	s.tables = append(s.tables, l)
	if len(d.From) > 0 && len(l.here) > 0 {
		if s.o.Store == nil {
			return errors.New("ps: a restore wants ServerOptions.Store")
		}
		s.loads++
		s.out = append(s.out, s.loadCommand(l, d))
	}
	return nil
}

func (s *ServerState) dropPieces(c *session) {
	if len(c.early) > 0 {
		s.torn++
		s.out = append(s.out, protocol.Report{Fact: Torn{Client: c.Name, Lane: int(s.self), From: c.next, To: c.next + 1}})
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
	if n := int(c.next - max(m.End, c.Start)); n > 0 && !s.p.Exact {
		s.torn += n
		s.out = append(s.out, protocol.Report{Fact: Torn{Client: c.Name, Lane: int(s.self), From: m.End, To: c.next}})
	}
	c.Member = m
	for _, t := range s.tables {
		for _, k := range t.here {
			t.shards[k].forget(c.number)
		}
	}
}

// Torn is a fact: rounds of a lost client that this lane had, and another had not.
type Torn struct {
	Client   Name
	Lane     int
	From, To Clock
}
