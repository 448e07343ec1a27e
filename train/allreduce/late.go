package allreduce

import (
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
)

// A late says whom this worker waits for: long before a worker that is stuck is given up, somebody should know which one it is.
//
// Some workers are slower than others in every update, and rank 0 measures the model while the others wait. So a wait is told once it is
// twice as long as any before for the same worker.
type late struct {
	run       *train.Run
	rank      int
	mu        sync.Mutex
	computing bool // this worker: what is under way meanwhile keeps nobody waiting
	measuring bool // rank 0: that is what the others wait for
	longest   map[int]time.Duration

	timer *time.Timer // nil: nothing has been waited for that long
	said  chan struct{}
	who   int
	since time.Time
}

// hear is collective.Options.OnStraggler. Rank 0 speaks for all, and where it is the one that is late, rank 1.
func (l *late) hear(w collective.Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rank != 0 && (l.rank != 1 || w.Rank != 0) || w.Rank == l.rank || l.computing || l.timer != nil {
		return
	}
	said, measuring := make(chan struct{}), l.measuring
	l.said, l.who, l.since = said, w.Rank, time.Now().Add(-w.For)
	l.timer = time.AfterFunc(max(0, 2*l.longest[w.Rank]-w.For), func() { // not here, with the group's lock held
		defer close(said)
		l.tell(w, measuring)
	})
}

// tell names rank, operation and phase. The training thread waits meanwhile.
func (l *late) tell(w collective.Wait, measuring bool) {
	text := fmt.Sprintf("waiting for worker %d for %v now: ", w.Rank, time.Since(l.since).Round(time.Second/10))
	switch {
	case measuring:
		l.run.Say(observe.Info, "waiting", text+"it measures the model")
	case w.NotStarted:
		l.run.Say(observe.Warn, "waiting", text+"it has not begun "+w.Op)
	default:
		l.run.Say(observe.Warn, "waiting", text+w.Op+", in its "+w.Phase)
	}
}

// end says that this worker waits no longer. Nothing is told after it.
func (l *late) end() {
	l.mu.Lock()
	timer := l.timer
	l.mu.Unlock()
	if timer == nil {
		return
	}
	if !timer.Stop() {
		<-l.said
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.longest == nil {
		l.longest = map[int]time.Duration{}
	}
	l.longest[l.who] = max(l.longest[l.who], time.Since(l.since))
}

// computes says whether this worker computes, and measures whether it waits for rank 0 to measure the model.
func (l *late) computes(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.computing = yes
}

func (l *late) measures(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measuring = yes
}
