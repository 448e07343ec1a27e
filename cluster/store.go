package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// storeState is what this process has under way with Meta. Nothing of it is needed to go on in the view in force.
type storeState struct {
	ids     uint64
	calls   []storeCall
	watch   uint64 // ID of the watch; 0: none runs
	watched int64  // the last revision that it told
	lease   int64
	kept    time.Duration
	tried   time.Duration // the last try of what has to be tried again
	fetched time.Duration

	away bool // a call failed, and none succeeded since
	gone time.Duration
	said time.Duration
}

type storeCall struct {
	id    uint64
	what  purpose
	until time.Duration
	epoch protocol.Epoch // fetching: what was known when it was sent
	put   *record        // putting: what is put; else nil
	name  protocol.Name  // proving, locating
}

type purpose uint8

const (
	granting purpose = iota
	appearing
	reclaiming // of the own presence, which something holds
	keeping
	fetching
	proving
	putting
	locating // of a newcomer's presence, which the watch did not tell
)

const (
	storeAnswers = time.Second            // a call that is not answered by then counts as not answered at all
	storeRetry   = 100 * time.Millisecond // between tries while the store is away: a change goes on soon after its return
)

func (s *storeState) next() uint64 { s.ids++; return s.ids }

// ask sends a call to the store, and remembers what for.
func (m *Machine) ask(what purpose, c protocol.MetaCall) *storeCall {
	c.ID = m.store.next()
	m.emit(c)
	m.store.calls = append(m.store.calls, storeCall{id: c.ID, what: what, until: m.now + storeAnswers})
	return &m.store.calls[len(m.store.calls)-1]
}

func (m *Machine) asking(what purpose) bool {
	return slices.ContainsFunc(m.store.calls, func(c storeCall) bool { return c.what == what })
}

func (m *Machine) startStore() {
	m.watchStore()
	m.ask(granting, protocol.MetaCall{Op: protocol.MetaGrant, TTL: m.policy.LeaseTTL})
	m.fetch()
}

func (m *Machine) watchStore() {
	m.store.watch = m.store.next()
	m.emit(protocol.MetaCall{ID: m.store.watch, Op: protocol.MetaWatch, Key: m.keys.prefix, Rev: m.store.watched})
}

// tickStore keeps the lease, and does again what failed.
func (m *Machine) tickStore() {
	s := &m.store
	for i := 0; i < len(s.calls); i++ {
		if c := s.calls[i]; m.now >= c.until {
			s.calls = slices.Delete(s.calls, i, i+1)
			i--
			m.failed(c)
		}
	}
	if m.phase == ended {
		return
	}
	if s.lease != 0 && m.now-s.kept >= m.policy.LeaseTTL/3 && !m.asking(keeping) {
		s.kept = m.now
		m.ask(keeping, protocol.MetaCall{Op: protocol.MetaKeep, Lease: s.lease})
	}
	if m.now-s.tried < storeRetry && !m.moved {
		return
	}
	s.tried = m.now
	switch mine := m.mine(); {
	case m.asking(granting) || m.asking(appearing) || m.asking(reclaiming):
	case s.lease == 0:
		m.ask(granting, protocol.MetaCall{Op: protocol.MetaGrant, TTL: m.policy.LeaseTTL})
	case mine == nil:
		m.appear(0)
	case m.moved:
		m.moved = false
		m.appear(mine.rev)
	}
	if s.watch == 0 {
		m.watchStore()
	}
	if s.away && m.now-s.fetched >= m.patience() { // to see that it is back
		m.fetch()
	}
	if c := &m.change; s.away && c.pending && (c.put != nil || m.now < c.retry) && m.now-s.said >= time.Second {
		s.said = m.now
		m.report(MetaAway{m.now - s.gone})
	}
}

func (m *Machine) appear(rev int64) {
	p := presence{m.self, m.store.lease}
	m.ask(appearing, protocol.MetaCall{
		Op: protocol.MetaPutIf, Key: m.keys.present(m.self.Name), Value: p.encode(), Rev: rev, Lease: m.store.lease,
	})
}

// fetch asks for the record of the view.
func (m *Machine) fetch() {
	if m.asking(fetching) && (!m.store.away || m.now-m.store.fetched < m.patience()) {
		return // while the store is away, calls are sent that overtake those which wait for it in vain
	}
	if m.now-m.store.fetched >= storeRetry/2 || m.store.fetched == 0 {
		m.store.fetched = m.now
		m.ask(fetching, protocol.MetaCall{Op: protocol.MetaGet, Key: m.keys.view()}).epoch = m.rec.Epoch
	}
}

// patience is how long a call has before another overtakes it: the longer the store is away, the longer, since it may be so many calls of so
// many processes that it is busy with.
func (m *Machine) patience() time.Duration {
	return min(max(storeRetry, (m.now-m.store.gone)/8), storeAnswers)
}

// mine is this process's own presence, if the store has it.
func (m *Machine) mine() *presentState {
	if p := m.presence(m.self.Name); p != nil && p.rev > 0 {
		return p
	}
	return nil
}

func (m *Machine) presence(n protocol.Name) *presentState {
	for i := range m.present {
		if same(m.present[i].Name, n) {
			return &m.present[i]
		}
	}
	return nil
}

func (m *Machine) forgetPresence(n protocol.Name) {
	m.present = slices.DeleteFunc(m.present, func(p presentState) bool { return same(p.Name, n) && !same(n, m.self.Name) })
}

// setPresence keeps the list in the order of revisions, which is the order in which processes came; those that are only known by
// their knocks come last. It returns where p is in it.
func (m *Machine) setPresence(p presence, rev int64) (at int) {
	is := presentState{seen: m.now}
	if i := slices.IndexFunc(m.present, func(q presentState) bool { return same(q.Name, p.Name) }); i >= 0 {
		is = m.present[i]
		m.present = slices.Delete(m.present, i, i+1)
	}
	if is.presence, is.rev = p, rev; len(m.present) < 4*MaxWorkers {
		at, _ = slices.BinarySearchFunc(m.present, rev, func(q presentState, rev int64) int {
			if q.rev == 0 || q.rev > rev {
				return 1
			}
			return -1
		})
		m.present = slices.Insert(m.present, at, is)
	}
	if !same(p.Name, m.self.Name) {
		m.report(Located{p.Name, p.Addr})
	}
	if r := m.rankOf(p.Name); r >= 0 {
		m.peers[r].Addr = p.Addr
	}
	return at
}

// Located says where a process of the group is.
type Located struct {
	Name protocol.Name
	Addr string
}

// replied takes the store's answers.
func (m *Machine) replied(in protocol.MetaReply) {
	if in.ID == m.store.watch {
		m.saw(in)
		return
	}
	i := slices.IndexFunc(m.store.calls, func(c storeCall) bool { return c.id == in.ID })
	if i < 0 {
		return // too late: it was given up
	}
	c := m.store.calls[i]
	m.store.calls = slices.Delete(m.store.calls, i, i+1)
	if in.Err != nil && !errors.Is(in.Err, protocol.ErrConflict) && !errors.Is(in.Err, ErrLeaseLost) {
		m.failed(c)
		return
	}
	if m.store.away { // what was sent before is given up: whether it was done will be seen
		m.store.away, m.store.calls, m.store.tried = false, nil, 0
		if m.change.put != nil && c.put != m.change.put {
			m.change.put, m.change.retry = nil, 0
		}
	}
	if errors.Is(in.Err, ErrLeaseLost) {
		m.store.lease = 0
		m.present = slices.DeleteFunc(m.present, func(p presentState) bool { return same(p.Name, m.self.Name) })
		m.store.tried = 0
		return
	}
	conflict := in.Err != nil
	switch c.what {
	case granting:
		m.store.lease, m.store.kept = in.KV.Lease, m.now
		m.appear(0)
	case appearing:
		if conflict {
			m.ask(reclaiming, protocol.MetaCall{Op: protocol.MetaGet, Key: m.keys.present(m.self.Name)})
			return
		}
		m.setPresence(presence{m.self, m.store.lease}, in.KV.Rev)
		m.admitted, m.appeared = m.now, true
		if m.phase == joining {
			m.knock()
		}
		m.fetch()
	case reclaiming:
		m.reclaim(in.KV)
	case fetching:
		m.got(c, in.KV)
	case proving:
		m.proof(c.name, in.KV)
	case putting:
		m.put(c, in.KV.Rev, conflict)
	case locating:
		if p, err := decodePresence(in.KV.Value); in.KV.Rev > 0 && err == nil && same(p.Name, c.name) {
			m.setPresence(p, in.KV.Rev)
		}
	}
}

// failed notes that a call was not answered.
func (m *Machine) failed(c storeCall) {
	if !m.store.away {
		m.store.away, m.store.gone, m.store.said = true, m.now, m.now
	}
	if c.what == putting && c.put == m.change.put {
		m.unknown()
	}
}

// reclaim sorts out who holds the key of this process's presence: an earlier write of its own, whose answer was lost, or its own of a
// lease that is ending; or another process of the same name.
func (m *Machine) reclaim(kv protocol.MetaKV) {
	if kv.Rev == 0 || kv.Value == nil {
		m.appear(0)
		return
	}
	p, err := decodePresence(kv.Value)
	switch {
	case err == nil && p.Lease == m.store.lease && p.Addr == m.self.Addr:
		m.setPresence(p, kv.Rev)
		m.admitted, m.appeared = m.now, true
	case err == nil && p.Lease == m.store.lease, m.phase == member:
		m.appear(kv.Rev)
	default:
		m.end(&RefusedError{m.self.Name, "Incarnation", fmt.Sprintf(
			"a process of that name and incarnation is in group %q already, at %s; a process that starts again has a higher one", m.keys.prefix, p.Addr)})
	}
}

// got takes the record of the view as the store has it now.
func (m *Machine) got(c storeCall, kv protocol.MetaKV) {
	if kv.Rev == 0 {
		if c.epoch > 0 {
			m.end(fmt.Errorf("cluster: %w: it has no view, this process knew view %d", ErrRegressed, c.epoch))
			return
		}
		m.fresh = true
		return
	}
	rec, err := decodeRecord(kv.Value)
	if err != nil {
		m.end(err)
		return
	}
	if rec.Epoch < c.epoch {
		m.end(fmt.Errorf("cluster: %w: it has view %d, this process knew view %d", ErrRegressed, rec.Epoch, c.epoch))
		return
	}
	m.learn(rec, kv.Rev)
}

// saw takes a change that the watch tells.
func (m *Machine) saw(in protocol.MetaReply) {
	if in.Err != nil {
		m.store.watch = 0
		if errors.Is(in.Err, ErrCompacted) {
			m.store.watched = 0
			m.present = slices.DeleteFunc(m.present, func(p presentState) bool { return !same(p.Name, m.self.Name) })
		} else if !m.store.away {
			m.store.away, m.store.gone, m.store.said = true, m.now, m.now
		}
		return
	}
	m.store.away = false
	m.store.watched = max(m.store.watched, in.KV.Rev)
	key := in.KV.Key
	switch {
	case key == m.keys.view():
		if in.KV.Value == nil || in.KV.Rev == m.rev {
			return
		}
		rec, err := decodeRecord(in.KV.Value)
		if err != nil {
			m.end(err)
			return
		}
		m.learn(rec, in.KV.Rev)
	case in.KV.Value == nil:
		if role, id, incarnation, ok := m.keys.parse(key); ok {
			m.vanished(role, id, incarnation)
		}
	default:
		if p, err := decodePresence(in.KV.Value); err == nil && !same(p.Name, m.self.Name) {
			at := m.setPresence(p, in.KV.Rev)
			if mine := m.mine(); m.phase == joining && mine != nil && in.KV.Rev < mine.rev && at < m.doors() { // the watch is late: it was there for the first knock
				m.send(p.Name, &knock{m.rec.Epoch})
			}
		}
	}
}

// vanished notes that a presence ended. Of a member that is heard, this is told and not acted upon: the store's clock is not ours.
func (m *Machine) vanished(role, id string, incarnation uint64) {
	is := func(n protocol.Name) bool { return n.Role == role && n.ID == id && n.Incarnation == incarnation }
	if is(m.self.Name) {
		if m.mine() != nil && m.store.lease != 0 { // it is ours to put again; the lease says whether it may
			m.store.kept = 0
		}
	}
	m.present = slices.DeleteFunc(m.present, func(p presentState) bool { return is(p.Name) })
	for r := range m.peers {
		if p := &m.peers[r]; is(p.Name) && r != m.rank && m.phase == member && p.how == fine {
			m.report(Expired{p.Name})
		}
	}
}
