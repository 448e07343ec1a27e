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
	saying    sync.Mutex // held while something is told; taken before mu
	mu        sync.Mutex
	computing bool // this worker: what is under way meanwhile keeps nobody waiting
	measuring bool // rank 0: that is what the others wait for
	longest   map[int]time.Duration

	timer *time.Timer // nil: nothing has been waited for that long
	who   int
	since time.Time
	turn  int // one more whenever a wait is over: nothing is told of it any more
}

// look is how often the group looks whom an operation waits for, from its start on: collective.Options.Straggler, if it is not set.
const look = time.Second

// hear is collective.Options.OnStraggler. Rank 0 speaks for all, and where it is the one that is late, rank 1.
func (l *late) hear(w collective.Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.computing || l.timer != nil && l.who == w.Rank {
		return
	}
	if l.timer != nil {
		l.leave() // it has come, and another one is missing
	}
	if l.rank != 0 && (l.rank != 1 || w.Rank != 0) || w.Rank == l.rank {
		return
	}
	waited := w.For
	if !w.NotStarted && waited >= 2*look { // this is not the first look, and at the last one another was waited for
		waited = 0
	}
	l.who, l.since = w.Rank, time.Now().Add(-waited)
	turn := l.turn
	l.timer = time.AfterFunc(max(0, max(look, 2*l.longest[w.Rank])-waited), func() { // not here, with the group's lock held
		l.tell(turn, w)
	})
}

// leave says, with mu held, that who is not waited for any more.
func (l *late) leave() {
	l.timer.Stop()
	l.timer = nil
	l.turn++
	if l.longest == nil {
		l.longest = map[int]time.Duration{}
	}
	l.longest[l.who] = max(l.longest[l.who], time.Since(l.since))
}

// tell names rank, operation and phase, unless that wait is over. The training thread waits meanwhile.
func (l *late) tell(turn int, w collective.Wait) {
	l.saying.Lock()
	defer l.saying.Unlock()
	l.mu.Lock()
	over, since, measuring := l.turn != turn, l.since, l.measuring
	l.mu.Unlock()
	if over {
		return
	}
	text := fmt.Sprintf("waiting for worker %d for %v now: ", w.Rank, time.Since(since).Round(time.Second/10))
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
	l.saying.Lock()
	defer l.saying.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.leave()
	}
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
