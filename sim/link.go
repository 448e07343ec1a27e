package sim

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// A Link is one direction of the path between two nodes.
type Link struct {
	Delay, Jitter time.Duration // each frame takes Delay, and up to Jitter more
	BytesPerSec   float64       // 0: unbounded

	// The probability, per frame, that it is lost, doubled, overtaken by others, or corrupted. See the package's comment for what that
	// means in each mode.
	Loss, Duplicate, Reorder, Corrupt float64

	Datagram bool // frames are lost and reordered as they are, and nobody is told
}

func (l Link) check() error {
	for _, p := range []float64{l.Loss, l.Duplicate, l.Reorder, l.Corrupt} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("sim: a link's probability is %v: want 0 to 1", p)
		}
	}
	if l.Delay < 0 || l.Jitter < 0 || !(l.BytesPerSec >= 0) {
		return fmt.Errorf("sim: a link of delay %v, jitter %v and %v bytes/s: want none below 0", l.Delay, l.Jitter, l.BytesPerSec)
	}
	return nil
}

// link is one direction between two nodes.
type link struct {
	from, to int32
	key      uint64 // of its draws
	base     Link

	// with the faults in force
	delay, jitter                     int64
	nanosPerByte                      int64 // in units of 2⁻²⁰
	loss, duplicate, reorder, corrupt uint32
	plain                             bool // none of these four
	blocked, clogged                  bool
	slice                             int // bytes that a connection passes at a time; 0: any

	frames   uint64
	free     int64 // when the wire has sent what it has
	last     int64 // the latest arrival so far
	gen      uint32
	used     bool
	down     bool    // broken, and not yet back
	lost     bool    // something was dropped since the sender was last told
	refusing bool    // an ErrRefused is on its way to the sender
	inc      uint64  // the incarnation of the receiver that the sender last dealt with
	held     []int32 // slots of frames that wait because the link is clogged
	freed    bool    // of a block, in this refresh
}

// Connect gives two nodes their own links.
func (w *World) Connect(a, b Node, there, back Link) {
	for _, l := range []Link{there, back} {
		if err := l.check(); err != nil {
			panic(err)
		}
	}
	for _, c := range []struct {
		l    *link
		base Link
	}{{w.link(int32(a), int32(b)), there}, {w.link(int32(b), int32(a)), back}} {
		c.l.base = c.base
		w.effect(c.l)
	}
}

// link returns the one from a to b.
func (w *World) link(a, b int32) *link {
	n := w.nodes[a]
	if int(b) < len(n.links) {
		if l := n.links[b]; l != nil {
			return l
		}
	} else {
		n.links = append(n.links, make([]*link, len(w.nodes)-len(n.links))...)
	}
	l := &link{from: a, to: b, base: w.o.Link, key: draw.Mix(w.seed ^ draw.Mix(uint64(a+1)<<32|uint64(b+1)))}
	n.links[b] = l
	w.effect(l)
	return l
}

// effect computes what l does under the faults in force.
func (w *World) effect(l *link) {
	e := l.base
	l.blocked, l.clogged, l.slice = false, false, 0
	if !w.spared(l.from, l.to) {
		for _, f := range w.active {
			f.onLink(w, l, &e)
		}
	}
	l.delay, l.jitter = int64(e.Delay), int64(e.Jitter)
	l.nanosPerByte = 0
	if e.BytesPerSec > 0 {
		l.nanosPerByte = int64(min(math.Round(1e9*one/e.BytesPerSec), 1<<50))
	}
	l.loss, l.duplicate, l.reorder, l.corrupt = odds(e.Loss), odds(e.Duplicate), odds(e.Reorder), odds(e.Corrupt)
	l.plain = l.loss|l.duplicate|l.reorder|l.corrupt == 0
}

func odds(p float64) uint32 { return uint32(min(math.Round(min(p, 1)*(1<<32)), 1<<32-1)) }

func (l *link) bits(purpose uint64) uint64 {
	return draw.Mix(l.key + draw.Weyl*(l.frames*purposes+purpose))
}

// takes is how long the frame of the present number travels.
func (l *link) takes() int64 {
	if l.jitter == 0 {
		return l.delay
	}
	return l.delay + upTo(l.bits(drawJitter), l.jitter)
}

// send puts a frame on its way.
func (w *World) send(n *node, c *protocol.Send) {
	key := c.To
	key.Incarnation = 0
	i, ok := w.byName[key]
	if !ok {
		w.push(w.now+2*int64(w.o.Link.Delay), slot{what: lostEvent, node: n.index, gen: n.gen, arg: c.To, err: protocol.ErrRefused})
		return
	}
	size := int64(wire.HeaderLen)
	if c.Body != nil {
		size += int64(c.Body.Size())
	}
	if i == n.index {
		w.push(w.now, slot{what: messageEvent, node: i, peer: i, id: n.name.Incarnation, gen: n.gen, body: c.Body})
		return
	}
	to := w.nodes[i]
	l := w.link(n.index, i)
	l.used = true
	l.frames++
	stale := c.To.Incarnation != 0 && c.To.Incarnation != to.name.Incarnation
	switch {
	case l.base.Datagram && (stale || !to.up || l.blocked):
		return
	case l.blocked || !to.up && to.silent:
		l.lost = true
		return
	case stale || !to.up:
		l.lost = !stale
		w.refuse(n, l, c.To)
		return
	case l.down:
		l.lost = true
		return
	}
	l.inc = to.name.Incarnation
	at := w.now
	if l.nanosPerByte > 0 {
		l.free = max(l.free, w.now) + scaled(size, l.nanosPerByte, one)
		at = l.free
	}
	at += l.takes()
	again, late := false, false
	if !l.plain {
		lost := chance(l.bits(drawLoss), l.loss) || chance(l.bits(drawCorrupt), l.corrupt)
		switch {
		case lost && l.base.Datagram:
			return
		case lost:
			w.sever(n.index, i)
			return
		case l.base.Datagram:
			again, late = chance(l.bits(drawDuplicate), l.duplicate), chance(l.bits(drawReorder), l.reorder)
		}
	}
	if late {
		at += upTo(l.bits(drawLate), 4*(l.delay+l.jitter)+int64(100*time.Microsecond))
	} else {
		at = max(at, l.last)
		l.last = at
	}
	m := slot{what: messageEvent, node: i, peer: n.index, id: n.name.Incarnation, gen: l.gen, body: c.Body}
	if l.clogged {
		l.held = append(l.held, w.keep(m)) // not on the calendar: see unclog
		return
	}
	w.push(at, m)
	if again {
		w.push(at+upTo(l.bits(drawLate), l.delay+l.jitter+1), m)
	}
}

// arrives says whether a frame gets through to its node.
func (w *World) arrives(s *slot) bool {
	if s.peer == s.node {
		return w.nodes[s.node].gen == s.gen
	}
	l := w.link(s.peer, s.node)
	switch {
	case l.gen != s.gen:
		return false
	case l.blocked:
		l.lost = true
		return false
	}
	if back := w.link(s.node, s.peer); s.id != 0 {
		back.inc = s.id
	}
	return w.nodes[s.node].up
}

// refuse tells n, after a round trip, that nobody of that name listens: once at a time.
func (w *World) refuse(n *node, l *link, name protocol.Name) {
	if l.refusing {
		return
	}
	l.refusing = true
	gen := n.gen
	w.push(w.now+2*l.delay, slot{what: funcEvent, arg: func() {
		if n.gen != gen {
			return // it went down: see closeLinks
		}
		l.refusing = false
		w.tell(n, name, protocol.ErrRefused, w.now)
	}})
}

// tell gives n a LinkLost.
func (w *World) tell(n *node, peer protocol.Name, err error, at int64) {
	w.push(at, slot{what: lostEvent, node: n.index, gen: n.gen, arg: peer, err: err})
}

func (w *World) tellBack(n *node, peer protocol.Name, at int64) {
	w.push(at, slot{what: backEvent, node: n.index, gen: n.gen, arg: peer})
}

// drop empties what a clogged link holds.
func (w *World) drop(l *link) {
	for _, i := range l.held {
		w.release(i)
	}
	l.held = l.held[:0]
}

// peerName is how l's sender knows its receiver.
func (w *World) peerName(l *link) protocol.Name {
	name := w.nodes[l.to].name
	if name.Incarnation != 0 && l.inc != 0 {
		name.Incarnation = l.inc
	}
	return name
}

// sever breaks the pair's links: frames under way are lost, both ends are told, and later they try again.
func (w *World) sever(a, b int32) {
	ab, ba := w.link(a, b), w.link(b, a)
	for _, l := range []*link{ab, ba} {
		l.gen++
		l.down, l.lost = true, false
		w.drop(l)
		if n := w.nodes[l.from]; n.up {
			w.tell(n, w.peerName(l), io.ErrUnexpectedEOF, w.now)
		}
	}
	w.retryAt(ab, w.now+int64(w.o.Reconnect))
}

func (w *World) retryAt(l *link, at int64) {
	w.push(at, slot{what: linkRetry, node: l.from, peer: l.to, gen: l.gen})
}

// retry tries to connect a broken pair again. If the path is blocked, the end of the partition tries again.
func (w *World) retry(s *slot) {
	ab, ba := w.link(s.node, s.peer), w.link(s.peer, s.node)
	a, b := w.nodes[s.node], w.nodes[s.peer]
	if ab.gen != s.gen || ab.blocked || ba.blocked || ab.clogged || ba.clogged {
		return
	}
	if !a.up || !b.up {
		for _, l := range []*link{ab, ba} {
			n, peer := w.nodes[l.from], w.nodes[l.to]
			if n.up && !peer.silent {
				w.tell(n, w.peerName(l), protocol.ErrRefused, w.now)
			}
		}
		return
	}
	for _, l := range []*link{ab, ba} {
		n := w.nodes[l.from]
		name := w.peerName(l)
		if l.lost {
			w.tell(n, name, io.ErrUnexpectedEOF, w.now)
		}
		l.down, l.lost = false, false
		if name == w.nodes[l.to].name {
			w.tellBack(n, name, w.now)
		}
	}
}

// closeLinks ends the links of a node that went down. What it sent before still arrives; then its peers read the end, unless it went
// down silently or the path is blocked.
func (w *World) closeLinks(n *node) {
	for i := range n.links {
		ba := n.links[i]
		if ba == nil || ba.base.Datagram || int32(i) == n.index {
			continue
		}
		ba.refusing = false // what is on its way was for the machine that ended
		ab := w.link(int32(i), n.index)
		if !ab.used && !ba.used {
			continue
		}
		ab.gen++
		ab.down, ba.down = true, true
		w.drop(ab)
		if n.silent || ba.blocked || ba.clogged {
			w.drop(ba)
			ba.lost = true
			continue
		}
		a := w.nodes[i]
		if !a.up {
			continue
		}
		at := max(ba.last, w.now+ba.delay)
		ba.last = at
		name := n.name
		w.tell(a, name, io.EOF, at)
		w.retryAt(ab, at+int64(w.o.Reconnect))
	}
}

// reopen gives a node that starts again new links; peers that know it by the same name get a LinkBack.
func (w *World) reopen(n *node) {
	for i := range n.links {
		ba := n.links[i]
		if ba == nil || ba.base.Datagram || int32(i) == n.index {
			continue
		}
		ab, a := w.link(int32(i), n.index), w.nodes[i]
		if !ab.used && !ba.used {
			continue
		}
		ab.gen++
		ba.gen++
		if ba.lost && !n.silent || ab.blocked || ba.blocked || ab.clogged || ba.clogged {
			ab.down, ba.down, ab.lost = false, false, true
			continue // the end of the partition tells
		}
		at := max(ba.last, w.now+ba.delay)
		ba.last = at
		old := w.peerName(ab)
		if a.up && (n.silent || ab.lost && old == n.name) {
			w.tell(a, old, io.ErrUnexpectedEOF, at)
		}
		if a.up && old == n.name {
			w.tellBack(a, old, at)
		}
		ab.down, ba.down, ab.lost, ba.lost = false, false, false, false
	}
}

// settle is called when a path is free again: what the partition swallowed is now told.
func (w *World) settle(l *link) {
	back := w.link(l.to, l.from)
	if l.base.Datagram || l.blocked || back.blocked || l.clogged || back.clogged {
		return
	}
	a, b := w.nodes[l.from], w.nodes[l.to]
	if !l.lost && !back.lost && !l.down && !back.down {
		return
	}
	if a.up && b.up {
		w.sever(l.from, l.to)
		return
	}
	for _, l := range []*link{l, back} {
		if n, peer := w.nodes[l.from], w.nodes[l.to]; n.up && !peer.up && !peer.silent {
			w.tell(n, w.peerName(l), protocol.ErrRefused, w.now+2*l.delay)
		}
	}
}

// unclog sends on what l held, in order.
func (w *World) unclog(l *link) {
	for _, i := range l.held {
		s := w.slots[i]
		w.release(i)
		s.what, s.gen = messageEvent, l.gen
		at := max(w.now+l.delay, l.last)
		l.last = at
		w.push(at, s)
	}
	l.held = l.held[:0]
}
