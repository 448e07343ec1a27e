package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A Host is a stream shared by the parts of one process: servers, a client, a directory, or some of them. Open, Serve and Direct make
// one of their own; a process with several parts makes one and calls its methods.
type Host struct {
	s      transport.Stream
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	log    *slog.Logger

	parcels parcels
	replies sync.Pool
	attends transport.Attender // of the stream; nil: it has none

	mu      sync.Mutex
	boxes   map[Name]*outbox
	parts   [4][]*part // by role; of servers by lane
	retain  int64
	copies  [][]byte
	held    map[Name]*atomic.Int64 // bytes of batches that lanes keep, by sender
	refused uint64
}

// StreamOptions are what the stream of a Host wants: room for the pieces of a shard's round, which are kept where they arrived.
func StreamOptions() transport.StreamOptions {
	return transport.StreamOptions{MaxFrame: 1 << 20, Window: 32 << 20, Queue: 256}
}

// retained is how many bytes of one client's frames a server keeps where they arrived: half of StreamOptions' window. More is copied.
const retained = 16 << 20

// Share makes a Host of a stream that was opened with StreamOptions. Close ends it; the stream stays open.
func Share(s transport.Stream, log *slog.Logger) *Host {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &Host{s: s, boxes: map[Name]*outbox{}, retain: retained, held: map[Name]*atomic.Int64{}, log: log}
	h.attends, _ = s.(transport.Attender)
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.wg.Go(h.receive)
	return h
}

// Close ends all parts and waits for them.
func (h *Host) Close() error {
	h.mu.Lock()
	var all []*part
	for _, ps := range h.parts {
		for _, p := range ps {
			if p != nil {
				all = append(all, p)
			}
		}
	}
	h.mu.Unlock()
	for _, p := range all {
		p.step(protocol.Stop{})
	}
	h.drain()
	h.cancel(errors.New("ps: closed"))
	h.wg.Wait()
	for _, p := range all {
		p.close()
	}
	return nil
}

// drain gives what is queued a moment to be sent.
func (h *Host) drain() {
	h.mu.Lock()
	boxes := make([]*outbox, 0, len(h.boxes))
	for _, b := range h.boxes {
		boxes = append(boxes, b)
	}
	h.mu.Unlock()
	limit := time.After(time.Second)
	for _, b := range boxes {
		select {
		case <-b.idle():
		case <-limit:
			return
		}
	}
}

// add makes p the part that frames of its role go to.
func (h *Host) add(role, place int, p *part) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return errors.New("ps: the host is closed")
	}
	ps := h.parts[role]
	for len(ps) <= place {
		ps = append(ps, nil)
	}
	if ps[place] != nil {
		return fmt.Errorf("ps: %s has such a part already", h.s.Self())
	}
	ps[place] = p
	h.parts[role] = ps
	return nil
}

func (h *Host) remove(p *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ps := range h.parts {
		if i := slices.Index(ps, p); i >= 0 {
			ps[i] = nil
		}
	}
}

// receive passes on what comes in.
func (h *Host) receive() {
	for {
		serves := h.onlyServes()
		if serves {
			h.attend(1)
		}
		ev, err := h.s.Recv(h.ctx)
		if serves {
			h.attend(-1)
		}
		if err != nil {
			h.mu.Lock()
			all := slices.Concat(h.parts[0], h.parts[1], h.parts[2], h.parts[3])
			h.mu.Unlock()
			for _, p := range all {
				if p != nil && h.ctx.Err() == nil {
					p.fail(fmt.Errorf("ps: %s: %w", h.s.Self(), err))
				}
			}
			return
		}
		switch ev.What {
		case transport.LinkLost:
			h.each(protocol.LinkLost{Peer: ev.From, Err: ev.Err})
		case transport.LinkBack:
			h.each(protocol.LinkBack{Peer: ev.From})
		default:
			h.frame(&ev)
		}
		ev.Release()
	}
}

// attend tells the stream that somebody waits for what comes next, and has nothing else to do, or that he does no longer.
func (h *Host) attend(by int) {
	if h.attends != nil {
		h.attends.Attend(by)
	}
}

// onlyServes reports whether this process has lanes and no workers: then it does nothing while nothing comes.
func (h *Host) onlyServes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.parts[forServer]) > 0 && len(h.parts[forClient]) == 0
}

func (h *Host) each(in protocol.Event) {
	h.mu.Lock()
	all := slices.Concat(h.parts[0], h.parts[1], h.parts[2], h.parts[3])
	h.mu.Unlock()
	for _, p := range all {
		if p != nil {
			p.step(in)
		}
	}
}

// frame decodes a frame and gives it to whom it is for. Memory that its reader keeps for longer is copied beyond a budget, so that a
// client's credit is never spent on rounds that wait for their last piece.
func (h *Host) frame(ev *transport.Event) {
	kind, from, head, payload := ev.Kind, ev.From, ev.Head, ev.Payload
	var release func()
	if kind == kindBatch || kind == kindPull || kind == kindProgress {
		n := int64(len(payload))
		if held := h.heldOf(from); kind == kindBatch && n >= retainFrom && held.Load()+n <= h.retain {
			held.Add(n)
			taken := *ev
			*ev = transport.Event{}
			release = func() { held.Add(-n); taken.Release() }
		} else {
			payload, release = h.copyOf(payload)
		}
	}
	b, err := decode(kind, head, payload, release)
	if err != nil {
		if release != nil {
			release()
		}
		h.mu.Lock()
		h.refused++
		h.mu.Unlock()
		h.log.Warn("ps: refused a frame", "from", from.String(), "kind", kind, "err", err)
		return
	}
	h.deliver(roleOf(kind), from, b)
}

// copyOf copies a payload to memory that is used again.
func (h *Host) copyOf(p []byte) (c []byte, release func()) {
	if len(p) < copyFrom {
		return slices.Clone(p), nil
	}
	h.mu.Lock()
	var buf []byte
	if n := len(h.copies); n > 0 {
		buf, h.copies = h.copies[n-1], h.copies[:n-1]
	}
	h.mu.Unlock()
	if buf == nil {
		buf = make([]byte, 1<<20)
	}
	if len(p) > len(buf) {
		return slices.Clone(p), nil
	}
	return buf[:copy(buf, p)], func() {
		h.mu.Lock()
		if len(h.copies) < maxCopies {
			h.copies = append(h.copies, buf)
		}
		h.mu.Unlock()
	}
}

const (
	// retainFrom is the size in bytes from which a payload is kept where it arrived. Smaller ones are copied.
	retainFrom = 1 << 12
	// copyFrom is the size in bytes from which a copy goes to memory of 1 MiB, of which maxCopies are kept to be used again.
	copyFrom  = 1 << 16
	maxCopies = 128
)

func (h *Host) heldOf(n Name) *atomic.Int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.held[n]
	if c == nil {
		c = new(atomic.Int64)
		h.held[n] = c
	}
	return c
}

// deliver gives a message to the part that it is for.
func (h *Host) deliver(role int, from Name, b protocol.Body) {
	h.mu.Lock()
	var p *part
	ps := h.parts[role]
	k := 0
	if role == forServer && len(ps) > 0 {
		k = int(laneOf(b)) % len(ps)
	}
	if k < len(ps) {
		p = ps[k]
	}
	h.mu.Unlock()
	if p == nil {
		giveUp(b)
		return
	}
	if p.queue == nil {
		p.step(protocol.Message{From: from, Body: b})
		return
	}
	select {
	case p.queue <- protocol.Message{From: from, Body: b}:
	case <-h.ctx.Done():
		giveUp(b)
	}
}

// giveUp returns the memory of a message that nobody takes.
func giveUp(b protocol.Body) {
	if m, ok := b.(*batch); ok {
		drop(m)
	}
}

// send queues a message for a peer.
func (h *Host) send(to Name, b protocol.Body) {
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
	if b.Size() <= sendAtOnce && x.now(b) {
		return
	}
	x.put(b)
}

// sendAtOnce is the size in bytes up to which a message is sent by whoever made it, if that takes no waiting: a question and its answer
// are two switches of goroutines shorter so, and cells that are sent from where they lie are free again before the next round comes.
const sendAtOnce = 1 << 20

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

// now sends b if nothing is before it and nothing makes it wait, and reports whether it did.
func (x *outbox) now(b protocol.Body) bool {
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
	p := x.h.parcels.encode(b)
	copied := p.copied
	err := x.h.s.Send(&atOnce{}, x.to, p.frame())
	wait := errors.Is(err, errWait)
	if wait {
		p.holds = nil // it is still to be sent
	} else {
		copied.give()
	}
	if err != nil {
		p.free()
	}
	x.mu.Lock()
	if wait {
		x.queue = slices.Insert(x.queue, 0, b)
	}
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

func (x *outbox) put(b protocol.Body) {
	x.mu.Lock()
	x.queue = append(x.queue, b)
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
	if err := x.h.s.Send(x.h.ctx, x.to, p.frame()); err != nil {
		p.free() // the link's loss is told by itself
	}
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

// A part runs one machine: it owns the state, steps it under a lock, and does what it commands.
type part struct {
	h     *Host
	begun time.Time
	queue chan protocol.Message // of lanes; nil: whoever receives steps
	work  sync.WaitGroup

	mu     sync.Mutex
	m      protocol.Machine
	timers map[protocol.TimerID]*time.Timer
	calls  map[uint64]chan reply
	lastID uint64
	ended  chan struct{} // closed by Exit or fail
	exit   error
}

type reply struct {
	result any
	err    error
}

func (h *Host) newPart(m protocol.Machine) *part {
	return &part{h: h, m: m, begun: time.Now(), timers: map[protocol.TimerID]*time.Timer{}, calls: map[uint64]chan reply{}, ended: make(chan struct{})}
}

// step gives the machine an event.
func (p *part) step(in protocol.Event) {
	p.mu.Lock()
	p.stepLocked(in)
	p.mu.Unlock()
}

func (p *part) stepLocked(in protocol.Event) {
	if p.over() {
		return
	}
	for _, c := range p.m.Step(time.Since(p.begun), in) {
		switch c := c.(type) {
		case protocol.Send:
			p.h.send(c.To, c.Body)
		case protocol.SetTimer:
			p.setTimer(c)
		case protocol.Answer:
			if ch := p.calls[c.ID]; ch != nil {
				delete(p.calls, c.ID)
				ch <- reply{c.Result, c.Err}
			}
		case protocol.Compute:
			p.work.Go(func() {
				if c.Work != nil {
					c.Work()
				}
				p.step(protocol.Computed{ID: c.ID})
			})
		case protocol.Report:
			p.h.log.Debug("ps", "fact", c.Fact)
		case protocol.Exit:
			p.end(c.Err)
		}
	}
}

func (p *part) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *part) end(err error) {
	if p.over() {
		return
	}
	p.exit = err
	close(p.ended)
	for _, t := range p.timers {
		t.Stop()
	}
	for id, ch := range p.calls {
		delete(p.calls, id)
		ch <- reply{nil, errors.Join(errEnded, err)}
	}
}

var errEnded = errors.New("ps: closed")

// fail ends the part, and everything that waits for it.
func (p *part) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(err)
}

func (p *part) setTimer(c protocol.SetTimer) {
	t := p.timers[c.ID]
	switch {
	case c.After < 0:
		if t != nil {
			t.Stop()
		}
	case t == nil:
		p.timers[c.ID] = time.AfterFunc(c.After, func() { p.step(protocol.Timer{ID: c.ID}) })
	default:
		t.Reset(c.After)
	}
}

// close stops timers and waits for work.
func (p *part) close() {
	p.fail(nil)
	p.work.Wait()
	p.h.remove(p)
}

// call asks the machine and waits for its answer. When ctx ends first the call is withdrawn.
func (p *part) call(ctx context.Context, ch chan reply, arg any) (any, error) {
	p.mu.Lock()
	if p.over() {
		err := errors.Join(errEnded, p.exit)
		p.mu.Unlock()
		return nil, err
	}
	p.lastID++
	id := p.lastID
	p.calls[id] = ch
	p.stepLocked(protocol.Call{ID: id, Arg: arg})
	p.mu.Unlock()
	select {
	case r := <-ch: // mostly what a call asks for is here
		return r.result, r.err
	default:
	}
	p.h.attend(1)
	defer p.h.attend(-1)
	select {
	case r := <-ch:
		return r.result, r.err
	case <-ctx.Done():
	}
	p.step(protocol.Call{Arg: cancelCall{id, context.Cause(ctx)}})
	p.mu.Lock()
	if p.calls[id] == ch { // a call that cannot be withdrawn
		delete(p.calls, id)
		p.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	p.mu.Unlock()
	r := <-ch
	return r.result, r.err
}
