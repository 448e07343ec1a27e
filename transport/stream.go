package transport

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
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
	unwatched func() bool     // lets go of it
}

func newStream(p *port, id uint32) *stream {
	s := &stream{port: p, id: id, wake: make(chan struct{}, 1)}
	s.o, _ = StreamOptions{MaxFrame: defaultWindow}.defaults("") // until it is opened, who sends has that much credit
	s.idle.L = &s.mu
	return s
}

// open gives s its name. It returns what has come meanwhile and is longer than its frames may be, for freeAll once port.mu is free: a Done
// that comes due then may call the port. Peers that were lost meanwhile are so after what came from them.
func (s *stream) open(name string, o StreamOptions) (over []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.o = name, o
	var lost []Name
	for _, r := range s.rings() {
		r.keep(func(a *arrival) bool {
			if a.d.flow.link.dead.Load() && !slices.Contains(lost, a.ev.From) {
				lost = append(lost, a.ev.From)
			}
			if len(a.ev.Head)+len(a.ev.Payload) <= o.MaxFrame {
				return true
			}
			over = append(over, a.d)
			s.port.count("length")
			return false
		})
	}
	for _, n := range lost {
		s.note(LinkLost, n, ErrLinkLost)
	}
	return over
}

// outdate drops what came from a peer over links that are lost, and waits for s to be opened.
func (s *stream) outdate(from Name) {
	var over []*delivery
	s.mu.Lock()
	for _, r := range s.rings() {
		r.keep(func(a *arrival) bool {
			if a.ev.From == from {
				over = append(over, a.d)
			}
			return a.ev.From != from
		})
	}
	s.mu.Unlock()
	freeAll(over)
}

func (s *stream) rings() [3]*ring { return [...]*ring{&s.main, &s.ctl, &s.held} }

func freeAll(over []*delivery) {
	for _, d := range over {
		d.free()
	}
}

func (s *stream) Self() Name                     { return s.port.self }
func (s *stream) Know(n Name, addr string) error { return s.port.Know(n, addr) }
func (s *stream) Heard(n Name) time.Time         { return s.port.Heard(n) }

func (s *stream) member(n Name) bool {
	if s.members == nil {
		return true
	}
	_, ok := s.members[n]
	return ok
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
	for s.copying { // it may be such a frame
		s.idle.Wait()
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

// vacate closes s, which nobody opened, if all that waits in it came over links that are lost.
func (s *stream) vacate() bool {
	s.mu.Lock()
	wanted := false
	for _, r := range s.rings() {
		r.keep(func(a *arrival) bool {
			wanted = wanted || !a.d.flow.link.dead.Load()
			return true
		})
	}
	if wanted {
		s.mu.Unlock()
		return false
	}
	s.finish()
	return true
}

// end closes s.
func (s *stream) end() {
	s.mu.Lock()
	s.finish()
}

// finish closes s, whose lock is held, and given up.
func (s *stream) finish() {
	var over []*delivery
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.ended.Store(true)
	s.dismiss() // there may be no Recv any more that would
	for _, r := range s.rings() {
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
