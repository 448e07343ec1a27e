package collective

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A core is a group at one rank, without clock, goroutine or socket: what comes in are method calls with the time, and what goes out
// are frames in out. Group drives it over a stream, and Machine in the simulator.
type core struct {
	id    uint16 // of the group among those on one stream
	epoch transport.Epoch
	self  int
	names []transport.Name
	opt   *Options
	hosts [][]int

	now   time.Duration // of the call under way, from a start of its own
	step  uint64
	ops   []*operation // of the step, by tag
	early []transport.Event
	void  []voided
	votes []*tally
	vote  *tally // ours: Commit has been called

	incidents []*incident
	gone      []bool // links that are lost
	left      []bool // who said goodbye
	failed    error

	plans    map[planKey]*Plan
	known    map[quickKey]*prepared
	spare    [][]int32
	peers    []*peer // Group's
	arena    *arena  // nil: no shared memory
	planner  *Costs
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
)

const never = time.Duration(math.MaxInt64)

// An operation is an op under way at this rank.
type operation struct {
	*job
	own     job
	tag     uint32
	plan    *Plan
	left    []int32 // tasks that each task waits for; done and armed are below 0
	todo    int     // tasks that are not done
	mem     [numBufs][]byte
	coded   [][]byte
	remote  [][]byte // the memories of all ranks, in shared memory
	card    []byte   // what our bells say
	held    []heldFrame
	ready   []int32
	started time.Duration
	ended   time.Duration
	heard   []bool // who has started it too
	told    bool   // kindStarted was sent
	slow    bool   // the straggler was reported
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

func newCore(id uint16, v View, o *Options) *core {
	return &core{
		id: id, epoch: v.Epoch, self: v.Self, names: v.Peers, opt: o, hosts: v.Hosts, step: o.FirstStep, due: never,
		gone: make([]bool, len(v.Peers)), left: make([]bool, len(v.Peers)), plans: map[planKey]*Plan{}, known: map[quickKey]*prepared{},
	}
}

func (c *core) size() int { return len(c.names) }

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
	o := &operation{tag: tag, done: done, started: c.now}
	switch {
	case c.failed != nil:
		return c.end(o, c.failed)
	case tag > maxTag:
		return c.end(o, fmt.Errorf("collective: tag %d is above %d", tag, maxTag))
	case c.vote != nil:
		return c.end(o, fmt.Errorf("collective: tag %d: step %d is being committed", tag, c.step))
	}
	err := c.check(o, op, dst, src)
	at, found := c.index(tag)
	if found {
		return c.end(o, fmt.Errorf("collective: step %d: tag %d is under way already (%v): the second is refused", c.step, tag, c.ops[at].title()))
	}
	c.ops = slices.Insert(c.ops, at, o)
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
		if gone {
			c.triggerWhole(fault{cause: Lost, rank: r, evidence: "it has left"})
			return o
		}
	}
	c.prepare(o)
	if o.plan.Algorithm == Shared {
		if err := c.share(o); err != nil {
			o.left = nil
			c.trigger(o.tag, fault{cause: Refused, rank: c.self, op: o.title(), evidence: err.Error()})
			return o
		}
	}
	c.wake(c.now + c.opt.tellAfter())
	o.ready = append(o.readyBuf[:0], o.plan.first...)
	c.run(o)
	keep := c.early[:0]
	for _, ev := range c.early {
		if ev.Op != wire.MakeOp(c.step, tag) {
			keep = append(keep, ev)
			continue
		}
		if !c.data(c.rankOf(ev.From), &ev) {
			c.release(ev)
		}
	}
	clear(c.early[len(keep):])
	c.early = keep
	return o
}

func (c *core) release(ev transport.Event) { c.over = append(c.over, ev) }

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

// prepare lays out memory.
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
	if p.slots > 0 {
		o.coded = make([][]byte, p.slots)
	}
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

// run does all that is ready.
func (c *core) run(o *operation) {
	for k := 0; k < len(o.ready); { // it grows on the way
		c.do(o, o.ready[k])
		k++
		if o.err != nil {
			return
		}
	}
	o.ready = o.ready[:0]
	if o.todo == 0 && !o.finish {
		c.end(o, nil)
	}
}

func (c *core) do(o *operation, i int32) {
	t := &o.plan.Tasks[i]
	switch t.Do {
	case DoSend:
		if len(t.next) > 0 { // something is to be written there
			o.left[i] = taskSending
			c.send(o, t, o.span(t.To))
			out := &c.out[len(c.out)-1]
			out.op, out.task = o, i
			return
		}
		c.send(o, t, o.span(t.To))
	case DoSendCoded:
		c.send(o, t, o.coded[t.To.From])
	case DoRing:
		c.send(o, t, o.card)
	case DoRecv, DoRecvCoded, DoHear:
		c.arm(o, i, t)
		return
	case DoCombine:
		var from [16][]byte
		list := from[:0]
		for _, s := range t.From {
			list = append(list, o.span(s))
		}
		combine(o.dtype, o.Reduce, o.span(t.To), list...)
	case DoCopy:
		copy(o.span(t.To), o.span(t.From[0]))
	case DoFinish:
		finish(o.dtype, o.Reduce, c.size(), o.Scale, o.span(t.To))
	case DoEncode, DoSumCoded, DoEncodeSum, DoDecodeInto:
		if err := c.code(o, t); err != nil {
			c.trigger(o.tag, fault{cause: Refused, rank: c.self, op: o.title(), phase: t.Phase.String(), evidence: err.Error()})
			return
		}
	}
	o.complete(i)
}

func (o *operation) span(s Span) []byte {
	es := o.dtype.Size()
	if s.Buf >= numBufs {
		return o.remote[s.Buf-numBufs][s.From*es : s.To*es]
	}
	return o.mem[s.Buf][s.From*es : s.To*es]
}

// complete makes ready what waited for task i alone.
func (o *operation) complete(i int32) {
	o.left[i] = taskDone
	o.todo--
	for _, n := range o.plan.Tasks[i].next {
		if o.left[n]--; o.left[n] == 0 {
			o.ready = append(o.ready, n)
		}
	}
}

func (c *core) send(o *operation, t *Task, payload []byte) {
	c.out = append(c.out, outFrame{to: t.Peer, f: transport.Frame{
		Kind: kindData, Priority: o.Priority.transport(), Fingerprint: o.print, Key: c.key(o.tag, t.Chunk), Payload: payload,
	}})
}

// sent says that the frame of a task is no longer read.
func (c *core) sent(o *operation, i int32) {
	if o.left == nil || o.err != nil || o.left[i] != taskSending {
		return
	}
	o.complete(i)
	c.run(o)
}

func (p Priority) transport() transport.Priority {
	switch p {
	case Front:
		return transport.Urgent
	case Back:
		return transport.Bulk
	}
	return transport.Data
}

func (c *core) key(tag uint32, chunk uint32) transport.Key {
	return transport.Key{Epoch: c.epoch, Op: wire.MakeOp(c.step, tag), Chunk: uint32(c.id)<<16 | chunk}
}

// postFrom is the size from which a frame is worth a Post: below, a copy is cheaper.
const postFrom = 8 << 10

// arm waits for t's frame, or takes it if it has come.
func (c *core) arm(o *operation, i int32, t *Task) {
	o.left[i] = taskArmed
	for k, h := range o.held {
		if h.task == i {
			o.held = slices.Delete(o.held, k, k+1)
			if !c.land(o, i, t, &h.ev) {
				c.disagree(o, t.Peer, len(h.ev.Payload))
			}
			c.release(h.ev)
			return
		}
	}
	if t.Do == DoRecv && c.post != nil {
		if dst := o.span(t.To); len(dst) >= postFrom && c.post(t.Peer, c.key(o.tag, t.Chunk), dst) {
			o.left[i] = taskPosted
		}
	}
}

// land puts a frame where it belongs, and reports whether it has the right length.
func (c *core) land(o *operation, i int32, t *Task, ev *transport.Event) bool {
	if t.Do == DoHear {
		if !c.hear(o, t.Peer, ev.Payload) {
			return false
		}
		o.complete(i)
		return true
	}
	if t.Do == DoRecvCoded {
		if len(ev.Payload) > o.Codec.MaxLen(unitOf(o.Codec, c.opt.MaxFrame)) {
			return false
		}
		o.coded[t.To.From] = append(o.coded[t.To.From][:0], ev.Payload...)
		o.complete(i)
		return true
	}
	dst := o.span(t.To)
	if len(ev.Payload) != len(dst) {
		return false
	}
	if !ev.Posted {
		if o.left[i] == taskPosted { // the frame came before the Post
			c.take(t.Peer, ev.Key)
		}
		copy(dst, ev.Payload)
	}
	o.complete(i)
	return true
}

// code runs the tasks of a codec.
func (c *core) code(o *operation, t *Task) error {
	part := func(e *compress.Residual, s Span) *compress.Residual {
		if e == nil {
			return nil
		}
		return e.Range(s.From, s.To)
	}
	var err error
	switch t.Do {
	case DoEncode:
		slot := &o.coded[t.To.From]
		s := t.From[0]
		*slot, err = o.Codec.Encode((*slot)[:0], as[float32](o.span(s)), part(o.Residual, s))
	case DoSumCoded:
		sum := as[float32](o.span(t.To))
		for k, s := range t.From {
			switch {
			case s.Buf == Src && k == 0:
				copy(sum, as[float32](o.span(s)))
			case s.Buf == Src:
				combine(tensor.F32, Sum, o.span(t.To), o.span(t.To), o.span(s))
			case k == 0:
				err = o.Codec.Decode(sum, o.coded[s.From])
			default:
				err = o.Codec.DecodeAdd(sum, o.coded[s.From])
			}
			if err != nil {
				return fmt.Errorf("the part of rank %d: %w", k, err)
			}
		}
	case DoEncodeSum:
		slot := &o.coded[t.To.From]
		s := t.From[0]
		sum := as[float32](o.span(s))
		if *slot, err = o.Codec.Encode((*slot)[:0], sum, part(o.Owner, s)); err == nil {
			err = o.Codec.Decode(sum, *slot)
		}
	case DoDecodeInto:
		err = o.Codec.Decode(as[float32](o.span(t.To)), o.coded[t.From[0].From])
	}
	return err
}

// received takes an event that came from rank from. If it reports true it keeps the event, and releases it later.
func (c *core) received(from int, ev *transport.Event) bool {
	switch ev.Kind {
	case kindData:
		return c.data(from, ev)
	case kindVote:
		c.voted(from, ev)
	case kindReport:
		c.reported(from, ev)
	case kindStarted:
		c.startedAt(from, ev)
	case kindBye:
		c.left[from] = true
	}
	return false
}

func (c *core) data(from int, ev *transport.Event) bool {
	step, tag := ev.Op.Step(), ev.Op.Index()
	if c.failed != nil || step < c.step || c.voided(step, tag) != nil {
		if o := c.find(step, tag); o != nil && ev.Posted {
			c.landed(o)
		}
		return false
	}
	o := c.find(step, tag)
	if o == nil {
		c.early = append(c.early, *ev)
		return true
	}
	if o.err != nil || o.job == nil || o.left == nil {
		if ev.Posted {
			c.landed(o)
		}
		return false
	}
	o.heard[from] = true
	chunk := ev.Chunk & 0xffff
	list := o.plan.frames[from]
	if ev.Fingerprint != o.print || int(chunk) >= len(list) {
		c.disagree(o, from, len(ev.Payload))
		return false
	}
	i := list[chunk]
	switch o.left[i] {
	case taskDone:
		return false
	case taskArmed, taskPosted:
		if !c.land(o, i, &o.plan.Tasks[i], ev) {
			c.disagree(o, from, len(ev.Payload))
			return false
		}
		c.run(o)
		return false
	}
	o.held = append(o.held, heldFrame{i, *ev})
	return true
}

// end ends o, and what its end releases.
func (c *core) end(o *operation, err error) *operation {
	if o.finish {
		return o
	}
	o.finish, o.err, o.ended = true, err, c.now
	if err == nil && o.plan != nil && !o.plan.sent {
		c.recycle(o)
	}
	if o.done != nil {
		close(o.done)
	}
	if err == nil && c.opt.Record != nil && o.plan != nil {
		c.opt.Record(c.measured(o))
	}
	if c.vote != nil && !c.vote.begun && c.failed == nil {
		c.tryVote()
	}
	return o
}

// abort gives o up: nothing lands in its memory any more.
func (c *core) abort(o *operation, err error) {
	if o.finish {
		if o.err == nil {
			o.err = err // its Wait has returned; Commit will say so
		}
		return
	}
	if o.err != nil {
		return // landing
	}
	o.err = err
	for _, h := range o.held {
		c.release(h.ev)
	}
	o.held = nil
	if o.left != nil && c.take != nil {
		for i := range o.plan.Tasks {
			if o.left[i] == taskPosted && !c.take(o.plan.Tasks[i].Peer, c.key(o.tag, o.plan.Tasks[i].Chunk)) && !c.gone[o.plan.Tasks[i].Peer] {
				o.landing++
			}
		}
	}
	if o.landing == 0 {
		c.end(o, err)
		return
	}
	c.wake(c.now + c.opt.tellAfter())
}

// landed says that a frame of an operation that was given up has come to rest.
func (c *core) landed(o *operation) {
	if o.landing > 0 {
		if o.landing--; o.landing == 0 {
			c.end(o, o.err)
		}
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
		p.sent = p.sent || t.Do == DoSend && t.To.Buf == Scratch
		switch t.Do {
		case DoRecv, DoRecvCoded, DoHear:
			p.frames[t.Peer] = append(p.frames[t.Peer], int32(i))
		}
		if t.To.Buf == Coded {
			p.slots = max(p.slots, t.To.To)
		}
	}
}

// waits returns whom o waits for, and in which phase; -1: nobody.
func (o *operation) waits() (int, Phase) {
	if o.left != nil && !o.finish {
		for i := range o.plan.Tasks {
			if s := o.left[i]; s == taskArmed || s == taskPosted {
				return o.plan.Tasks[i].Peer, o.plan.Tasks[i].Phase
			}
		}
	}
	return -1, 0
}

func (c *core) notFinite(j *job) int {
	if c.opt.NotFinite == Allow || !j.Kind.reduces() {
		return -1
	}
	switch j.dtype {
	case tensor.F32:
		return firstNotFinite(as[float32](j.src.Bytes))
	case tensor.F64:
		return firstNotFinite(as[float64](j.src.Bytes))
	}
	return -1
}

func firstNotFinite[T float32 | float64](x []T) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

func rounds(size int) int { return bits.Len(uint(size - 1)) }
