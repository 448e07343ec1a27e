package cluster

import (
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// presentState is what a machine knows of a process that wrote its presence into the store, or knocked: who may become a member.
type presentState struct {
	presence
	rev   int64
	seen  time.Duration // when the store first told of it
	heard time.Duration // when it last knocked, if it did
	first time.Duration // when it first knocked
	knock bool
	sent  time.Duration // the last refusal, or the last question where it is
}

// flapState says when a process was last lost. One that is lost again and again waits longer each time before it is let in.
type flapState struct {
	role, id string
	at       time.Duration // when the loss was installed here
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
		if !p.knock || m.now-p.heard > m.budget || m.rankOf(p.Name) >= 0 {
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
