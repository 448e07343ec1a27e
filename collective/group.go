// Package collective is operations of a group of ranks: allreduce, reduce, reduce-scatter, all-gather, gather, scatter, broadcast,
// all-to-all, barrier, send and receive, from a rank or from [AnyRank], over a transport.Stream.
//
// A [Group] is one rank's end. Operations have tags; many may be under way. Their results are provisional until the step is committed:
//
//	g, err := collective.New(stream, collective.View{Epoch: 1, Peers: names, Self: rank}, collective.Options{})
//	for step := g.Step(); ; step++ {
//		for i, bucket := range buckets { // launched while the backward pass runs
//			h[i] = g.Start(collective.Op{}, uint32(i), collective.Of(sum[i]), collective.Of(bucket))
//		}
//		err = g.Commit(ctx, step) // waits for all of them, at all ranks
//	}
//
// What holds:
//
//   - Agreement. Ranks that complete an operation hold identical bits, with every algorithm and codec.
//   - All or nothing. If Commit returns nil anywhere, every operation of the step is complete everywhere, though a rank that does not
//     hear of it before another is lost returns the Blame. Until then the sources are intact; they must stay readable, and the destinations
//     are the group's.
//   - Blame. A failure is a [*Blame] or a [*Mismatch], the same at every rank that survives. After a Mismatch, or a context that ended
//     during it, the operation is void everywhere, Commit returns its error everywhere, and the group goes on with the next step. After a rank
//     was lost, or the context of a Commit ended and the others did not commit within two seconds, the group is of no more use; a new view
//     makes a new one.
//   - Frames of an older epoch are never applied.
//
// A [Plan] says what a rank does: a list, made by pure functions, of sends, receives and reductions (files plan_*.go). core*.go executes
// it and holds the contract; it has no goroutine, clock or socket, and runs as a protocol.Machine in the simulator too ([Machine]).
package collective

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A Group is one rank's end of a group. Its methods may be called from any goroutine.
type Group struct {
	h *hub
	c *core
	// whole is that of the view; a sub-group has its own ranks, and none of its own loop.
	whole bool
}

// A View says who is in the group.
type View struct {
	Epoch transport.Epoch
	Peers []transport.Name // by rank
	Self  int              // our rank
	Hosts [][]int          // the ranks of each host, for the hierarchical plan; nil: not known
}

// Options of a Group. The zero value works. All ranks must have the same.
type Options struct {
	Deadline    time.Duration // for an operation, from Start; 0: 30 s
	Straggler   time.Duration // when OnStraggler is told, and how often it is looked whether another rank is waited for; 0: 1 s
	OnStraggler func(Wait)    // called with the group's lock held: it must not call the group; again where an operation waits for another rank
	Segment     int           // bytes of a frame of a long vector; 0: transport.LongPayload
	MaxFrame    int           // of the stream; 0: 1 MiB; 1 KiB at least. Texts in errors are cut to a sixteenth of it
	Window      int           // of the stream; 0: 4 × MaxFrame
	NotFinite   Policy        // what a NaN or an infinity in a float32 or float64 contribution does
	Costs       Costs         // of the links; the zero Costs: a guess, until Calibrate
	Record      func(Measurement)
	FirstStep   uint64 // 2^44 - 1 at most
}

// minFrame holds a report with texts of a few words.
const minFrame = 1 << 10

// A Policy is what a contribution that is not finite does.
type Policy uint8

// The policies. Refuse and Skip void the operation everywhere, with a Blame of cause NotFinite.
const (
	Allow Policy = iota
	Refuse
	Skip
)

// A Wait is an operation that is under way, and the rank that it waits for.
type Wait struct {
	Step       uint64
	Tag        uint32
	Op         string
	Phase      string
	Rank       int
	NotStarted bool // that rank has not called the operation
	For        time.Duration
}

func (o Options) resolve() (Options, error) {
	if o.Deadline == 0 {
		o.Deadline = 30 * time.Second
	}
	if o.Straggler == 0 {
		o.Straggler = time.Second
	}
	if o.Segment == 0 {
		o.Segment = transport.LongPayload
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = 1 << 20
	}
	if o.Window == 0 {
		o.Window = 4 * o.MaxFrame
	}
	if o.Deadline < 0 || o.Straggler < 0 || o.Segment < 0 || o.Window < 0 || o.NotFinite > Skip {
		return o, fmt.Errorf("collective: options: an amount is negative, or there is no policy %d", o.NotFinite)
	}
	if o.MaxFrame < minFrame {
		return o, fmt.Errorf("collective: options: a MaxFrame of %d bytes, want %d at least: what ranks say of a failure would not fit", o.MaxFrame, minFrame)
	}
	if wire.MakeOp(o.FirstStep, 0).Step() != o.FirstStep {
		return o, fmt.Errorf("collective: options: a FirstStep of %d: a frame has 44 bits for it", o.FirstStep)
	}
	o.Segment = min(o.Segment, o.MaxFrame)
	return o, o.Costs.validate()
}

// tellAfter is when ranks tell each other what they have started: most mismatches show in the first frame, long before.
func (o *Options) tellAfter() time.Duration { return 40 * time.Millisecond }

// New makes this rank's end of a group over s, which it receives from, and fences at the view's epoch, until Close. The stream's port knows
// where the others are (Port.Know). All ports are open before the first operation of anyone: a rank whose address refuses counts as lost.
func New(s transport.Stream, v View, o Options) (*Group, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	switch {
	case v.Self < 0 || v.Self >= len(v.Peers):
		return nil, fmt.Errorf("collective: rank %d of a view of %d", v.Self, len(v.Peers))
	case v.Peers[v.Self] != s.Self():
		return nil, fmt.Errorf("collective: rank %d is %v in the view, but the stream is %v's", v.Self, v.Peers[v.Self], s.Self())
	}
	for i, n := range v.Peers {
		if slices.Index(v.Peers, n) != i {
			return nil, fmt.Errorf("collective: %v is twice in the view", n)
		}
	}
	if err := checkHosts(v.Hosts, len(v.Peers)); err != nil {
		return nil, err
	}
	v.Peers = slices.Clone(v.Peers)
	h := newHub(s, v, o)
	c := newCore(0, v, &h.opt)
	h.adopt(c)
	s.Fence(v.Epoch, v.Peers)
	h.wg.Add(1)
	go h.loop()
	return &Group{h: h, c: c, whole: true}, nil
}

func checkHosts(hosts [][]int, size int) error {
	if hosts == nil {
		return nil
	}
	seen := make([]bool, size)
	n := 0
	for _, h := range hosts {
		if len(h) == 0 {
			return fmt.Errorf("collective: hosts %v: one of them has no ranks", hosts)
		}
		for _, r := range h {
			if r < 0 || r >= size || seen[r] {
				return fmt.Errorf("collective: hosts %v are not the %d ranks, each once", hosts, size)
			}
			seen[r] = true
			n++
		}
	}
	if n != size {
		return fmt.Errorf("collective: hosts %v are not the %d ranks, each once", hosts, size)
	}
	return nil
}

// Rank is this process's.
func (g *Group) Rank() int { return g.c.self }

// Size is the number of ranks.
func (g *Group) Size() int { return len(g.c.names) }

// Step is the step under way: that of the operations that Start begins.
func (g *Group) Step() uint64 {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	return g.c.step
}

// A Handle is an operation under way at this rank.
type Handle struct {
	g *Group
	o *operation
}

// Start begins op at this tag, which must be new in the step, and returns. Until Commit of the step has returned, src must stay as it is, and dst
// is the group's, also where the Handle has failed: what is void may still be on its way. Where Commit returns because the group has failed, or an
// [*UnsentError], that holds until Close has returned, since Commit does not wait then for what still travels. Neither waits for ever for a peer that
// sent the beginning of a frame, and stands still: Commit does until the operation's deadline, Close for a second. The rest of such a frame may land
// until the stream is closed.
//
// Ranks should start operations in one order: a rank that waits for a late one first may wait for frames that are held up behind those of others.
func (g *Group) Start(op Op, tag uint32, dst, src Buffer) *Handle {
	done := make(chan struct{})
	var o *operation
	g.h.act(func() { o = g.c.start(op, tag, dst, src, done) }, op.Aside)
	return &Handle{g, o}
}

// Wait waits until the operation is complete here. Its result is provisional until Commit. If ctx ends first, the operation is void at
// all ranks, which blame this one.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.o.done:
		return h.err()
	default:
	}
	h.g.h.attend(1)
	defer h.g.h.attend(-1)
	select {
	case <-h.o.done:
	case <-ctx.Done():
		h.g.h.do(func() { h.g.c.cancel(h.o, context.Cause(ctx)) })
		<-h.o.done // at once, or when the others have said what they know
	}
	return h.err()
}

// From is the rank whose message a Receive has taken, once Wait has returned nil. Of other operations it is AnyRank.
func (h *Handle) From() int {
	h.g.h.mu.Lock()
	defer h.g.h.mu.Unlock()
	return h.o.from()
}

// Done is closed when Wait would return at once.
func (h *Handle) Done() <-chan struct{} { return h.o.done }

func (h *Handle) err() error {
	h.g.h.mu.Lock()
	defer h.g.h.mu.Unlock()
	return h.o.err
}

// Settle waits until all operations of the step so far are complete at this rank, and returns the error of one that is not. The step goes
// on: their results stay provisional until Commit, but their memory is the caller's again, and what is started afterwards builds on them:
// where one of them turns out to have failed at another rank, so does all that follows, everywhere, with its error. A rank that is told of a
// failure starts no more, and commits, which returns that error everywhere.
//
// A vote costs two messages a rank and, where ranks share cores, waiting for one that has none. Settle saves most of them: an allreduce that
// completes shows that every rank has contributed, and so has settled what was before it. All ranks settle at the same places, and use new
// tags afterwards: a message of before that was not received by then is received no more, and fails the step. Of operations whose source or destination is the group's Memory it is refused: others may still read there.
func (g *Group) Settle(ctx context.Context) error {
	h := g.h
	for {
		var next *operation
		h.mu.Lock()
		var read *operation // by others, who knows how long
		for _, o := range g.c.ops {
			if o.plan != nil && g.c.inArena(o.job, o.plan.Algorithm) != [2]bool{} {
				read = o
			}
			if !o.finish {
				next = o
				break
			}
		}
		h.mu.Unlock()
		if read != nil {
			return fmt.Errorf("collective: settle: %s (tag %d) is in memory that others may still read: commit the step", read.title(), read.tag)
		}
		if next == nil {
			break
		}
		if err := (&Handle{g, next}).Wait(ctx); err != nil {
			return err
		}
	}
	// Whoever had the last frame of an operation in hand may be about to send what came of it.
	sent := func() bool { return h.flushing.Load() == 0 }
	h.await(ctx, sent)
	if ctx.Err() != nil && !sent() {
		return fmt.Errorf("collective: settle: frames are still to be sent: %w", context.Cause(ctx))
	}
	if to, err := h.drain(ctx, g.c); err != nil {
		return fmt.Errorf("collective: settle: frames to %v are still on their way: %w", to, err)
	}
	var err error
	h.do(func() { err = g.c.settle() })
	return err
}

// Commit waits until every operation of the step is complete at every rank: the only point of no return. If one of them failed, at any
// rank, all get its error, nothing of the step counts, and the next step begins. If ctx ends, what is not complete here is void everywhere, and
// the others have two seconds more to commit, since a vote cannot be taken back: the step may still count. If they do not, its outcome is
// not known here, and the group is of no more use. A message that its receiver commits without is a [*Mismatch] of Field "messages";
// a receiver that does not commit is waited for, until Options.Deadline, and then blamed. If a rank is lost meanwhile, each of the others returns nil that hears in time of
// one that does, and else the Blame. A second Commit of the step meanwhile is refused. If ctx ends when the step counts already, the error is an
// [*UnsentError].
func (g *Group) Commit(ctx context.Context, step uint64) error {
	done := make(chan struct{})
	var t *tally
	g.h.do(func() { t = g.c.commit(step, done) })
	if t.done == nil { // refused
		return g.h.voteErr(t)
	}
	select {
	case <-done:
	default:
		g.h.attend(1)
		defer g.h.attend(-1)
		select {
		case <-done:
		case <-ctx.Done():
			g.h.do(func() { g.c.cancelCommit(t, context.Cause(ctx)) })
			select {
			case <-done:
			case <-time.After(2 * voidWait): // the others do not vote, or a frame of an operation that is void lands for ever
				g.h.do(func() { g.c.abandonCommit(t, context.Cause(ctx)) })
				<-done // at once, or when the others have said what they know
			}
		}
	}
	err := g.h.voteErr(t)
	limit := ctx
	if ctx.Err() != nil { // what was sent a moment ago may still be in the hands of another goroutine
		var stop context.CancelFunc
		limit, stop = context.WithTimeout(context.WithoutCancel(ctx), 2*voidWait)
		defer stop()
	}
	// Also what is void may still be on its way from the sources.
	if to, late := g.h.drain(limit, g.c); err == nil && late != nil {
		return &UnsentError{Step: step, To: to, err: ctx.Err()}
	}
	return err
}

// Waits lists the operations that are under way here, and whom they wait for.
func (g *Group) Waits() []Wait {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	g.c.now = g.h.clock()
	var list []Wait
	for _, o := range g.c.ops {
		if !o.finish {
			list = append(list, g.c.waiting(o))
		}
	}
	return list
}

// Sub is the group of these ranks of g, in this order, of which this rank must be one. All of them call Sub with the same list, also
// again after Close. Its steps are its own. It is closed with g, which must not have failed yet.
func (g *Group) Sub(ranks []int) (*Group, error) {
	h := g.h
	h.mu.Lock()
	defer h.flush(nil)
	h.tell()
	if err := g.c.failed; err != nil {
		return nil, err // where the group is closed nothing comes any more, and no deadline passes
	}
	v := View{Epoch: g.c.epoch, Self: -1}
	for i, r := range ranks {
		if r < 0 || r >= len(g.c.names) || slices.Index(ranks, r) != i {
			return nil, fmt.Errorf("collective: sub-group %v: not ranks of a group of %d, each once", ranks, len(g.c.names))
		}
		if r == g.c.self {
			v.Self = i
		}
		v.Peers = append(v.Peers, g.c.names[r])
	}
	if v.Self < 0 {
		return nil, fmt.Errorf("collective: sub-group %v is without this rank, %d", ranks, g.c.self)
	}
	for host := range g.c.hosts {
		var in []int
		for i, r := range ranks {
			if slices.Contains(g.c.hosts[host], r) {
				in = append(in, i)
			}
		}
		if in != nil {
			v.Hosts = append(v.Hosts, in)
		}
	}
	list := fmt.Sprint(g.c.id, ranks)
	times := h.made[list]
	id := subID(g.c.id, ranks, times)
	switch {
	case times > 0 && h.core(subID(g.c.id, ranks, times-1)) != nil:
		return nil, fmt.Errorf("collective: sub-group %v: this rank has it already", ranks)
	case h.numbers[id]:
		return nil, fmt.Errorf("collective: sub-group %v: another has or had the same number; list the ranks in another order", ranks)
	}
	h.made[list], h.numbers[id] = times+1, true
	c := newCore(id, v, &h.opt)
	c.now = g.c.now // what came for it begins now, and not with the whole group
	for i := range v.Peers {
		if j := slices.Index(g.c.names, v.Peers[i]); g.c.gone[j] {
			c.gone[i] = true
		}
	}
	h.adopt(c)
	c.planner = g.c.planner
	h.replay(id)
	for r, n := range h.names {
		if h.cores[0].bye[r] >= 0 {
			c.absent(n)
		}
	}
	return &Group{h: h, c: c}, nil
}

// subID numbers a sub-group: the members know it without asking one another. 0 is the whole group. One that is made again has another
// number each time: what was sent in the one before may still come.
func subID(parent uint16, ranks []int, times uint32) uint16 {
	x := uint32(parent) + 0x9e3779b9
	for _, r := range ranks {
		x = (x ^ uint32(r+1)) * 0x85ebca6b
		x ^= x >> 15
	}
	return uint16(1 + (x>>16+times)%math.MaxUint16)
}

// Close says goodbye to the others and ends the group: what is under way fails with ErrClosed. At the others, an operation that waits for this
// rank fails at once, with a [*Blame] of cause Lost, and so does the commit of one that has only something to send to it; what was complete here
// becomes so there. For what is still to be sent, or lands, it waits a second. The stream stays open. Of a sub-group it ends nothing else.
func (g *Group) Close() error {
	if !g.whole {
		g.h.drop(g.c)
		return nil
	}
	return g.h.close()
}
