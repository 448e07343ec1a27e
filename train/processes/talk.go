package processes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium/transport"
)

// What a worker says of its training goes to the driver beside it, in its order: a driver that takes nothing for a while, such as one that was
// stopped, holds up nobody. What it takes in the end it is sent, up to maxWords messages; of progress fewer, since more follows.

const (
	maxWords    = 256
	maxProgress = maxWords / 4
)

// words are what waits for the driver.
type words struct {
	queue  chan transport.Frame
	unsaid atomic.Int64  // messages for which there was no room, since one was sent
	last   chan struct{} // closed by finish: nothing that matters follows
	finish func()        // may be called again
	ended  chan struct{} // closed once all is said
}

func newWords() *words {
	last := make(chan struct{})
	return &words{
		queue: make(chan transport.Frame, maxWords), last: last, finish: sync.OnceFunc(func() { close(last) }), ended: make(chan struct{}),
	}
}

// tell has the driver told soon. The run does not depend on it.
func (w *worker) tell(kind uint8, v any) {
	f, err := message(kind, v)
	if kind == kindProgress && len(w.words.queue) >= maxProgress {
		return
	}
	if err == nil {
		select {
		case w.words.queue <- f:
			return
		default:
			err = fmt.Errorf("processes: %d messages wait for the driver already", maxWords)
			if w.words.unsaid.Add(1) > 1 { // once: a driver that takes no messages reads no log
				return
			}
		}
	}
	w.log.Warn("not told to the driver", "kind", kind, "error", err)
}

// talk sends what is told, until no more follows, or until the job has ended, or this process is to, and the driver takes nothing.
func (w *worker) talk() {
	defer close(w.words.ended)
	gone := false
	say := func(f transport.Frame) {
		if gone {
			return
		}
		if err := w.insist(f); err != nil {
			gone = errors.Is(err, errEnd) || errors.Is(err, context.DeadlineExceeded)
			w.log.Warn("not told to the driver", "kind", f.Kind, "error", err)
		} else if n := w.words.unsaid.Swap(0); n > 1 {
			w.log.Warn("not told to the driver", "messages", n)
		}
	}
	for {
		select {
		case f := <-w.words.queue:
			say(f)
		case <-w.words.last:
			for len(w.words.queue) > 0 {
				say(<-w.words.queue)
			}
			return
		}
	}
}

// hush waits until all that was told is sent: the result comes after it.
func (w *worker) hush() {
	w.words.finish()
	<-w.words.ended
}

var errEnd = errors.New("processes: to the driver: it has told the end, or is lost")

// insist sends the driver what it waits for as long as this process lives: also once it takes something again, after a time in which it took
// nothing, such as one that was stopped. It gives up where the driver has told the end, or is lost, and tellWait after Work's context has ended.
func (w *worker) insist(f transport.Frame) error {
	for {
		select {
		case <-w.end:
			return errEnd
		default:
		}
		sending, cancel := context.WithTimeout(context.Background(), tellWait)
		err := w.stream.Send(sending, w.a.Driver, f)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-w.over:
		default:
			if errors.Is(err, context.DeadlineExceeded) {
				continue
			}
		}
		return fmt.Errorf("processes: to the driver: %w", err)
	}
}
