package cluster

import (
	"math"
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
	Late     time.Duration // the largest delay of this process's own timer in the last second or so
	Pending  bool          // the view has to change
}

// A MemberStatus is one member's.
type MemberStatus struct {
	Member
	Rank    int
	Heard   time.Duration // since its last sign of life; of one who is not watched it says little
	Watched bool          // by this process
	Phi     float64       // of Hayashibara et al. 2004: -log₁₀ of the chance of so long a silence
	State   string        // fine, silent, cut off, dead, ended, left
	Why     string
	Leaving bool
}

func (m *Machine) status() Status {
	s := Status{Self: m.self.Name, Epoch: m.rec.Epoch, Rank: m.rank, Budget: m.budget, Late: max(m.tick.late, 0), Pending: m.change.pending}
	if m.store.away {
		s.MetaAway = m.now - m.store.gone
	}
	for r := range m.peers {
		p := &m.peers[r]
		q := MemberStatus{Member: p.Member, Rank: r, Watched: p.watched, State: p.how.String(), Why: p.why, Leaving: p.leaving}
		if r != m.rank {
			q.Heard = m.now - p.heard
		}
		if p.watched {
			q.Phi = math.Max(p.gaps.phi(q.Heard, m.policy.Heartbeat), 0)
		}
		s.Members = append(s.Members, q)
	}
	s.Full = len(m.peers) >= m.policy.MaxWorkers || m.crowded(0)
	for i := range m.present {
		switch p := &m.present[i]; {
		case p.rev == 0 || m.rec.rank(p.Name) >= 0:
		case p.knock && m.now-p.heard <= m.policy.BudgetMax:
			s.Waiting = append(s.Waiting, p.Member)
		case !same(p.Name, m.self.Name):
			s.Unheard = append(s.Unheard, p.Member)
		}
	}
	return s
}
