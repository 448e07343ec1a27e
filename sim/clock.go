package sim

import (
	"maps"
	"slices"

	"github.com/trivium-ml/trivium/protocol"
)

// timer is one that a machine has set.
type timer struct {
	at    int64 // when it runs out, in World time
	seq   uint64
	entry int64 // when its entry in the queue comes up; 0: none
	on    bool
	rung  bool // it has run out, and its event waits for the machine
	event protocol.Event
}

// set sets or stops a timer. The queue has at most one live entry a timer: one that is put off stays where it is, and goes back when it
// comes up.
func (w *World) set(n *node, c protocol.SetTimer) {
	t := n.timers[c.ID]
	if t == nil {
		if c.After < 0 {
			return
		}
		t = &timer{event: protocol.Timer{ID: c.ID}}
		n.timers[c.ID] = t
	}
	t.rung = false // what waits is for before
	if c.After < 0 {
		t.on = false
		return
	}
	t.on = true
	t.at = w.now + scaled(int64(c.After), one, n.rate)
	if t.entry == 0 || t.entry > t.at {
		t.entry = t.at
		w.push(t.at, slot{what: timerEvent, node: n.index, gen: n.gen, id: uint64(c.ID)})
		t.seq = w.seq
	}
}

// rings says whether a timer has run out now.
func (w *World) rings(s *slot, e entry) bool {
	n := w.nodes[s.node]
	if n.gen != s.gen {
		return false
	}
	t := n.timers[protocol.TimerID(s.id)]
	if t == nil || t.seq != e.seq {
		return false // an earlier entry took its place
	}
	if !t.on {
		t.entry = 0
		delete(n.timers, protocol.TimerID(s.id))
		return false
	}
	if t.at > w.now {
		t.entry = t.at
		w.push(t.at, slot{what: timerEvent, node: n.index, gen: n.gen, id: s.id})
		t.seq = w.seq
		return false
	}
	t.entry, t.on, t.rung = 0, false, true
	s.arg = t
	return true
}

// jump moves n's clock forward.
func (w *World) jump(n *node, by int64) {
	if !n.up || by <= 0 {
		return
	}
	n.passed += by
	for _, id := range slices.Sorted(maps.Keys(n.timers)) {
		t := n.timers[id]
		if !t.on {
			continue
		}
		t.at = max(w.now, t.at-scaled(by, one, n.rate))
		t.entry = t.at
		w.push(t.at, slot{what: timerEvent, node: n.index, gen: n.gen, id: uint64(id)})
		t.seq = w.seq
	}
}

// skew makes n's clock run at that rate from now on; timers that are set keep their time.
func (w *World) skew(n *node, rate int64) {
	if rate == n.rate {
		return
	}
	n.passed = n.clock(w.now)
	n.base, n.rate = w.now, rate
}
