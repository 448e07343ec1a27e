package ps

import (
	"sync"
	"time"
)

// A flight is the time in which rounds are on their way to servers and no worker is at it: what it computes meanwhile it computes beside them.
type flight struct {
	mu    sync.Mutex
	told  func(time.Duration) // nil: nobody wants to know
	n     int                 // frames under way
	since time.Time
}

// A leg is a frame's part of it. A frame may land before who sent it is told that it has left.
type leg struct {
	f            *flight
	left, landed bool
}

// leg returns that of a frame that is about to be sent; nil: nobody wants to know.
func (f *flight) leg() *leg {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told == nil {
		return nil
	}
	return &leg{f: f}
}

// leave is called when the frame is the transport's, or where who sends it is no worker.
func (l *leg) leave() {
	if l == nil {
		return
	}
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if l.left = true; l.landed {
		return
	}
	if l.f.n++; l.f.n == 1 {
		l.f.since = time.Now()
	}
}

// land is called when the transport is through with the frame.
func (l *leg) land() {
	if l == nil {
		return
	}
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if l.landed = true; !l.left {
		return
	}
	if l.f.n--; l.f.n == 0 {
		l.f.told(time.Since(l.f.since))
	}
}

// OnFlight has f called with the time that frames of rounds were on their way while no worker was sending them, as it ends. Times of frames
// that are on their way together count once. f must not block. It is called by whoever sends; call OnFlight once.
func (h *Host) OnFlight(f func(time.Duration)) {
	h.flight.mu.Lock()
	h.flight.told = f
	h.flight.mu.Unlock()
}
