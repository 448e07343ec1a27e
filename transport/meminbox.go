package transport

import (
	"context"
	"fmt"
)

// A memInbox is what came for one stream of a port, whether or not it is open.
type memInbox struct {
	port *memPort
	o    StreamOptions
	open bool
	wake chan struct{} // has room for one: something came, or the stream was closed

	epoch   Epoch
	members map[Name]struct{} // nil: everyone

	ready   [4]memQueue // by Priority
	held    memQueue    // of epochs to come
	links   []memLink
	seq     uint64 // of frames and link events, in the order of their coming
	flows   map[Name]*memFlow
	landing bool // Recv copies to a posted slice, without the lock
}

// A memFlow is what one peer has under way to an inbox.
type memFlow struct {
	used   [2]int // bytes: data, control
	frames [2]int
	posts  map[Key][]byte
	out    *memOutbox // where the peer's frames wait for credit
}

// A memLink is a LinkLost or LinkBack that is to be returned after the frames that came before it.
type memLink struct {
	what   EventKind
	from   Name
	err    error
	seq    uint64
	before int // frames of that peer which wait and came before
}

// A memFrame is a frame on its way. All are used again: what Event.Release calls is bound to it once.
type memFrame struct {
	Frame
	from   Name
	m      *Memory
	waiter *memWaiter // the Send that waits with it
	flow   *memFlow   // where it takes credit
	cost   int
	which  int // memForData, memForControl
	seq    uint64
	next   *memFrame
	buf    []byte // what keep copies to
	free   func()
	err    error // for Done
}

func (in *memInbox) flow(from Name) *memFlow {
	f := in.flows[from]
	if f == nil {
		f = &memFlow{}
		in.flows[from] = f
	}
	return f
}

func (in *memInbox) signal() {
	if in.open {
		select {
		case in.wake <- struct{}{}:
		default:
		}
	}
}

func (in *memInbox) member(n Name) bool {
	_, ok := in.members[n]
	return ok || in.members == nil
}

// take puts f where Recv finds it, or holds it back, or drops it.
func (in *memInbox) take(f *memFrame, over *memOver) {
	in.seq++
	f.seq = in.seq
	switch {
	case f.Epoch > in.epoch:
		in.held.push(f)
	case f.Epoch < in.epoch || !in.member(f.from):
		in.port.stats.Stale++
		over.add(f, nil)
	default:
		in.ready[f.Priority].push(f)
		in.signal()
	}
}

// tooLong drops the frames that came before the stream was opened and are longer than it takes.
func (in *memInbox) tooLong(over *memOver) {
	for _, q := range in.queues() {
		var keep memQueue
		for f := q.pop(); f != nil; f = q.pop() {
			if n := len(f.Head) + len(f.Payload); n > in.o.MaxFrame {
				over.add(f, fmt.Errorf("transport: a frame of %d bytes for %v, whose MaxFrame is %d", n, in.port.self, in.o.MaxFrame))
			} else {
				keep.push(f)
			}
		}
		*q = keep
	}
}

func (in *memInbox) queues() [5]*memQueue {
	return [5]*memQueue{&in.ready[0], &in.ready[1], &in.ready[2], &in.ready[3], &in.held}
}

// purge drops all that waits; the senders are told err.
func (in *memInbox) purge(err error, over *memOver) {
	for _, q := range in.queues() {
		for f := q.pop(); f != nil; f = q.pop() {
			over.add(f, err)
		}
	}
	in.links, in.epoch, in.members = nil, 0, nil
	for _, flow := range in.flows {
		flow.posts = nil
	}
}

func (s *memStream) Fence(e Epoch, members []Name) {
	m, in := s.port.m, s.in
	var over memOver
	m.mu.Lock()
	if s.closed || e < in.epoch {
		m.mu.Unlock()
		return
	}
	in.epoch, in.members = e, nil
	if members != nil {
		in.members = make(map[Name]struct{}, len(members))
		for _, n := range members {
			in.members[n] = struct{}{}
		}
	}
	for i := range in.ready {
		q := in.ready[i]
		in.ready[i] = memQueue{}
		for f := q.pop(); f != nil; f = q.pop() {
			if f.Epoch == e && in.member(f.from) {
				in.ready[i].push(f)
				continue
			}
			in.port.stats.Stale++
			in.passed(f)
			over.add(f, nil)
		}
	}
	held := in.held
	in.held = memQueue{}
	for f := held.pop(); f != nil; f = held.pop() {
		in.take(f, &over)
	}
	for in.landing { // it may be a frame of what is over
		m.landed.Wait()
	}
	m.mu.Unlock()
	over.finish(m)
}

// passed says that f waits no more: the link events that came after it are a frame nearer.
func (in *memInbox) passed(f *memFrame) {
	for i := range in.links {
		if l := &in.links[i]; l.from == f.from && f.seq < l.seq {
			l.before--
		}
	}
}

func (s *memStream) Post(from Name, k Key, dst []byte) error {
	s.port.m.mu.Lock()
	defer s.port.m.mu.Unlock()
	if s.closed {
		return fmt.Errorf("transport: post from %v on %q: %w", from, s.name, ErrClosed)
	}
	flow := s.in.flow(from)
	if _, ok := flow.posts[k]; ok {
		return fmt.Errorf("transport: post from %v on %q: epoch %d, step %d, operation %d, chunk %d is posted already",
			from, s.name, k.Epoch, k.Op.Step(), k.Op.Index(), k.Chunk)
	}
	if flow.posts == nil {
		flow.posts = map[Key][]byte{}
	}
	flow.posts[k] = dst
	return nil
}

func (s *memStream) Unpost(from Name, k Key) bool {
	s.port.m.mu.Lock()
	defer s.port.m.mu.Unlock()
	if flow := s.in.flows[from]; flow != nil && !s.closed {
		if _, ok := flow.posts[k]; ok {
			delete(flow.posts, k)
			return true
		}
	}
	return false
}

func (s *memStream) Recv(ctx context.Context) (Event, error) {
	m, in := s.port.m, s.in
	for {
		m.mu.Lock()
		if s.closed {
			m.mu.Unlock()
			return Event{}, fmt.Errorf("transport: receive on %q: %w", s.name, ErrClosed)
		}
		l, f := in.pop()
		if f == nil {
			wake := in.wake // that of this stream: one of its name that is opened again has its own
			m.mu.Unlock()
			if l.what != Received {
				return Event{What: l.what, From: l.from, Err: l.err}, nil
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return Event{}, fmt.Errorf("transport: receive on %q: %w", s.name, ctx.Err())
			}
			continue
		}
		ev := Event{
			From: f.from, Kind: f.Kind, Priority: f.Priority, Fingerprint: f.Fingerprint, Key: f.Key,
			Head: f.Head, Payload: f.Payload, release: f.free,
		}
		dst, posted := f.flow.posts[f.Key]
		if posted {
			delete(f.flow.posts, f.Key)
			ev.Posted = len(dst) == len(f.Payload)
			in.landing = ev.Posted
		}
		m.mu.Unlock()
		if ev.Posted {
			copy(dst, f.Payload)
			ev.Payload = dst
			m.mu.Lock()
			in.landing = false
			m.landed.Broadcast()
			m.mu.Unlock()
		}
		return ev, nil
	}
}

// pop takes what Recv is to return next: a link event, or a frame, or neither.
func (in *memInbox) pop() (memLink, *memFrame) {
	for i, l := range in.links {
		if l.before == 0 {
			return in.popLink(i), nil
		}
	}
	for _, priority := range [...]Priority{Control, Urgent, Data, Bulk} {
		f := in.ready[priority].first
		if f == nil {
			continue
		}
		for i, l := range in.links {
			if l.from == f.from && l.seq < f.seq { // it came before f, over a link that is lost
				return in.popLink(i), nil
			}
		}
		in.ready[priority].pop()
		in.passed(f)
		return memLink{}, f
	}
	return memLink{}, nil
}

// lostAgain is what stream.lostAgain is: where Recv is to return a loss of that link already, and no frame of that peer came since, it tells
// of this one as well, and that the link was back between the two is dropped.
func (in *memInbox) lostAgain(again *memLink) bool {
	lost, back := -1, -1
	for i := range in.links {
		switch l := &in.links[i]; {
		case l.from != again.from:
		case l.what == LinkLost:
			lost, back = i, -1
		default:
			back = i
		}
	}
	if lost < 0 || in.links[lost].before < again.before {
		return false
	}
	in.links[lost].err = again.err
	if back >= 0 {
		in.popLink(back)
	}
	return true
}

func (in *memInbox) popLink(i int) memLink {
	l := in.links[i]
	in.links = append(in.links[:i], in.links[i+1:]...)
	return l
}

// keep copies f's slices to memory of fr's own.
func (fr *memFrame) keep(f *Frame) {
	n := len(f.Head) + len(f.Payload)
	if cap(fr.buf) < n {
		fr.buf = make([]byte, n)
	}
	b := fr.buf[:n]
	copy(b, f.Head)
	copy(b[len(f.Head):], f.Payload)
	f.Head, f.Payload = b[:len(f.Head):len(f.Head)], b[len(f.Head):]
}

// answer ends the Send that waits with f.
func (f *memFrame) answer(err error) {
	if f.waiter != nil {
		f.waiter.ready <- err // has room for one
		f.waiter = nil
	}
}

// released is what Event.Release calls.
func (f *memFrame) released() {
	var over memOver
	f.m.mu.Lock()
	over.add(f, nil)
	f.m.mu.Unlock()
	over.finish(f.m)
}

// memOver are frames that are through: their credit is returned and their Done called, once the lock is free.
type memOver struct{ q memQueue }

func (o *memOver) add(f *memFrame, err error) {
	f.err = err
	if f.flow != nil {
		f.flow.used[f.which] -= f.cost
		f.flow.frames[f.which]--
	}
	o.q.push(f)
}

func (o *memOver) finish(m *Memory) {
	for o.q.first != nil {
		for f := o.q.first; f != nil; f = f.next {
			if f.Done != nil {
				f.Done(f.err)
				f.Done = nil
			}
		}
		m.mu.Lock()
		q := o.q
		o.q = memQueue{}
		for f := q.pop(); f != nil; f = q.pop() {
			if f.flow != nil && f.flow.out != nil {
				m.pump(f.flow.out, o)
			}
			m.recycle(f)
		}
		m.mu.Unlock()
	}
}

func (m *Memory) newFrame() *memFrame {
	f := m.frames.frame
	if f == nil {
		f = &memFrame{m: m}
		f.free = f.released
		return f
	}
	m.frames.frame, f.next = f.next, nil
	m.frames.n--
	return f
}

func (m *Memory) recycle(f *memFrame) {
	f.Frame, f.flow, f.err, f.next, f.waiter = Frame{}, nil, nil, nil, nil
	if m.frames.n >= memKeep {
		return
	}
	if cap(f.buf) > memKeepBytes {
		f.buf = nil
	}
	f.next, m.frames.frame = m.frames.frame, f
	m.frames.n++
}

func (m *Memory) newWaiter() *memWaiter {
	w := m.waiters.waiter
	if w == nil {
		return &memWaiter{ready: make(chan error, 1)}
	}
	m.waiters.waiter, w.next = w.next, nil
	m.waiters.n--
	return w
}

func (m *Memory) freeWaiter(w *memWaiter) {
	if m.waiters.n < memKeep {
		w.next, m.waiters.waiter = m.waiters.waiter, w
		m.waiters.n++
	}
}

// A memQueue is a list of frames, first come first served.
type memQueue struct{ first, last *memFrame }

func (q *memQueue) push(f *memFrame) {
	f.next = nil
	if q.first == nil {
		q.first = f
	} else {
		q.last.next = f
	}
	q.last = f
}

func (q *memQueue) pop() *memFrame {
	f := q.first
	if f != nil {
		if q.first = f.next; q.first == nil {
			q.last = nil
		}
		f.next = nil
	}
	return f
}

func (q *memQueue) remove(f *memFrame) {
	var before *memFrame
	for g := q.first; g != nil; before, g = g, g.next {
		if g != f {
			continue
		}
		if before == nil {
			q.first = f.next
		} else {
			before.next = f.next
		}
		if q.last == f {
			q.last = before
		}
		f.next = nil
		return
	}
}
