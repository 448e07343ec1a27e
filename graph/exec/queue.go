package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// ErrClosed is the cause when an entry is offered to a closed queue, ErrEnd when one is wanted from a queue that is closed and empty.
var (
	ErrClosed = errors.New("the queue is closed")
	ErrEnd    = errors.New("the queue is closed and empty")
)

// A queue is first in, first out, of a bounded number of entries. Who cannot go on leaves a function that is called when he can: no
// thread waits.
type queue struct {
	name     string
	mu       sync.Mutex
	capacity int
	entries  [][]*tensor.Tensor
	puts     []*waiter // with an entry that has no room yet
	takes    []*waiter
	closed   bool
}

// A waiter is somebody who waits for a queue or an accumulator.
type waiter struct {
	entry []*tensor.Tensor
	need  int
	done  func([]*tensor.Tensor, error)
	stop  func() bool
}

func (s *State) queue(r *graph.Resource) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.qs[r.Name]
	if q == nil {
		q = &queue{name: r.Name, capacity: r.Capacity}
		s.qs[r.Name] = q
	}
	return q
}

// put offers an entry, which the queue then owns.
func (q *queue) put(ctx context.Context, entry []*tensor.Tensor, done func([]*tensor.Tensor, error)) {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		done(nil, fmt.Errorf("enqueue to %q: %w", q.name, ErrClosed))
	case len(q.takes) > 0:
		w := q.takes[0]
		q.takes = q.takes[1:]
		q.mu.Unlock()
		w.stop()
		done(nil, nil)
		w.done(entry, nil)
	case len(q.entries) < q.capacity:
		q.entries = append(q.entries, entry)
		q.mu.Unlock()
		done(nil, nil)
	default:
		w := &waiter{entry: entry, done: done}
		q.puts = append(q.puts, w)
		w.stop = context.AfterFunc(ctx, func() {
			if q.forget(&q.puts, w) {
				done(nil, fmt.Errorf("enqueue to %q: it holds %d of %d entries and nobody takes one: %w", q.name, q.capacity, q.capacity, context.Cause(ctx)))
			}
		})
		q.mu.Unlock()
	}
}

// take wants the first entry.
func (q *queue) take(ctx context.Context, done func([]*tensor.Tensor, error)) {
	q.mu.Lock()
	switch {
	case len(q.entries) > 0:
		entry := q.entries[0]
		q.entries = q.entries[1:]
		var admitted *waiter
		if len(q.puts) > 0 {
			admitted = q.puts[0]
			q.puts = q.puts[1:]
			q.entries = append(q.entries, admitted.entry)
		}
		q.mu.Unlock()
		done(entry, nil)
		if admitted != nil {
			admitted.stop()
			admitted.done(nil, nil)
		}
	case q.closed:
		q.mu.Unlock()
		done(nil, fmt.Errorf("dequeue from %q: %w", q.name, ErrEnd))
	default:
		w := &waiter{done: done}
		q.takes = append(q.takes, w)
		w.stop = context.AfterFunc(ctx, func() {
			if q.forget(&q.takes, w) {
				done(nil, fmt.Errorf("dequeue from %q: it is empty and nobody offers an entry: %w", q.name, context.Cause(ctx)))
			}
		})
		q.mu.Unlock()
	}
}

// forget removes a waiter; false if somebody has served him.
func (q *queue) forget(list *[]*waiter, w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(*list, w)
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}

// CloseQueue refuses entries offered from now on: to enqueue fails with ErrClosed. What is in the queue may still be taken, and so may the
// entries of those who wait for room, unless cancel drops these; then to dequeue fails with ErrEnd.
func (s *State) CloseQueue(r *graph.Queue, cancel bool) {
	q := s.queue(r.Resource)
	q.mu.Lock()
	q.closed = true
	takes := q.takes
	q.takes = nil
	var puts []*waiter
	if cancel {
		puts, q.puts = q.puts, nil
	}
	q.mu.Unlock()
	for _, w := range takes {
		w.stop()
		w.done(nil, fmt.Errorf("dequeue from %q: %w", q.name, ErrEnd))
	}
	for _, w := range puts {
		w.stop()
		w.done(nil, fmt.Errorf("enqueue to %q: %w", q.name, ErrClosed))
	}
}

// QueueLen is the number of entries in a queue, those that wait for room not counted.
func (s *State) QueueLen(r *graph.Queue) int {
	q := s.queue(r.Resource)
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}
