package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A peer is a member of the view as this process sees it.
type peer struct {
	Member
	since   time.Duration // suspected: from when on its silence is looked into
	heard   time.Duration // its last sign of life, put off by the time in which this process itself did not run
	fresh   bool          // no sign of life yet, since it is watched
	watched bool
	gaps    gaps

	suspected bool
	probedAt  time.Duration // when probes were last sent
	vouched   time.Duration // when another last said that it hears it
	down      bool          // its link was lost, and nothing was heard since
	asked     time.Duration // after its link was lost
	closer    time.Duration // until then it is watched although it is no ring successor: a carrier suspects it

	how     verdict
	why     string
	at      time.Duration // of the verdict
	accuser int           // cut: by whom
	told    bool          // the others were told
	leaving bool
	came    time.Duration // when it was first in a view here

	deaf []deafness // whom it takes for silent, though this process hears them

	round  uint64 // of its last vote
	hears  []int
	report []byte
}

// deafness is a false accusation, by one peer of another.
type deafness struct {
	rank        int
	first, last time.Duration
}

// A verdict on a peer. From dead on it is proof.
type verdict uint8

const (
	fine     verdict = iota
	silent           // nobody asked hears it
	cut              // some hear it, others do not
	dead             // its process ended: its launcher says so, or its host refuses the connection
	farewell         // it said that it ends
	left             // it asked to leave
)

func (v verdict) String() string {
	return [...]string{"fine", "silent", "cut off", "dead", "ended", "left"}[min(v, left)]
}

func (v verdict) proof() bool { return v == dead || v == farewell }

// watchers is how many ring successors watch a member. Three, so that two may die with it.
const watchers = 3

// beatsTo says whether r gets a beat at each tick.
func (m *Machine) beatsTo(r int) bool {
	n := len(m.peers)
	ahead := (r - m.rank + n) % n
	return m.wide || ahead >= 1 && ahead <= watchers
}

// watch decides whom this process judges: its three ring predecessors; while a change is pending, everyone, so that whoever does not
// answer the proposer, or should be the proposer and is not there, is found.
func (m *Machine) watch() {
	n := len(m.peers)
	for r := range m.peers {
		p := &m.peers[r]
		behind := (m.rank - r + n) % n
		on := r != m.rank && (m.wide || behind >= 1 && behind <= watchers || m.now < p.closer)
		if on && !p.watched {
			p.heard, p.fresh, p.suspected = m.now, true, false
		}
		p.watched = on
	}
}

// beat sends this tick's beats. The commands are those of the view, made once.
func (m *Machine) beat() {
	if m.wide && m.now >= m.wideTill {
		m.widen(false)
	}
	for r := range m.peers {
		p := &m.peers[r]
		switch {
		case r == m.rank || p.how.proof() && m.now-p.at > m.policy.Budget:
		case p.how == silent && m.tick.count%4 != 0: // it may come back
		case p.closer > 0 && m.now < p.closer || m.wide:
			m.emit(m.asks[r])
		case m.beatsTo(r):
			m.emit(m.beats[r])
		}
		if p.closer > 0 && m.now >= p.closer {
			p.closer = 0
			m.watch()
		}
	}
}

func (m *Machine) widen(on bool) {
	if m.wide != on {
		m.wide = on
		m.watch()
	}
}

// heard notes a sign of life from a peer, and returns its rank, or -1.
func (m *Machine) heard(n protocol.Name) int {
	r := m.rankOf(n)
	if r >= 0 {
		m.sign(r, m.now)
	}
	return r
}

func (m *Machine) sign(r int, at time.Duration) {
	p := &m.peers[r]
	if p.watched && !p.fresh && p.how == fine {
		gap := at - p.heard
		p.gaps.add(gap)
		m.noise.add(m.now, gap)
		if 4*gap > m.budget {
			m.refreshBudget()
		}
	}
	p.heard, p.fresh, p.suspected, p.down = at, false, false, false
	// A connection that was refused proves a death; who speaks afterwards was not dead after all. Frames that were under way do not
	// speak for it, so it is given a moment.
	if p.how == silent || p.how == dead && p.why == whyRefused && at-p.at > 4*m.policy.Heartbeat {
		p.how, p.why = fine, ""
	}
}

const whyRefused = "its host refuses the connection: the process is gone"

// judge looks at the silence of each watched peer. At half the budget it asks others, in time for their answers; at the budget it
// convicts, if what was seen of the peer makes the silence unlikely, and nobody else hears it.
func (m *Machine) judge() {
	if m.phase != member {
		return
	}
	if m.tick.count%32 == 0 {
		m.refreshBudget()
	}
	next := time.Duration(-1)
	for r := range m.peers {
		p := &m.peers[r]
		if p.how == cut && m.now-p.at > 2*m.budget {
			p.how, p.why = fine, "" // its accuser no longer says so
		}
		if p.how == fine && len(p.deaf) > 0 && m.isDeaf(p) {
			m.convict(r, cut, "it is heard, and does not hear most of the others")
		}
		if !p.watched || p.how.proof() || p.how == silent {
			continue
		}
		silence := m.now - p.heard
		if silence < m.budget/2 && !p.suspected {
			continue
		}
		if !p.suspected {
			if !p.gaps.unlikely(silence, m.policy.Heartbeat) {
				continue
			}
			p.suspected, p.since = true, m.now
			m.probe(r)
		} else if m.now-p.probedAt >= m.budget/6 {
			m.probe(r)
		}
		// A peer that falls silent does so half a beat after its last one, in the mean.
		switch left := m.budget + m.policy.Heartbeat/2 - silence; {
		case left > 0:
			if left < m.policy.Heartbeat && (next < 0 || left < next) {
				next = max(left, 100*time.Microsecond)
			}
		case !p.gaps.unlikely(silence, m.policy.Heartbeat):
		case p.vouched > p.heard && m.now-p.vouched < m.budget:
			// Others hear it: the way between the two is broken. The higher rank of the two gives way, so that both sides say the same.
			if silence >= 4*m.budget {
				loser := max(r, m.rank)
				m.convict(loser, cut, fmt.Sprintf("%v and it do not hear one another for %v, though others hear both", m.peers[min(r, m.rank)].Name,
					silence.Round(time.Millisecond)))
			}
		default:
			m.convict(r, silent, fmt.Sprintf("silent for %v, of a budget of %v; nobody asked hears it",
				silence.Round(time.Millisecond), m.budget.Round(time.Millisecond)))
		}
	}
	if next >= 0 {
		m.emit(protocol.SetTimer{ID: judgeTimer, After: next})
	}
}

// probe asks r for a sign of life, directly and through three others (SWIM, Das et al. 2002).
func (m *Machine) probe(r int) {
	m.peers[r].probedAt = m.now
	m.emit(m.asks[r])
	q := &probe{m.rec.Epoch, r}
	n, asked := len(m.peers), 0
	for i := 1; i < n && asked < 3; i++ {
		if h := (r + i) % n; h != m.rank && m.peers[h].how == fine {
			m.send(m.peers[h].Name, q)
			asked++
		}
	}
}

// probed vouches for a peer that was heard of late, and asks it, so that it will be heard if it lives.
func (m *Machine) probed(from int, b *probe) {
	if from < 0 || b.Epoch != m.rec.Epoch || b.Rank >= len(m.peers) || b.Rank == from {
		return
	}
	p := &m.peers[b.Rank]
	switch {
	case b.Rank == m.rank, m.hears(p):
		m.send(m.peers[from].Name, &vouch{m.rec.Epoch, b.Rank})
	case b.Rank < len(m.asks):
		m.emit(m.asks[b.Rank])
	}
}

// convict reaches a verdict here, and tells all.
func (m *Machine) convict(r int, how verdict, why string) {
	p := &m.peers[r]
	if p.how != how {
		m.report(Convicted{m.rec.Epoch, p.Name, how.String(), why, m.now - p.heard, m.budget})
	}
	p.how, p.why, p.at, p.accuser, p.told = how, why, m.now, m.rank, true
	m.flood(&accusation{m.rec.Epoch, r, how, clip(why)}, r)
}

// hears says whether p was heard of late, and would be if it lived still.
func (m *Machine) hears(p *peer) bool {
	return !p.fresh && !p.down && !p.how.proof() && m.now-p.heard < m.budget/2
}

func clip(s string) string {
	if len(s) > maxWhy {
		s = s[:maxWhy]
	}
	return strings.ToValidUTF8(s, "") // what is sent is text
}

// accuse repeats this process's own verdicts until the view changes: the first telling may have been lost.
func (m *Machine) accuse() {
	for r := range m.peers {
		if p := &m.peers[r]; p.told && p.how != fine && p.accuser == m.rank && m.now > p.at {
			m.flood(&accusation{m.rec.Epoch, r, p.how, clip(p.why)}, r)
		}
	}
}

// accused takes over another's verdict, unless this process knows better.
func (m *Machine) accused(from int, b *accusation) {
	p := &m.peers[b.Rank]
	switch {
	case b.How == fine || b.How > farewell: // means nothing
		return
	case b.Rank == m.rank && b.How == silent: // I am alive
		m.peers[from].mishears(b.Rank, m.now, m.budget)
		m.emit(m.acks[from])
		return
	case b.Rank == m.rank && b.How != cut, p.how.proof():
		return
	case b.How == silent && m.hears(p):
		m.peers[from].mishears(b.Rank, m.now, m.budget)
		m.send(m.peers[from].Name, &vouch{m.rec.Epoch, b.Rank})
		return
	case b.How == silent && p.how == silent:
		return
	}
	if p.how != b.How && b.Rank != m.rank {
		m.report(Convicted{m.rec.Epoch, p.Name, b.How.String(), b.Why, m.now - p.heard, m.budget})
	}
	p.how, p.why, p.at, p.accuser, p.told = b.How, b.Why, m.now, from, false
}

// mishears notes that p takes rank r for silent, which it is not.
func (p *peer) mishears(r int, now, budget time.Duration) {
	for i := range p.deaf {
		if d := &p.deaf[i]; d.rank == r {
			if now-d.last > budget {
				d.first = now
			}
			d.last = now
			return
		}
	}
	p.deaf = append(p.deaf, deafness{r, now, now})
}

// isDeaf says whether p has taken most of the others for silent, falsely and for two budgets: then it is p that does not hear.
func (m *Machine) isDeaf(p *peer) bool {
	n := 0
	for _, d := range p.deaf {
		if m.now-d.last < m.budget && m.now-d.first >= 2*m.budget {
			n++
		}
	}
	return n > 0 && 2*n >= len(m.peers)-1
}

// vouched notes that another hears a peer. If this process took it for silent, it is only out of its own hearing.
func (m *Machine) vouched(r int) {
	p := &m.peers[r]
	p.vouched = m.now
	if p.how == silent && !(p.why == whyRefused && m.now-p.at < 2*m.policy.Heartbeat) { // others' links may not have broken yet
		p.how, p.why = fine, ""
	}
}

// proven notes proof of death, and tells all.
func (m *Machine) proven(n protocol.Name, how verdict, why string) {
	r := m.rankOf(n)
	if r < 0 || r == m.rank || m.peers[r].how.proof() && (how != dead || m.peers[r].how == farewell || m.peers[r].why == why) {
		return
	}
	m.convict(r, how, why)
}

// linkLost distinguishes what a lost link says. A refusal by the own host is proof, since the peer's process would answer; another host's
// may be a firewall's, and counts as silence at once, which others may contradict. A close only makes curious. A reset alone changes
// nothing: the transport connects again, and what it hears then counts as life.
func (m *Machine) linkLost(n protocol.Name, err error) {
	r := m.rankOf(n)
	switch {
	case errors.Is(err, protocol.ErrRefused):
		if p := m.presence(n); m.phase == joining && p != nil && p.rev > 0 {
			p.knock = false // this process knocks on: the other may reach it, and is heard then
		} else {
			m.forgetPresence(n)
		}
		switch {
		case r < 0 || r == m.rank || m.phase != member || m.peers[r].how.proof():
		case sameHost(m.self.Addr, m.peers[r].Addr):
			m.convict(r, dead, whyRefused)
		case m.peers[r].how != silent:
			m.peers[r].down = true
			m.convict(r, silent, whyRefused)
		}
	case r >= 0 && r != m.rank && m.phase == member && !m.peers[r].how.proof():
		p := &m.peers[r]
		p.down = true
		if p.asked == 0 || m.now-p.asked >= m.policy.Heartbeat { // a message that cannot be sent is a lost link too
			p.asked = m.now
			m.emit(m.asks[r])
		}
		if errors.Is(err, io.EOF) {
			m.closer(r)
		}
	}
}

// sameHost says whether two addresses of package transport are of one host.
func sameHost(a, b string) bool {
	near := func(addr string) string {
		host, _, _ := strings.Cut(strings.TrimPrefix(addr, "near:"), ",")
		return host
	}
	switch {
	case strings.HasPrefix(a, "near:") && strings.HasPrefix(b, "near:"):
		return near(a) == near(b)
	case strings.HasPrefix(b, "tcp:"):
		own, _, _ := net.SplitHostPort(strings.TrimPrefix(a, "tcp:"))
		host, _, err := net.SplitHostPort(strings.TrimPrefix(b, "tcp:"))
		ip := net.ParseIP(host)
		return err == nil && (host == own || host == "localhost" || ip != nil && ip.IsLoopback())
	}
	return true // sockets in a directory, and memory, reach no further
}

// suspect watches and probes a peer at once.
func (m *Machine) suspect(s Suspect) {
	if r := m.rankOf(s.Name); r >= 0 && r != m.rank && m.phase == member {
		m.closer(r)
		m.probe(r)
	}
}

func (m *Machine) closer(r int) {
	m.peers[r].closer = m.now + 8*m.budget
	m.watch()
}
