package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// knock says to everyone who may decide about it that this newcomer waits: to the members, and to the other newcomers, one of whom may
// have to found the view.
func (m *Machine) knock() {
	if m.mine() == nil {
		return
	}
	b := &knock{m.rec.Epoch}
	for r := range m.peers {
		m.send(m.peers[r].Name, b)
	}
	for i := range m.doors() {
		if n := m.present[i].Name; m.present[i].rev > 0 && !same(n, m.self.Name) && m.rankOf(n) < 0 {
			m.send(n, b)
		}
	}
}

// deciders is how many newcomers exchange knocks with all others. One would do, the oldest, which is to found the view; the others are
// there in case that it dies.
const deciders = 4

// doors is how many of those present, the oldest, this newcomer exchanges knocks with: it ends with the deciders, and a decider's is all.
// Who is not heard for four budgets decides nothing. If everyone knocked at every door, the knocks of very many who come at once would be
// all that their machine does, and none of them would be heard in time.
func (m *Machine) doors() int {
	n := 0
	for i := range m.present {
		switch p := &m.present[i]; {
		case m.phase != joining, same(p.Name, m.self.Name):
			return len(m.present)
		case p.rev > 0 && m.rankOf(p.Name) < 0 && m.now-max(p.heard, p.seen) <= 4*m.budget:
			if n++; n == deciders {
				return i + 1
			}
		}
	}
	return len(m.present)
}

// knocks says whether this tick is one at which a newcomer knocks: every other one, and where there are many, as often as it takes to be heard
// several times in a budget.
func (m *Machine) knocks() bool {
	every := time.Duration(2)
	if len(m.present) > 4*deciders {
		every = max(every, m.budget/8/m.policy.Heartbeat)
	}
	return m.tick.count%uint64(every) == 0
}

// knocked notes a newcomer, and tells it of a view that it does not know, or that the one that it knows lives.
func (m *Machine) knocked(from protocol.Name, b *knock) {
	if b.Epoch < m.rec.Epoch {
		m.tell(from)
	} else if m.phase == member && m.rankOf(from) < 0 {
		m.send(from, &beat{m.rec.Epoch, answer})
	}
	if m.rankOf(from) >= 0 {
		return // it is let in
	}
	p := m.presence(from)
	if p == nil {
		if len(m.present) >= 4*MaxWorkers {
			return
		}
		m.present = append(m.present, presentState{presence: presence{Member: Member{Name: from}}})
		p = &m.present[len(m.present)-1]
	}
	if !p.knock || m.now-p.heard > m.policy.BudgetMax {
		p.first = m.now
	}
	p.knock, p.heard = true, m.now
}

// found makes a view of newcomers alone: the first one, or one after a view of which nobody is left. The newcomer whose presence is
// oldest does it. That two take themselves for it is the store's to decide.
func (m *Machine) found() {
	mine := m.mine()
	if mine == nil || m.change.put != nil || m.now < m.change.retry {
		return
	}
	if !m.fresh {
		m.fetch()
		return
	}
	need := m.policy.MinWorkers
	if m.rec.Epoch == 0 {
		need = m.policy.StartWorkers
	}
	next := &record{Epoch: m.rec.Epoch + 1, By: m.self.Name, Flaps: m.rec.Flaps}
	for i := range m.present {
		p := &m.present[i]
		self := same(p.Name, m.self.Name)
		if !m.came(p) || len(next.Members) == m.policy.MaxWorkers || m.younger(p) {
			continue
		}
		if len(next.Members) == 0 && (!self || m.come() < need) {
			return // its part; or its time is not yet come, for most of the while in which very many do
		}
		next.Members = append(next.Members, p.Member)
	}
	if len(next.Members) < m.policy.MaxWorkers && m.now-m.admitted < 2*m.policy.Heartbeat {
		return // those who come together are waited for, a little
	}
	if len(next.Members) < need || next.rank(m.self.Name) < 0 || len(next.encode()) > MaxValue {
		return
	}
	slices.SortStableFunc(next.Members, byName)
	if len(m.peers) > 0 && !m.deserted() {
		return
	}
	if limit := m.policy.ViewLimit; limit > 0 && m.rec.Epoch > protocol.Epoch(limit) {
		m.end(&RefusedError{m.self.Name, "ViewLimit", fmt.Sprintf("view %d is the last that the limit of %d changes allows", m.rec.Epoch, limit)})
		return
	}
	for r := range m.peers {
		next.Gone = append(next.Gone, gone{m.peers[r].Name, dead, "its lease ended and nobody hears it"})
	}
	m.write(next)
}

// came says whether p is this process, or a newcomer that it hears.
func (m *Machine) came(p *presentState) bool {
	return p.rev > 0 && (same(p.Name, m.self.Name) || p.knock && m.now-p.heard <= m.budget)
}

// come counts them.
func (m *Machine) come() int {
	n := 0
	for i := range m.present {
		if m.came(&m.present[i]) {
			n++
		}
	}
	return n
}

// byName orders those who found a view: by role, then as numbers where the IDs are such. Which half of a group may go on depends on who
// has its lowest rank, and that should not depend on who started a moment sooner.
func byName(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Name.Role, b.Name.Role), cmp.Compare(len(a.Name.ID), len(b.Name.ID)), cmp.Compare(a.Name.ID, b.Name.ID))
}

// younger says whether a newcomer of the same ID as p, and a higher incarnation, knocks too.
func (m *Machine) younger(p *presentState) bool {
	for i := range m.present {
		q := &m.present[i]
		if q.Name.ID == p.Name.ID && q.Name.Role == p.Name.Role && q.Name.Incarnation > p.Name.Incarnation && m.came(q) {
			return true
		}
	}
	return false
}

// deserted says whether all members of the view are proven dead.
func (m *Machine) deserted() bool {
	all := true
	for r := range m.peers {
		p := &m.peers[r]
		switch {
		case p.how.proof():
		case m.now-p.heard < 2*m.budget, !m.leaseEnded(p.Name):
			all = false
		}
	}
	return all
}
