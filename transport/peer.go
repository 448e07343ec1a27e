package transport

import (
	"context"
	"errors"
	"fmt"
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
	made time.Time

	mu       sync.Mutex
	addr     string // "": nobody said
	known    bool   // Know was called: remembered while it is away
	link     *link
	lost     bool        // LinkLost was reported, and LinkBack not yet
	left     bool        // its last link ended with a goodbye
	gone     error       // Forget or Close was called
	past     atomic.Bool // gone is set
	shutting bool        // Close was called; what waits is still written
	finished frameQueue

	keeping    bool   // keep runs
	attempting bool   // and dials
	attempt    uint64 // counts the dials
	cancel     func()
	nudge      chan struct{} // ends keep's wait
	backoff    time.Duration // keep's: until the next dial
	since      time.Time     // the last link was up
	reported   [2]bool       // of this outage: nobody listens; any other cause
	last       [16]byte      // the link that was up last
	instance   [16]byte      // of the process it led to
	half       *halfOpen

	backlog *backlog     // that of its last incarnation, where that was replaced
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
	pr := &peer{
		port: p, name: n, made: time.Now(), backoff: leastBackoff, nudge: make(chan struct{}, 1), drained: make(chan struct{}), backlog: new(backlog),
	}
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
	if !pr.calm() {
		pr.wait()
	}
	for {
		pr.mu.Lock()
		if pr.gone != nil || pr.link.up || pr.idle() {
			pr.keeping = false
			pr.unlock()
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), pr.port.o.Handshake)
		pr.attempting, pr.cancel = true, cancel
		addr, h := pr.addr, pr.hello()
		pr.unlock()
		err := pr.port.dial(ctx, pr, addr, h)
		cancel()
		pr.mu.Lock()
		pr.attempting, pr.cancel = false, nil
		pr.unlock()
		if err == nil {
			continue
		}
		pr.report(err)
		pr.wait()
	}
}

// calm says whether the first dial may be at once: the link before has lasted, and it is not known that nobody listens. Then the time between
// two dials begins anew. It forgets older nudges.
func (pr *peer) calm() bool {
	pr.mu.Lock()
	defer pr.unlock()
	select {
	case <-pr.nudge:
	default:
	}
	lasted, refused := time.Since(pr.since) >= mostBackoff, pr.reported[0]
	if lasted {
		pr.backoff = leastBackoff
	}
	if refused {
		pr.backoff = max(pr.backoff, afterDeath)
	}
	return lasted && !refused
}

// wait is the time between two dials, each twice as long as the one before.
func (pr *peer) wait() {
	t := time.NewTimer(pr.backoff/2 + rand.N(pr.backoff))
	defer t.Stop()
	pr.backoff = min(2*pr.backoff, mostBackoff)
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

// announce tells the peer the window of a stream that was opened. If frames of it were turned away, the link is lost, as one on which they
// were lost.
func (pr *peer) announce(s *stream) {
	pr.mu.Lock()
	l := pr.link
	fl := l.flows[s.id]
	missing := fl != nil && fl.missing
	if pr.gone == nil && !missing {
		l.announce(s.id, s.o)
	}
	pr.unlock()
	if missing {
		err := missed(fmt.Sprintf("%q", s.name))
		l.say(err.Cause, err.Text)
		l.fail(err)
	}
}

func (l *link) announce(id uint32, o StreamOptions) {
	fl := l.flow(id)
	fl.window, fl.maxFrame, fl.announce = o.Window, o.MaxFrame, true
	fl.most = max(fl.most, o.Window) // the peer may not know yet that it is less
	fl.tell()
}

// leave ends the Sends of s that wait: for credit, or for their frames to be written, which a peer that is frozen may never take.
func (pr *peer) leave(s *stream) {
	var stuck []*half
	pr.mu.Lock()
	defer func() {
		pr.unlock()
		for _, h := range stuck {
			h.stop(s)
		}
	}()
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
	for _, h := range pr.link.half {
		for i := range h.queue {
			for o := h.queue[i].first; o != nil; {
				next := o.next
				if o.stream == s && o.waiter != nil {
					h.queue[i].remove(o)
					fl.untake(o.which, o.n)
					pr.give(o, ErrClosed)
				}
				o = next
			}
		}
		if h.writes(s) {
			stuck = append(stuck, h)
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
