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

// proofState is what the store says of the presence of a process that nobody hears.
type proofState struct {
	name  protocol.Name
	gone  bool
	at    time.Duration // of the answer
	asked time.Duration
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

// newcomers lists whom the next view admits, in the order in which they came. It refuses who may never be admitted. hurry: the view
// changes anyway; else those who come together are waited for, a little.
func (m *Machine) newcomers(hurry bool) []protocol.Name {
	var joins []protocol.Name
	stay := 0
	for r := range m.peers {
		if m.peers[r].how == fine && !m.peers[r].leaving {
			stay++
		}
	}
	youngest, oldest := time.Duration(-1), m.now
	for i := range m.present {
		p := &m.present[i]
		if !p.knock || m.now-p.heard > m.budget || m.rec.rank(p.Name) >= 0 {
			continue
		}
		if p.rev == 0 { // the watch is late
			if m.now-p.first > 5*m.policy.Heartbeat && m.now-p.sent > 500*time.Millisecond {
				p.sent = m.now
				m.ask(locating, protocol.MetaCall{Op: protocol.MetaGet, Key: m.keys.present(p.Name)}).name = p.Name
			}
			continue
		}
		if !m.admissible(p) {
			continue
		}
		if stay+len(joins) >= m.policy.MaxWorkers || m.crowded(len(joins)) {
			continue // a spare: it waits
		}
		youngest, oldest = max(youngest, p.first), min(oldest, p.first)
		joins = append(joins, p.Name)
	}
	if !hurry && len(joins) > 0 && m.now-youngest < 2*m.policy.Heartbeat && m.now-oldest < m.policy.Budget {
		return nil
	}
	return joins
}

// crowded says whether the record has no room for one more: half of it is for members, the rest for the fate and those who are gone.
func (m *Machine) crowded(joins int) bool {
	if (len(m.peers)+joins+1)*maxMember <= MaxValue/2 {
		return false
	}
	size := (joins + 1) * maxMember
	for _, p := range m.rec.Members {
		size += len(encoded(nil, p))
	}
	return size > MaxValue/2
}

// admissible says whether p may join now.
func (m *Machine) admissible(p *presentState) bool {
	limit := m.policy.ViewLimit
	switch {
	case m.policy.ShrinkOnly:
		m.refuse(p, "ShrinkOnly", "the group takes no newcomers")
		return false
	case limit > 0 && m.rec.Epoch > protocol.Epoch(limit):
		m.refuse(p, "ViewLimit", fmt.Sprintf("view %d is the last that the limit of %d changes allows", m.rec.Epoch, limit))
		return false
	}
	for r := range m.peers {
		q := &m.peers[r]
		if q.Name.ID != p.Name.ID || q.Name.Role != p.Name.Role {
			continue
		}
		if q.Name.Incarnation > p.Name.Incarnation {
			m.refuse(p, "Incarnation", fmt.Sprintf("%v is a member, which is younger", q.Name))
			return false
		}
		if q.how != fine || q.leaving {
			continue
		}
		// The older one may be about to be found dead. If it speaks long after the younger one came, two processes have one ID.
		if r != m.rank && m.tick.count%2 == 0 {
			m.emit(m.asks[r])
		}
		if m.now-p.first > 4*m.budget && (r == m.rank || q.heard > p.first+3*m.budget) {
			m.refuse(p, "ID", fmt.Sprintf("%v is a member and alive: two processes may not have one ID", q.Name))
		}
		return false
	}
	for i := range m.present {
		q := &m.present[i]
		if q != p && q.knock && q.rev > 0 && m.now-q.heard <= m.budget && q.Name.ID == p.Name.ID && q.Name.Role == p.Name.Role &&
			q.Name.Incarnation > p.Name.Incarnation {
			return false
		}
	}
	if count := m.rec.flaps(p.Name.Role, p.Name.ID); count > 0 && m.now-m.flapAt(p.Name.Role, p.Name.ID) < m.backOff(count) {
		return false
	}
	return true
}

// backOff is how long a process that was lost so often waits: 1, 2, 4, ... 60 s.
func (m *Machine) backOff(count uint64) time.Duration {
	return min(m.policy.BackOff<<(min(count, 7)-1), 60*m.policy.BackOff)
}

// flapAt is when the last loss of that process was installed here; of one before this process came, when it came.
func (m *Machine) flapAt(role, id string) time.Duration {
	for _, f := range m.flapped {
		if f.role == role && f.id == id {
			return f.at
		}
	}
	m.flapped = append(m.flapped, flapState{role, id, m.now})
	return m.now
}

func (m *Machine) refuse(p *presentState, field, why string) {
	if p.sent == 0 || m.now-p.sent > m.policy.Budget {
		p.sent = m.now
		m.send(p.Name, &refusal{field, clip(why)})
	}
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

// provenMissing says whether everyone who is not within reach is proven dead: its launcher or its host says so; or its lease ended, and
// no voter hears it.
func (m *Machine) provenMissing() bool {
	all := true
	for r := range m.peers {
		p := &m.peers[r]
		if p.how == fine || p.how.proof() {
			continue
		}
		for v := range m.peers {
			if m.peers[v].how == fine && slices.Contains(m.peers[v].hears, r) {
				all = false
			}
		}
		if !m.leaseEnded(p.Name) {
			all = false
		}
	}
	return all
}

// leaseEnded says whether the store, when it was last asked, had no presence of n; it asks again, each half second.
func (m *Machine) leaseEnded(n protocol.Name) bool {
	c := &m.change
	i := slices.IndexFunc(c.proofs, func(p proofState) bool { return same(p.name, n) })
	if i < 0 {
		c.proofs = append(c.proofs, proofState{name: n, asked: m.now - time.Hour})
		i = len(c.proofs) - 1
	}
	p := &c.proofs[i]
	wait := 500 * time.Millisecond
	if p.at < p.asked { // the question failed, or is under way
		wait = storeRetry
	}
	if m.now-p.asked >= wait {
		p.asked = m.now
		m.ask(proving, protocol.MetaCall{Op: protocol.MetaGet, Key: m.keys.present(n)}).name = n
	}
	return p.gone && m.now-p.at < time.Second
}

func (m *Machine) proof(n protocol.Name, kv protocol.MetaKV) {
	for i := range m.change.proofs {
		if p := &m.change.proofs[i]; same(p.name, n) {
			p.gone, p.at = kv.Rev == 0 || kv.Value == nil, m.now
		}
	}
}

// successor is the record that the proposal leads to.
func (m *Machine) successor() *record {
	c := &m.change.prop.Change
	next := &record{Epoch: m.rec.Epoch + 1, By: m.self.Name, Flaps: slices.Clone(m.rec.Flaps)}
	for _, r := range c.Stay {
		p := &m.peers[r]
		next.Members = append(next.Members, p.Member)
		if n := next.flaps(p.Name.Role, p.Name.ID); n > 0 && m.steady(p, n) {
			next.setFlaps(p.Name.Role, p.Name.ID, 0)
		}
	}
	for r := range m.peers {
		p := &m.peers[r]
		switch {
		case p.how != fine:
			next.Gone = append(next.Gone, gone{p.Name, p.how, clip(p.why)})
			if p.how != farewell {
				n := next.flaps(p.Name.Role, p.Name.ID)
				if m.steady(p, max(n, 1)) {
					n = 0
				}
				next.setFlaps(p.Name.Role, p.Name.ID, min(n+1, 7))
			}
		case p.leaving:
			next.Gone = append(next.Gone, gone{p.Name, left, "it asked to leave"})
		}
	}
	for _, n := range c.Joins {
		if p := m.presence(n); p != nil {
			next.Members = append(next.Members, p.Member)
		}
	}
	if m.policy.Decide != nil {
		reports := make([][]byte, len(m.peers))
		for _, r := range c.Stay {
			reports[r] = m.peers[r].report
		}
		next.Fate = m.policy.Decide(*c, reports)
	}
	if len(next.encode()) > MaxValue { // of very many who are gone, the names must do
		for i := range next.Gone {
			next.Gone[i].Why = ""
		}
	}
	return next
}

// steady says whether a member held out for five times the back-off that it last had: then its losses are no longer counted together.
func (m *Machine) steady(p *peer, count uint64) bool { return m.now-p.came >= 5*m.backOff(count) }

// write puts a record in place of the one in force.
func (m *Machine) write(next *record) {
	m.change.put = next
	m.ask(putting, protocol.MetaCall{Op: protocol.MetaPutIf, Key: m.keys.view(), Value: next.encode(), Rev: m.rev}).epoch = next.Epoch
}

// put takes the store's answer to write.
func (m *Machine) put(c storeCall, rev int64, conflict bool) {
	next := m.change.put
	m.change.put = nil
	if next == nil || next.Epoch != c.epoch {
		return // the view went on meanwhile
	}
	if conflict {
		m.change.active = false
		m.change.retry = m.now + 2*m.policy.Heartbeat
		m.store.fetched = 0
		m.fetch()
		return
	}
	b := &announcement{next, rev}
	m.flood(b, -1)
	for _, n := range next.Members {
		if m.rec.rank(n.Name) < 0 && !same(n.Name, m.self.Name) {
			m.send(n.Name, b)
		}
	}
	m.learn(next, rev)
}

// unknown notes that the store did not say whether the record was put.
func (m *Machine) unknown() {
	m.change.put = nil
	m.change.retry = m.now + storeRetry
	m.fetch()
}

// learn installs a view, if it is newer than the one in force. It comes from the store, or from a process that had the store's word.
func (m *Machine) learn(rec *record, rev int64) {
	if rec.Epoch <= m.rec.Epoch {
		m.fresh = true
		return
	}
	if !m.appeared && rec.rank(m.self.Name) >= 0 {
		m.end(&RefusedError{m.self.Name, "Incarnation", fmt.Sprintf(
			"view %d has a member of that name and incarnation already; a process that starts again has a higher one", rec.Epoch)})
		return
	}
	was, peers := m.rec, m.peers
	m.rec, m.rev, m.fresh = rec, rev, true
	m.rank = rec.rank(m.self.Name)
	m.peers = make([]peer, len(rec.Members))
	for r := range m.peers {
		p := &m.peers[r]
		if o := was.rank(rec.Members[r].Name); o >= 0 {
			*p = peers[o]
			if !p.how.proof() {
				p.how, p.why = fine, ""
			}
			p.leaving, p.suspected, p.round, p.hears, p.report, p.deaf = false, false, 0, nil, nil, nil
			p.Addr = rec.Members[r].Addr
			if s := m.presence(p.Name); s != nil && s.rev > 0 {
				p.Addr = s.Addr
			}
		} else {
			*p = peer{Member: rec.Members[r], heard: m.now, fresh: true, came: m.now}
		}
	}
	for i := range m.present { // who knocked and was let in is no newcomer any more, also when it has left since
		if p := &m.present[i]; rec.rank(p.Name) >= 0 || was.rank(p.Name) >= 0 {
			p.knock = false
		}
	}
	m.change = changeState{rounds: m.change.rounds}
	for _, g := range rec.Gone {
		if g.How != left && g.How != farewell {
			m.lost(g.Name)
		}
	}
	for r := range peers {
		if n := peers[r].Name; rec.rank(n) < 0 && len(m.past) < 4*maxWorkers {
			m.past = append(m.past, strangerState{n, m.now})
		}
	}
	if m.rank < 0 {
		if m.phase == member {
			m.expelled(rec)
		}
		return
	}
	m.phase = member
	m.peers[m.rank].leaving = len(m.leaving) > 0
	m.cache()
	m.wide = false
	m.watch()
	v := View{Epoch: rec.Epoch, Members: make([]Member, len(m.peers)), Self: m.rank, Fate: rec.Fate}
	for r := range m.peers {
		v.Members[r] = m.peers[r].Member
	}
	m.report(Installed{v, rec.By})
	m.beat()
}

func (m *Machine) lost(n protocol.Name) {
	for i := range m.flapped {
		if f := &m.flapped[i]; f.role == n.Role && f.id == n.ID {
			f.at = m.now
			return
		}
	}
	m.flapped = append(m.flapped, flapState{n.Role, n.ID, m.now})
}

// expelled ends a member that the new view does not have.
func (m *Machine) expelled(rec *record) {
	why, how := "it is not in it", silent
	for _, g := range rec.Gone {
		if same(g.Name, m.self.Name) {
			why, how = g.Why, g.How
		}
	}
	if how == left || len(m.leaving) > 0 {
		m.end(nil)
		return
	}
	m.end(&OutError{m.self.Name, rec.Epoch, rec.By, why})
}

// cache makes the commands that each tick of this view sends.
func (m *Machine) cache() {
	e := m.rec.Epoch
	plain, asking, answering := &beat{e, 0}, &beat{e, ask}, &beat{e, answer}
	m.beats, m.asks, m.acks = m.beats[:0:0], m.asks[:0:0], m.acks[:0:0]
	for r := range m.peers {
		n := m.peers[r].Name
		m.beats = append(m.beats, protocol.Send{To: n, Body: plain})
		m.asks = append(m.asks, protocol.Send{To: n, Body: asking})
		m.acks = append(m.acks, protocol.Send{To: n, Body: answering})
	}
}
