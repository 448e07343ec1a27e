package cluster

import (
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// proofState is what the store says of the presence of a process that nobody hears.
type proofState struct {
	name  protocol.Name
	gone  bool
	at    time.Duration // of the answer
	asked time.Duration
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
