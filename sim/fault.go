package sim

import (
	"math"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/draw"
)

// A Fault is something that goes wrong, from At on, for so long. For 0: until Heal.
type Fault struct {
	At, For time.Duration
	Kind    Kind
	Nodes   []Node
	Arg     float64
}

// A Kind is what goes wrong. Where a kind is of links, Nodes picks them: none means all links, one node all of its links, several the
// links among them.
type Kind uint8

// The kinds of faults.
const (
	Crash  Kind = iota // the process dies; when For is over it starts again, with its disk as it was
	Wipe               // as Crash, but it starts again with an empty disk
	Vanish             // as Crash, as when the power fails: no link is closed, and no peer is told
	Pause              // handles nothing; its peers are not told
	Slow               // takes Arg times as long for everything
	Skew               // the clock gains Arg seconds a second; above -1
	Jump               // the clock jumps forward by Arg seconds, at once

	Delay     // links take Arg seconds more
	Jitter    // links take up to Arg seconds more
	Bandwidth // links carry at most Arg bytes a second
	Loss      // links lose frames with probability Arg
	Duplicate // links double frames with probability Arg
	Reorder   // links let frames be overtaken with probability Arg
	Corrupt   // links corrupt frames with probability Arg
	Reset     // links break, at once, and reconnect
	Clog      // links hold what is sent, and deliver it afterwards
	Swizzle   // the nodes' links (none: all nodes') clog one by one and are released in another order

	Partition // the nodes and the rest do not reach one another; Meta may be among the nodes, else it is with the rest
	Mute      // nothing from the nodes reaches the rest
	Deafen    // nothing from the rest reaches the nodes
	Bridge    // the first node reaches all; of the others, the nodes and the rest do not reach one another
	Ring      // in a ring of the nodes (none: all), each reaches only a majority, its nearest

	TornDisk    // a node's next write leaves a part of the value, and the node crashes in it; it starts again when For is over
	ShortDisk   // writes leave a part of the value, and fail
	FailingDisk // writes fail, and leave the old value
	FullDisk    // writes fail, as there is no space, and leave the old value

	MetaAway    // the metadata store does not answer
	MetaSlow    // it takes Arg seconds more each way
	MetaRestart // it starts again, and is back when For is over; calls meanwhile fail at once

	Slice // connections pass at most Arg bytes at a time; without effect where there are no connections, and not drawn by itself
	kinds
)

// names are those of a plan's text.
var names = [kinds]string{
	"crash", "wipe", "vanish", "pause", "slow", "skew", "jump", "delay", "jitter", "bandwidth", "loss", "duplicate", "reorder", "corrupt",
	"reset", "clog", "swizzle", "partition", "mute", "deafen", "bridge", "ring", "torn-disk", "short-disk", "failing-disk", "full-disk",
	"meta-away", "meta-slow", "meta-restart", "slice",
}

// running is a fault on the calendar.
type running struct {
	Fault
	in   []bool // Nodes, as a set
	meta bool
	ring []int // a node's place in the ring; -1: not in it
	size int   // of the ring
	from []int64
	to   []int64 // when Swizzle clogs each node
	era  int     // of the World: Heal ends what belongs to an older one
}

func (w *World) schedule(f Fault) {
	w.push(int64(f.At), slot{what: faultBegin, id: uint64(f.Kind), arg: w.prepare(f)})
}

// prepare works out whom a fault concerns.
func (w *World) prepare(f Fault) *running {
	r := &running{Fault: f, in: make([]bool, len(w.nodes)), era: w.era}
	for _, n := range f.Nodes {
		if n == Meta {
			r.meta = true
		} else {
			r.in[n] = true
		}
	}
	switch f.Kind {
	case Ring:
		r.ring = make([]int, len(w.nodes))
		for i := range r.ring {
			r.ring[i] = -1
			if len(f.Nodes) == 0 {
				r.ring[i] = i
			}
		}
		for place, n := range f.Nodes {
			if n != Meta {
				r.ring[n] = place
			}
		}
		r.size = len(f.Nodes)
		if r.size == 0 {
			r.size = len(w.nodes)
		}
	case Swizzle:
		half := int64(f.For) / 2
		for i := range w.nodes {
			// The draws are named by the fault itself, so that leaving out another does not change them.
			key := draw.Mix(w.seed ^ draw.Weyl*uint64(f.At+1) ^ uint64(i))
			r.from = append(r.from, int64(f.At)+upTo(key, half))
			r.to = append(r.to, int64(f.At)+half+upTo(key+1, half))
		}
	}
	return r
}

// grow makes room for nodes that came after the plan of the fault: it does not concern them.
func (r *running) grow(nodes int) {
	for len(r.in) < nodes {
		r.in = append(r.in, false)
		if r.ring != nil {
			r.ring = append(r.ring, -1)
		}
		if r.from != nil {
			r.from, r.to = append(r.from, 0), append(r.to, 0)
		}
	}
}

func (w *World) begin(r *running) {
	if r.era != w.era {
		return
	}
	r.grow(len(w.nodes))
	if w.o.Trace {
		w.line(-1, "fault "+r.Fault.String())
	}
	switch r.Kind {
	case Crash, Wipe, Vanish:
		for _, n := range r.Nodes {
			if n != Meta {
				w.crash(w.nodes[n], r.Kind == Vanish)
			}
		}
	case Jump:
		for _, n := range r.Nodes {
			if n != Meta {
				w.jump(w.nodes[n], nanos(r.Arg))
			}
		}
		return
	case Reset:
		for a := range w.nodes {
			for b := range a {
				ab, ba := w.link(int32(a), int32(b)), w.link(int32(b), int32(a))
				if r.touches(ab) && (ab.used || ba.used) && !ab.base.Datagram && !ab.down && w.nodes[a].up && w.nodes[b].up {
					w.sever(int32(a), int32(b))
				}
			}
		}
		return
	case Swizzle:
		for i := range r.from {
			w.push(r.from[i], slot{what: swizzleEvent})
			w.push(r.to[i], slot{what: swizzleEvent})
		}
	}
	w.active = append(w.active, r)
	if r.For > 0 {
		w.push(w.now+int64(r.For), slot{what: faultEnd, id: uint64(r.Kind), arg: r})
	}
	w.refresh()
}

func (w *World) end(r *running) {
	i := slices.Index(w.active, r)
	if i < 0 {
		return
	}
	if w.o.Trace {
		w.line(-1, "ends: "+r.Fault.String())
	}
	w.active = slices.Delete(w.active, i, i+1)
	w.refresh()
	if !r.restarts() {
		return
	}
	for i, n := range w.nodes {
		if !r.in[i] || n.up {
			continue
		}
		if r.Kind == Wipe {
			n.disk.wipe()
		}
		if !slices.ContainsFunc(w.active, func(o *running) bool { return o.restarts() && o.in[i] && o.Kind != TornDisk }) {
			w.boot(n)
		}
	}
}

// restarts says whether the end of such a fault starts nodes again.
func (r *running) restarts() bool { return r.Kind <= Vanish || r.Kind == TornDisk }

// touches says whether a fault of links concerns l.
func (r *running) touches(l *link) bool {
	switch len(r.Nodes) {
	case 0:
		return true
	case 1:
		return r.in[l.from] || r.in[l.to]
	}
	return r.in[l.from] && r.in[l.to]
}

// onLink adds to e what the fault does to l.
func (r *running) onLink(w *World, l *link, e *Link) {
	a, b := l.from, l.to
	switch r.Kind {
	case Partition:
		l.blocked = l.blocked || r.in[a] != r.in[b]
	case Mute:
		l.blocked = l.blocked || r.in[a] && !r.in[b]
	case Deafen:
		l.blocked = l.blocked || !r.in[a] && r.in[b]
	case Bridge:
		first := int32(r.Nodes[0])
		l.blocked = l.blocked || a != first && b != first && r.in[a] != r.in[b]
	case Ring:
		l.blocked = l.blocked || r.ring[a] >= 0 && r.ring[b] >= 0 && !near(r.ring[a], r.ring[b], r.size)
	case Swizzle:
		for _, n := range []int32{a, b} {
			if len(r.Nodes) == 0 || r.in[n] {
				l.clogged = l.clogged || r.from[n] <= w.now && w.now < r.to[n]
			}
		}
	case Delay, Jitter, Bandwidth, Loss, Duplicate, Reorder, Corrupt, Clog, Slice:
		if r.touches(l) {
			r.worsen(l, e)
		}
	}
}

func (r *running) worsen(l *link, e *Link) {
	switch r.Kind {
	case Delay:
		e.Delay += time.Duration(nanos(r.Arg))
	case Jitter:
		e.Jitter += time.Duration(nanos(r.Arg))
	case Bandwidth:
		if e.BytesPerSec == 0 || e.BytesPerSec > r.Arg {
			e.BytesPerSec = r.Arg
		}
	case Loss:
		e.Loss = max(e.Loss, r.Arg)
	case Duplicate:
		e.Duplicate = max(e.Duplicate, r.Arg)
	case Reorder:
		e.Reorder = max(e.Reorder, r.Arg)
	case Corrupt:
		e.Corrupt = max(e.Corrupt, r.Arg)
	case Clog:
		l.clogged = true
	case Slice:
		l.slice = int(min(r.Arg, 1<<30))
	}
}

// near says whether places a and b of a ring lie so close that the nodes within that distance are a majority.
func near(a, b, size int) bool {
	d := a - b
	if d < 0 {
		d = -d
	}
	return min(d, size-d) <= (size/2+1)/2
}

// nanos is so many seconds in ns.
func nanos(seconds float64) int64 { return int64(math.Round(seconds * 1e9)) }

// spared says whether Heal took the pair out of all faults.
func (w *World) spared(a, b int32) bool { return w.healed && w.core[a] && w.core[b] }

// refresh computes what the faults in force do to each node and link, and sees to what changes by it.
func (w *World) refresh() {
	for _, n := range w.nodes {
		w.afflict(n)
	}
	away := w.store.away
	w.afflictStore()
	switch {
	case w.store.away && !away:
		w.store.sever(w, nil)
	case !w.store.away && away:
		w.store.back(w)
	}
	for _, n := range w.nodes {
		for _, l := range n.links {
			if l == nil {
				continue
			}
			blocked, clogged := l.blocked, l.clogged
			w.effect(l)
			if clogged && !l.clogged {
				w.unclog(l)
			}
			l.freed = blocked && !l.blocked || clogged && !l.clogged
		}
	}
	for _, n := range w.nodes {
		for _, l := range n.links {
			if l != nil && l.freed {
				l.freed = false
				w.settle(l)
			}
		}
	}
}

// afflictStore computes what the faults in force do to the metadata store.
func (w *World) afflictStore() {
	w.store.away, w.store.refuses, w.store.slow = false, false, 0
	if w.healed {
		return
	}
	for _, r := range w.active {
		switch r.Kind {
		case MetaAway:
			w.store.away = true
		case MetaRestart:
			w.store.away, w.store.refuses = true, true
		case MetaSlow:
			w.store.slow += nanos(r.Arg)
		}
	}
}

// afflict computes what the faults in force do to n.
func (w *World) afflict(n *node) {
	paused, cut := n.paused, n.metaCut
	rate := fixed(1 + n.host.Skew)
	n.paused, n.metaCut, n.slow = false, false, one
	d := &n.disk
	d.torn, d.short, d.failing, d.full = false, false, false, false
	if !w.spared(n.index, n.index) {
		for _, r := range w.active {
			in := r.in[n.index]
			switch r.Kind {
			case Pause:
				n.paused = n.paused || in
			case Slow:
				if in {
					n.slow = max(n.slow, fixed(r.Arg))
				}
			case Skew:
				if in {
					rate = fixed(1 + r.Arg)
				}
			case TornDisk:
				d.torn = d.torn || in
			case ShortDisk:
				d.short = d.short || in
			case FailingDisk:
				d.failing = d.failing || in
			case FullDisk:
				d.full = d.full || in
			case Partition:
				n.metaCut = n.metaCut || in != r.meta
			case Mute, Deafen:
				n.metaCut = n.metaCut || in && !r.meta
			}
		}
	}
	w.skew(n, rate)
	if paused && !n.paused {
		w.wake(n)
	}
	if n.metaCut && !cut {
		w.store.sever(w, n)
	}
}
