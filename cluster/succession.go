package cluster

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/protocol"
)

// The succession of views: the record that a proposal leads to, its way into the store, and how a view that the store has comes into
// force here.

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
	m.ask(putting, protocol.MetaCall{Op: protocol.MetaPutIf, Key: m.keys.view(), Value: next.encode(), Rev: m.rev}).put = next
}

// put takes the store's answer to write. It speaks of the record that its own call carried and of no other: an answer may come when the
// view has gone on, and the next put is under way.
func (m *Machine) put(c storeCall, rev int64, conflict bool) {
	next := c.put
	if next != m.change.put {
		return // the view went on meanwhile
	}
	m.change.put = nil
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
		if m.rankOf(n.Name) < 0 && !same(n.Name, m.self.Name) {
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
	was, peers := m.ranks, m.peers
	m.rec, m.rev, m.fresh = rec, rev, true
	m.ranks = make(map[protocol.Name]int, len(rec.Members))
	for r, p := range slices.Backward(rec.Members) { // of a name that is there twice, the lower one
		m.ranks[p.Name] = r
	}
	m.rank = m.rankOf(m.self.Name)
	m.peers = make([]peer, len(rec.Members))
	for r := range m.peers {
		p := &m.peers[r]
		if o, known := was[rec.Members[r].Name]; known {
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
		if _, in := was[m.present[i].Name]; in || m.rankOf(m.present[i].Name) >= 0 {
			m.present[i].knock = false
		}
	}
	m.change = changeState{rounds: m.change.rounds}
	for _, g := range rec.Gone {
		if g.How != left && g.How != farewell {
			m.lost(g.Name)
		}
	}
	m.flapped = slices.DeleteFunc(m.flapped, func(f flapState) bool { return rec.flaps(f.role, f.id) == 0 }) // nobody asks for it
	for r := range peers {
		if n := peers[r].Name; m.rankOf(n) < 0 && len(m.past) < 4*MaxWorkers {
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

// rankOf is the rank of n in the view in force, or -1: each message asks for it.
func (m *Machine) rankOf(n protocol.Name) int {
	if r, in := m.ranks[n]; in {
		return r
	}
	return -1
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
