package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// A hub drives the cores of one stream: the group of the view, and its sub-groups. The goroutines of the transport that read connections
// hand frames over; whoever makes a call into a core sends what came out of it, after the lock is free. So an operation goes through few
// hands: a small one is sent by whoever calls Start, and what a frame sets off is sent by the goroutine that read it.
type hub struct {
	s     transport.Stream
	opt   Options
	names []transport.Name
	begin time.Time

	ctx    context.Context // of the loop and of all sends; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	goMu   sync.Mutex // guards over; taken last
	over   bool       // Close waits for wg: nothing begins any more

	mu     sync.Mutex // guards the cores; held by nobody who waits
	cores  []*core
	former []*core           // sub-groups that were closed while frames waited to be sent
	early  []transport.Event // of sub-groups that are not made yet
	copied int               // bytes that they take
	timer  *time.Timer
	armed  time.Duration
	closed bool
	ended  int // operations and steps so far: somebody may wait for each

	made    map[string]uint32 // how often each sub-group was, by parent and ranks
	numbers map[uint16]bool   // of all sub-groups so far

	flushing atomic.Int64 // calls of flush that send what they have taken from the cores

	waiting atomic.Int64  // calls of await that wait
	turnMu  sync.Mutex    // guards turn; taken last
	turn    chan struct{} // closed, and replaced, when something has happened that somebody may wait for

	segments []*transport.Segment // of shared memory

	sentMu   sync.Mutex // guards what follows
	sent     []sentTask
	sentBusy bool // goOn runs

	rank  map[transport.Name]int
	peers []*peer
}

func newHub(s transport.Stream, v View, o Options) *hub {
	h := &hub{
		s: s, opt: o, names: v.Peers, begin: time.Now(), armed: never, rank: map[transport.Name]int{},
		turn: make(chan struct{}), made: map[string]uint32{}, numbers: map[uint16]bool{},
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for r, n := range v.Peers {
		h.rank[n] = r
		p := &peer{h: h, name: n}
		p.done = func(error) { p.through() } // what was not sent shows as a lost link
		h.peers = append(h.peers, p)
	}
	return h
}

func (h *hub) clock() time.Duration { return time.Since(h.begin) }

func (h *hub) adopt(c *core) {
	c.post = func(from int, k transport.Key, dst []byte) bool { return h.s.Post(c.names[from], k, dst) == nil }
	c.take = func(from int, k transport.Key) bool { return h.s.Unpost(c.names[from], k) }
	c.planner = &h.opt.Costs
	c.ended = &h.ended
	for _, n := range c.names {
		c.peers = append(c.peers, h.peers[h.rank[n]])
	}
	h.cores = append(h.cores, c)
}

func (h *hub) core(id uint16) *core {
	for _, c := range h.cores {
		if c.id == id {
			return c
		}
	}
	return nil
}

// do calls f with the lock held, and sends what comes of it.
func (h *hub) do(f func()) { h.act(f, false) }

// act is do, where the caller may have something else to do than to send.
func (h *hub) act(f func(), aside bool) {
	h.mu.Lock()
	h.tell()
	f()
	var few [8]outTo
	h.flushBy(few[:0], aside)
}

// tell gives the cores the time.
func (h *hub) tell() {
	now := h.clock()
	for _, c := range h.cores {
		c.now = now
	}
}

// flush frees the lock, and then sends what is to be sent.
func (h *hub) flush(list []outTo) []outTo { return h.flushBy(list, false) }

// flushBy is flush, aside or not: see peer.send.
func (h *hub) flushBy(list []outTo, aside bool) []outTo {
	list = list[:0]
	var over []transport.Event
	due := never
	for _, c := range h.cores {
		for i := range c.out {
			out := &c.out[i]
			p := c.peers[out.to]
			if out.op != nil {
				out.f.Done = h.whenSent(p, c, out.op, out.task)
			}
			list = append(list, outTo{p, out.f})
		}
		clear(c.out)
		c.out = c.out[:0]
		due = min(due, c.due)
		over = append(over, c.over...)
		clear(c.over)
		c.over = c.over[:0]
	}
	if due < h.armed && !h.closed {
		h.armed = due
		wait := due - h.clock()
		switch {
		case h.timer == nil:
			h.wg.Add(1)
			h.timer = time.AfterFunc(wait, h.tick)
		case !h.timer.Reset(wait): // its last tick has begun, and is counted by itself
			h.wg.Add(1)
		}
	}
	h.flushing.Add(1)
	h.mu.Unlock()
	for i := range list {
		list[i].p.send(list[i].f, aside)
	}
	h.flushing.Add(-1)
	h.wake()
	clear(list)
	for i := range over { // which may call a Done, of a group in this process, which takes its lock
		over[i].Release()
	}
	return list
}

type outTo struct {
	p *peer
	f transport.Frame
}

// tick is the timer's. Close waits for each that is set, unless stop undoes it.
func (h *hub) tick() {
	defer h.wg.Done()
	h.mu.Lock()
	h.armed = never
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.tell()
	for _, c := range h.cores {
		c.tick()
	}
	h.flush(nil)
}

// loop receives until Close.
func (h *hub) loop() {
	defer h.wg.Done()
	if sv, ok := h.s.(transport.Server); ok {
		h.stop(fmt.Errorf("%w: %w", ErrClosed, sv.Serve(h.ctx, h.take)))
		return
	}
	var list []outTo
	for {
		ev, err := h.s.Recv(h.ctx)
		if err != nil {
			h.stop(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		}
		h.mu.Lock()
		h.tell()
		keep := h.dispatch(&ev)
		list = h.flush(list)
		if !keep {
			ev.Release()
		}
	}
}

// attend says that a caller waits, or no longer does: the stream may then look for frames instead of being woken.
func (h *hub) attend(by int) {
	if a, ok := h.s.(transport.Attender); ok {
		a.Attend(by)
	}
}

// take is one turn of the loop, for a stream that hands events over where they come in.
func (h *hub) take(ev *transport.Event) (keep, yield bool) {
	h.mu.Lock()
	h.tell()
	before := h.ended
	keep = h.dispatch(ev)
	yield = h.ended != before
	var few [8]outTo
	h.flush(few[:0])
	return keep, yield
}

// dispatch hands an event to its core. If it reports true the event is kept.
func (h *hub) dispatch(ev *transport.Event) bool {
	switch ev.What {
	case transport.LinkLost:
		for _, c := range h.cores {
			if r := c.rankOf(ev.From); r >= 0 {
				c.lost(r, ev.Err)
			}
		}
		return false
	case transport.LinkBack:
		return false // what was under way is lost all the same
	}
	c := h.core(uint16(ev.Chunk >> 16))
	switch {
	case c == nil && h.numbers[uint16(ev.Chunk>>16)]:
		return false // it is closed
	case c == nil && h.copied+weight(ev) > earlyBytes:
		h.early = append(h.early, *ev)
		return true
	case c == nil:
		h.copied += weight(ev)
		h.early = append(h.early, h.cores[0].copyOf(ev)) // its sender needs the credit for what has its turn in other groups
		return false
	}
	r := c.rankOf(ev.From)
	if r < 0 {
		return false
	}
	keep := c.received(r, ev)
	if ev.Kind == kindBye && c == h.cores[0] { // sub-groups of which it has not said goodbye before it has not made
		for _, sub := range h.cores[1:] {
			sub.absent(ev.From)
		}
	}
	return keep
}

// replay hands a new core what came for it.
func (h *hub) replay(id uint16) {
	keep := h.early[:0]
	h.copied = 0
	for i := range h.early {
		ev := h.early[i]
		if uint16(ev.Chunk>>16) != id {
			keep = append(keep, ev)
			h.copied += weight(&ev)
		} else if !h.dispatch(&ev) {
			h.cores[0].release(ev)
		}
	}
	clear(h.early[len(keep):])
	h.early = keep
}

// wake has those look again who wait in await. It costs one load where nobody does.
func (h *hub) wake() {
	if h.waiting.Load() == 0 {
		return
	}
	h.turnMu.Lock()
	defer h.turnMu.Unlock()
	close(h.turn)
	h.turn = make(chan struct{})
}

// await waits until there is what it asks for: until holds, or ctx or the hub ends. Whatever may make it hold calls wake afterwards.
func (h *hub) await(ctx context.Context, until func() bool) {
	if until() {
		return
	}
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	for {
		h.turnMu.Lock()
		turn := h.turn
		h.turnMu.Unlock()
		if until() {
			return
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return
		case <-h.ctx.Done():
			return
		}
	}
}

// drain waits until the streams are through with all memory: at once, as a rule, since a commit means that every frame has come. Where
// the group has failed, or a rank has left, or another goroutine has begun the next step, nobody waits. Where ctx ends, to is for whom some is read.
// A rank that takes nothing is not waited for longer than for an operation: the group fails then.
func (h *hub) drain(ctx context.Context, c *core) (to transport.Name, err error) {
	var limit context.Context // nil: nothing was waited for yet, as a rule
	for r, n := range c.names {
		p := c.peers[r]
		vain := false
		through := func() bool {
			if p.undone.Load() == 0 {
				return true
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			vain = c.failed != nil || c.left(r)
			for _, o := range c.ops {
				vain = vain || !o.finish
			}
			return vain
		}
		if p.undone.Load() > 0 && limit == nil {
			var stop context.CancelFunc
			limit, stop = context.WithTimeout(ctx, h.opt.Deadline)
			defer stop()
		}
		if limit != nil {
			h.await(limit, through)
			if limit.Err() != nil && ctx.Err() == nil && !vain && p.undone.Load() > 0 {
				h.do(func() { c.stuck(r) })
				h.await(ctx, through) // until the others have said what they know
			}
		}
		if err := ctx.Err(); err != nil && !vain && p.undone.Load() > 0 {
			return n, err
		}
		p.mu.Lock()
		p.recent = 0
		p.mu.Unlock()
	}
	return to, nil
}

func (h *hub) voteErr(t *tally) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.err
}

// stop fails all cores.
func (h *hub) stop(err error) {
	h.mu.Lock()
	h.tell()
	h.closed = true
	if h.timer != nil && h.timer.Stop() {
		h.wg.Done()
	}
	for _, c := range h.cores {
		if c.failed == nil {
			c.fail(err)
		}
		for _, o := range c.ops { // also what was landing
			c.end(o, err)
		}
		c.out = nil
	}
	over := h.early
	for _, c := range h.cores {
		over = append(over, c.over...)
		c.over = nil
	}
	h.early = nil
	h.mu.Unlock()
	h.wake()
	for i := range over {
		over[i].Release()
	}
}

func (h *hub) drop(c *core) {
	h.giveUp(c)
	h.mu.Lock()
	defer h.flush(nil)
	h.tell()
	for _, o := range c.ops { // also what was landing
		c.end(o, ErrClosed)
	}
	for i, x := range h.cores {
		if x == c {
			h.cores = append(h.cores[:i], h.cores[i+1:]...)
			h.cores[0].over = append(h.cores[0].over, c.over...)
			h.former = slices.DeleteFunc(append(h.former, c), h.allSent)
			break
		}
	}
}

// giveUp says goodbye and fails cores, sub-groups before the whole group, and waits until nothing lands in memory that is the caller's again,
// but not for a peer that stands still.
func (h *hub) giveUp(cores ...*core) {
	for _, c := range slices.Backward(cores) {
		h.do(func() {
			if c.failed == nil {
				c.leave()
				c.fail(ErrClosed)
			}
		})
	}
	ctx, cancel := context.WithTimeout(h.ctx, settleWait)
	defer cancel()
	h.await(ctx, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range cores {
			if slices.ContainsFunc(c.ops, func(o *operation) bool { return !o.finish }) {
				return false
			}
		}
		return true
	})
}

// settleWait is how long Close waits for a peer that takes nothing, or sends the rest of a frame.
const settleWait = time.Second

// settle waits until the stream has what this rank said. A commit ends here when the last vote has come, and perhaps before another
// goroutine has sent our own last one, which the others wait for.
func (h *hub) settle() {
	ctx, cancel := context.WithTimeout(h.ctx, settleWait)
	defer cancel()
	h.await(ctx, func() bool {
		busy := h.flushing.Load() > 0
		for _, p := range h.peers {
			busy = busy || p.busy()
		}
		return !busy
	})
}

// spawn runs f beside the caller, and Close waits for it; false: Close does no longer wait for what begins, and f does not.
func (h *hub) spawn(f func()) bool {
	h.goMu.Lock()
	defer h.goMu.Unlock()
	if h.over {
		return false
	}
	h.wg.Go(f)
	return true
}

func (h *hub) close() error {
	h.mu.Lock()
	first := !h.closed
	cores := slices.Clone(h.cores)
	all := slices.Concat(h.cores, h.former)
	h.mu.Unlock()
	if first {
		h.giveUp(cores...)
		h.settle()
	}
	h.stop(ErrClosed)
	h.goMu.Lock()
	h.over = true
	h.goMu.Unlock()
	h.cancel()
	h.wg.Wait()
	if first {
		h.recount(all)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	for _, s := range h.segments {
		err = errors.Join(err, s.Close())
	}
	h.segments, h.former = nil, nil
	for _, c := range h.cores {
		c.arena = nil
	}
	return err
}
