package observe

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	queueSteps     = 1024 // between a training thread and the collector: a second at full rate
	keptPerSecond  = 1000 // above this rate one step in k is kept
	thinningWindow = 64   // kept steps after which k is chosen anew
)

// A queue carries steps from one training thread to one collector. Neither waits for the other: if it is full, push says so.
type queue struct {
	head atomic.Uint64 // next to be taken
	_    [56]byte      // the two ends on cache lines of their own
	tail atomic.Uint64 // next to be filled
	_    [56]byte
	slot [queueSteps]Step
}

func (q *queue) push(s *Step) bool {
	tail := q.tail.Load()
	if tail-q.head.Load() == queueSteps {
		return false
	}
	q.slot[tail%queueSteps] = *s
	q.tail.Store(tail + 1)
	return true
}

// drain calls f with each step that is there now.
func (q *queue) drain(f func(Step)) {
	head, tail := q.head.Load(), q.tail.Load()
	for ; head < tail; head++ {
		s := q.slot[head%queueSteps]
		q.head.Store(head + 1)
		f(s)
	}
}

// A thinner picks one step in k so that about 1,000 steps a second are kept. It chooses k anew from the time that the last 64 kept
// steps took.
type thinner struct {
	every uint32 // k
	skip  uint32 // steps to pass over before the next is kept
	kept  int    // in this window
	since time.Duration
	on    bool
}

// keep tells whether the step that begins at start is kept, and sets k on it.
func (t *thinner) keep(s *Step) bool {
	if !t.on {
		t.every, t.since, t.on = 1, s.Start, true
	}
	if t.skip > 0 {
		t.skip--
		return false
	}
	if t.kept == thinningWindow {
		t.kept = 0
		t.choose(s.Start - t.since)
		t.since = s.Start
	}
	t.kept++
	s.Every = t.every
	t.skip = t.every - 1
	return true
}

// choose sets k from the time in which thinningWindow × k steps began.
func (t *thinner) choose(took time.Duration) {
	perSecond := float64(thinningWindow) * float64(t.every) / max(took.Seconds(), 1e-9)
	t.every = uint32(min(max(math.Ceil(perSecond/keptPerSecond), 1), 1<<20))
}
