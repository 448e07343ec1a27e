package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// A memStream is an open stream of a port in memory.
type memStream struct {
	port   *memPort
	name   string
	o      StreamOptions
	in     *memInbox
	out    map[Name]*memOutbox
	closed bool
}

// A memOutbox holds what waits for one peer: for its credit, and then each frame has a Send that waits with it; or for its link, and
// then as many as StreamOptions.Queue wait alone.
type memOutbox struct {
	s    *memStream
	peer Name
	wait [4]memQueue // by Priority
}

// A memWaiter is a Send that waits.
type memWaiter struct {
	ready chan error
	next  *memWaiter
}

// The order in which frames that wait share one credit.
var memOrder = [...]Priority{Urgent, Data, Bulk}

func (s *memStream) Self() Name                     { return s.port.self }
func (s *memStream) Know(n Name, addr string) error { return s.port.Know(n, addr) }
func (s *memStream) Heard(n Name) time.Time         { return s.port.Heard(n) }

func (s *memStream) Send(ctx context.Context, to Name, f Frame) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("transport: send to %v on %q: %w", to, s.name, err)
	}
	switch n := len(f.Head) + len(f.Payload); {
	case len(f.Head) > wire.MaxHead:
		return fmt.Errorf("transport: send to %v on %q: %w: a head of %d bytes, at most %d", to, s.name, ErrTooLarge, len(f.Head), wire.MaxHead)
	case n > s.o.MaxFrame:
		return fmt.Errorf("transport: send to %v on %q: %w: a frame of %d bytes, the stream's MaxFrame is %d", to, s.name, ErrTooLarge, n, s.o.MaxFrame)
	case f.Priority > Control:
		return fmt.Errorf("transport: send to %v on %q: there is no priority %d", to, s.name, f.Priority)
	}
	m := s.port.m
	m.mu.Lock()
	fr := m.newFrame()
	if f.Done == nil {
		m.mu.Unlock()
		fr.keep(&f)
		m.mu.Lock()
	}
	fr.Frame, fr.from = f, s.port.self
	out, err := s.outbox(to)
	if err == nil {
		err = m.back(out)
	}
	if err != nil {
		fr.Done = nil
		m.recycle(fr)
		m.mu.Unlock()
		return err
	}
	var over memOver
	w := m.newWaiter()
	fr.waiter = w
	out.wait[f.Priority].push(fr)
	m.pump(out, &over)
	m.mu.Unlock()
	over.finish(m)

	select {
	case err = <-w.ready:
	default:
		select {
		case err = <-w.ready:
		case <-ctx.Done():
			m.mu.Lock()
			if fr.waiter == w { // else it went meanwhile
				out.wait[f.Priority].remove(fr)
				fr.waiter, fr.Done = nil, nil
				m.recycle(fr)
				w.ready <- fmt.Errorf("transport: send to %v on %q: no credit, or no link: %w", to, s.name, ctx.Err())
				m.pump(out, &over) // it may have been this one that had no room
			}
			m.mu.Unlock()
			over.finish(m)
			err = <-w.ready
		}
	}
	m.mu.Lock()
	m.freeWaiter(w)
	m.mu.Unlock()
	return err
}

// outbox returns the outbox for a peer that is known.
func (s *memStream) outbox(to Name) (*memOutbox, error) {
	if s.closed {
		return nil, fmt.Errorf("transport: send to %v on %q: %w", to, s.name, ErrClosed)
	}
	if out := s.out[to]; out != nil {
		return out, nil
	}
	if s.port.peers[to] == nil {
		if to != s.port.self {
			return nil, fmt.Errorf("transport: send to %v on %q: %w", to, s.name, ErrUnknownPeer)
		}
		s.port.peers[to] = &memPeer{name: to, up: true}
	}
	out := &memOutbox{s: s, peer: to}
	s.out[to] = out
	return out, nil
}

// back says that the link of out is lost, where it was up and the peer cannot be reached again.
func (m *Memory) back(out *memOutbox) error {
	p := out.s.port
	peer := p.peers[out.peer]
	if !peer.lost || !peer.was {
		return nil
	}
	if _, err := m.link(p, peer); err != nil {
		return fmt.Errorf("transport: send to %v on %q: %w: %w", out.peer, out.s.name, ErrLinkLost, err)
	}
	return nil
}

// pump delivers what waits in out as far as link and credit allow.
func (m *Memory) pump(out *memOutbox, over *memOver) {
	p := out.s.port
	peer := p.peers[out.peer]
	if peer == nil || out.s.closed {
		return // an outbox of before a Forget or Close
	}
	q, err := m.link(p, peer)
	if err != nil {
		if !peer.lost {
			peer.lost = true
			p.tell(LinkLost, peer.name, err)
		}
		out.leaveAlone()
		return
	}
	in := q.inbox(out.s.name)
	flow := in.flow(p.self)
	flow.out = out
	for m.pumpOne(out, Control, in, flow, over) {
	}
	for _, priority := range memOrder {
		for m.pumpOne(out, priority, in, flow, over) {
		}
		if out.wait[priority].first != nil {
			return // no credit left: what has lower priority waits for this
		}
	}
}

// leaveAlone lets Sends return without their frames, as far as the queue has room.
func (out *memOutbox) leaveAlone() {
	alone := 0
	for i := range out.wait {
		for f := out.wait[i].first; f != nil; f = f.next {
			if f.waiter == nil {
				alone++
			}
		}
	}
	for _, priority := range [...]Priority{Control, Urgent, Data, Bulk} {
		for f := out.wait[priority].first; f != nil && alone < out.s.o.Queue; f = f.next {
			if f.waiter != nil {
				alone++
				f.answer(nil)
			}
		}
	}
}

// pumpOne delivers one frame and reports whether it did.
func (m *Memory) pumpOne(out *memOutbox, priority Priority, in *memInbox, flow *memFlow, over *memOver) bool {
	f := out.wait[priority].first
	if f == nil {
		return false
	}
	size := len(f.Head) + len(f.Payload)
	window, which := out.s.o.Window, memForData
	if in.open {
		window = in.o.Window
	}
	if priority == Control {
		which = memForControl
	}
	if in.open && size > in.o.MaxFrame {
		out.wait[priority].pop()
		err := fmt.Errorf("transport: send to %v on %q: %w: a frame of %d bytes, the peer's MaxFrame is %d", out.peer, out.s.name, ErrTooLarge, size, in.o.MaxFrame)
		if f.waiter != nil {
			f.Done = nil
			f.answer(err)
		}
		over.add(f, err)
		return true
	}
	if flow.frames[which] >= maxUnderWay || flow.used[which] > 0 && flow.used[which]+size > window {
		return false
	}
	out.wait[priority].pop()
	flow.used[which] += size
	flow.frames[which]++
	f.flow, f.cost, f.which = flow, size, which
	out.s.port.stats.sent(size, len(f.Payload))
	in.port.stats.received(size, len(f.Payload))
	if peer := in.port.peers[f.from]; peer != nil {
		peer.heard = time.Now()
	}
	f.answer(nil)
	in.take(f, over)
	return true
}

// pumpAll delivers what waits in p for the peer, on all streams.
func (m *Memory) pumpAll(p *memPort, peer Name, over *memOver) {
	for _, s := range p.streams {
		if out := s.out[peer]; out != nil {
			m.pump(out, over)
		}
	}
}

// dropOut ends the Sends that wait in out with err and, if all, also the frames that wait alone.
func (m *Memory) dropOut(out *memOutbox, err error, all bool, over *memOver) {
	for i := range out.wait {
		var keep memQueue
		for {
			f := out.wait[i].pop()
			if f == nil {
				break
			}
			switch {
			case f.waiter != nil:
				f.Done = nil // its Send reports the error
				f.answer(err)
				over.add(f, err)
			case all:
				over.add(f, err)
			default:
				keep.push(f)
			}
		}
		out.wait[i] = keep
	}
}

func (s *memStream) Close() error {
	var over memOver
	m := s.port.m
	m.mu.Lock()
	m.closeStream(s, nil, &over)
	m.mu.Unlock()
	over.finish(m)
	return nil
}

// closeStream ends s; lost is what the senders of frames that nobody received are told.
func (m *Memory) closeStream(s *memStream, lost error, over *memOver) {
	if s.closed {
		return
	}
	s.closed = true
	for i, t := range s.port.streams {
		if t == s {
			s.port.streams = append(s.port.streams[:i:i], s.port.streams[i+1:]...)
			break
		}
	}
	for to, out := range s.out {
		m.dropOut(out, fmt.Errorf("transport: send to %v on %q: %w", to, s.name, ErrClosed), true, over)
		if q := m.byName[to]; q != nil {
			if in := q.inboxes[s.name]; in != nil && in.flows[s.port.self] != nil {
				in.flows[s.port.self].out = nil
			}
		}
	}
	in := s.in
	in.signal()
	for in.landing {
		m.landed.Wait()
	}
	in.open = false
	in.purge(lost, over)
	if s.port.closed {
		return
	}
	for _, flow := range in.flows {
		if flow.out != nil {
			m.pump(flow.out, over)
		}
	}
}

func (s *Stats) sent(size, payload int) {
	s.FramesSent++
	s.BytesSent += uint64(size + wire.HeaderLen)
	s.PayloadSent += uint64(payload)
}

func (s *Stats) received(size, payload int) {
	s.FramesReceived++
	s.BytesReceived += uint64(size + wire.HeaderLen)
	s.PayloadReceived += uint64(payload)
}
