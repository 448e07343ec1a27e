package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// store is the metadata store of a World: linearizable, with revisions, leases and watches, and what package cluster says of them. Calls
// and answers travel over a link that faults can cut or slow down.
type store struct {
	kv      map[string]protocol.MetaKV
	history []protocol.MetaKV // every change, in order
	rev     int64
	leases  map[int64]*lease
	grants  int64
	watches []*watch
	away    bool  // does not answer
	refuses bool  // says at once that it does not
	slow    int64 // more on each way, ns
}

type lease struct {
	ttl   int64
	until int64
}

type watch struct {
	n      *node
	gen    uint32
	id     uint64
	prefix string
	last   int64 // arrival of its latest answer
	cut    bool  // it has ended: what is under way to it is lost, so that no change is skipped
}

// question is a call under way, and then its answer.
type question struct {
	call  protocol.MetaCall
	n     *node
	gen   uint32
	asked int64
	num   uint64
	reply protocol.MetaKV
	watch *watch // the answer is one of a watch
	local bool   // it comes from the caller's own side, not over the link
}

// trip is how long a message between a node and the store takes.
func (s *store) trip(w *World, n *node, purpose, num uint64) int64 {
	return int64(w.o.MetaLink.Delay) + s.slow + upTo(w.bits(n, purpose, num), int64(w.o.MetaLink.Jitter))
}

// call takes a question from n.
func (s *store) call(w *World, n *node, c protocol.MetaCall) {
	n.asks++
	q := &question{call: c, n: n, gen: n.gen, asked: w.now, num: n.asks}
	if n.metaCut || s.away {
		s.unavailable(w, q)
		return
	}
	w.push(w.now+s.trip(w, n, drawMeta, q.num), slot{what: metaAsk, node: n.index, gen: n.gen, id: c.ID, arg: q})
}

// unavailable answers q when its caller has waited long enough.
func (s *store) unavailable(w *World, q *question) {
	at := q.asked + int64(w.o.MetaWait)
	if s.refuses {
		at = w.now + s.trip(w, q.n, drawMetaBack, q.num)
	}
	q.local = true
	w.push(at, slot{what: metaAnswer, node: q.n.index, gen: q.gen, id: q.call.ID, arg: q, err: protocol.ErrUnavailable})
}

// ask is called when a question reaches the store. A caller that died meanwhile asked all the same.
func (s *store) ask(w *World, at *slot) {
	q := at.arg.(*question)
	if q.n.metaCut || s.away {
		s.unavailable(w, q)
		return
	}
	if q.call.Op == protocol.MetaWatch {
		s.watch(w, q)
		return
	}
	var err error
	q.reply, err = s.apply(w, &q.call)
	w.push(w.now+s.trip(w, q.n, drawMetaBack, q.num), slot{what: metaAnswer, node: q.n.index, gen: q.gen, id: q.call.ID, arg: q, err: err})
}

// answered says whether an answer gets through to its caller.
func (s *store) answered(w *World, at *slot) bool {
	q := at.arg.(*question)
	if q.watch != nil && q.watch.cut && !q.local {
		return false
	}
	if q.local || !q.n.metaCut && !s.away {
		return true
	}
	if q.watch == nil {
		s.unavailable(w, q)
	}
	return false
}

// apply does one operation.
func (s *store) apply(w *World, c *protocol.MetaCall) (protocol.MetaKV, error) {
	switch c.Op {
	case protocol.MetaGet:
		kv := s.kv[c.Key]
		kv.Key = c.Key
		return kv, nil
	case protocol.MetaPutIf:
		if s.kv[c.Key].Rev != c.Rev {
			return protocol.MetaKV{Key: c.Key}, protocol.ErrConflict
		}
		if c.Lease != 0 && s.leases[c.Lease] == nil {
			return protocol.MetaKV{Key: c.Key}, protocol.ErrLeaseLost
		}
		s.put(w, c.Key, c.Value, c.Lease)
		return protocol.MetaKV{Key: c.Key, Rev: s.rev}, nil
	case protocol.MetaGrant:
		if s.leases == nil {
			s.leases = map[int64]*lease{}
		}
		s.grants++
		s.leases[s.grants] = &lease{ttl: int64(c.TTL), until: w.now + int64(c.TTL)}
		w.push(w.now+int64(c.TTL), slot{what: leaseEvent, id: uint64(s.grants)})
		return protocol.MetaKV{Lease: s.grants}, nil
	case protocol.MetaKeep:
		l := s.leases[c.Lease]
		if l == nil {
			return protocol.MetaKV{Lease: c.Lease}, protocol.ErrLeaseLost
		}
		l.until = w.now + l.ttl
		return protocol.MetaKV{Lease: c.Lease}, nil
	}
	panic("sim: an unknown operation of the metadata store")
}

// put changes a key; a nil value deletes it.
func (s *store) put(w *World, key string, value []byte, lease int64) {
	s.rev++
	kv := protocol.MetaKV{Key: key, Rev: s.rev, Lease: lease}
	if value != nil {
		kv.Value = append([]byte{}, value...)
	}
	if s.kv == nil {
		s.kv = map[string]protocol.MetaKV{}
	}
	if value == nil {
		delete(s.kv, key)
	} else {
		s.kv[key] = kv
	}
	s.history = append(s.history, kv)
	for _, x := range s.watches {
		if strings.HasPrefix(key, x.prefix) {
			s.show(w, x, kv)
		}
	}
}

// show sends a change to a watcher, behind those that are under way.
func (s *store) show(w *World, x *watch, kv protocol.MetaKV) {
	x.n.asks++
	at := max(w.now+s.trip(w, x.n, drawMetaBack, x.n.asks), x.last)
	x.last = at
	q := &question{n: x.n, gen: x.gen, reply: kv, watch: x}
	w.push(at, slot{what: metaAnswer, node: x.n.index, gen: x.gen, id: x.id, arg: q})
}

// watch begins a watch, with what it missed.
func (s *store) watch(w *World, q *question) {
	if q.gen != q.n.gen {
		return
	}
	x := &watch{n: q.n, gen: q.gen, id: q.call.ID, prefix: q.call.Key}
	s.watches = append(s.watches, x)
	if q.call.Rev == 0 {
		for _, kv := range s.history {
			if strings.HasPrefix(kv.Key, x.prefix) && s.kv[kv.Key].Rev == kv.Rev {
				s.show(w, x, kv)
			}
		}
		return
	}
	for _, kv := range s.history {
		if kv.Rev > q.call.Rev && strings.HasPrefix(kv.Key, x.prefix) {
			s.show(w, x, kv)
		}
	}
}

// forget drops the watches of a node that went down.
func (s *store) forget(node int32) {
	kept := s.watches[:0]
	for _, x := range s.watches {
		if x.n.index != node {
			kept = append(kept, x)
		}
	}
	clear(s.watches[len(kept):])
	s.watches = kept
}

// sever ends the watches of one node, or of all (nil), with ErrUnavailable.
func (s *store) sever(w *World, n *node) {
	kept := s.watches[:0]
	for _, x := range s.watches {
		if n != nil && x.n != n {
			kept = append(kept, x)
			continue
		}
		x.cut = true
		s.unavailable(w, &question{call: protocol.MetaCall{ID: x.id, Op: protocol.MetaWatch}, n: x.n, gen: x.gen, asked: w.now, watch: x})
	}
	clear(s.watches[len(kept):])
	s.watches = kept
}

// expire ends a lease that nobody kept.
func (s *store) expire(w *World, at *slot) {
	l := s.leases[int64(at.id)]
	switch {
	case l == nil:
	case s.away: // nobody could keep it: it gets its time again when the store is back
		w.push(w.now+max(l.ttl, int64(time.Millisecond)), slot{what: leaseEvent, id: at.id})
	case l.until > w.now:
		w.push(l.until, slot{what: leaseEvent, id: at.id})
	default:
		s.revoke(w, int64(at.id))
	}
}

// revoke ends a lease and deletes its keys.
func (s *store) revoke(w *World, id int64) {
	delete(s.leases, id)
	for _, key := range slices.Sorted(maps.Keys(s.kv)) {
		if s.kv[key].Lease == id {
			s.put(w, key, nil, 0)
		}
	}
}

// back is called when the store answers again.
func (s *store) back(w *World) {
	for _, l := range s.leases {
		l.until = max(l.until, w.now+l.ttl)
	}
}
