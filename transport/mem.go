package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A Memory is a network within one process. It starts no goroutine and opens no socket, so that it works inside testing/synctest:
// whoever waits, waits on a channel.
//
// A frame whose Send has a Done is handed over as it is: the receiver reads the sender's slices and must not change them, and Done is
// called when it releases the event. Without Done, Send copies. A posted payload is copied by Recv.
//
// A link opens at the first Send, for which frames wait until the peer's port opens. It is lost when that port closes, and back when a port
// of that name opens again.
type Memory struct {
	mu     sync.Mutex // guards all that hangs from the network; never held while anyone waits or is called
	landed *sync.Cond // a Recv has copied a posted payload
	byName map[Name]*memPort
	ports  []*memPort // in the order of their opening

	frames, waiters freeList
}

// freeList counts what is kept for the next Send, so that in steady state nothing is allocated.
type freeList struct {
	frame  *memFrame
	waiter *memWaiter
	n      int
}

const (
	memKeep       = 256     // free frames kept
	memKeepBytes  = 1 << 20 // the largest buffer that a free frame keeps
	memAddr       = "memory:"
	memForData    = 0 // which credit
	memForControl = 1
)

// NewMemory returns a network without ports.
func NewMemory() *Memory {
	m := &Memory{byName: map[Name]*memPort{}}
	m.landed = sync.NewCond(&m.mu)
	return m
}

// Open makes self reachable for the other ports of m.
func (m *Memory) Open(ctx context.Context, self Name, o Options) (Port, error) {
	if err := errors.Join(o.validate(), ctx.Err()); err != nil {
		return nil, fmt.Errorf("transport: open %v in memory: %w", self, err)
	}
	var over memOver
	m.mu.Lock()
	if m.byName[self] != nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("transport: open %v in memory: it is open already", self)
	}
	if o.MaxPeers == 0 {
		o.MaxPeers = 1024
	}
	p := &memPort{m: m, self: self, o: o, peers: map[Name]*memPeer{}, inboxes: map[string]*memInbox{}}
	p.stats.Refused = map[string]uint64{}
	m.byName[self], m.ports = p, append(m.ports, p)
	for _, q := range m.ports {
		if peer := q.peers[self]; peer != nil && peer.lost {
			if _, err := m.link(q, peer); err == nil {
				q.stats.Reconnects++
				m.pumpAll(q, self, &over)
			}
		}
	}
	m.mu.Unlock()
	over.finish(m)
	return p, nil
}

// A memPort is one process, or one part of this process, on the network.
type memPort struct {
	m       *Memory
	self    Name
	o       Options
	peers   map[Name]*memPeer
	inboxes map[string]*memInbox // of streams that are open, and of those for which frames wait
	streams []*memStream         // open, in the order of their opening
	closed  bool
	stats   Stats
}

// A memPeer is what a port knows of another.
type memPeer struct {
	name  Name
	up    bool // frames pass
	was   bool // and did before
	lost  bool // LinkLost was reported, LinkBack not yet
	heard time.Time
}

func (p *memPort) Name() Name   { return p.self }
func (p *memPort) Addr() string { return memAddr + p.self.String() }

func (p *memPort) Know(n Name, addr string) error {
	if !strings.HasPrefix(addr, memAddr) {
		return fmt.Errorf("transport: %v at %q: want an address in memory, which begins with %q", n, addr, memAddr)
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if p.peers[n] == nil {
		p.peers[n] = &memPeer{name: n}
	}
	return nil
}

func (p *memPort) Heard(n Name) time.Time {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if peer := p.peers[n]; peer != nil {
		return peer.heard
	}
	return time.Time{}
}

func (p *memPort) Stats() Stats {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	s := p.stats
	s.Refused = make(map[string]uint64, len(p.stats.Refused))
	for k, v := range p.stats.Refused {
		s.Refused[k] = v
	}
	for _, peer := range p.peers {
		if peer.up {
			s.Peers++
		}
	}
	return s
}

func (p *memPort) Forget(n Name) {
	var over memOver
	p.m.mu.Lock()
	if p.peers[n] != nil {
		err := fmt.Errorf("transport: %v was forgotten: %w", n, ErrLinkLost)
		for _, s := range p.streams {
			if out := s.out[n]; out != nil {
				p.m.dropOut(out, err, true, &over)
				delete(s.out, n)
			}
		}
		up := p.peers[n].up
		delete(p.peers, n)
		if q := p.m.byName[n]; up && q != nil && q != p {
			p.m.lose(q, p.self, io.EOF, &over)
		}
	}
	p.m.mu.Unlock()
	over.finish(p.m)
}

func (p *memPort) Close() error {
	m := p.m
	var over memOver
	m.mu.Lock()
	if p.closed {
		m.mu.Unlock()
		return nil
	}
	p.closed = true
	for len(p.streams) > 0 {
		m.closeStream(p.streams[0], fmt.Errorf("transport: %v closed its port: %w", p.self, ErrLinkLost), &over)
	}
	for _, in := range p.inboxes { // frames for streams that never opened
		in.purge(fmt.Errorf("transport: %v closed its port: %w", p.self, ErrLinkLost), &over)
	}
	delete(m.byName, p.self)
	for i, q := range m.ports {
		if q == p {
			m.ports = append(m.ports[:i:i], m.ports[i+1:]...)
			break
		}
	}
	for _, q := range m.ports {
		m.lose(q, p.self, io.EOF, &over)
	}
	for _, peer := range p.peers {
		peer.up = false
	}
	m.mu.Unlock()
	over.finish(m)
	return nil
}

// link opens the link from p to peer, unless it is open, and returns the peer's port.
func (m *Memory) link(p *memPort, peer *memPeer) (*memPort, error) {
	q := m.byName[peer.name]
	if peer.up || q == p {
		return q, nil
	}
	if q == nil {
		return nil, fmt.Errorf("transport: %v is not open in memory: %w", peer.name, protocol.ErrRefused)
	}
	if !bytes.Equal(p.o.Secret, q.o.Secret) {
		q.stats.Refused["secret"]++
		return nil, fmt.Errorf("transport: %v refuses %v: it holds another secret", q.self, p.self)
	}
	back := q.peers[p.self]
	if back == nil {
		if len(q.peers) >= q.o.MaxPeers {
			q.stats.Refused["peers"]++
			return nil, fmt.Errorf("transport: %v refuses %v: it has its %d peers", q.self, p.self, q.o.MaxPeers)
		}
		back = &memPeer{name: p.self}
		q.peers[p.self] = back
	}
	for _, end := range []struct {
		port *memPort
		peer *memPeer
	}{{p, peer}, {q, back}} {
		end.peer.up, end.peer.was = true, true
		if end.peer.lost {
			end.peer.lost = false
			end.port.tell(LinkBack, end.peer.name, nil)
		}
	}
	return q, nil
}

// lose ends the link of q to the peer, if it is up.
func (m *Memory) lose(q *memPort, peer Name, cause error, over *memOver) {
	at := q.peers[peer]
	if at == nil || !at.up {
		return
	}
	at.up, at.lost = false, true
	q.tell(LinkLost, peer, cause)
	for _, s := range q.streams {
		if out := s.out[peer]; out != nil {
			m.dropOut(out, fmt.Errorf("transport: to %v: %w: %w", peer, ErrLinkLost, cause), false, over)
		}
	}
}

// tell reports the link to all open streams, each after the frames that came from the peer before.
func (p *memPort) tell(what EventKind, peer Name, err error) {
	for _, s := range p.streams {
		in := s.in
		in.seq++
		l := memLink{what: what, from: peer, err: err, seq: in.seq}
		for i := range in.ready {
			for f := in.ready[i].first; f != nil; f = f.next {
				if f.from == peer {
					l.before++
				}
			}
		}
		if what == LinkLost && in.lostAgain(&l) {
			continue
		}
		in.links = append(in.links, l)
		in.signal()
	}
}

// Stream opens the stream of that name.
func (p *memPort) Stream(name string, o StreamOptions) (Stream, error) {
	o, err := o.defaults(name)
	if err != nil {
		return nil, err
	}
	m := p.m
	var over memOver
	m.mu.Lock()
	if p.closed {
		m.mu.Unlock()
		return nil, ErrClosed
	}
	in := p.inbox(name)
	if in.open {
		m.mu.Unlock()
		return nil, fmt.Errorf("transport: stream %q of %v is open already", name, p.self)
	}
	in.open, in.o = true, o
	in.wake = make(chan struct{}, 1)
	in.tooLong(&over)
	s := &memStream{port: p, name: name, o: o, in: in, out: map[Name]*memOutbox{}}
	p.streams = append(p.streams, s)
	for _, flow := range in.flows {
		if flow.out != nil {
			m.pump(flow.out, &over) // the window may be larger than what it was taken for
		}
	}
	m.mu.Unlock()
	over.finish(m)
	return s, nil
}

func (p *memPort) inbox(name string) *memInbox {
	in := p.inboxes[name]
	if in == nil {
		in = &memInbox{port: p, flows: map[Name]*memFlow{}}
		p.inboxes[name] = in
	}
	return in
}
