package run

import (
	"math"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// timers is a binary heap of those that run, with each one's place in it.
type timers struct {
	heap  []running
	place map[protocol.TimerID]int
	last  uint64 // seq that was given
}

type running struct {
	at  time.Duration
	seq uint64 // in which they were set: decides among those of one instant
	id  protocol.TimerID
}

func (a running) before(b running) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// set sets a timer anew; a negative after stops it.
func (t *timers) set(id protocol.TimerID, now, after time.Duration) {
	i, runs := t.place[id]
	if after < 0 {
		if runs {
			t.remove(i)
		}
		return
	}
	if t.place == nil {
		t.place = map[protocol.TimerID]int{}
	}
	t.last++
	r := running{now + min(after, math.MaxInt64-now), t.last, id} // what is beyond the end of time comes at it
	if runs {
		t.heap[i] = r
	} else {
		i = len(t.heap)
		t.heap = append(t.heap, r)
		t.place[id] = i
	}
	t.fix(i)
}

// next is the first one to run out.
func (t *timers) next() (r running, any bool) {
	if len(t.heap) == 0 {
		return running{}, false
	}
	return t.heap[0], true
}

// pop removes the first one.
func (t *timers) pop() protocol.TimerID {
	id := t.heap[0].id
	t.remove(0)
	return id
}

func (t *timers) remove(i int) {
	delete(t.place, t.heap[i].id)
	n := len(t.heap) - 1
	if i != n {
		t.heap[i] = t.heap[n]
		t.place[t.heap[i].id] = i
	}
	t.heap = t.heap[:n]
	if i != n {
		t.fix(i)
	}
}

// fix moves the one at i to where it belongs.
func (t *timers) fix(i int) {
	for i > 0 && t.heap[i].before(t.heap[(i-1)/2]) {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(t.heap) {
			return
		}
		if c+1 < len(t.heap) && t.heap[c+1].before(t.heap[c]) {
			c++
		}
		if !t.heap[c].before(t.heap[i]) {
			return
		}
		t.swap(i, c)
		i = c
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.place[t.heap[i].id], t.place[t.heap[j].id] = i, j
}
