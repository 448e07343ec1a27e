package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// A loan is who reads a connection: its own goroutine, or a Recv that waits for what comes there.
//
// A frame that wakes a Recv costs a switch between goroutines, and the runtime then wakes another thread to look for work, which takes
// the core that the other end needs: a round trip between two processes took twice that of the bare sockets. So after some small frames
// for one stream alone, the last of which woke a Recv, the connection's goroutine steps back, and the next Recv that finds nothing reads
// the connection itself: 1.1 to 1.3 times the bare sockets' trip. It reads only what is there, and leaves whatever needs more to the
// goroutine, and so what comes for another stream. Where no Recv comes for a tick or two, the tender gives the connection back to its
// goroutine.
type loan struct {
	state  atomic.Int32
	turn   atomic.Uint64 // rises each time it is free
	tended atomic.Bool
	resume chan struct{} // to the connection's goroutine: read again; has room for one
	over   bool          // it need not: the connection ended

	// The tender's.
	seen uint64
	idle int
}

const (
	reading int32 = iota // by the connection's goroutine
	free                 // by nobody
	lent                 // by a Recv

	lendAfter  = 16                   // frames that came for one stream alone, each to a Recv that waited: nobody else is there to be kept waiting
	lendFrame  = 4 << 10              // larger frames come to the connection's goroutine, which need not be asked for the rest
	tenderTick = 5 * time.Millisecond // less would cost more: a thread that sleeps with a timer that near wakes late (1 ms: 10 µs a trip)
	tenderIdle = 20                   // ticks after which a Recv that reads is left alone
)

// offer steps back for the Recv of s, unless it waits otherwise already.
func (r *reader) offer(s *stream) bool {
	r.free()
	s.mu.Lock()
	defer s.mu.Unlock()
	return !(s.waiting && r.loan.state.CompareAndSwap(free, reading))
}

func (r *reader) free() {
	r.loan.turn.Add(1)
	r.loan.state.Store(free)
	r.p.tender.add(r)
}

// takeBack has the connection's goroutine read again.
func (r *reader) takeBack() {
	r.loan.state.Store(reading)
	r.loan.resume <- struct{}{}
}

// reclaim has the connection's goroutine read again if nobody does.
func (r *reader) reclaim() {
	if r.loan.state.CompareAndSwap(free, reading) {
		r.loan.resume <- struct{}{}
	}
}

// lend reads what is there for the Recv of s, which has taken the loan.
func (r *reader) lend(ctx context.Context, s *stream) {
	var err error
	if ctx.Err() == nil {
		err = r.once()
	}
	s.mu.Lock()
	s.inline = nil
	closed := s.closed
	s.mu.Unlock()
	switch {
	case err != nil:
		r.loan.over = true
		r.finish(err)
		r.takeBack()
	case closed || r.from < r.to || r.streak < lendAfter || r.h.link.dead.Load():
		r.takeBack()
	default:
		r.free()
	}
}

// once waits for one read, and takes the frames that came whole.
func (r *reader) once() error {
	if r.from == r.to {
		r.from, r.to = 0, 0
	}
	n, err := r.fill(r.buf[r.to:])
	if err != nil {
		return err
	}
	r.to += n
	for r.whole() {
		if err := r.step(); err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the buffer has a whole frame, or what is no frame.
func (r *reader) whole() bool {
	b := r.buf[r.from:r.to]
	if len(b) < wire.HeaderLen {
		return false
	}
	if err := r.hdr.Parse((*[wire.HeaderLen]byte)(b)); err != nil {
		return true // step says so
	}
	r.parsed = true
	n := int(r.hdr.Length)
	if r.hdr.Flags&wire.Shared != 0 {
		n = int(r.hdr.Head) + 8
	}
	return len(b) >= wire.HeaderLen+n
}

// watch has ctx interrupt the reads of Recv. It stays until another context comes, or Close, so that a loop over Recv allocates nothing.
func (s *stream) watch(ctx context.Context) {
	done := ctx.Done()
	if done == s.watched {
		return
	}
	s.unwatch()
	if s.watched = done; done != nil {
		stop := context.AfterFunc(ctx, func() {
			s.mu.Lock()
			if s.inline != nil {
				s.inline.h.interrupt()
			}
			s.mu.Unlock()
		})
		s.mu.Lock()
		s.unwatched = stop
		s.mu.Unlock()
	}
}

func (s *stream) unwatch() {
	s.watched = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dismiss()
}

// dismiss lets go of the context that watch was given. s.mu is held.
func (s *stream) dismiss() {
	if s.unwatched != nil {
		s.unwatched()
		s.unwatched = nil
	}
}

// A tender gives connections back to their goroutines that no Recv reads.
type tender struct {
	mu      sync.Mutex
	list    []*reader
	running bool
}

func (t *tender) add(r *reader) {
	if r.loan.tended.Load() || !r.loan.tended.CompareAndSwap(false, true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, r)
	if !t.running {
		t.running = true
		r.p.wg.Go(t.run)
	}
}

// run ends when no connection is free.
func (t *tender) run() {
	tick := time.NewTicker(tenderTick)
	defer tick.Stop()
	for range tick.C {
		t.mu.Lock()
		keep := t.list[:0]
		for _, r := range t.list {
			if t.tend(r) {
				keep = append(keep, r)
			}
		}
		clear(t.list[len(keep):])
		t.list = keep
		t.running = len(keep) > 0
		running := t.running
		t.mu.Unlock()
		if !running {
			return
		}
	}
}

// tend returns whether r is to be looked at again.
func (t *tender) tend(r *reader) bool {
	l := &r.loan
	turn, state := l.turn.Load(), l.state.Load()
	same := turn == l.seen
	l.seen = turn
	switch {
	case state == free && same && l.state.CompareAndSwap(free, reading):
		l.resume <- struct{}{}
	case state == free, state == lent && !same:
		l.idle = 0
		return true
	case state == lent && l.idle < tenderIdle:
		l.idle++
		return true
	}
	l.idle = 0
	l.tended.Store(false)
	// It may have become free between the two: then one of both sees it.
	return l.state.Load() == free && l.tended.CompareAndSwap(false, true)
}
