package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A peer is what a port knows of another: where it is, and the link to it.
//
// Both ends may dial. Where they do at the same time, the dial of the lesser name wins: its owner refuses the other's as busy. A link
// counts only when both its connections have said who they are.
type peer struct {
	port *port
	name Name

	mu       sync.Mutex
	addr     string // "": nobody said
	known    bool   // Know was called: remembered while it is away
	link     *link
	lost     bool        // LinkLost was reported, and LinkBack not yet
	gone     error       // Forget or Close was called
	past     atomic.Bool // gone is set
	shutting bool        // Close was called; what waits is still written
	finished frameQueue

	keeping    bool   // keep runs
	attempting bool   // and dials
	attempt    uint64 // counts the dials
	cancel     func()
	nudge      chan struct{} // ends keep's wait
	reported   [2]bool       // of this outage: nobody listens; any other cause
	last       [16]byte      // the link that was up last
	instance   [16]byte      // of the process it led to
	half       *halfOpen

	sums    atomic.Bool  // payloads to it carry a checksum
	heard   atomic.Int64 // 1 + nanoseconds since the port was opened; 0: never
	drained chan struct{}
}

// A halfOpen is a link that has its control connection.
type halfOpen struct {
	id      [16]byte
	hello   hello
	nc      net.Conn
	hard    net.Conn
	expires *time.Timer
}

const (
	leastBackoff = time.Millisecond
	mostBackoff  = time.Second
	dialGrace    = time.Second // of a dial that is no longer needed
	afterDeath   = 20 * time.Millisecond
)

func newPeer(p *port, n Name) *peer {
	pr := &peer{port: p, name: n, nudge: make(chan struct{}, 1), drained: make(chan struct{})}
	pr.link = newLink(pr)
	return pr
}

func (pr *peer) know(addr string) {
	pr.mu.Lock()
	defer pr.unlock()
	pr.known = true
	if addr != pr.addr {
		pr.addr = addr
		select {
		case pr.nudge <- struct{}{}:
		default:
		}
	}
	if pr.lost {
		pr.start()
	}
}

// ready returns the link for a frame of s, and has it opened. peer.mu is held.
func (pr *peer) ready(s *stream) (*link, error) {
	switch {
	case s.ended.Load() || pr.shutting:
		return nil, ErrClosed
	case pr.gone != nil:
		return nil, pr.gone
	case pr.lost:
		return nil, ErrLinkLost
	case !pr.link.up && !pr.keeping && pr.addr == "":
		return nil, ErrUnknownPeer
	case !pr.link.up:
		pr.start()
	}
	return pr.link, nil
}

// start has keep dial, unless it does already or nobody knows where.
func (pr *peer) start() {
	if pr.keeping || pr.addr == "" || pr.gone != nil || pr.shutting {
		return
	}
	pr.keeping = true
	pr.port.wg.Go(pr.keep)
}

// keep dials until the link is up, or the peer forgotten.
func (pr *peer) keep() {
	backoff := leastBackoff
	if pr.refused() {
		backoff = afterDeath
		pr.wait(backoff)
	}
	for {
		pr.mu.Lock()
		if pr.gone != nil || pr.link.up {
			pr.keeping = false
			pr.unlock()
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), pr.port.o.Handshake)
		pr.attempt++
		pr.attempting, pr.cancel = true, cancel
		addr, n := pr.addr, pr.attempt
		pr.unlock()
		err := pr.port.dial(ctx, pr, addr, n)
		cancel()
		pr.mu.Lock()
		pr.attempting, pr.cancel = false, nil
		pr.unlock()
		if err == nil {
			continue
		}
		pr.report(err)
		pr.wait(backoff)
		backoff = min(2*backoff, mostBackoff)
	}
}

// refused says whether it is known that nobody listens, from before any dial. It forgets older nudges.
func (pr *peer) refused() bool {
	pr.mu.Lock()
	defer pr.unlock()
	select {
	case <-pr.nudge:
	default:
	}
	return pr.reported[0]
}

// wait is the time between two dials.
func (pr *peer) wait(backoff time.Duration) {
	t := time.NewTimer(backoff/2 + rand.N(backoff))
	defer t.Stop()
	select {
	case <-t.C:
	case <-pr.nudge:
	case <-pr.port.done:
	}
}

// report tells the streams that a dial failed: the first of an outage, and the first that proves that nobody listens.
func (pr *peer) report(err error) {
	kind := 1
	switch {
	case errors.Is(err, errBusy) || errors.Is(err, context.Canceled):
		return // the other end's dial goes on
	case errors.Is(err, protocol.ErrRefused):
		kind = 0
	}
	p := pr.port
	p.mu.RLock()
	pr.mu.Lock()
	defer pr.unlockBoth()
	if pr.gone != nil || pr.link.up || pr.reported[kind] || kind == 1 && pr.lost {
		return
	}
	pr.reported[kind] = true
	p.o.Log.Info("transport: no link", "peer", pr.name.String(), "addr", pr.addr, "err", err.Error())
	pr.lose(err)
}

// fail ends the link.
func (l *link) fail(err error) {
	pr := l.peer
	p := pr.port
	p.mu.RLock()
	pr.mu.Lock()
	defer pr.unlockBoth()
	if l.dead.Load() {
		return
	}
	if l.why != nil {
		err = l.why
	}
	if errors.Is(err, errGone) {
		pr.reported[0] = true
	}
	if pr.gone == nil && !pr.shutting {
		p.o.Log.Info("transport: link lost", "peer", pr.name.String(), "err", err.Error())
	}
	pr.lose(err)
	pr.start()
}

// errGone: the process that had the port has ended, or closed it.
var errGone = fmt.Errorf("its process is gone: %w", protocol.ErrRefused)

// lose ends the peer's link and begins a new one, for which nothing is taken until it is up. port.mu and peer.mu are held.
func (pr *peer) lose(err error) {
	pr.drop(fmt.Errorf("%w: %w", ErrLinkLost, err))
	if pr.gone != nil || pr.shutting {
		return
	}
	pr.lost = true
	for _, s := range pr.port.streams {
		s.tell(LinkLost, pr.name, err)
	}
}

// drop ends the peer's link and what waits for it.
func (pr *peer) drop(err error) {
	l := pr.link
	l.dead.Store(true)
	if l.up {
		pr.port.linked.Add(-1)
	}
	for _, fl := range l.flows {
		for i := range fl.side {
			q := &fl.side[i].waiting
			for o := q.first; o != nil; o = q.first {
				q.remove(o)
				o.done = nil // its Send returns the error
				pr.give(o, err)
			}
		}
	}
	for _, h := range l.half {
		if h.r != nil {
			h.r.reclaim()
		}
		for i := range h.queue {
			for o := h.queue[i].first; o != nil; o = h.queue[i].first {
				h.queue[i].remove(o)
				pr.over(o, err)
			}
		}
		h.cond.Broadcast()
	}
	if errors.Is(l.why, errGone) && pr.gone == nil && !pr.shutting {
		pr.port.wg.Go(l.closeLater)
	} else {
		l.close()
	}
	pr.link = newLink(pr)
	pr.drain()
}

// closeLater closes a link whose process is gone. All who had one to it learn of it in the same moment, and to close files and memory
// takes as long as all that they have to do about it: so that comes after.
func (l *link) closeLater() {
	t := time.NewTimer(afterDeath)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.peer.port.done:
	}
	l.close()
}

// drain closes drained if nothing is left to be written.
func (pr *peer) drain() {
	if !pr.shutting {
		return
	}
	select {
	case <-pr.drained:
	default:
		close(pr.drained)
	}
}

// ended notes the end of a connection whose other end said goodbye, or is gone. It returns false if the link is over with it.
func (l *link) ended(h *half) bool {
	l.peer.mu.Lock()
	defer l.peer.unlock()
	h.ended = h.bye || l.gone.Load()
	other := l.half[data]
	if other == h {
		other = l.half[control]
	}
	return h.ended && !other.ended
}

// say tells the other end why the link ends, if that takes no long waiting.
func (l *link) say(cause, text string) {
	h, pr := l.half[control], l.peer
	limit := time.Now().Add(50 * time.Millisecond)
	for quiet := false; !quiet; {
		pr.mu.Lock()
		quiet = !h.busy && !h.first && len(h.rest) == 0 && !l.dead.Load()
		h.busy = h.busy || quiet
		pr.unlock()
		if !quiet && (l.dead.Load() || time.Now().After(limit)) {
			return
		}
		if !quiet {
			time.Sleep(100 * time.Microsecond) // the writer's goroutine ends what it writes
		}
	}
	_ = h.hard.SetWriteDeadline(limit) // the link ends anyway
	_, _ = h.nc.Write(appendRefusal(nil, cause, text))
	pr.mu.Lock()
	h.busy = false
	h.cond.Broadcast()
	pr.unlock()
}

// announce tells the peer the window of a stream.
func (pr *peer) announce(id uint32, o StreamOptions) {
	pr.mu.Lock()
	defer pr.unlock()
	if pr.gone == nil {
		pr.link.announce(id, o)
	}
}

func (l *link) announce(id uint32, o StreamOptions) {
	fl := l.flow(id)
	fl.window, fl.maxFrame, fl.announce = o.Window, o.MaxFrame, true
	fl.tell()
}

// leave ends the Sends of s that wait.
func (pr *peer) leave(s *stream) {
	pr.mu.Lock()
	defer pr.unlock()
	fl := pr.link.flows[s.id]
	if fl == nil {
		return
	}
	for i := range fl.side {
		q := &fl.side[i].waiting
		for o := q.first; o != nil; {
			next := o.next
			if o.stream == s {
				q.remove(o)
				o.done = nil // its Send returns the error
				pr.give(o, ErrClosed)
			}
			o = next
		}
	}
}

// shut has what waits written out, and then goodbye said.
func (pr *peer) shut() {
	pr.mu.Lock()
	defer pr.unlock()
	pr.shutting = true
	switch {
	case pr.link.up:
		pr.link.shut()
	case !pr.keeping || pr.lost:
		pr.drain()
	}
}

func (l *link) shut() {
	for _, h := range l.half {
		h.closing = true
		h.cond.Signal()
	}
}

// end closes the link at once, and for good.
func (pr *peer) end(err error) {
	pr.mu.Lock()
	defer pr.unlock()
	if pr.gone != nil {
		return
	}
	pr.gone = err
	pr.past.Store(true)
	if pr.cancel != nil {
		pr.cancel()
	}
	if pr.half != nil {
		pr.half.close()
		pr.half = nil
	}
	pr.drop(err)
	select {
	case pr.nudge <- struct{}{}:
	default:
	}
}

func (o *halfOpen) close() {
	o.expires.Stop()
	_ = o.hard.Close()
}

// judge says whether a dial of the peer may become its link. peer.mu is held.
func (pr *peer) judge(h *hello) error {
	l := pr.link
	switch {
	case pr.gone != nil || pr.shutting:
		return &RefusedError{"closed", "this port is closing"}
	case pr.attempting && less(pr.port.self, pr.name):
		return errBusy
	case !l.up:
		return nil
	case pr.instance != h.instance:
		return &RefusedError{"duplicate", fmt.Sprintf("%v is connected already, from another process: give this one another ID, or a higher incarnation", pr.name)}
	case l.inbound && h.attempt <= l.attempt, !l.inbound && h.last != l.id:
		return errBusy // it dialled before it knew of the link that is up
	}
	return nil
}

// needless reports whether a dial of the peer is none that it still needs.
func (pr *peer) needless() bool {
	pr.mu.Lock()
	defer pr.unlock()
	return pr.gone != nil || pr.shutting || pr.link.up || pr.attempting || pr.half != nil
}

// establish makes two connections the peer's link.
func (pr *peer) establish(h *hello, inbound bool, id [16]byte, ctl, dat [2]net.Conn, shared sharedPath, life net.Conn, addr string) error {
	p := pr.port
	p.mu.RLock()
	pr.mu.Lock()
	defer pr.unlockBoth()
	instance := h.answered
	if inbound {
		instance = h.instance
		if err := pr.judge(h); err != nil {
			return err
		}
	} else if pr.gone != nil || pr.link.up {
		return errBusy
	}
	if inbound && pr.cancel != nil {
		// Our own dial gives way. It gets the time to be told so: cut off at once, it looks like a stranger's to the other end.
		pr.attempting = false
		time.AfterFunc(dialGrace, pr.cancel)
	}
	if pr.link.up {
		pr.lose(io.ErrUnexpectedEOF) // the peer has lost it, and dials anew
	}
	l := pr.link
	l.id, l.inbound, l.attempt, l.shared = id, inbound, h.attempt, shared
	l.sharedRefs.Store(1)
	l.life = life
	pr.last, pr.instance, pr.reported = id, instance, [2]bool{}
	if pr.addr == "" {
		pr.addr = addr
	}
	for i, nc := range [2][2]net.Conn{data: dat, control: ctl} {
		half := l.half[i]
		half.nc, half.hard, half.sum = nc[0], nc[1], p.carrier.sum(nc[1])
		_ = nc[1].SetDeadline(time.Time{}) // the handshake's; fails on a closed connection, as the next read does
		if nc[0] == nc[1] {
			half.try = newDirect(nc[0], p.pulse.beats)
			half.apart = isUnix(nc[0])
		}
	}
	pr.sums.Store(l.half[data].sum)
	if pr.lost {
		pr.lost = false
		p.reconnects.Add(1)
		for _, s := range p.streams {
			s.tell(LinkBack, pr.name, nil)
		}
	}
	for id, s := range p.streams {
		if s.name != "" {
			l.announce(id, s.o) // to be written by the goroutine below
		}
	}
	l.up = true
	p.linked.Add(1)
	if pr.shutting {
		l.shut()
	}
	l.half[data].first = inbound
	for _, half := range l.half {
		half.r = newReader(half)
		p.wg.Go(half.run)
		p.wg.Go(half.read)
	}
	if life != nil {
		p.wg.Go(l.attend)
	}
	p.o.Log.Debug("transport: link", "peer", pr.name.String(), "inbound", inbound)
	return nil
}

// less orders names, for whose dial wins.
func less(a, b Name) bool {
	for _, c := range [][2]string{{a.Job, b.Job}, {a.Role, b.Role}, {a.ID, b.ID}} {
		if c[0] != c[1] {
			return c[0] < c[1]
		}
	}
	return a.Incarnation < b.Incarnation
}
