package transport

import (
	"context"
	"fmt"
)

// An arrival is what Recv is to return.
type arrival struct {
	ev      Event
	d       *delivery
	post    *post
	barrier int // link events that came before it; of a control frame: that are returned first
}

// deliver hands a whole frame to Recv, or holds it back, or drops it: then it returns false, and the delivery is the caller's. lends: a
// Recv waited for it, and may read r's connection itself from now on.
func (s *stream) deliver(a *arrival, r *reader) (ok, lends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ev, pk := &a.ev, postKey{}
	if a.post != nil {
		pk = postKey{ev.From, ev.Key}
	}
	lost := a.d.flow.link.dead.Load()
	if s.closed || lost || ev.Epoch < s.epoch || ev.Epoch == s.epoch && !s.member(ev.From) || a.post != nil && a.post.drop {
		if a.post != nil {
			s.lift(pk, a.post)
		}
		if !lost && !s.closed {
			s.port.stale.Add(1)
		}
		return false, false
	}
	if a.post != nil {
		a.post.state, a.post.at = landed, nil
		s.idle.Broadcast()
	}
	if ev.Epoch > s.epoch {
		s.held.push(a)
		return true, false
	}
	if s.direct {
		if a.post != nil {
			s.forget(pk, a.post)
		}
		s.hand(a)
		return true, false
	}
	waited := s.waiting
	s.enter(a)
	s.signal(r)
	if waited && (s.hot == nil || s.hot == r || s.hot.h.link.dead.Load()) {
		s.hot, lends = r, true
	}
	return true, lends
}

func (s *stream) push(a *arrival) {
	s.enter(a)
	s.signal(nil)
}

func (s *stream) enter(a *arrival) {
	a.barrier = s.pushed
	if a.ev.What == Received && a.ev.Priority == Control {
		s.ctl.push(a)
	} else {
		s.main.push(a)
	}
}

// signal wakes Recv, unless it is the one that calls, as reader by.
func (s *stream) signal(by *reader) {
	switch {
	case s.waiting:
		s.waiting, s.direct = false, false
		s.wake <- struct{}{} // has room: only Recv sets waiting, and then takes
	case s.inline != nil && s.inline != by:
		s.inline.h.interrupt()
	}
}

// tell reports a link event, after the frames that came before it.
func (s *stream) tell(what EventKind, from Name, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.name != "" {
		s.note(what, from, err)
	}
}

// note has Recv return an event of a link, after all that has come. s.mu is held.
func (s *stream) note(what EventKind, from Name, err error) {
	if what == LinkLost && s.lostAgain(from, err) {
		return
	}
	s.push(&arrival{ev: Event{What: what, From: from, Err: err}})
	s.pushed++
}

// lostAgain reports whether Recv is to return already that this link was lost, and nothing but links has changed since: then that tells of
// this loss as well, and that the link was back between the two is dropped. So a stream that nobody reads keeps little of a link that comes
// and goes. s.mu is held.
func (s *stream) lostAgain(from Name, err error) bool {
	back := -1
	for i := s.main.len() - 1; i >= 0; i-- {
		a := s.main.index(i)
		if a.ev.What == Received || s.ctl.len() > 0 && s.ctl.index(s.ctl.len()-1).barrier > a.barrier {
			return false
		}
		switch {
		case a.ev.From != from:
		case a.ev.What == LinkBack:
			back = i
		default:
			a.ev.Err = err
			if back >= 0 {
				s.main.remove(back)
				s.pushed--
			}
			return true
		}
	}
	return false
}

func (s *stream) Recv(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			s.unwatch()
			return Event{}, fmt.Errorf("transport: receive on %q: %w", s.name, ErrClosed)
		}
		var a *arrival
		switch {
		case s.ctl.len() > 0 && s.ctl.first().barrier <= s.taken:
			a = s.ctl.first()
		case s.main.len() > 0:
			a = s.main.first()
		}
		if a == nil {
			if r := s.hot; r != nil && r.loan.state.CompareAndSwap(free, lent) {
				s.inline = r
				s.mu.Unlock()
				s.watch(ctx)
				r.lend(ctx, s)
				if ctx.Err() != nil && s.empty() {
					return Event{}, fmt.Errorf("transport: receive on %q: %w", s.name, ctx.Err())
				}
				continue
			}
			s.waiting = true
			s.mu.Unlock()
			select {
			case <-s.wake:
				continue
			default:
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				s.waitNoMore()
				return Event{}, fmt.Errorf("transport: receive on %q: %w", s.name, ctx.Err())
			}
			continue
		}
		ev, d := a.ev, a.d
		if ev.What != Received {
			s.taken++
			s.main.pop()
			s.mu.Unlock()
			return ev, nil
		}
		ev.release = d.release
		switch {
		case a.post != nil:
			s.forget(postKey{ev.From, ev.Key}, a.post)
		case len(s.posts) > 0:
			pk := postKey{ev.From, ev.Key}
			po := s.posts[pk]
			if po == nil || po.state != posted {
				break
			}
			dst := po.dst
			s.forget(pk, po)
			if len(dst) != len(ev.Payload) {
				break
			}
			ev.Posted = true
			s.popFrame(&ev)
			s.copying = true
			s.mu.Unlock()
			copy(dst, ev.Payload)
			ev.Payload = dst
			s.mu.Lock()
			s.copying = false
			s.idle.Broadcast()
			s.mu.Unlock()
			return ev, nil
		}
		s.popFrame(&ev)
		s.mu.Unlock()
		return ev, nil
	}
}

// waitNoMore takes back that s waits, once the context of who waits has ended.
func (s *stream) waitNoMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting { // somebody signalled meanwhile: his signal is to be taken
		<-s.wake
	}
	s.waiting = false
}

// empty reports whether Recv has nothing to return.
func (s *stream) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.ctl.len() == 0 && s.main.len() == 0
}

func (s *stream) popFrame(ev *Event) {
	if ev.Priority == Control {
		s.ctl.pop()
	} else {
		s.main.pop()
	}
}

// A ring is a queue that grows.
type ring struct {
	a        []arrival
	at, used int
}

func (r *ring) len() int             { return r.used }
func (r *ring) first() *arrival      { return &r.a[r.at] }
func (r *ring) index(i int) *arrival { return &r.a[(r.at+i)%len(r.a)] }

func (r *ring) push(a *arrival) {
	if r.used == len(r.a) {
		b := make([]arrival, max(16, 2*len(r.a)))
		for i := range r.used {
			b[i] = r.a[(r.at+i)%len(r.a)]
		}
		r.a, r.at = b, 0
	}
	r.a[(r.at+r.used)%len(r.a)] = *a
	r.used++
}

func (r *ring) pop() {
	r.a[r.at] = arrival{}
	r.at = (r.at + 1) % len(r.a)
	r.used--
}

// remove removes the link event at i; link events alone follow.
func (r *ring) remove(i int) {
	for ; i < r.used-1; i++ {
		next := r.index(i + 1)
		next.barrier--
		*r.index(i) = *next
	}
	*r.index(i) = arrival{}
	r.used--
}

// keep drops what want refuses.
func (r *ring) keep(want func(*arrival) bool) {
	for range r.used {
		a := r.a[r.at]
		r.pop()
		if want(&a) {
			r.push(&a)
		}
	}
}
