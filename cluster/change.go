package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// changeState is the change of the view that this process knows to be due, and, at the proposer, how far it came.
type changeState struct {
	pending bool
	since   time.Duration
	few     bool // fewer than MinWorkers are left
	fewAt   time.Duration

	rounds uint64
	active bool // this process proposes
	asked  time.Duration
	prop   proposal
	put    *record // under way to the store
	retry  time.Duration
	proofs []proofState

	prep     *proposal // whose vote waits for Prepared, or was prepared
	prepFrom protocol.Name
	prepared *vote
}

// advance does what is due now: a member proposes a view, if one is due and it is the lowest rank left; a newcomer founds one, if there
// is nobody whom it could join.
func (m *Machine) advance() {
	switch m.phase {
	case joining:
		m.found()
	case member:
		m.reform()
	}
}

func (m *Machine) reform() {
	c := &m.change
	loss, leader := false, -1
	for r := range m.peers {
		p := &m.peers[r]
		if p.how != fine || p.leaving {
			loss = true
		} else if leader < 0 {
			leader = r
		}
	}
	for r := 0; leader < 0 && r < len(m.peers); r++ { // all leave
		if m.peers[r].how == fine {
			leader = r
		}
	}
	joins := m.newcomers(loss)
	if !loss && len(joins) == 0 {
		c.pending, c.active, c.few = false, false, false
		return
	}
	if !c.pending {
		c.pending, c.since = true, m.now
	}
	if loss || m.now-c.since > m.budget {
		m.wideTill = m.now + 2*m.budget
		m.widen(true)
	}
	if m.now-c.since > m.policy.MetaWait {
		m.end(m.gaveUp())
		return
	}
	if leader != m.rank {
		c.active = false
		return
	}
	if c.put != nil || m.now < c.retry {
		return
	}
	next := Change{Epoch: m.rec.Epoch, Joins: joins}
	for r := range m.peers {
		if m.peers[r].how == fine && !m.peers[r].leaving {
			next.Stay = append(next.Stay, r)
		}
	}
	if m.tooFew(len(next.Stay) + len(next.Joins)) {
		return
	}
	if !c.active || !equalChange(next, c.prop.Change) {
		m.propose(next)
	}
	m.count()
}

func equalChange(a, b Change) bool {
	return a.Epoch == b.Epoch && slices.Equal(a.Stay, b.Stay) && slices.EqualFunc(a.Joins, b.Joins, same)
}

// tooFew says whether a view of n members may not be, and ends the machine when that lasts. A view of none is that of a group whose
// members all leave.
func (m *Machine) tooFew(n int) bool {
	c := &m.change
	if n >= m.policy.MinWorkers || n == 0 {
		c.few = false
		return false
	}
	if !c.few {
		c.few, c.fewAt = true, m.now
	}
	c.active = false
	if m.now-c.fewAt >= m.policy.Patience {
		m.end(fmt.Errorf("cluster: view %d: %w: %d, MinWorkers is %d, and nobody came for %v%s", m.rec.Epoch, ErrTooFew, n, m.policy.MinWorkers,
			m.policy.Patience, m.losses()))
	}
	return true
}

// losses lists who is lost, for a sentence.
func (m *Machine) losses() string {
	s := ""
	for r := range m.peers {
		if p := &m.peers[r]; p.how != fine {
			s += fmt.Sprintf("; %v: %s", p.Name, p.why)
		} else if p.leaving {
			s += fmt.Sprintf("; %v leaves", p.Name)
		}
	}
	return s
}

func (m *Machine) gaveUp() error {
	if m.store.away {
		return fmt.Errorf("cluster: view %d has to change, and for %v %w%s", m.rec.Epoch, m.policy.MetaWait, protocol.ErrUnavailable, m.losses())
	}
	return fmt.Errorf("cluster: view %d has to change: for %v %w%s", m.rec.Epoch, m.policy.MetaWait, ErrNoQuorum, m.losses())
}

// propose begins a new round: it asks all who are within reach for their votes, leavers too.
func (m *Machine) propose(next Change) {
	c := &m.change
	c.rounds++
	c.active, c.proofs = true, nil
	c.prop = proposal{c.rounds<<9 | uint64(m.rank), next}
	m.canvass()
	m.vote(m.self.Name, &c.prop)
}

// canvass sends the proposal to those who have not voted yet.
func (m *Machine) canvass() {
	c := &m.change
	c.asked = m.now
	b := c.prop
	for r := range m.peers {
		if r != m.rank && m.peers[r].how == fine && m.peers[r].round != c.prop.Round {
			m.send(m.peers[r].Name, &b)
		}
	}
}

// proposed votes for another's proposal. A vote promises nothing: it says that its sender is within the proposer's reach. That there is
// one view only is the store's doing.
func (m *Machine) proposed(r int, b *proposal) {
	if r < 0 || m.phase != member || b.Change.Epoch != m.rec.Epoch {
		return
	}
	if len(b.Change.Stay) < len(m.peers) {
		m.wideTill = m.now + 2*m.budget
		m.widen(true)
	}
	m.vote(m.peers[r].Name, b)
}

func (m *Machine) vote(from protocol.Name, b *proposal) {
	c := &m.change
	if m.policy.Prepare == nil {
		m.cast(from, b, nil)
		return
	}
	if c.prep != nil && c.prep.Round == b.Round && same(c.prepFrom, from) {
		if c.prepared != nil {
			m.cast(from, b, c.prepared.Report)
		}
		return
	}
	c.prep, c.prepFrom, c.prepared = b, from, nil
	m.report(Asked{b.Round, from, b.Change})
}

// prepared takes the carrier's word that it stopped.
func (m *Machine) prepared(a Prepared) {
	c := &m.change
	if m.phase == member && c.prep != nil && c.prep.Round == a.Round && c.prep.Change.Epoch == m.rec.Epoch {
		c.prepared = &vote{Report: a.Report}
		m.cast(c.prepFrom, c.prep, a.Report)
	}
}

func (m *Machine) cast(to protocol.Name, b *proposal, report []byte) {
	v := &vote{Epoch: m.rec.Epoch, Round: b.Round, Report: report}
	for r := range m.peers {
		if p := &m.peers[r]; r == m.rank || !p.fresh && m.now-p.heard < m.budget {
			v.Heard = append(v.Heard, r)
		}
	}
	if same(to, m.self.Name) {
		p := &m.peers[m.rank]
		p.round, p.hears, p.report = v.Round, nil, report
		return
	}
	m.send(to, v)
}

func (m *Machine) voted(r int, b *vote) {
	if r >= 0 && b.Epoch == m.rec.Epoch && m.change.active && b.Round == m.change.prop.Round {
		p := &m.peers[r]
		p.round, p.hears, p.report = b.Round, b.Heard, b.Report
	}
}

// count puts the view once everyone within reach voted, and they may decide.
func (m *Machine) count() {
	c := &m.change
	fines, waits := 0, false
	for r := range m.peers {
		if p := &m.peers[r]; p.how == fine {
			fines++
			waits = waits || p.round != c.prop.Round
		}
	}
	if waits {
		if m.now-c.asked > 2*m.policy.Heartbeat {
			m.canvass()
		}
		if m.now-c.since > m.budget/2 { // someone may be silent whom nobody watches
			m.wideTill = m.now + 2*m.budget
			m.widen(true)
		}
		return
	}
	if 2*fines < len(m.peers) || 2*fines == len(m.peers) && m.peers[0].how != fine {
		if !m.provenMissing() {
			return
		}
	}
	limit := m.policy.ViewLimit
	if limit > 0 && m.rec.Epoch > protocol.Epoch(limit) {
		m.end(fmt.Errorf("cluster: view %d: %w: %d changes%s", m.rec.Epoch, ErrViewLimit, limit, m.losses()))
		return
	}
	next := m.successor()
	if n := len(next.Fate); n > maxFate {
		m.end(fmt.Errorf("cluster: view %d: Policy.Decide returned a fate of %d bytes, want at most %d", next.Epoch, n, maxFate))
		return
	}
	m.write(next)
}
