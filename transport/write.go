package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// A half is one of a link's two connections. Its fields are guarded by peer.mu, except those of the batch that is being written, which
// belong to whoever set busy: the writer's goroutine, or a Send that found nobody writing.
type half struct {
	link  *link
	ctl   bool
	nc    net.Conn // with TLS, where there is
	hard  net.Conn // beneath TLS: Close of this one never blocks
	try   *direct  // nil: writes may block
	sum   bool
	apart bool // see together
	r     *reader

	cond    sync.Cond // the writer's goroutine waits for work
	queue   [3]frameQueue
	busy    bool
	clogged bool  // noted in the port
	first   bool  // the last step of the handshake is still to be written, before all else
	broken  error // of a write by a Send
	closing bool  // write what waits, say goodbye, end
	bye     bool  // the other end said goodbye
	ended   bool  // and then nothing

	// The batch.
	flight []*outgoing
	small  []byte      // headers, and small frames whole
	rest   net.Buffers // not yet written; a part of store
	store  net.Buffers
	part   net.Buffers // of rest, in one call
	size   int         // bytes of the batch
	wrote  int         // of them
	record []byte
}

// The order of the queues.
var queueOf = [...]int{Urgent: 0, Data: 1, Bulk: 2, Control: 0}

const (
	batchFrames = 64
	batchBytes  = 64 << 10 // frames beyond go alone, so that none waits long for a batch that began before it
	copyBytes   = 2 << 10  // a frame up to this is copied: cheaper than its three entries in a vector
	sharedFrom  = 32 << 10 // payloads from this on travel in shared memory, where there is
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
	ref       [8]byte
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
	n := len(f.Head) + len(f.Payload)
	switch {
	case ctx.Err() != nil:
		return s.sendErr(to, ctx.Err())
	case len(f.Head) > wire.MaxHead:
		return s.sendErr(to, fmt.Errorf("a head of %d bytes, at most %d", len(f.Head), wire.MaxHead))
	case n > s.o.MaxFrame:
		return s.sendErr(to, fmt.Errorf("a frame of %d bytes, the stream's MaxFrame is %d", n, s.o.MaxFrame))
	case f.Priority > Control:
		return s.sendErr(to, fmt.Errorf("there is no priority %d", f.Priority))
	}
	pr := s.peer(to)
	if pr == nil {
		return s.sendErr(to, ErrUnknownPeer)
	}
	which := data
	if f.Priority == Control {
		which = control
	}
	// Summed here, the frame before may be written meanwhile.
	summed, sum := pr.sums.Load() && n > copyBytes && which == data, uint32(0)
	if summed {
		sum = wire.Sum(f.Head, f.Payload)
	}
	pr.mu.Lock()
	l, err := pr.ready(s)
	if err != nil {
		pr.unlock()
		return s.sendErr(to, err)
	}
	fl := l.flow(s.id)
	if fl.assumed == 0 {
		fl.assumed = min(s.o.Window, defaultWindow)
		fl.credit += fl.assumed
	}
	o := s.port.pool.outgoing()
	o.h = wire.Header{
		Kind: f.Kind, Length: uint32(n), Head: uint16(len(f.Head)), Epoch: f.Epoch, Stream: s.id, Fingerprint: f.Fingerprint,
		Op: f.Op, Chunk: f.Chunk, Flags: uint16(f.Priority) << wire.PriorityShift,
	}
	o.head, o.payload, o.done, o.flow, o.which, o.n = f.Head, f.Payload, f.Done, fl, which, n
	o.summed, o.h.Sum = summed, sum
	o.rank, o.limit, o.stream = queueOf[f.Priority], s.o.Queue, s
	h, sd := l.half[which], &fl.side[which]
	now := (sd.waiting.first == nil || sd.waiting.first.rank > o.rank) && fl.fits(which, n, s.o.Queue)
	var w *waiter
	if f.Done == nil || !now {
		w = s.port.pool.waiter()
		w.o, o.waiter = o, w
	}
	if now {
		fl.take(which, n)
		o.state = sendQueued
		h.queue[o.rank].push(o)
		h.kick()
	} else {
		sd.waiting.insert(o)
	}
	over := w != nil && w.o == nil // written at once, as most are
	if w != nil {
		w.waits = !over
	}
	pr.unlock()
	switch {
	case w == nil:
		return nil
	case over:
		err = w.err
	default:
		err = h.await(ctx, w)
	}
	s.port.pool.freeWaiter(w)
	if err != nil {
		return s.sendErr(to, err)
	}
	return nil
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
		// A write of TLS cannot be taken up again: the peer gets a second, and then the link breaks.
		t := time.NewTimer(time.Second)
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

// kick has what waits written: by the caller, as far as that takes no waiting, and else by the writer's goroutine. peer.mu is held, and
// given up meanwhile.
func (h *half) kick() {
	l, pr := h.link, h.link.peer
	if !l.up || h.busy || l.dead.Load() {
		return
	}
	if h.try == nil || h.first || len(h.rest) > 0 || h.closing || h.broken != nil {
		h.cond.Signal()
		return
	}
	if !h.gather() {
		return
	}
	h.busy = true
	pr.unlock()
	h.fill()
	n, err := h.try.write(h.rest)
	h.consume(n)
	pr.mu.Lock()
	h.settle(n, err)
	h.busy = false
	h.clog(len(h.rest) > 0)
	switch {
	case err != nil:
		h.broken = err // the writer's goroutine ends the link
		h.cond.Signal()
	case len(h.rest) > 0 || h.waiting() || h.closing || l.dead.Load():
		h.cond.Signal()
	}
}

// clog notes whether the writer's goroutine has something that the connection does not take at once. peer.mu is held.
func (h *half) clog(is bool) {
	if h.clogged != is {
		h.clogged = is
		by := int32(-1)
		if is {
			by = 1
		}
		h.link.peer.port.clogged.Add(by)
	}
}

// waiting reports whether something waits to be written.
func (h *half) waiting() bool {
	return h.queue[0].first != nil || h.queue[1].first != nil || h.queue[2].first != nil || h.ctl && len(h.link.dirty) > 0
}

// gather begins a batch.
func (h *half) gather() bool {
	h.small, h.store, h.size, h.wrote = h.small[:0], h.store[:0], 0, 0
	if h.ctl && len(h.link.dirty) > 0 {
		h.small = h.link.appendGrants(h.small)
	}
	if h.first {
		h.first = false
		h.small = appendFrame(h.small, kindAccept, nil)
	}
	n := 0
	for i := range h.queue {
		q := &h.queue[i]
		for o := q.first; o != nil && len(h.flight) < batchFrames; o = q.first {
			if n += o.n; len(h.flight) > 0 && n > batchBytes {
				return true
			}
			q.remove(o)
			o.state = sendInFlight
			h.flight = append(h.flight, o)
		}
	}
	return len(h.flight) > 0 || len(h.small) > 0
}

// fill lays the batch out in h.rest.
func (h *half) fill() {
	from := 0
	h.size = len(h.small)
	flush := func() {
		if len(h.small) > from {
			h.store = append(h.store, h.small[from:])
			from = len(h.small)
		}
	}
	payloads := uint64(0)
	for _, o := range h.flight {
		o.start = h.size
		payload := o.payload
		payloads += uint64(len(payload))
		if h.link.shared != nil && !h.ctl && len(payload) >= sharedFrom {
			if ref, ok := h.link.shared.place(payload); ok {
				o.h.Flags |= wire.Shared
				putRef(&o.ref, ref)
				payload = o.ref[:]
			}
		}
		if h.sum {
			o.h.Flags |= wire.Summed
			if !o.summed {
				o.h.Sum = wire.Sum(o.head, payload)
			}
		}
		o.h.Put(&o.hdr)
		h.small = append(h.small, o.hdr[:]...)
		if len(o.head)+len(payload) <= copyBytes {
			h.small = append(append(h.small, o.head...), payload...)
		} else {
			if len(o.head) > copyBytes {
				flush()
				h.store = append(h.store, o.head)
			} else {
				h.small = append(h.small, o.head...)
				flush()
			}
			if len(payload) > 0 {
				h.store = append(h.store, payload)
			}
		}
		h.size += wire.HeaderLen + len(o.head) + len(payload)
		o.end = h.size
	}
	flush()
	h.rest = h.store
	// Counted before they are written: the other end may have them before this goroutine runs again.
	p := h.link.peer.port
	p.framesSent.Add(uint64(len(h.flight)))
	p.payloadSent.Add(payloads)
	p.bytesSent.Add(uint64(h.size))
}

// consume drops the first n bytes of h.rest.
func (h *half) consume(n int) {
	for n > 0 && len(h.rest) > 0 {
		if n < len(h.rest[0]) {
			h.rest[0] = h.rest[0][n:]
			return
		}
		n -= len(h.rest[0])
		h.rest[0] = nil
		h.rest = h.rest[1:]
	}
}

// settle ends the frames of the batch that are written, after n bytes more, or all, with err.
func (h *half) settle(n int, err error) {
	h.wrote += n
	keep := h.flight[:0]
	for _, o := range h.flight {
		switch {
		case o.end <= h.wrote:
			h.link.peer.over(o, nil)
		case err != nil:
			h.link.peer.over(o, fmt.Errorf("%w: %w", ErrLinkLost, err))
		default:
			keep = append(keep, o)
		}
	}
	for i := len(keep); i < len(h.flight); i++ {
		h.flight[i] = nil
	}
	h.flight = keep
	if err != nil {
		clear(h.rest)
		h.rest = nil
	}
}

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

// run is the writer's goroutine.
func (h *half) run() {
	l, pr := h.link, h.link.peer
	pr.mu.Lock()
	defer pr.unlock()
	for {
		for h.idle() {
			if pr.finished.first != nil {
				pr.unlock()
				pr.mu.Lock()
				continue
			}
			h.cond.Wait()
		}
		if l.dead.Load() {
			for h.busy {
				h.cond.Wait()
			}
			h.clog(false)
			h.settle(0, errLinkDead)
			return
		}
		if err := h.broken; err != nil {
			h.broken = nil
			pr.unlock()
			l.fail(err)
			pr.mu.Lock()
			continue
		}
		fresh := len(h.rest) == 0
		if fresh && !h.gather() {
			pr.unlock()
			h.farewell()
			pr.mu.Lock()
			return
		}
		h.busy = true
		h.clog(true)
		pr.unlock()
		if fresh {
			h.fill()
		}
		n, err := h.write()
		stopped := errors.Is(err, os.ErrDeadlineExceeded)
		if stopped {
			err = h.nc.SetWriteDeadline(time.Time{})
		}
		pr.mu.Lock()
		h.settle(n, err)
		if stopped && err == nil {
			h.copyAbandoned()
		}
		h.busy = false
		h.clog(len(h.rest) > 0)
		if err != nil {
			pr.unlock()
			l.fail(err)
			pr.mu.Lock()
		}
	}
}

var errLinkDead = errors.New("it is closed")

// idle reports whether the writer's goroutine has nothing to do.
func (h *half) idle() bool {
	if h.link.dead.Load() || h.broken != nil {
		return false
	}
	return h.busy || len(h.rest) == 0 && !h.first && !h.waiting() && !h.closing
}

// write writes the batch, waiting as long as it takes.
func (h *half) write() (int, error) {
	if h.nc == h.hard {
		if !h.apart {
			n, err := h.rest.WriteTo(h.nc)
			return int(n), err
		}
		total := 0
		for len(h.rest) > 0 {
			k := together(h.rest)
			h.part = h.rest[:k]
			n, err := h.part.WriteTo(h.nc)
			total += int(n)
			h.rest = h.rest[k-len(h.part):]
			if err != nil {
				return total, err
			}
		}
		return total, nil
	}
	// Each Write of TLS is a record at least: what is small goes with what follows.
	total := 0
	for len(h.rest) > 0 {
		h.record = h.record[:0]
		for len(h.rest) > 0 && len(h.record) < tlsRecord {
			n := min(len(h.rest[0]), tlsRecord-len(h.record))
			if len(h.record) == 0 && n == tlsRecord {
				break
			}
			h.record = append(h.record, h.rest[0][:n]...)
			h.consume(n)
		}
		p := h.record
		if len(p) == 0 {
			p = h.rest[0]
			if whole := len(p) / tlsRecord * tlsRecord; whole < len(p) {
				p = p[:whole]
			}
			h.consume(len(p))
		}
		n, err := h.nc.Write(p)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// together says how many buffers are written in one call. The kernel copies what goes over a unix socket in blocks that begin where a call
// does: a large payload has blocks of its own, or the header before it puts both copies of it out of step with the cache's lines. That cost
// a fifth of the rate.
func together(bufs net.Buffers) int {
	for i, b := range bufs {
		if len(b) >= sharedFrom {
			return max(i, 1)
		}
	}
	return len(bufs)
}

func isUnix(nc net.Conn) bool {
	_, ok := nc.(*net.UnixConn)
	return ok
}

const tlsRecord = 16 << 10 // the most that one record of TLS holds

// copyAbandoned lets the Sends go whose context ended while their frame was being written: a half frame cannot be taken back.
func (h *half) copyAbandoned() {
	for _, o := range h.flight {
		if !o.abandoned || o.copied {
			continue
		}
		at := h.wrote
		for i, b := range h.rest {
			if at >= o.start && at < o.end {
				h.rest[i] = append([]byte(nil), b...)
			}
			at += len(b)
		}
		o.copied = true
		o.answer(nil)
	}
}

// farewell ends this direction of the connection.
func (h *half) farewell() {
	var b [wire.HeaderLen]byte
	bye := wire.Header{Kind: kindBye, Flags: wire.Internal}
	bye.Put(&b)
	if _, err := h.nc.Write(b[:]); err == nil {
		if c, ok := h.nc.(interface{ CloseWrite() error }); ok {
			err = c.CloseWrite()
		}
		if err == nil {
			return // the other end closes, then the reader ends
		}
	}
	h.link.fail(errLinkDead)
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
