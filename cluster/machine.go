package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A Machine is the membership protocol at one process. Join runs one over a stream and a Meta; the simulator runs it as it is.
//
// It begins as a newcomer: a lease, its presence under it, knocks at the doors of who may decide about it. The members' lowest rank admits
// it in the next view; where there are no members, the newcomer whose presence is oldest founds the view. A member sends a beat to its three
// watchers, judges those whom it watches itself (detect.go), and takes part in changes of the view (change.go, with newcomers.go, proof.go
// and succession.go). What it decides it reports: Installed, Convicted, MetaAway, Ended.
type Machine struct {
	self   Member
	policy Policy
	keys   keys
	now    time.Duration
	out    []protocol.Command // of this Step

	phase phase
	rec   *record               // of the last view known; never nil
	rev   int64                 // of its key
	fresh bool                  // the store's record has been seen: Epoch 0 means that there is none
	rank  int                   // in rec; -1: none
	ranks map[protocol.Name]int // of its members
	peers []peer                // by rank; peers[rank] is oneself

	present []presentState // everyone's presence, by revision; newcomers and members
	flapped []flapState

	tick     ticker
	noise    spread
	budget   time.Duration
	wide     bool // everyone is watched: a change is pending
	wideTill time.Duration

	store    storeState
	change   changeState
	leaving  []uint64      // calls of Leave that wait for their answer
	moved    bool          // the presence in the store has an old address
	admitted time.Duration // when its presence was put
	appeared bool

	// Cached commands, so that a tick allocates nothing.
	beats, asks, acks []protocol.Command // by rank
	timer             protocol.Command
	away              []strangerState // who was told of the view in force
	past              []strangerState // who went out of it
}

type phase uint8

const (
	joining phase = iota
	member
	ended
)

type strangerState struct {
	name protocol.Name
	at   time.Duration
}

type ticker struct {
	last  time.Duration
	count uint64
}

// Timers.
const (
	tickTimer protocol.TimerID = iota
	judgeTimer
)

// The facts that a Machine reports.
type (
	// Installed: this view is in force here.
	Installed struct {
		View View
		By   protocol.Name // who proposed it
	}
	// Convicted: this process takes a member for lost.
	Convicted struct {
		Epoch   protocol.Epoch
		Name    protocol.Name
		How     string
		Why     string
		Silence time.Duration // since its last sign of life
		Budget  time.Duration // that was in force
	}
	// MetaAway: a change of the view that this process has asked the store for waits for it, said every second.
	MetaAway struct{ For time.Duration }
	// Expired: the lease of a member ended although it is heard; nothing follows from it.
	Expired struct{ Name protocol.Name }
	// Ended: the machine is no member any more, and does nothing more. Err is nil after Leave and Stop.
	Ended struct{ Err error }
	// Past: this process went out of the view a while ago, and nothing more is sent to it.
	Past struct{ Name protocol.Name }
	// Asked: the vote for this change waits for a Prepared call. Void once an Asked of a higher round, or an Installed, follows.
	Asked struct {
		Round  uint64
		From   protocol.Name
		Change Change
	}
)

// The arguments of calls to a Machine.
type (
	// Suspect is a carrier's evidence that something is wrong with a member: it is probed at once.
	Suspect struct {
		Name protocol.Name
		Why  string
	}
	// Died is proof that a process ended, from who started it.
	Died struct {
		Name protocol.Name
		Why  string
	}
	// Leave is answered when the view without this member is installed.
	Leave struct{}
	// Move says that this process has another address. The view does not change.
	Move struct{ Addr string }
	// Look is answered with a Status.
	Look struct{}
	// Prepared is the answer to an Asked.
	Prepared struct {
		Round  uint64
		Report []byte
	}
)

// NewMachine returns a newcomer. Where pol has a Prepare, each of its votes waits for a Prepared call.
func NewMachine(self Member, pol Policy) (*Machine, error) {
	pol = pol.withDefaults()
	if err := pol.validate(self); err != nil {
		return nil, err
	}
	group := pol.Group
	if group == "" {
		group = self.Name.Job
	}
	return &Machine{
		self: self, policy: pol, keys: makeKeys(group), rec: &record{}, rank: -1, budget: pol.Budget,
		timer: protocol.SetTimer{ID: tickTimer, After: pol.Heartbeat},
	}, nil
}

// Step implements protocol.Machine.
func (m *Machine) Step(now time.Duration, in protocol.Event) []protocol.Command {
	m.now, m.out = now, m.out[:0]
	if m.phase == ended {
		if c, ok := in.(protocol.Call); ok {
			m.called(c)
		}
		return m.out
	}
	switch in := in.(type) {
	case protocol.Start:
		m.tick.last = now
		m.noise.began = now
		m.startStore()
		m.emit(m.timer)
	case protocol.Timer:
		if in.ID == tickTimer {
			m.ticked()
		} else {
			m.judge()
			m.advance()
		}
	case protocol.Message:
		m.message(in.From, in.Body)
	case protocol.MetaReply:
		m.replied(in)
		m.advance()
	case protocol.LinkLost:
		m.linkLost(in.Peer, in.Err)
		m.advance()
	case protocol.LinkBack:
		m.heard(in.Peer)
	case protocol.Call:
		m.called(in)
		m.advance()
	case protocol.Stop:
		m.stop()
	}
	return m.out
}

// Heard says that a carrier or the transport had a sign of life from a peer at that time: any byte counts.
func (m *Machine) Heard(n protocol.Name, at time.Duration) {
	if r := m.rankOf(n); r >= 0 && at > m.peers[r].heard {
		m.sign(r, at)
	}
}

// Watched calls f with each peer that is judged by its silence, and so would profit from Heard.
func (m *Machine) Watched(f func(protocol.Name)) {
	for r := range m.peers {
		if m.peers[r].watched {
			f(m.peers[r].Name)
		}
	}
}

func (m *Machine) emit(c protocol.Command) { m.out = append(m.out, c) }

func (m *Machine) send(to protocol.Name, b protocol.Body) {
	m.emit(protocol.Send{To: to, Body: b})
}

// flood sends to all other members of the view.
func (m *Machine) flood(b protocol.Body, except int) {
	for r := range m.peers {
		if r != m.rank && r != except {
			m.send(m.peers[r].Name, b)
		}
	}
}

func (m *Machine) report(fact any) { m.emit(protocol.Report{Fact: fact}) }

// ticked is the machine's only periodic work, each heartbeat.
func (m *Machine) ticked() {
	m.lateness()
	m.tick.count++
	m.emit(m.timer)
	if m.phase == member {
		m.beat()
		m.judge()
		if len(m.leaving) > 0 && m.tick.count%4 == 0 {
			m.flood(&wish{m.rec.Epoch}, -1)
		}
		if m.tick.count%6 == 0 {
			m.accuse()
		}
	} else if m.knocks() {
		m.knock()
	}
	for len(m.past) > 0 && m.now-m.past[0].at >= pastAfter {
		if n := m.past[0].name; m.rankOf(n) < 0 {
			m.report(Past{n})
		}
		m.past = m.past[1:]
	}
	m.tickStore()
	m.advance()
}

// pastAfter is how long one who is out of the view may take to hear so.
const pastAfter = 2 * time.Second

// lateness is how late this process itself is: what it did not hear meanwhile, it may have slept through. It discounts that.
func (m *Machine) lateness() {
	gap := m.now - m.tick.last
	late := gap - m.policy.Heartbeat
	m.tick.last = m.now
	if late <= m.policy.Heartbeat/2 {
		return
	}
	m.noise.add(m.now, gap) // as the others will see it
	m.refreshBudget()
	for r := range m.peers {
		p := &m.peers[r]
		p.heard = min(p.heard+late, m.now)
		if p.suspected {
			p.since = min(p.since+late, m.now)
		}
	}
}

func (m *Machine) refreshBudget() {
	m.noise.turn(m.now)
	m.budget = min(max(4*m.noise.high(), m.policy.Budget), m.policy.BudgetMax)
}

func (m *Machine) called(c protocol.Call) {
	switch arg := c.Arg.(type) {
	case Look:
		m.emit(protocol.Answer{ID: c.ID, Result: m.status()})
	case Suspect:
		m.suspect(arg)
		m.emit(protocol.Answer{ID: c.ID})
	case Died:
		m.proven(arg.Name, dead, arg.Why)
		m.emit(protocol.Answer{ID: c.ID})
	case Move:
		m.self.Addr = arg.Addr
		m.moved = true
		m.tickStore()
		m.emit(protocol.Answer{ID: c.ID})
	case Prepared:
		m.prepared(arg)
		m.emit(protocol.Answer{ID: c.ID})
	case Leave:
		if m.phase != member {
			m.emit(protocol.Answer{ID: c.ID, Err: fmt.Errorf("cluster: leave: %v is no member", m.self.Name)})
			return
		}
		m.leaving = append(m.leaving, c.ID)
		m.peers[m.rank].leaving = true
		m.flood(&wish{m.rec.Epoch}, -1)
	default:
		m.emit(protocol.Answer{ID: c.ID, Err: fmt.Errorf("cluster: a call with a %T", c.Arg)})
	}
}

// end is the last thing that a machine does.
func (m *Machine) end(err error) {
	if m.phase == ended {
		return
	}
	left := err == nil
	m.phase = ended
	for _, id := range m.leaving {
		m.emit(protocol.Answer{ID: id, Err: err})
	}
	m.leaving = nil
	if p := m.mine(); p != nil && (left || !errors.Is(err, protocol.ErrUnavailable)) {
		m.emit(protocol.MetaCall{ID: m.store.next(), Op: protocol.MetaPutIf, Key: m.keys.present(m.self.Name), Rev: p.rev})
	}
	m.report(Ended{err})
	m.emit(protocol.Exit{Err: err})
}

// stop ends without leaving first: the others hear a bye, which is proof that this member is gone.
func (m *Machine) stop() {
	m.flood(&bye{m.rec.Epoch}, -1)
	m.end(nil)
}

// message dispatches. Whatever comes from a member of the view is a sign of its life.
func (m *Machine) message(from protocol.Name, body protocol.Body) {
	r := m.heard(from)
	switch b := body.(type) {
	case *beat:
		m.beaten(from, r, b)
		return // nothing to decide
	case *knock:
		m.knocked(from, b)
	case *announcement:
		if r >= 0 || b.Record.rank(from) >= 0 {
			m.learn(b.Record, b.Rev)
		}
	case *refusal:
		if m.phase == joining {
			m.end(&RefusedError{m.self.Name, b.Field, b.Why})
		}
	case *probe:
		m.probed(r, b)
	case *vouch:
		if b.Epoch == m.rec.Epoch && b.Rank < len(m.peers) {
			m.vouched(b.Rank)
		}
	case *accusation:
		if r >= 0 && b.Epoch == m.rec.Epoch && b.Rank < len(m.peers) {
			m.accused(r, b)
		}
	case *wish:
		if r >= 0 && b.Epoch == m.rec.Epoch {
			m.peers[r].leaving = true
		}
	case *bye:
		if r >= 0 {
			m.proven(from, farewell, "it said goodbye")
		}
		m.forgetPresence(from)
	case *proposal:
		m.proposed(r, b)
	case *vote:
		m.voted(r, b)
	}
	m.advance()
}

// beaten answers a beat, and tells who lives in another view of the one in force.
func (m *Machine) beaten(from protocol.Name, r int, b *beat) {
	switch {
	case b.Epoch < m.rec.Epoch:
		m.tell(from)
	case b.Epoch > m.rec.Epoch:
		m.fetch()
	}
	if r >= 0 && r != m.rank && b.Flags&ask != 0 && !m.beatsTo(r) && r < len(m.acks) {
		m.emit(m.acks[r])
	}
}

// tell sends the record in force to someone who does not seem to know it, not too often.
func (m *Machine) tell(n protocol.Name) {
	if m.rec.Epoch == 0 {
		return
	}
	for i := range m.away {
		if a := &m.away[i]; same(a.name, n) {
			if m.now-a.at < 2*m.policy.Heartbeat {
				return
			}
			m.away = slices.Delete(m.away, i, i+1)
			break
		}
	}
	if len(m.away) >= MaxWorkers {
		m.away = m.away[1:]
	}
	m.away = append(m.away, strangerState{n, m.now})
	m.send(n, &announcement{m.rec, m.rev})
}
