package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

	parcels  parcels
	replies  sync.Pool
	attends  transport.Attender // of the stream; nil: it has none
	serves   atomic.Bool        // see look
	answered atomic.Uint64      // calls
	deaf     atomic.Int32       // peers that are not heard

	flight   flight
	landings []posted // under the lock of the client's part

	mu       sync.Mutex
	boxes    map[Name]*outbox
	parts    [4][]*part // by role; of servers by lane
	retain   int64
	copies   [][]byte
	held     map[Name]*atomic.Int64 // bytes of batches that lanes keep, by sender
	gaveUp   uint64                 // the session of an Open that ended by its context
	refused  uint64                 // frames that nobody could read
	refusals map[Name]*refusals     // of them, by sender
	watch    func(from Name, why string)
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
	h := &Host{s: s, boxes: map[Name]*outbox{}, retain: retained, held: map[Name]*atomic.Int64{}, refusals: map[Name]*refusals{}, log: log}
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
	h.look()
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
	h.look()
}

// receive passes on what comes in: from the goroutines that read the connections, where the stream can do that.
func (h *Host) receive() {
	if sv, ok := h.s.(transport.Server); ok {
		h.over(sv.Serve(h.ctx, func(ev *transport.Event) (keep, yield bool) {
			if h.serves.Load() { // while this lasts it is not idle
				h.attend(-1)
				defer h.attend(1)
			}
			return h.take(ev)
		}))
		return
	}
	for {
		ev, err := h.s.Recv(h.ctx)
		if err != nil {
			h.over(err)
			return
		}
		h.take(&ev)
		ev.Release()
	}
}

// take handles an event. yield: a call was answered, and who waited for it has more to do than who reads.
func (h *Host) take(ev *transport.Event) (keep, yield bool) {
	switch ev.What {
	case transport.LinkLost:
		h.each(protocol.LinkLost{Peer: ev.From, Err: ev.Err})
	case transport.LinkBack:
		h.back(ev.From)
		h.each(protocol.LinkBack{Peer: ev.From})
	default:
		before := h.answered.Load()
		h.frame(ev)
		yield = h.answered.Load() != before
	}
	return false, yield
}

// over ends all parts: nothing comes in any more.
func (h *Host) over(err error) {
	if h.ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	all := slices.Concat(h.parts[0], h.parts[1], h.parts[2], h.parts[3])
	h.mu.Unlock()
	for _, p := range all {
		if p != nil {
			p.fail(fmt.Errorf("ps: %s: %w", h.s.Self(), err))
		}
	}
}

// attend tells the stream that somebody waits for what comes next, and has nothing else to do, or that he does no longer.
func (h *Host) attend(by int) {
	if h.attends != nil {
		h.attends.Attend(by)
	}
}

// look finds out whether this process has lanes and no workers: then it has nothing to do while nothing comes, and attends. One with a single
// thread of Go does not: it has that because the job's processes are more than the processors, which its workers need. h.mu is held.
func (h *Host) look() {
	any := func(role int) bool { return slices.ContainsFunc(h.parts[role], func(p *part) bool { return p != nil }) }
	serves := any(forServer) && !any(forClient) && runtime.GOMAXPROCS(0) > 1
	if serves != h.serves.Swap(serves) {
		if serves {
			h.attend(1)
		} else {
			h.attend(-1)
		}
	}
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
// client's credit is never spent on rounds that wait for their last piece. A frame that nobody can read is refused.
func (h *Host) frame(ev *transport.Event) {
	kind, from, head, payload := ev.Kind, ev.From, ev.Head, ev.Payload
	if !h.hears(from, kind) {
		return
	}
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
		h.refuse(from, kind, err)
		return
	}
	if m, ok := b.(*refused); ok && m.req == notHeard {
		h.unheard(from, m)
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
	if _, ok := b.(*hello); ok && p == nil { // no directory is here; another part knows who is
		for _, x := range slices.Concat(h.parts[forServer], h.parts[forClient]) {
			if p == nil {
				p = x
			}
		}
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
	case <-p.ended:
		giveUp(b)
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
