package transport

import (
	"context"
	"fmt"
	"runtime"
)

// A Server is a Stream that can hand its events to a function where they come in, which saves a switch of goroutines for each. All but
// those of [NewMemory] and of simulators are.
type Server interface {
	// Serve calls f for each event, in place of Recv, until ctx ends or the stream is closed, whose error it returns. It calls f from the
	// goroutines that read the connections: events of one peer and priority come one after the other and in order, those of others at the
	// same time. f must not wait for another event, nor call Fence or Close. If keep is false the event is released when f returns. If
	// yield is true, who was waiting for what f did runs before more is read.
	Serve(ctx context.Context, f func(ev *Event) (keep, yield bool)) error
}

// Serve is Server's. What cannot be handed over where it comes in goes through the queue of Recv: events of links, and frames of an epoch
// that was to come.
func (s *stream) Serve(ctx context.Context, f func(ev *Event) (keep, yield bool)) error {
	defer func() {
		s.mu.Lock()
		s.quiet()
		s.serve = nil
		s.mu.Unlock()
	}()
	for {
		ev, err := s.next(ctx, f)
		if err != nil {
			return err
		}
		if keep, _ := f(&ev); !keep {
			ev.Release()
		}
	}
}

// quiet sends everything through the queue, and waits for the calls of Serve's function that are under way. s.mu is held.
func (s *stream) quiet() {
	s.direct = false
	for s.serving > 0 {
		s.idle.Wait()
	}
}

// next is what Serve's own goroutine is to handle; while there is nothing, the readers call f.
func (s *stream) next(ctx context.Context, f func(ev *Event) (keep, yield bool)) (Event, error) {
	for {
		s.mu.Lock()
		s.quiet()
		if s.closed {
			s.mu.Unlock()
			return Event{}, fmt.Errorf("transport: serve %q: %w", s.name, ErrClosed)
		}
		if s.ctl.len() > 0 || s.main.len() > 0 {
			s.mu.Unlock()
			return s.Recv(ctx)
		}
		s.serve, s.direct, s.waiting = f, true, true
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.waitNoMore()
			return Event{}, fmt.Errorf("transport: serve %q: %w", s.name, ctx.Err())
		}
	}
}

// hand calls Serve's function for a frame that has just come. s.mu is held, and given up meanwhile.
func (s *stream) hand(a *arrival) {
	f := s.serve
	s.serving++
	s.mu.Unlock()
	ev := a.ev
	ev.release = a.d.release
	keep, yield := f(&ev)
	if !keep {
		ev.Release()
	}
	if yield {
		runtime.Gosched()
	}
	s.mu.Lock()
	if s.serving--; s.serving == 0 {
		s.idle.Broadcast()
	}
}
