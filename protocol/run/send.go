package run

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// peer sends to one peer, in order, on a goroutine of its own, so that one that does not read holds up nobody else.
type peer struct {
	l     *Loop
	name  protocol.Name
	ended chan struct{}
	used  bool // since the last sweep: the loop's

	mu      sync.Mutex
	queue   []protocol.Body // a ring
	first   int
	n       int
	sending bool          // one was taken out, and is on its way
	wake    chan struct{} // has room for one: there is something to do
	closed  bool
	full    bool // messages were dropped, and the machine is to be told when there is room again

	free sync.Pool // of *outgoing
}

// outgoing is one frame's memory, kept for the next.
type outgoing struct {
	p    *peer
	f    transport.Frame
	head []byte
	done func(error) // the method value, made once
}

func (o *outgoing) sent(error) {
	o.f = transport.Frame{}
	o.p.free.Put(o)
}

// send queues a message, or gives one to the machine itself.
func (l *Loop) send(c *protocol.Send) {
	switch {
	case l.s == nil:
		l.local = append(l.local, protocol.LinkLost{Peer: c.To, Err: errors.New("run: the loop has no stream")})
		return
	case c.To == l.self:
		l.local = append(l.local, protocol.Message{From: l.self, Body: c.Body})
		return
	}
	p := l.peers[c.To]
	if p == nil {
		p = &peer{l: l, name: c.To, wake: make(chan struct{}, 1), ended: make(chan struct{})}
		l.peers[c.To] = p
		l.wg.Go(p.run)
	}
	p.used = true
	p.put(c.Body)
}

// idleAfter is how long nothing is sent to a peer before it is let go of, and up to twice that.
const idleAfter = time.Minute

// sweep lets go of the peers to whom nothing was sent since the last one: most are gone for good, and a machine that runs for months would
// keep a goroutine for each that it ever spoke to. Who is spoken to again is a peer anew; nothing of before waits, so the order stays.
func (l *Loop) sweep() {
	for n, p := range l.peers {
		if !p.used && p.idle() {
			p.close()
			delete(l.peers, n)
		}
		p.used = false
	}
}

// idle says whether everything that was queued is sent.
func (p *peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n == 0 && !p.sending
}

// put queues a message. If the queue is full it drops it, and the machine is told when there is room again.
func (p *peer) put(b protocol.Body) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == len(p.queue) {
		if p.n >= p.l.o.Queue {
			p.full = true
			return
		}
		grown := make([]protocol.Body, min(max(2*p.n, 16), p.l.o.Queue))
		for i := range p.n {
			grown[i] = p.queue[(p.first+i)%p.n]
		}
		p.queue, p.first = grown, 0
	}
	p.queue[(p.first+p.n)%len(p.queue)] = b
	p.n++
	p.signal()
}

func (p *peer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close lets run end when the queue is empty.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.signal()
}

// take waits for the next message: false if there is none to come.
func (p *peer) take() (protocol.Body, bool) {
	for {
		p.mu.Lock()
		if p.sending = p.n > 0; p.sending {
			b := p.queue[p.first]
			p.queue[p.first] = nil
			p.first = (p.first + 1) % len(p.queue)
			p.n--
			room := p.full && p.n <= len(p.queue)/2
			p.full = p.full && !room
			p.mu.Unlock()
			if room {
				p.l.o.Log.Warn("messages were dropped: too many waited", "peer", p.name, "queue", p.l.o.Queue)
				p.l.put(p.l.ctx, input{ev: protocol.LinkLost{Peer: p.name, Err: ErrQueueFull}})
			}
			return b, true
		}
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return nil, false
		}
		select {
		case <-p.wake:
		case <-p.l.ctx.Done():
			return nil, false
		}
	}
}

func (p *peer) run() {
	defer close(p.ended)
	for {
		b, ok := p.take()
		if !ok {
			return
		}
		o, _ := p.free.Get().(*outgoing)
		if o == nil {
			o = &outgoing{p: p}
			o.done = o.sent
		}
		o.f = transport.Frame{Head: o.head[:0]}
		err := p.l.o.Codec.Encode(b, &o.f)
		if err != nil {
			err = fmt.Errorf("run: code a %T for %v: %w", b, p.name, err)
		} else {
			o.head = o.f.Head
			o.f.Done = o.done
			err = p.l.s.Send(p.l.ctx, p.name, o.f)
		}
		if err == nil {
			continue
		}
		o.sent(err)
		if p.l.ctx.Err() != nil {
			continue
		}
		p.l.o.Log.Warn("a message was not sent", "peer", p.name, "error", err)
		p.l.put(p.l.ctx, input{ev: protocol.LinkLost{Peer: p.name, Err: err}})
	}
}

// receive passes on what the stream receives.
func (l *Loop) receive() {
	var ev transport.Event // one for all: Decode takes its address
	for {
		var err error
		if ev, err = l.s.Recv(l.ctx); err != nil {
			if l.ctx.Err() == nil {
				l.o.Log.Warn("the stream ended, and so must the machine", "error", err)
				l.askStop()
			}
			return
		}
		var in protocol.Event
		switch ev.What {
		case transport.LinkLost:
			in = protocol.LinkLost{Peer: ev.From, Err: ev.Err}
		case transport.LinkBack:
			in = protocol.LinkBack{Peer: ev.From}
		case transport.Received:
			body, kept, err := l.o.Codec.Decode(&ev)
			if err != nil {
				l.o.Log.Warn("a frame was dropped", "peer", ev.From, "kind", ev.Kind, "error", err)
			}
			if !kept {
				ev.Release()
			}
			if body == nil || err != nil {
				continue
			}
			in = protocol.Message{From: ev.From, Body: body}
		}
		if !l.put(l.ctx, input{ev: in}) {
			discard(in)
			return
		}
	}
}

// diskQueue writes one value after the other, on a goroutine of its own.
type diskQueue struct {
	l      *Loop
	ended  chan struct{}
	wake   chan struct{}
	mu     sync.Mutex
	queue  []protocol.Store
	closed bool
}

func (l *Loop) store(c protocol.Store) {
	if l.o.Disk == nil {
		l.local = append(l.local, protocol.Stored{ID: c.ID, Err: ErrNoDisk})
		return
	}
	if l.disk == nil {
		l.disk = &diskQueue{l: l, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
		l.wg.Go(l.disk.run)
	}
	d := l.disk
	d.mu.Lock()
	d.queue = append(d.queue, c)
	d.mu.Unlock()
	d.signal()
}

func (d *diskQueue) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *diskQueue) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.signal()
}

func (d *diskQueue) run() {
	defer close(d.ended)
	for {
		d.mu.Lock()
		todo, closed := d.queue, d.closed
		d.queue = nil
		d.mu.Unlock()
		for _, c := range todo {
			err := d.l.o.Disk.Put(d.l.ctx, c.Key, bytes.NewReader(c.Value))
			if !closed {
				d.l.put(d.l.ctx, input{ev: protocol.Stored{ID: c.ID, Err: err}})
			}
		}
		if len(todo) > 0 {
			continue
		}
		if closed {
			return
		}
		select {
		case <-d.wake:
		case <-d.l.ctx.Done():
			return
		}
	}
}
