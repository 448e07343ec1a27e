package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// A stream is a Stream of a port. It exists before it is opened once frames for it have come, and then has no name.
type stream struct {
	port *port
	id   uint32

	mu      sync.Mutex
	idle    sync.Cond            // a landing or copy has ended
	name    string               // "": not open
	recent  atomic.Pointer[peer] // that Send sent to last
	o       StreamOptions
	ended   atomic.Bool // closed, for those who do not hold mu
	closed  bool        // for good: a stream of that name that is opened again is another
	epoch   Epoch
	members map[Name]struct{} // nil: everyone
	posts   map[postKey]*post
	spare   []*post

	main, ctl     ring // what Recv returns: frames and link events; control frames
	pushed, taken int  // link events put into main, and returned
	held          ring // of epochs to come
	copying       bool // Recv copies to a posted slice, without the lock
	waiting       bool // Recv
	wake          chan struct{}
	hot           *reader // lends its connection to Recv
	inline        *reader // which reads it now

	serve        func(ev *Event) (keep, yield bool) // Serve's
	attendedTill atomic.Int64                       // and some of them until that time, perhaps
	attended     atomic.Int32                       // callers who wait: Attend

	direct  bool // the readers call it: the queue is empty
	serving int  // calls by readers under way

	watched   <-chan struct{} // Recv's: whose end interrupts the reads
	unwatched func() bool
}

type postKey struct {
	from Name
	key  Key
}

// A post is a slice that waits for its frame.
type post struct {
	dst   []byte
	state postState
	at    *half // landing: who reads
	drop  bool  // landing: what lands is no longer wanted
	gone  bool  // Unpost was called while it landed
}

type postState uint8

const (
	posted  postState = iota // waits for its frame
	landing                  // is being read into
	landed                   // its event waits for Recv
)

// An arrival is what Recv is to return.
type arrival struct {
	ev      Event
	d       *delivery
	post    *post
	barrier int // link events that come first
}

func newStream(p *port, id uint32) *stream {
	s := &stream{port: p, id: id, wake: make(chan struct{}, 1)}
	s.o, _ = StreamOptions{}.defaults("")
	s.idle.L = &s.mu
	return s
}

// open gives s its name. What has come meanwhile and is longer than its frames may be is dropped.
func (s *stream) open(name string, o StreamOptions) {
	var over []*delivery
	s.mu.Lock()
	s.name, s.o = name, o
	for _, r := range []*ring{&s.main, &s.ctl, &s.held} {
		r.keep(func(a *arrival) bool {
			if a.d == nil || len(a.ev.Head)+len(a.ev.Payload) <= o.MaxFrame {
				return true
			}
			over = append(over, a.d)
			s.port.count("length")
			return false
		})
	}
	s.mu.Unlock()
	freeAll(over)
}

func freeAll(over []*delivery) {
	for _, d := range over {
		d.free()
	}
}

func (s *stream) Self() Name                     { return s.port.self }
func (s *stream) Know(n Name, addr string) error { return s.port.Know(n, addr) }
func (s *stream) Heard(n Name) time.Time         { return s.port.Heard(n) }

func (s *stream) Post(from Name, k Key, dst []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("transport: post from %v on %q: %w", from, s.name, ErrClosed)
	}
	pk := postKey{from, k}
	if s.posts[pk] != nil {
		return fmt.Errorf("transport: post from %v on %q: epoch %d, step %d, operation %d, chunk %d is posted already",
			from, s.name, k.Epoch, k.Op.Step(), k.Op.Index(), k.Chunk)
	}
	if s.posts == nil {
		s.posts = map[postKey]*post{}
	}
	var po *post
	if n := len(s.spare); n > 0 {
		po, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		po = &post{}
	}
	po.dst = dst
	s.posts[pk] = po
	return nil
}

func (s *stream) Unpost(from Name, k Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pk := postKey{from, k}
	po := s.posts[pk]
	switch {
	case po == nil || s.closed:
		return false
	case po.state != posted:
		po.gone = true
		return false
	}
	s.forget(pk, po)
	return true
}

func (s *stream) forget(pk postKey, po *post) {
	delete(s.posts, pk)
	*po = post{}
	if len(s.spare) < 256 {
		s.spare = append(s.spare, po)
	}
}

func (s *stream) member(n Name) bool {
	if s.members == nil {
		return true
	}
	_, ok := s.members[n]
	return ok
}

// begin says where the payload of a frame that has begun to come is to be read: into a posted slice, into memory of the pool (nil,
// true), or nowhere (nil, false).
func (s *stream) begin(from Name, h *wire.Header, at *half) (*post, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit := s.o.MaxFrame; int(h.Length) > limit {
		return nil, false, &wire.FrameError{Cause: "length", Text: fmt.Sprintf("at most %d bytes on stream %q, found %d", limit, s.name, h.Length)}
	}
	if s.closed || h.Epoch < s.epoch || h.Epoch == s.epoch && !s.member(from) {
		return nil, false, nil
	}
	if len(s.posts) == 0 || h.Epoch > s.epoch {
		return nil, true, nil
	}
	po := s.posts[postKey{from, Key{h.Epoch, h.Op, h.Chunk}}]
	if po == nil || po.state != posted || len(po.dst) != int(h.Length)-int(h.Head) {
		return nil, true, nil
	}
	po.state, po.at, po.drop = landing, at, false
	return po, true, nil
}

// unwanted reports whether what lands in po has been dropped.
func (s *stream) unwanted(po *post) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return po.drop
}

// failed takes back a landing that did not end.
func (s *stream) failed(pk postKey, po *post) {
	s.mu.Lock()
	s.lift(pk, po)
	s.mu.Unlock()
}

// lift makes po wait again, or ends it where the caller took it back meanwhile.
func (s *stream) lift(pk postKey, po *post) {
	if po.gone {
		s.forget(pk, po)
	} else {
		po.state, po.at, po.drop = posted, nil, false
	}
	s.idle.Broadcast()
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
	if s.closed || s.name == "" {
		return
	}
	s.push(&arrival{ev: Event{What: what, From: from, Err: err}})
	s.pushed++
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
				s.mu.Lock()
				if !s.waiting { // somebody signalled meanwhile: his signal is to be taken
					<-s.wake
				}
				s.waiting = false
				s.mu.Unlock()
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

func (s *stream) Fence(e Epoch, members []Name) {
	var over []*delivery
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		freeAll(over)
	}()
	if s.closed || e < s.epoch {
		return
	}
	s.epoch, s.members = e, nil
	if members != nil {
		s.members = make(map[Name]struct{}, len(members))
		for _, n := range members {
			s.members[n] = struct{}{}
		}
	}
	keep := func(a *arrival) bool {
		if a.d == nil || a.ev.Epoch > e || a.ev.Epoch == e && s.member(a.ev.From) {
			return true
		}
		s.port.stale.Add(1)
		over = append(over, a.d)
		if a.post != nil {
			s.lift(postKey{a.ev.From, a.ev.Key}, a.post)
		}
		return false
	}
	s.main.keep(keep)
	s.ctl.keep(keep)
	s.held.keep(keep)
	s.held.keep(func(a *arrival) bool {
		if a.ev.Epoch > e {
			return true
		}
		s.push(a)
		return false
	})
	s.stop(func(pk postKey) bool { return pk.key.Epoch < e || pk.key.Epoch == e && !s.member(pk.from) })
}

// stop ends the landings that match, and waits until nothing is written to their slices any more.
func (s *stream) stop(match func(postKey) bool) {
	for pk, po := range s.posts {
		if po.state == landing && match(pk) {
			po.drop = true
			po.at.interrupt()
		}
	}
	for busy := true; busy; {
		busy = false
		for pk, po := range s.posts {
			busy = busy || po.state == landing && match(pk)
		}
		if busy {
			s.idle.Wait()
		}
	}
}

func (s *stream) Close() error {
	p := s.port
	p.mu.Lock()
	open := p.streams[s.id] == s
	if open {
		delete(p.streams, s.id)
	}
	p.mu.Unlock()
	if open {
		s.end()
	}
	return nil
}

// end closes s.
func (s *stream) end() {
	var over []*delivery
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.ended.Store(true)
	for _, r := range []*ring{&s.main, &s.ctl, &s.held} {
		r.keep(func(a *arrival) bool {
			if a.d != nil {
				over = append(over, a.d)
			}
			return false
		})
	}
	s.signal(nil)
	s.stop(func(postKey) bool { return true })
	for s.copying {
		s.idle.Wait()
	}
	s.posts = nil
	name := s.name
	s.mu.Unlock()
	freeAll(over)
	if name == "" {
		return
	}
	for _, pr := range s.port.all() {
		pr.leave(s)
	}
}

// A ring is a queue that grows.
type ring struct {
	a        []arrival
	at, used int
}

func (r *ring) len() int        { return r.used }
func (r *ring) first() *arrival { return &r.a[r.at] }

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
