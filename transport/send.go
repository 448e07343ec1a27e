package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// An outgoing is a frame that is being sent.
type outgoing struct {
	hdr       [wire.HeaderLen]byte
	h         wire.Header
	head      []byte
	payload   []byte
	done      func(error)
	flow      *flow
	which     int
	n         int // of head and payload
	start     int // in the batch
	end       int
	err       error
	ref       [refBytes]byte
	state     sendState
	rank      int // of its priority: the least goes first
	limit     int // of the queue
	stream    *stream
	summed    bool    // h has the sum, whether or not it is wanted
	waiter    *waiter // the Send that waits: without Done, until the frame is over; with it, until the frame is queued
	abandoned bool    // it would rather not
	copied    bool    // and need not: the rest was copied
	prev      *outgoing
	next      *outgoing
}

// A waiter is a Send that waits for what becomes of its frame.
type waiter struct {
	o     *outgoing  // nil: it has its answer, and o is no longer its to touch
	err   error      // the answer, of who does not wait
	waits bool       // for ready
	ready chan error // has room for one
}

// answer ends the wait of o's Send.
func (o *outgoing) answer(err error) {
	if w := o.waiter; w != nil {
		o.waiter, w.o, w.err = nil, nil, err
		if w.waits {
			w.ready <- err
		}
	}
}

type sendState uint8

const (
	sendWaiting sendState = iota // for credit
	sendQueued
	sendInFlight
)

func (s *stream) Send(ctx context.Context, to Name, f Frame) error {
	_, err := s.send(ctx, to, f, false)
	return err
}

// A Trier is a Stream that can send without ever waiting. All but those of [NewMemory] and of simulators are.
type Trier interface {
	// Try is Send of a frame that has a Done, where there is room for it: where Send would wait, it sends nothing and returns false, and the
	// frame stays the caller's. Whoever reads what comes in (see Server) may call it: what he waited for, he would have to read himself.
	Try(ctx context.Context, to Name, f Frame) (sent bool, err error)
}

// Try is Trier's.
func (s *stream) Try(ctx context.Context, to Name, f Frame) (sent bool, err error) {
	if f.Done == nil {
		return false, nil
	}
	return s.send(ctx, to, f, true)
}

// send is Send, or Try, which does not wait.
func (s *stream) send(ctx context.Context, to Name, f Frame, try bool) (sent bool, err error) {
	n := len(f.Head) + len(f.Payload)
	switch {
	case ctx.Err() != nil:
		return false, s.sendErr(to, ctx.Err())
	case len(f.Head) > wire.MaxHead:
		return false, s.sendErr(to, fmt.Errorf("%w: a head of %d bytes, at most %d", ErrTooLarge, len(f.Head), wire.MaxHead))
	case n > s.o.MaxFrame:
		return false, s.sendErr(to, fmt.Errorf("%w: a frame of %d bytes, the stream's MaxFrame is %d", ErrTooLarge, n, s.o.MaxFrame))
	case f.Priority > Control:
		return false, s.sendErr(to, fmt.Errorf("there is no priority %d", f.Priority))
	}
	pr := s.peer(to)
	if pr == nil {
		return false, s.sendErr(to, ErrUnknownPeer)
	}
	which := sideOf(f.Priority)
	// Summed here, the frame before may be written meanwhile.
	summed, sum := pr.sums.Load() && n > copyBytes && which == data, uint32(0)
	if summed {
		sum = wire.Sum(f.Head, f.Payload)
	}
	pr.mu.Lock()
	l, err := pr.ready(s)
	if err != nil {
		pr.unlock()
		return false, s.sendErr(to, err)
	}
	fl := l.flow(s.id)
	if fl.assumed == 0 {
		fl.assumed = min(s.o.Window, defaultWindow)
		for i := range fl.side {
			fl.side[i].credit += fl.assumed
		}
	}
	if err := fl.tooLarge(n); err != nil {
		pr.unlock()
		return false, s.sendErr(to, err)
	}
	h, sd := l.half[which], &fl.side[which]
	rank := queueOf[f.Priority]
	now := (sd.waiting.first == nil || sd.waiting.first.rank > rank) && fl.fits(which, n, s.o.Queue)
	if try && !now {
		pr.unlock()
		return false, nil
	}
	o := s.port.pool.outgoing()
	o.h = wire.Header{
		Kind: f.Kind, Length: uint32(n), Head: uint16(len(f.Head)), Epoch: f.Epoch, Stream: s.id, Fingerprint: f.Fingerprint,
		Op: f.Op, Chunk: f.Chunk, Flags: uint16(f.Priority) << wire.PriorityShift,
	}
	o.head, o.payload, o.done, o.flow, o.which, o.n = f.Head, f.Payload, f.Done, fl, which, n
	o.summed, o.h.Sum = summed, sum
	o.rank, o.limit, o.stream = rank, s.o.Queue, s
	var w *waiter
	if f.Done == nil || !now {
		w = s.port.pool.waiter()
		w.o, o.waiter = o, w
	}
	if now {
		fl.take(which, n)
		o.state = sendQueued
		h.queue[o.rank].push(o)
	} else {
		sd.waiting.insert(o)
	}
	if !now || !f.More || f.Done == nil { // where this one waits, one before may wait for it
		h.kick()
	}
	over := w != nil && w.o == nil // written at once, as most are
	if w != nil {
		w.waits = !over
	}
	pr.unlock()
	switch {
	case w == nil:
		return true, nil
	case over:
		err = w.err
	default:
		err = h.await(ctx, w)
	}
	s.port.pool.freeWaiter(w)
	if err != nil {
		return false, s.sendErr(to, err)
	}
	return true, nil
}

// peer returns the peer of that name: mostly it is the one of the last Send.
func (s *stream) peer(n Name) *peer {
	if pr := s.recent.Load(); pr != nil && pr.name == n && !pr.past.Load() {
		return pr
	}
	pr := s.port.peer(n)
	s.recent.Store(pr)
	return pr
}

func (s *stream) sendErr(to Name, err error) error {
	return fmt.Errorf("transport: send to %v on %q: %w", to, s.name, err)
}

// await waits for the answer to a Send.
func (h *half) await(ctx context.Context, w *waiter) error {
	select {
	case err := <-w.ready:
		return err
	default:
	}
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
	}
	pr := h.link.peer
	pr.mu.Lock()
	o := w.o
	if o == nil { // the answer came meanwhile
		pr.unlock()
		return <-w.ready
	}
	switch o.state {
	case sendWaiting:
		o.flow.side[o.which].waiting.remove(o)
		o.flow.wake(o.which) // it may have been this one that had no room
	case sendQueued:
		h.queue[o.rank].remove(o)
		o.flow.untake(o.which, o.n)
	case sendInFlight:
		o.abandoned = true
		plain := h.nc == h.hard
		pr.unlock()
		if plain {
			_ = h.nc.SetWriteDeadline(longAgo) // fails where the connection is closed: then the writer ends too
			return <-w.ready
		}
		t := time.NewTimer(tlsGrace)
		defer t.Stop()
		select {
		case err := <-w.ready:
			return err
		case <-t.C:
			h.link.fail(fmt.Errorf("transport: %v takes no bytes: %w", pr.name, ctx.Err()))
			return <-w.ready
		}
	}
	state := o.state
	o.waiter, w.o = nil, nil
	pr.port.pool.recycle(o)
	pr.unlock()
	if state == sendWaiting {
		return fmt.Errorf("no credit: %w", ctx.Err())
	}
	return ctx.Err()
}

var longAgo = time.Unix(1, 0)

// over ends a frame: its Send or Done hears of it.
func (pr *peer) over(o *outgoing, err error) {
	o.flow.side[o.which].queued--
	o.flow.wake(o.which)
	pr.give(o, err)
}

// give tells a Send or Done what became of its frame. What is nobody's any more is recycled.
func (pr *peer) give(o *outgoing, err error) {
	o.err = err
	o.answer(err)
	pr.finished.push(o)
}

// unlock releases peer.mu and calls the Dones that came due meanwhile.
func (pr *peer) unlock() {
	q := pr.finished
	pr.finished = frameQueue{}
	pr.mu.Unlock()
	pr.tell(q)
}

// unlockBoth is unlock for who also holds port.mu for reading: a Done may call the port.
func (pr *peer) unlockBoth() {
	q := pr.finished
	pr.finished = frameQueue{}
	pr.mu.Unlock()
	pr.port.mu.RUnlock()
	pr.tell(q)
}

func (pr *peer) tell(q frameQueue) {
	for o := q.first; o != nil; {
		next := o.next
		if o.done != nil {
			o.done(o.err)
		}
		pr.port.pool.recycle(o)
		o = next
	}
}

// A frameQueue is first come, first served.
type frameQueue struct{ first, last *outgoing }

func (q *frameQueue) push(o *outgoing) {
	o.prev, o.next = q.last, nil
	if q.last == nil {
		q.first = o
	} else {
		q.last.next = o
	}
	q.last = o
}

// insert puts o behind those of its rank and before those of a higher.
func (q *frameQueue) insert(o *outgoing) {
	before := q.last
	for before != nil && before.rank > o.rank {
		before = before.prev
	}
	o.prev = before
	if before == nil {
		o.next, q.first = q.first, o
	} else {
		o.next, before.next = before.next, o
	}
	if o.next == nil {
		q.last = o
	} else {
		o.next.prev = o
	}
}

func (q *frameQueue) remove(o *outgoing) {
	if o.prev == nil {
		q.first = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		q.last = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.prev, o.next = nil, nil
}

func (p *pool) outgoing() *outgoing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.out); n > 0 {
		o := p.out[n-1]
		p.out = p.out[:n-1]
		return o
	}
	return &outgoing{}
}

func (p *pool) recycle(o *outgoing) {
	*o = outgoing{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) < poolReady {
		p.out = append(p.out, o)
	}
}

func (p *pool) waiter() *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.waiters); n > 0 {
		w := p.waiters[n-1]
		p.waiters = p.waiters[:n-1]
		return w
	}
	return &waiter{ready: make(chan error, 1)}
}

func (p *pool) freeWaiter(w *waiter) {
	w.err, w.waits = nil, false
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiters) < poolReady {
		p.waiters = append(p.waiters, w)
	}
}
