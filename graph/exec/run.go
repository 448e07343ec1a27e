package exec

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A Step names a run. Random numbers are drawn from its ID and Shard, and the State's seed. With a Requester, a write is applied once for
// each (Requester, ID, node of a graph), however often the step is repeated.
type Step struct {
	ID        int64
	Shard     int
	Requester uint64 // incarnation of whoever asks; 0: nobody repeats steps
}

// A run is a step under way: what all of its nodes share.
type run struct {
	state *State
	step  Step
	own   *outcome        // where what it writes is noted for who began it; nil: nowhere else than in the State
	ended <-chan struct{} // closed when the caller gives up; nil: never
}

// Run computes the fetches with new memory for each.
func (p *Program) Run(ctx context.Context, s *State, feeds ...*tensor.Tensor) ([]*tensor.Tensor, error) {
	dst := make([]*tensor.Tensor, len(p.fetches))
	if err := p.RunInto(ctx, s, feeds, dst, nil); err != nil {
		return nil, err
	}
	return dst, nil
}

// RunInto computes the fetches into dst, which has a tensor of the right type and sizes for each, or nil where one is to be made. It
// calls ready(i), if that is not nil, as soon as fetch i is complete, on the thread that completed it: ready must not wait, and may read
// dst[i] but not write to it before RunInto returns. In steady state nothing is allocated. s may be nil for a program without resources.
//
// No tensor of dst may share memory with another one, with a feed or with a Variable: a result is written while other nodes still read these.
//
// That ctx has ended is noticed before the step, before each turn of a Scan, and where a node waits for another participant (Recv, Dequeue,
// AccumTake). What is begun between these is computed to its end, so that no write is half done: a step without them, once begun, is not ended by ctx.
func (p *Program) RunInto(ctx context.Context, s *State, feeds, dst []*tensor.Tensor, ready func(i int)) error {
	return p.RunStep(ctx, s, Step{}, feeds, dst, ready)
}

// RunStep is RunInto of a named step.
func (p *Program) RunStep(ctx context.Context, s *State, step Step, feeds, dst []*tensor.Tensor, ready func(i int)) error {
	return p.runStep(ctx, s, step, nil, feeds, dst, ready)
}

// runStep is RunStep that also notes in own, unless that is nil, what it wrote.
func (p *Program) runStep(ctx context.Context, s *State, step Step, own *outcome, feeds, dst []*tensor.Tensor, ready func(i int)) error {
	if len(dst) != len(p.fetches) {
		return fmt.Errorf("exec: run: %d results, want %d", len(dst), len(p.fetches))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("exec: step %d: %w", step.ID, err)
	}
	var buf [16]int
	axes := buf[:0]
	if len(p.axes) > len(buf) {
		axes = make([]int, 0, len(p.axes))
	}
	axes = axes[:len(p.axes)]
	if err := p.bindAxes(axes, feeds); err != nil {
		return err
	}
	x, err := p.acquire(axes)
	if err != nil {
		return err
	}
	defer p.release(x)
	x.steps.own = own
	defer x.leave()
	if err := x.enter(ctx, s, step, feeds, dst, ready); err != nil {
		return err
	}
	if err = x.exec(ctx); errors.Is(err, errEnded) { // also in a body
		err = fmt.Errorf("exec: step %d on %s: %w", step.ID, p.o.Device, context.Cause(ctx))
	}
	return err
}

// errEnded stands for the cause that the caller's context has.
var errEnded = errors.New("the caller gave up")

// enter points the instance at feeds, results and the State.
func (x *instance) enter(ctx context.Context, s *State, step Step, feeds, dst []*tensor.Tensor, ready func(i int)) error {
	for i, t := range feeds {
		x.feeds[i].p = pointer(t)
	}
	for i := range dst {
		l := &x.lands[i]
		if dst[i] == nil {
			dst[i] = tensor.New(l.dims.dt, l.dims.dims...)
		} else if dst[i].DType() != l.dims.dt || !sameSizes(dst[i].Shape(), l.dims.dims) {
			return fmt.Errorf("exec: run: result %d (%v) is %v%v, want %v%v", i, x.p.fetches[i], dst[i].DType(), dst[i].Shape(), l.dims.dt, tensor.Shape(l.dims.dims))
		}
		l.out.p = pointer(dst[i])
	}
	x.follow(x.views)
	x.steps.state, x.steps.step = s, step
	x.steps.ended = ctx.Done()
	x.run, x.ready = &x.steps, ready
	x.failed.Store(false)
	x.err = nil
	for _, b := range x.writes {
		b.wrote.Store(false)
	}
	return x.attach(s)
}

// leave lets go of what the step held.
func (x *instance) leave() {
	x.detach()
	x.ready, x.steps.own = nil, nil
	x.forget()
}

// forget drops the pointers to memory that is not the instance's own: the caller's, that of received tensors and of Variables. The instance
// is kept, and would keep that alive as well.
func (x *instance) forget() {
	for _, f := range x.feeds {
		f.p = nil
	}
	for i := range x.lands {
		x.lands[i].out.p = nil
	}
	x.follow(x.views)
	for _, n := range x.p.blocking {
		for _, s := range x.values[n.seq] {
			s.p = nil
		}
		x.follow(x.later[n])
	}
	for _, b := range x.reads {
		if b.n.op == "Read" {
			b.out[0].p = nil
			x.follow(x.later[b.n])
		}
	}
	for _, w := range x.workers {
		w.sparse.ptr, w.sparse.idx = nil, nil
	}
}

func (x *instance) follow(vs []view) {
	for _, v := range vs {
		v.at.p = v.of.p
	}
}

// exec runs the segments, each as soon as what it waits for is there.
func (x *instance) exec(ctx context.Context) error {
	x.turns = x.p.o.CPU.Turns().Begin(x.took)
	defer func() {
		x.took = x.turns.End()
		x.turns = nil
	}()
	if len(x.p.blocking) > 0 {
		x.execSegments(ctx)
	} else {
		for i := range x.parts { // one: without continuations all nodes wait for the same nothing
			x.execPart(&x.parts[i])
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// execPart runs one segment, on the pool when that is worth it.
func (x *instance) execPart(pt *part) {
	for _, st := range pt.stages {
		if x.failed.Load() || x.cancelled() {
			return
		}
		if !st.pool || x.p.pool.Width() == 1 {
			x.serial(st)
			continue
		}
		for _, t := range st.tasks {
			t.left.Store(t.tiles)
			t.done.Store(false)
		}
		x.current = st
		x.cursor.Store(0)
		x.p.pool.Run(x.threads, x.work)
	}
}

// cancelled fails the step if its context has ended.
func (x *instance) cancelled() bool {
	select {
	case <-x.run.ended:
		x.fail(errEnded)
		return true
	default:
		return false
	}
}

// serial runs a stage on the caller.
func (x *instance) serial(st *stage) {
	w := x.workers[0]
	defer x.rescue(w)
	for _, b := range st.order {
		if x.failed.Load() {
			return
		}
		for tile := range b.tiles {
			x.tile(b, tile, 0, w)
		}
		x.finish(b)
	}
}

// loop is one thread's share of a segment: it takes tiles in order until there are none.
func (x *instance) loop(_, worker int) {
	w := x.workers[worker]
	defer x.rescue(w)
	st := x.current
	ends := st.ends
	for at := 0; ; {
		i := x.cursor.Add(1) - 1
		for at < len(ends) && i >= ends[at] {
			at++
		}
		if at == len(ends) {
			return
		}
		t := st.tasks[at]
		for _, d := range t.deps {
			if !d.done.Load() && !x.await(&d.done) {
				return
			}
		}
		if t.tiles == 1 {
			for _, b := range t.nodes {
				if x.failed.Load() {
					return
				}
				for tile := range b.tiles { // a small node may have tiles after its sizes grew
					x.tile(b, tile, worker, w)
				}
				x.finish(b)
			}
			t.done.Store(true)
			continue
		}
		b := t.nodes[0]
		x.tile(b, int(i-ends[at])+int(t.tiles), worker, w)
		if t.left.Add(-1) == 0 {
			x.finish(b)
			t.done.Store(true)
		}
	}
}

// await spins until another thread has finished a task; false if the step has failed. It never waits for anything but computation. At
// first it does nothing else: the other thread's tile takes some 10 to 100 µs. Then, since that thread seems to have lost its processor,
// it lets other goroutines have this one, and other processes. Other goroutines may have it before, if the threads are too many to run at once.
func (x *instance) await(done *atomic.Bool) bool {
	const look, busy = 64, 100 * time.Microsecond // turns between looks at the clock
	var start time.Time
	for spins := 1; !done.Load(); spins++ {
		switch {
		case x.failed.Load():
			return false
		case spins%look != 0:
		case start.IsZero():
			start = x.idle.now()
		case x.idle.now().Sub(start) > busy:
			x.idle.rest()
		case x.crowded:
			x.idle.yield()
		}
	}
	return true
}

// An idle is what a waiting thread knows: the time, how to let other goroutines run, and how to let other processes, too.
type idle struct {
	now         func() time.Time
	yield, rest func()
}

func rest() {
	runtime.Gosched()
	nap()
}

// tile runs one tile of a node.
func (x *instance) tile(b *bound, tile, worker int, w *worker) {
	w.node = b
	if x.p.o.Trace == nil {
		b.run(tile, w)
		return
	}
	start := time.Now()
	b.run(tile, w)
	x.p.o.Trace(TraceEvent{
		Node: b.n.name(), Op: b.n.op, Device: x.p.o.Device, Step: x.run.step.ID, Tile: tile, Tiles: b.tiles, Worker: worker,
		Start: start, Took: time.Since(start),
	})
}

// finish runs once after a node's last tile.
func (x *instance) finish(b *bound) {
	x.turns.Between()
	if b.finish != nil {
		b.finish()
	}
	if b.err != nil {
		x.failNode(b, b.err)
		b.err = nil
		return
	}
	if x.p.o.CheckFinite {
		if err := checkFinite(b); err != nil {
			x.failNode(b, err)
			return
		}
	}
	if x.ready != nil {
		for _, l := range b.n.fetches {
			x.ready(l.fetch)
		}
	}
}

// fail records the first failure of the step, and lets threads stop.
func (x *instance) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = err
	}
	x.failed.Store(true)
}

func (x *instance) failNode(b *bound, err error) {
	var e *NodeError
	if errors.As(err, &e) { // of a Scan's body: it has its own node, but what was written was around it
		e.Written = x.written()
		x.fail(err)
		return
	}
	x.fail(&NodeError{Node: b.n.name(), Op: b.n.op, Device: x.p.o.Device, Step: x.run.step.ID, Written: x.written(), Err: err})
}

// rescue turns a panic of a kernel into the failure of the step.
func (x *instance) rescue(w *worker) {
	r := recover()
	if r == nil {
		return
	}
	err, ok := r.(userError)
	if ok {
		x.failNode(w.node, err)
		return
	}
	x.failNode(w.node, &PanicError{Value: r, Stack: debug.Stack()})
}

// A NodeError is the failure of a step: what depends on the node was not computed; what had been written before stays.
type NodeError struct {
	Node, Op, Device string
	Step             int64
	Written          []string // resources whose writes were finished; a retry of the step by the same requester skips them
	Err              error
}

func (e *NodeError) Error() string {
	msg := fmt.Sprintf("exec: step %d: %s (%s) on %s: %v", e.Step, e.Node, e.Op, e.Device, e.Err)
	if len(e.Written) > 0 {
		msg += fmt.Sprintf("; already written: %v", e.Written)
	}
	return msg
}

func (e *NodeError) Unwrap() error { return e.Err }

// A PanicError is a kernel's panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// A TraceEvent is one tile of a node, or one transfer.
type TraceEvent struct {
	Node, Op, Device string
	Step             int64
	Tile, Tiles      int
	Worker           int
	Start            time.Time
	Took             time.Duration
	Bytes            int64 // of a transfer
}

// dropoutKey is the root of a random node's numbers.
func (x *instance) dropoutKey(node int) uint64 {
	seed := uint64(0)
	if x.run.state != nil {
		seed = x.run.state.seed
	}
	return graph.Key(seed, x.run.step.ID, x.run.step.Shard, node, x.path...)
}
