package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// A port is a Port over stream sockets. What differs between the networks is its carrier.
//
// Locks are taken in this order: port.mu, peer.mu, stream.mu. None is held while anything blocks.
type port struct {
	self     Name
	o        Options
	carrier  *carrier
	instance [16]byte // of this opening: tells a restart from a reconnect
	opened   time.Time
	pool     pool
	tender   tender
	pulse    pulse

	mu      sync.RWMutex
	peers   map[Name]*peer
	streams map[uint32]*stream // open ones, and those for which frames wait
	closed  bool

	pending   map[net.Conn]struct{}  // that others opened, and whose handshake is under way
	strangers map[net.Conn]time.Time // of them, those that have not said who they are, and since when

	linked  atomic.Int32 // links that are up
	clogged atomic.Int32 // connections that take no more at present
	conns   directs      // of links that are up

	done chan struct{} // closed when the port's goroutines are to end
	wg   sync.WaitGroup

	framesSent, framesReceived, bytesSent, bytesReceived, payloadSent, payloadReceived, reconnects, stale atomic.Uint64

	refusedMu sync.Mutex
	refused   map[string]uint64
}

// A carrier is what a network of stream sockets brings.
type carrier struct {
	addr      string
	listeners []net.Listener
	dial      func(ctx context.Context, addr string) (net.Conn, error)
	check     func(addr string) error                         // Know's
	admit     func(net.Conn) error                            // whose process is at the other end, before anything is said; may be nil
	secure    func(nc net.Conn, server bool) (net.Conn, bool) // adds TLS, whose handshake is still to come; may be nil
	verify    func(Name, net.Conn) error                      // whose certificate it is; may be nil
	sum       func(nc net.Conn, addr string) bool             // payloads to the peer of that address need a checksum
	shared    bool                                            // unix sockets carry large payloads in shared memory, if the other end's do

	life     *life                                           // of this process, closed with the port; may be nil
	lifeless error                                           // why it is nil
	attend   func(ctx context.Context, addr string) net.Conn // to the life of the peer there; nil, and nil returned: it has none
}

// close closes what a carrier has opened.
func (c *carrier) close() error {
	var err error
	if c.life != nil {
		err = c.life.leave()
	}
	for _, ln := range c.listeners {
		err = errors.Join(err, ln.Close())
	}
	if c.life != nil {
		err = errors.Join(err, c.life.Close())
	}
	return err
}

const (
	maxStrangers  = 256              // connections that have not yet said who they are; the oldest makes room
	strangerLeast = time.Second      // but has so long, however many come
	crowdTick     = time.Millisecond // after which who waits for room looks again
	maxUnopened   = 64               // streams for which frames wait though nobody opened them
)

func openPort(self Name, o Options, c *carrier) *port {
	if o.Handshake == 0 {
		o.Handshake = 5 * time.Second
	}
	if o.Linger == 0 {
		o.Linger = 2 * time.Second
	}
	if o.MaxPeers == 0 {
		o.MaxPeers = 1024
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &port{
		self: self, o: o, carrier: c, peers: map[Name]*peer{}, streams: map[uint32]*stream{}, pending: map[net.Conn]struct{}{},
		strangers: map[net.Conn]time.Time{},
		done:      make(chan struct{}), refused: map[string]uint64{}, opened: time.Now(),
	}
	_, _ = rand.Read(p.instance[:]) // never fails
	if c.lifeless != nil {
		o.Log.Info("transport: others will hear late if this process dies", "err", c.lifeless.Error())
	}
	for _, ln := range c.listeners {
		p.wg.Go(func() { p.accept(ln) })
	}
	return p
}

// validate returns all that is wrong with the options of a port.
func (o Options) validate() error {
	var err error
	for _, d := range []struct {
		field string
		of    time.Duration
	}{{"Handshake", o.Handshake}, {"Linger", o.Linger}} {
		if d.of < 0 {
			err = errors.Join(err, fmt.Errorf("transport: %s: want a duration of 0 or more, found %v", d.field, d.of))
		}
	}
	if o.MaxPeers < 0 {
		err = errors.Join(err, fmt.Errorf("transport: MaxPeers: want 0 or more, found %d", o.MaxPeers))
	}
	return err
}

func (p *port) Name() Name   { return p.self }
func (p *port) Addr() string { return p.carrier.addr }

func (p *port) Know(n Name, addr string) error {
	if err := p.carrier.check(addr); err != nil {
		return fmt.Errorf("transport: %v at %q: %w", n, addr, err)
	}
	if n == p.self {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	pr := p.peers[n]
	if pr == nil {
		pr = newPeer(p, n)
		p.peers[n] = pr
	}
	pr.know(addr)
	return nil
}

func (p *port) peer(n Name) *peer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.peers[n]
}

func (p *port) Forget(n Name) {
	p.mu.Lock()
	pr := p.peers[n]
	delete(p.peers, n)
	p.mu.Unlock()
	if pr != nil {
		pr.end(fmt.Errorf("transport: %v was forgotten: %w", n, ErrLinkLost))
	}
}

func (p *port) Heard(n Name) time.Time {
	if pr := p.peer(n); pr != nil {
		if after := pr.heard.Load(); after != 0 {
			return p.opened.Add(time.Duration(after - 1))
		}
	}
	return time.Time{}
}

func (p *port) Stats() Stats {
	s := Stats{
		FramesSent: p.framesSent.Load(), FramesReceived: p.framesReceived.Load(), BytesSent: p.bytesSent.Load(),
		BytesReceived: p.bytesReceived.Load(), PayloadSent: p.payloadSent.Load(), PayloadReceived: p.payloadReceived.Load(),
		Reconnects: p.reconnects.Load(), Stale: p.stale.Load(),
	}
	p.refusedMu.Lock()
	s.Refused = maps.Clone(p.refused)
	p.refusedMu.Unlock()
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, pr := range p.peers {
		pr.mu.Lock()
		if pr.link.up {
			s.Peers++
		}
		pr.mu.Unlock()
	}
	return s
}

func (p *port) count(cause string) {
	p.refusedMu.Lock()
	p.refused[cause]++
	p.refusedMu.Unlock()
}

func (p *port) Stream(name string, o StreamOptions) (Stream, error) {
	o, err := o.defaults(name)
	if err != nil {
		return nil, err
	}
	s, over, err := p.take(name, o)
	if err != nil {
		return nil, err
	}
	freeAll(over)
	for _, pr := range p.all() {
		pr.announce(s)
	}
	return s, nil
}

// all returns the peers.
func (p *port) all() []*peer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Collect(maps.Values(p.peers))
}

// take returns the stream of that name, which it opens, and what of it is to be freed.
func (p *port) take(name string, o StreamOptions) (*stream, []*delivery, error) {
	id := wire.StreamID(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, fmt.Errorf("transport: stream %q of %v: %w", name, p.self, ErrClosed)
	}
	s := p.streams[id]
	switch {
	case s == nil:
		s = newStream(p, id)
		p.streams[id] = s
	case s.name == name:
		return nil, nil, fmt.Errorf("transport: stream %q of %v is open already", name, p.self)
	case s.name != "":
		return nil, nil, fmt.Errorf("transport: stream %q of %v: its number %#x is that of stream %q: choose another name", name, p.self, id, s.name)
	}
	return s, s.open(name, o), nil
}

// stub returns the stream of that number, open or not; nil: too many that nobody opened.
func (p *port) stub(id uint32) *stream {
	p.mu.RLock()
	s := p.streams[id]
	p.mu.RUnlock()
	if s != nil {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.streams[id]; s != nil {
		return s
	}
	unopened := 0
	for _, t := range p.streams {
		if t.name == "" {
			unopened++
		}
	}
	if unopened >= maxUnopened && !p.makeRoom() {
		return nil
	}
	s = newStream(p, id)
	p.streams[id] = s
	return s
}

// makeRoom gives up a stream that nobody opened and whose frames all came over links that are lost. port.mu is held.
func (p *port) makeRoom() bool {
	for id, s := range p.streams {
		if s.name == "" && s.vacate() {
			delete(p.streams, id)
			return true
		}
	}
	return false
}

// isOpen reports whether the stream of that number is.
func (p *port) isOpen(id uint32) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := p.streams[id]
	return s != nil && s.name != ""
}

func (o StreamOptions) defaults(name string) (StreamOptions, error) {
	var err error
	if o.MaxFrame < 0 || o.MaxFrame > wire.MaxFrame {
		err = errors.Join(err, fmt.Errorf("transport: stream %q: MaxFrame: want 0 to %d bytes, found %d", name, wire.MaxFrame, o.MaxFrame))
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = 1 << 20
	}
	if o.Window < 0 || o.Window > 0 && o.Window < o.MaxFrame || o.Window > 1<<40 {
		err = errors.Join(err, fmt.Errorf("transport: stream %q: Window: want 0, or MaxFrame (%d bytes) to 1 TiB, found %d", name, o.MaxFrame, o.Window))
	}
	if o.Queue < 0 {
		err = errors.Join(err, fmt.Errorf("transport: stream %q: Queue: want 0 or more frames, found %d", name, o.Queue))
	}
	if o.Window == 0 {
		o.Window = 4 * o.MaxFrame
	}
	if o.Queue == 0 {
		o.Queue = 64
	}
	return o, err
}

// Close ends the streams, writes out what was sent, says goodbye on every link, and waits for the port's goroutines.
func (p *port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.closed = true
	streams, peers := slices.Collect(maps.Values(p.streams)), slices.Collect(maps.Values(p.peers))
	p.mu.Unlock()

	if p.carrier.life != nil {
		_ = p.carrier.life.leave() // what it leaves is replaced
	}
	for _, ln := range p.carrier.listeners {
		_ = ln.Close() // nothing can be done about a listener that cannot be closed
	}
	for _, s := range streams {
		s.end()
	}
	limit := time.NewTimer(p.o.Linger)
	defer limit.Stop()
	for _, pr := range peers {
		pr.shut()
	}
	for _, pr := range peers {
		select {
		case <-pr.drained:
		case <-limit.C:
			limit.Reset(0)
		}
	}
	close(p.done)
	for _, pr := range peers {
		pr.end(fmt.Errorf("transport: %v closed its port: %w", p.self, ErrClosed))
	}
	p.mu.Lock()
	for nc := range p.pending {
		_ = nc.Close() // a stranger's
	}
	p.mu.Unlock()
	p.wg.Wait()
	if p.carrier.life != nil {
		_ = p.carrier.life.Close() // never fails
	}
	return nil
}
