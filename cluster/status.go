package cluster

import (
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A Status is what a process knows of its group, at one moment.
type Status struct {
	Self     protocol.Name
	Epoch    protocol.Epoch
	Rank     int // -1: no member
	Members  []MemberStatus
	Waiting  []Member      // newcomers and spares
	Unheard  []Member      // those that the store knows, and whose knock is not heard
	Full     bool          // the view has no room for one more
	Budget   time.Duration // of silence, in force
	MetaAway time.Duration // since when the store does not answer
	Pending  bool          // the view has to change
}

// A MemberStatus is one member's.
type MemberStatus struct {
	Member
	Rank  int
	Heard time.Duration // since its last sign of life; -1: others watch it, this process does not
	State string        // fine, leaving, silent, cut off, dead, ended, left
	Why   string        // it is not fine
}

func (m *Machine) status() Status {
	s := Status{Self: m.self.Name, Epoch: m.rec.Epoch, Rank: m.rank, Budget: m.budget, Pending: m.change.pending}
	if m.store.away {
		s.MetaAway = m.now - m.store.gone
	}
	for r := range m.peers {
		p := &m.peers[r]
		q := MemberStatus{Member: p.Member, Rank: r, State: p.how.String(), Why: p.why}
		switch {
		case p.watched:
			q.Heard = m.now - p.heard
		case r != m.rank:
			q.Heard = -1
		}
		if p.leaving && p.how == fine {
			q.State = "leaving"
		}
		s.Members = append(s.Members, q)
	}
	s.Full = len(m.peers) >= m.policy.MaxWorkers || m.crowded(0)
	doors := m.doors() // whoever is beyond need not knock here
	for i := range m.present {
		switch p := &m.present[i]; {
		case p.rev == 0 || m.rankOf(p.Name) >= 0:
		case i >= doors, p.knock && m.now-p.heard <= m.policy.BudgetMax:
			s.Waiting = append(s.Waiting, p.Member)
		case !same(p.Name, m.self.Name):
			s.Unheard = append(s.Unheard, p.Member)
		}
	}
	return s
}
