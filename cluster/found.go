package cluster

import (
	"cmp"
	"fmt"
	"slices"

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
	for i := range m.present {
		if n := m.present[i].Name; m.present[i].rev > 0 && !same(n, m.self.Name) && m.rec.rank(n) < 0 {
			m.send(n, b)
		}
	}
}

// knocked notes a newcomer, and tells it of a view that it does not know, or that the one that it knows lives.
func (m *Machine) knocked(from protocol.Name, b *knock) {
	if b.Epoch < m.rec.Epoch {
		m.tell(from)
	} else if m.phase == member && m.rec.rank(from) < 0 {
		m.send(from, &beat{m.rec.Epoch, answer})
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
		if p.rev == 0 || !self && (!p.knock || m.now-p.heard > m.budget) || len(next.Members) == m.policy.MaxWorkers || m.younger(p) {
			continue
		}
		if len(next.Members) == 0 && !self {
			return // its part
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

// byName orders those who found a view: by role, then as numbers where the IDs are such. Which half of a group may go on depends on who
// has its lowest rank, and that should not depend on who started a moment sooner.
func byName(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Name.Role, b.Name.Role), cmp.Compare(len(a.Name.ID), len(b.Name.ID)), cmp.Compare(a.Name.ID, b.Name.ID))
}

// younger says whether a newcomer of the same ID as p, and a higher incarnation, knocks too.
func (m *Machine) younger(p *presentState) bool {
	for i := range m.present {
		q := &m.present[i]
		if q.Name.ID == p.Name.ID && q.Name.Role == p.Name.Role && q.Name.Incarnation > p.Name.Incarnation && q.rev > 0 &&
			(same(q.Name, m.self.Name) || q.knock && m.now-q.heard <= m.budget) {
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
