package ps

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// An outbox is what waits for one peer, so that nobody who makes messages is blocked. It is bounded by what its machines may have under
// way: unacknowledged batches, and answers to the requests of a peer.
type outbox struct {
	h    *Host
	to   Name
	wake chan struct{}

	mu    sync.Mutex
	queue []protocol.Body
	busy  bool
	idles []chan struct{}
}

// send sends messages to a peer, in this order: together, as far as they need not wait.
func (h *Host) send(to Name, bs ...protocol.Body) {
	small := true
	for _, b := range bs {
		if m, ok := b.(*pull); ok && m.into != nil {
			h.post(to, m)
		}
		small = small && b.Size() <= sendAtOnce
	}
	h.mu.Lock()
	x := h.boxes[to]
	if x == nil {
		x = &outbox{h: h, to: to, wake: make(chan struct{}, 1)}
		h.boxes[to] = x
		if h.ctx.Err() == nil {
			h.wg.Go(x.run)
		}
	}
	h.mu.Unlock()
	if small && x.now(bs) {
		return
	}
	x.put(bs)
}

// sendAtOnce is the size in bytes up to which a message is sent by whoever made it, if that takes no waiting: a question and its answer
// are two switches of goroutines shorter so, and cells that are sent from where they lie are free again before the next round comes.
const sendAtOnce = 1 << 20

// rider is the size in bytes up to which a message is waited for by the one before it. One that follows a larger message is summed and
// queued while that travels.
const rider = 2 << 10

// now sends bs if nothing is before them and nothing makes them wait, and reports whether it did.
func (x *outbox) now(bs []protocol.Body) bool {
	if x.to == x.h.s.Self() {
		return false
	}
	x.mu.Lock()
	if x.busy || len(x.queue) > 0 {
		x.mu.Unlock()
		return false
	}
	x.busy = true
	x.mu.Unlock()
	var few [2]*leg
	legs, wait := few[:0], false
	for len(bs) > 0 && !wait {
		p := x.h.parcels.encode(bs[0])
		copied, leg := p.copied, x.legOf(p)
		f := p.frame()
		f.More = len(bs) > 1 && bs[1].Size() <= rider
		err := x.h.s.Send(&atOnce{}, x.to, f)
		if wait = errors.Is(err, errWait) || errors.Is(err, transport.ErrTooLarge) || errors.Is(err, transport.ErrUnknownPeer); wait {
			p.holds = nil // it is still to be sent, or refused where nobody who made it holds a lock
		} else {
			copied.give()
			bs = bs[1:]
		}
		if err != nil {
			p.free()
		} else {
			legs = append(legs, leg)
		}
	}
	for _, l := range legs { // the first frames may have waited for the last
		l.leave()
	}
	x.mu.Lock()
	x.queue = slices.Insert(x.queue, 0, bs...)
	x.busy = false
	more := len(x.queue) > 0 || len(x.idles) > 0
	x.mu.Unlock()
	if more {
		x.kick()
	}
	return true
}

// atOnce is a context that ends as soon as anyone waits for it.
type atOnce struct{ asked bool }

var (
	errWait = errors.New("ps: this would have to wait")
	ended   = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

func (*atOnce) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*atOnce) Done() <-chan struct{}       { return ended }
func (*atOnce) Value(any) any               { return nil }

func (c *atOnce) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return errWait
}

func (x *outbox) put(bs []protocol.Body) {
	x.mu.Lock()
	x.queue = append(x.queue, bs...)
	x.mu.Unlock()
	x.kick()
}

func (x *outbox) kick() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// idle is closed once nothing waits.
func (x *outbox) idle() <-chan struct{} {
	c := make(chan struct{})
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.queue) == 0 && !x.busy {
		close(c)
		return c
	}
	x.idles = append(x.idles, c)
	return c
}

func (x *outbox) run() {
	var batch []protocol.Body
	for {
		x.mu.Lock()
		if x.busy && len(batch) == 0 { // someone sends by himself, and kicks if there is more
			x.mu.Unlock()
			if !x.rest() {
				return
			}
			continue
		}
		batch, x.queue = x.queue, batch[:0]
		x.busy = len(batch) > 0
		if !x.busy {
			for _, c := range x.idles {
				close(c)
			}
			x.idles = nil
		}
		x.mu.Unlock()
		if len(batch) == 0 {
			if !x.rest() {
				return
			}
			continue
		}
		for i, b := range batch {
			x.send(b)
			batch[i] = nil
		}
	}
}

// rest waits until there is something to do; false: the end.
func (x *outbox) rest() bool {
	select {
	case <-x.wake:
		return true
	case <-x.h.ctx.Done():
		return false
	}
}

func (x *outbox) send(b protocol.Body) {
	if x.to == x.h.s.Self() {
		x.h.local(b)
		return
	}
	p := x.h.parcels.encode(b)
	p.copied.give()
	x.legOf(p).leave()
	if err := x.h.s.Send(x.h.ctx, x.to, p.frame()); err != nil {
		p.free()
		switch { // the loss of a link is told by itself
		case errors.Is(err, transport.ErrTooLarge): // others would wait for it
			x.h.over(err)
		case errors.Is(err, transport.ErrUnknownPeer):
			x.h.each(protocol.LinkLost{Peer: x.to, Err: err})
		}
	}
}

// legOf returns the leg of a frame that is about to be sent, if it is a round's.
func (x *outbox) legOf(p *parcel) *leg {
	if p.kind == kindBatch {
		p.leg = x.h.flight.leg()
	}
	return p.leg
}

// local delivers a message within the process: cells are handed over where they lie.
func (h *Host) local(b protocol.Body) {
	self := h.s.Self()
	switch m := b.(type) {
	case *batch:
		n := *m
		n.release = m.holds.giver()
		h.deliver(forServer, self, &n)
	case *values:
		n := *m
		n.release = m.holds.giver()
		h.deliver(forClient, self, &n)
	default:
		p := h.parcels.encode(b)
		c, err := decode(p.kind, slices.Clone(p.head), slices.Clone(p.payload), nil)
		kind := p.kind
		p.free()
		if err == nil {
			h.deliver(roleOf(kind), self, c)
		}
	}
}

// giver returns what gives hs back.
func (hs holds) giver() func() {
	if len(hs) == 0 {
		return nil
	}
	return hs.give
}
