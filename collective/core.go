package collective

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A core is a group at one rank, without clock, goroutine or socket: what comes in are method calls with the time, and what goes out
// are frames in out. Group drives it over a stream, and Machine in the simulator.
type core struct {
	id     uint16 // of the group among those on one stream
	epoch  transport.Epoch
	self   int
	names  []transport.Name
	opt    *Options
	hosts  [][]int
	fewest map[Algorithm]Algorithm // by flat algorithm: what sends fewest bytes between hosts in its place

	now     time.Duration // of the call under way, from a start of its own
	step    uint64
	counts  bool              // the step before was committed here
	denied  *fault            // why it was not; nil: it was, or there is none
	ops     []*operation      // of the step, by tag
	early   []transport.Event // of operations that have not been started here
	copied  int               // bytes that they take
	void    []voided
	unmet   []unmet      // what is under way elsewhere, and has not been begun here
	mute    []unmet      // who sends nothing at a tag of this step where any rank may
	untaken []*operation // Sends of the step, settled or not, whose receivers have not said that they have the message
	votes   []*tally
	vote    *tally // ours: Commit has been called

	settled settled // of the step

	incidents []*incident
	gone      []bool // links that are lost
	went      []int  // frames to each rank
	came      []int  // and from each
	told      []int  // of those to each it was told by our goodbye; nil: none was said
	bye       []int  // how many come in all from a rank that has said goodbye, which overtakes them; -1: it has not
	failed    error

	plans    map[planKey]*Plan
	known    map[quickKey]*prepared
	spare    [][]int32
	peers    []*peer // Group's
	arena    *arena  // nil: no shared memory
	planner  *Costs
	ended    *int     // Group's
	memories [][]byte // scratch that is free
	cooling  [][]byte // that may still be on its way to someone

	out  []outFrame
	over []transport.Event // to be released, when no lock is held
	due  time.Duration     // when tick has something to do; never: none
	post func(from int, k transport.Key, dst []byte) bool
	take func(from int, k transport.Key) bool // Unpost
}

// An outFrame is to be sent.
type outFrame struct {
	to   int
	f    transport.Frame
	op   *operation // nil: nobody waits for its end
	task int32
}

// The kinds of frames.
const (
	kindData uint8 = iota + 1
	kindVote
	kindReport
	kindStarted // an operation that takes long is under way at the sender
	kindBye
	kindOutcome // what has been concluded of an operation, a step or the group
	kindSought  // as kindStarted, of a receive for which any rank may send, or not
	kindNone    // the sender sends nothing at a tag where it was sought
	kindTaken   // the sender has received the message
)

const never = time.Duration(math.MaxInt64)

// An operation is an op under way at this rank.
type operation struct {
	*job
	own     job
	any     bool // it receives from any rank: Root is AnyRank until a frame has come
	tag     uint32
	plan    *Plan
	left    []int32 // tasks that each task waits for; done and armed are below 0
	todo    int     // tasks that are not done
	mem     [numBufs][]byte
	coded   [][]byte
	remote  [][]byte // the memories of all ranks, in shared memory
	cards   []byte   // what the bells of all ranks say
	held    []heldFrame
	before  []residual
	ready   []int32
	started time.Duration
	looked  time.Duration
	slowest int
	heard   []bool // who has started it too
	told    bool   // kindStarted, or kindSought, was sent
	slow    bool   // a straggler was reported, slowest the last; looked is the latest look
	landing int    // posts that could not be taken back
	finish  bool

	heardBy  [16]bool
	readyBuf [16]int32
	err      error
	done     chan struct{} // closed at the end; nil in the simulator
}

type heldFrame struct {
	task int32
	ev   transport.Event
}

// A residual is what makes a part of one as it was before the operation.
type residual struct {
	restore func()
	cells   []byte // its memory
}

// States of a task in left, besides the number of those it waits for.
const (
	taskDone   = -1
	taskArmed  = -2
	taskPosted = -3
	// A send is done when its memory may be written to, if that is to happen: else once it is on its way.
	taskSending = -4
)

// A voided operation failed: everywhere, whether or not it had started.
type voided struct {
	step uint64
	tag  uint32
	f    *fault
}

// An unmet operation takes long at another rank, which has said so.
type unmet struct {
	op     wire.Op
	from   int
	print  uint32
	sought bool // it wants an answer where this one commits without it
}

func newCore(id uint16, v View, o *Options) *core {
	n := len(v.Peers)
	return &core{
		id: id, epoch: v.Epoch, self: v.Self, names: v.Peers, opt: o, hosts: v.Hosts, step: o.FirstStep, due: never,
		gone: make([]bool, n), went: make([]int, n), came: make([]int, n), bye: slices.Repeat([]int{-1}, n),
		plans: map[planKey]*Plan{}, known: map[quickKey]*prepared{},
	}
}

func (c *core) size() int { return len(c.names) }

// find is the operation at a tag, of several the first.
func (c *core) find(step uint64, tag uint32) *operation {
	if step != c.step {
		return nil
	}
	i, ok := c.index(tag)
	if !ok {
		return nil
	}
	return c.ops[i]
}

func (c *core) index(tag uint32) (int, bool) {
	return slices.BinarySearchFunc(c.ops, tag, func(o *operation, t uint32) int { return int(o.tag) - int(t) })
}

func (c *core) voided(step uint64, tag uint32) *fault {
	for _, v := range c.void {
		if v.step == step && v.tag == tag {
			return v.f
		}
	}
	return nil
}

// start begins an operation; what is wrong with it is its error, and everyone's.
func (c *core) start(op Op, tag uint32, dst, src Buffer, done chan struct{}) *operation {
	o := &operation{tag: tag, any: op.fromAny(), done: done, started: c.now, looked: c.now}
	switch {
	case c.failed != nil:
		if f := c.voided(c.step, tag); f != nil { // the others had begun it before
			return c.end(o, f.toError(c.names))
		}
		return c.end(o, c.failed)
	case c.settled.f != nil:
		return c.end(o, c.settled.f.toError(c.names))
	case tag < c.settled.below:
		return c.end(o, fmt.Errorf("collective: step %d: tag %d is below %d, up to which operations are settled: use a new one", c.step, tag, c.settled.below))
	case tag > maxTag:
		return c.end(o, fmt.Errorf("collective: tag %d is above %d", tag, maxTag))
	case c.vote != nil:
		return c.end(o, fmt.Errorf("collective: tag %d: step %d is being committed", tag, c.step))
	}
	err := c.check(o, op, dst, src)
	at, found := c.index(tag)
	if found && !(o.any && c.ops[at].any && (err != nil || o.desc == c.ops[at].desc)) {
		return c.end(o, fmt.Errorf("collective: step %d: tag %d is under way already (%v): the second is refused", c.step, tag, c.ops[at].title()))
	}
	at += len(c.at(tag)) // in their order
	c.ops = slices.Insert(c.ops, at, o)
	if err == nil && o.plan.Algorithm == Shared { // also where it is void here already: it may not have been so elsewhere
		c.arena.asked += c.asks(len(dst.Bytes))
	}
	var begun []unmet // there, by others
	c.unmet = slices.DeleteFunc(c.unmet, func(u unmet) bool {
		met := u.op == wire.MakeOp(c.step, tag)
		if met {
			begun = append(begun, u)
		}
		return met
	})
	if f := c.voided(c.step, tag); f != nil {
		return c.end(o, f.toError(c.names))
	}
	if err != nil {
		c.trigger(o.tag, fault{cause: Refused, rank: c.self, op: o.title(), evidence: err.Error()})
		return o
	}
	if i := c.notFinite(o.job); i >= 0 {
		c.trigger(o.tag, fault{cause: NotFinite, rank: c.self, op: o.title(), evidence: fmt.Sprintf("element %d of its contribution is not finite", i)})
		return o
	}
	for r, gone := range c.gone {
		if gone && !c.left(r) { // what it has done before it left may be here
			c.triggerWhole(fault{cause: Lost, rank: r, evidence: hasLeft})
			return o
		}
	}
	c.wake(c.now + c.opt.tellAfter())
	if o.any {
		c.seek(o)
	} else {
		c.prepare(o)
		if o.plan.Algorithm == Shared {
			if err := c.share(o); err != nil {
				o.left = nil
				c.trigger(o.tag, fault{cause: Refused, rank: c.self, op: o.title(), evidence: err.Error()})
				return o
			}
		}
		c.run(o)
		c.catchUp(o)
	}
	for _, u := range begun {
		if !o.any {
			o.heard[u.from] = true
		}
		if u.print != o.print {
			c.disagree(o, u.from, 0)
		}
	}
	for r := range c.names {
		if c.left(r) {
			c.miss(r)
		}
	}
	return o
}

func (c *core) release(ev transport.Event) {
	if ev.Err == errCopied {
		c.free(ev.Payload)
		return
	}
	c.over = append(c.over, ev)
}

// far says that no rank can be at that step: for the one before it needs our vote.
func (c *core) far(step uint64) bool { return step > c.step+1 }

func (c *core) rankOf(n transport.Name) int { return slices.Index(c.names, n) }

func (o *operation) title() string {
	if o.job == nil {
		return ""
	}
	if o.Label != "" {
		return fmt.Sprintf("%v of %s", o.Kind, o.Label)
	}
	return o.Kind.String()
}

// check finds out whether op can be done here, and how. What was asked before is looked up.
func (c *core) check(o *operation, op Op, dst, src Buffer) error {
	key, quick := op.quick(dst, src)
	if c.arena != nil {
		key.in = [2]bool{c.arena.offset(src.Bytes) >= 0, c.arena.offset(dst.Bytes) >= 0}
		key.fits = c.fits(len(dst.Bytes))
	}
	if quick {
		if p := c.known[key]; p != nil && again(dst, src) {
			o.own = p.job
			o.own.dst, o.own.src, o.own.Priority, o.own.Label = dst, src, op.Priority, op.Label
			o.job, o.plan = &o.own, p.plan
			return nil
		}
	}
	var err error
	o.job = &o.own
	if o.own, err = op.validate(c.self, c.size(), dst, src); err != nil {
		return err
	}
	j := o.job
	a := c.choose(j)
	segment := c.segment(j, a)
	j.describe(c.self, fmt.Sprintf("%v in frames of %d", a, segment))
	in := c.inArena(j, a)
	pk := j.key(a, segment, c.opt.MaxFrame, in)
	o.plan = c.plans[pk]
	if o.plan == nil {
		o.plan = planOf(j, a, c.self, c.size(), max(1, segment/max(j.dtype.Size(), 1)), c.opt.MaxFrame, c.hosts, in)
		o.plan.index(c.size())
		if n := o.plan.chunks; n > noData {
			return fmt.Errorf("it takes %d frames to one rank, of at most %d bytes, and %d is the most that are told apart: the group wants a larger MaxFrame", n, c.opt.MaxFrame, noData)
		}
		if len(c.plans) >= 1024 {
			clear(c.plans) // ops of ever new sizes must not fill the memory
		}
		c.plans[pk] = o.plan
	}
	if quick {
		if len(c.known) >= 1024 {
			clear(c.known)
		}
		p := &prepared{job: *j, plan: o.plan}
		p.job.dst, p.job.src = Buffer{}, Buffer{}
		c.known[key] = p
	}
	return nil
}

// inArena says which buffers of an operation in shared memory lie there already.
func (c *core) inArena(j *job, a Algorithm) [2]bool {
	if a != Shared {
		return [2]bool{}
	}
	return [2]bool{c.arena.offset(j.src.Bytes) >= 0, c.arena.offset(j.dst.Bytes) >= 0}
}

// prepare lays out memory, and what is done first.
func (c *core) prepare(o *operation) {
	p := o.plan
	o.todo = len(p.Tasks)
	n := len(p.after)
	if k := len(c.spare); k > 0 && cap(c.spare[k-1]) >= n {
		o.left, c.spare = c.spare[k-1][:n], c.spare[:k-1]
	} else {
		o.left = make([]int32, n)
	}
	copy(o.left, p.after)
	if c.size() <= len(o.heardBy) {
		o.heard = o.heardBy[:c.size()]
	} else {
		o.heard = make([]bool, c.size())
	}
	o.mem = [numBufs][]byte{Src: o.src.Bytes, Dst: o.dst.Bytes}
	if n := p.Scratch * max(o.dtype.Size(), 1); n > 0 {
		o.mem[Scratch] = c.memory(n)
	}
	if len(p.slots) > 0 {
		o.coded = make([][]byte, len(p.slots))
	}
	o.ready = append(o.readyBuf[:0], p.first...)
}

// save keeps what e holds, where a void operation is no accident and training goes on: codecs write there.
func (c *core) save(o *operation, e *compress.Residual) {
	if c.opt.NotFinite == Allow {
		return
	}
	n := len(bytesOf(e.Cells()))
	m := c.memory(n)[:n]
	o.before = append(o.before, residual{e.Snapshot(as[float32](m)), m})
}

// restore makes the residuals of a void operation as they were.
func (c *core) restore(o *operation) {
	for _, b := range o.before {
		b.restore()
	}
	c.forget(o)
}

// forget gives back what save has copied.
func (c *core) forget(o *operation) {
	for _, b := range o.before {
		c.free(b.cells)
	}
	o.before = nil
}

// recycle keeps o's scratch for another, where nobody may still read it.
func (c *core) recycle(o *operation) {
	if m := o.mem[Scratch]; m != nil && len(c.memories) < 16 {
		c.memories = append(c.memories, m)
	}
	o.mem[Scratch] = nil
}

func (c *core) memory(n int) []byte {
	for i, m := range c.memories {
		if len(m) >= n && len(m) <= 4*n+4096 {
			c.memories = slices.Delete(c.memories, i, i+1)
			return m
		}
	}
	return tensor.AlignedBytes(n)
}

// free keeps memory for another use.
func (c *core) free(m []byte) {
	if len(c.memories) < 16 && cap(m) > 0 {
		c.memories = append(c.memories, m[:cap(m)])
	}
}

func (c *core) wake(at time.Duration) { c.due = min(c.due, at) }

// index prepares what the executor looks up.
func (p *Plan) index(size int) {
	p.frames = make([][]int32, size)
	p.after = make([]int32, len(p.Tasks))
	for i, t := range p.Tasks {
		if p.after[i] = t.after; t.after == 0 {
			p.first = append(p.first, int32(i))
		}
		p.chunks = max(p.chunks, t.Chunk+1)
		p.sent = p.sent || t.Do == DoSend && t.To.Buf == Scratch
		switch t.Do {
		case DoRecv, DoRecvCoded, DoHear, DoHearAll:
			p.frames[t.Peer] = append(p.frames[t.Peer], int32(i))
		}
	}
}

// waits returns whom o waits for, and in which phase; -1: nobody.
func (o *operation) waits() (rank int, phase Phase) {
	rank = -1
	if o.left != nil && !o.finish {
		for i := range o.plan.Tasks {
			t := &o.plan.Tasks[i]
			switch s := o.left[i]; {
			case s == taskArmed || s == taskPosted:
				return t.Peer, t.Phase
			case s == taskSending && rank < 0:
				rank, phase = t.Peer, t.Phase
			}
		}
	}
	return rank, phase
}

func (c *core) notFinite(j *job) int {
	if c.opt.NotFinite == Allow || !j.Kind.reduces() {
		return -1
	}
	switch j.dtype {
	case tensor.F32:
		return finite.FirstNot(as[float32](j.src.Bytes))
	case tensor.F64:
		return finite.FirstNot(as[float64](j.src.Bytes))
	}
	return -1
}

func rounds(size int) int { return bits.Len(uint(size - 1)) }
