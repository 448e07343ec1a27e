package exec

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// An instance is a program bound to sizes of its axes, with memory of its own: what one run at a time uses. After it was made, a run
// allocates nothing. Sizes may shrink and grow within those that the memory was planned for.
type instance struct {
	p        *Program
	threads  int
	crowded  bool // the threads are more than may run at once
	idle     idle
	caps     []int // sizes that memory was planned for
	axes     []int // sizes of now
	values   [][]*slot
	bound    []*bound // by node; nil: no work
	feeds    []*slot
	lands    []landingSlot    // by fetch
	views    []view           // of fed and fetched values
	later    map[*node][]view // of values whose place is known when they are there: Reads, what was received
	parts    []part           // one for each segment
	workers  []*worker
	arena    []byte
	sum      int      // bytes of all values that the arena holds, were they side by side
	path     []int    // id and index of each enclosing Scan
	reads    []*bound // nodes that need their Variable to have a value
	writes   []*bound // nodes that write a resource
	attached *State   // whose resources the nodes point to

	turns *tensor.Turns // of the step under way
	took  time.Duration // computing, of the step before

	steps   run
	run     *run // of the step under way: &steps, or of a Scan that of the instance around it
	ready   func(i int)
	current *stage // being run by the pool
	work    func(i, worker int)
	cursor  atomic.Int64
	failed  atomic.Bool
	mu      sync.Mutex
	err     error // the first failure of the step
}

// A landingSlot is where a fetch is written.
type landingSlot struct {
	out  *slot // of the node that writes it
	dims *slot // of the fetched value, which may be a view of out
}

// A view is a slot that lies where another one does.
type view struct{ at, of *slot }

// slotsOf makes the slots of every node.
func (x *instance) slotsOf() {
	x.values = make([][]*slot, len(x.p.nodes))
	for i, n := range x.p.nodes {
		for _, t := range n.list.types {
			s := &slot{dt: t.DType, dims: make([]int, len(t.Shape))}
			if n.op == "Const" {
				s.p, s.n = pointer(n.value), n.value.Len()
			}
			x.values[i] = append(x.values[i], s)
		}
	}
}

func (x *instance) slot(r ref) *slot { return x.values[r.n.seq][r.out] }

// newInstance binds a program to sizes. caps is what memory is planned for, axes what it is for now.
func newInstance(p *Program, caps, axes []int) (*instance, error) {
	x := &instance{p: p, threads: 1, idle: idle{time.Now, runtime.Gosched, rest}, later: map[*node][]view{}, caps: append([]int(nil), caps...), axes: make([]int, len(axes))}
	if !p.o.Serial {
		x.threads = p.pool.Threads()
		x.crowded = x.threads > runtime.GOMAXPROCS(0)
	}
	for range x.threads {
		x.workers = append(x.workers, &worker{})
	}
	x.work = x.loop
	x.slotsOf()
	for _, n := range p.nodes {
		if n.views() {
			if r := viewed(ref{n, 0}); r.n.op != "Const" {
				v := view{x.values[n.seq][0], x.slot(r)}
				if r.n.op == opFeed || len(r.n.fetches) > 0 {
					x.views = append(x.views, v)
				} else {
					x.later[r.n] = append(x.later[r.n], v)
				}
			}
		}
	}
	x.feeds = make([]*slot, len(p.feeds))
	x.lands = make([]landingSlot, len(p.fetches))
	x.bound = make([]*bound, len(p.nodes))
	for i, n := range p.nodes {
		if n.op == opFeed {
			x.feeds[n.feed] = x.values[i][0]
		}
		for _, l := range n.fetches {
			x.lands[l.fetch].out = x.values[i][l.out]
		}
		if kernels[n.op].bind == nil {
			continue
		}
		b := &bound{n: n, x: x, isa: p.isa}
		for _, r := range n.in {
			b.in = append(b.in, x.slot(r))
		}
		b.out = x.values[i]
		x.bound[i] = b
		if n.effect() == graph.Write {
			x.writes = append(x.writes, b)
		}
		if n.op == "Scan" {
			bindScan(b)
		} else {
			kernels[n.op].bind(b)
		}
	}
	for i, v := range p.out {
		x.lands[i].dims = x.slot(v)
		if x.lands[i].out == nil {
			return nil, fmt.Errorf("exec: fetch %d lands nowhere", i)
		}
	}
	if err := x.resize(caps); err != nil {
		return nil, err
	}
	x.schedule()
	if err := x.plan(); err != nil {
		return nil, err
	}
	for _, v := range p.nodes {
		if v.views() {
			x.values[v.seq][0].p = x.slot(viewed(ref{v, 0})).p
		}
	}
	return x, x.fit(axes)
}

// fit changes the sizes of the axes.
func (x *instance) fit(axes []int) error {
	if sameSizes(axes, x.axes) {
		return nil
	}
	return x.resize(axes)
}

func (x *instance) resize(axes []int) error {
	copy(x.axes, axes)
	for i, n := range x.p.nodes {
		for k, s := range x.values[i] {
			if err := x.p.sizes(s.dims, n.list.dims[k], axes); err != nil {
				x.unfit()
				return fmt.Errorf("exec: run: %s (%s): %w", n.name(), n.op, err)
			}
			if s.n = countable(s.dims, s.dt.Size()); s.n < 0 {
				x.unfit()
				return fmt.Errorf("exec: run: %s (%s): a value of %v of %v has more than %d bytes", n.name(), n.op, tensor.Shape(s.dims), s.dt, maxBytes)
			}
		}
	}
	for _, b := range x.bound {
		if b == nil {
			continue
		}
		b.sizeErr = nil
		b.resize()
		if b.sizeErr != nil {
			x.unfit()
			return fmt.Errorf("exec: run: %s (%s): %w", b.n.name(), b.n.op, b.sizeErr)
		}
	}
	for i := range x.parts {
		for _, st := range x.parts[i].stages {
			st.count()
		}
	}
	return nil
}

// unfit makes the next fit resize: this one failed half way.
func (x *instance) unfit() {
	for i := range x.axes {
		x.axes[i] = -1
	}
}

// plans keeps the instances of a program, most recently used first, up to a limit of bindings.
type plans struct {
	mu    sync.Mutex
	limit int
	made  int
	all   []*plan
}

// A plan is the instances made for one size of the axes.
type plan struct {
	caps []int
	free []*instance
}

// acquire finds an instance for these sizes, or makes one.
func (p *Program) acquire(axes []int) (*instance, error) {
	ps := &p.plans
	ps.mu.Lock()
	pl := ps.find(axes)
	if pl == nil {
		pl = ps.add(ps.capacity(axes))
	}
	var x *instance
	if n := len(pl.free); n > 0 {
		x, pl.free = pl.free[n-1], pl.free[:n-1]
	}
	ps.mu.Unlock()
	if x != nil {
		return x, x.fit(axes)
	}
	x, err := newInstance(p, pl.caps, axes)
	if err == nil {
		return x, nil
	}
	ps.mu.Lock()
	ps.drop(pl)
	ps.mu.Unlock()
	if sameSizes(pl.caps, axes) {
		return nil, err
	}
	if x, err = newInstance(p, axes, axes); err != nil { // there was no room for more; there may be for what is asked for
		return nil, err
	}
	ps.mu.Lock()
	ps.add(x.caps)
	ps.mu.Unlock()
	return x, nil
}

// add makes a plan, the most recently used.
func (ps *plans) add(caps []int) *plan {
	pl := &plan{caps: caps}
	ps.all = append(ps.all, nil)
	copy(ps.all[1:], ps.all)
	ps.all[0] = pl
	if len(ps.all) > ps.limit {
		ps.all = ps.all[:ps.limit]
	}
	ps.made++
	return pl
}

// drop forgets a plan that cannot be: found again, it would refuse sizes that can.
func (ps *plans) drop(pl *plan) {
	if i := slices.Index(ps.all, pl); i >= 0 {
		ps.all = slices.Delete(ps.all, i, i+1)
	}
}

// find looks for a plan whose memory suffices and is at most twice what is needed, and moves it to the front.
func (ps *plans) find(axes []int) *plan {
	best, waste := -1, 0
	for i, pl := range ps.all {
		extra, ok := 0, true
		for k, n := range axes {
			c := pl.caps[k]
			ok = ok && c >= n && (c <= 2*n || c-n <= 16)
			extra += c - n
		}
		if ok && (best < 0 || extra < waste) {
			best, waste = i, extra
		}
	}
	if best < 0 {
		return nil
	}
	pl := ps.all[best]
	copy(ps.all[1:best+1], ps.all[:best])
	ps.all[0] = pl
	return pl
}

// capacity is what memory is planned for: at first what is asked for, and an eighth more once sizes have changed several times, as
// the number of entries of a sparse batch does every step.
func (ps *plans) capacity(axes []int) []int {
	caps := append([]int(nil), axes...)
	if ps.made >= 2 {
		for i, n := range caps {
			caps[i] = n + n/8
		}
	}
	return caps
}

// Bindings returns how many memory plans were made: those beyond one are sizes of axes that no plan at hand had room for.
func (p *Program) Bindings() int {
	p.plans.mu.Lock()
	defer p.plans.mu.Unlock()
	return p.plans.made
}

// release gives an instance back. It is dropped when its plan was, or after a failed resize.
func (p *Program) release(x *instance) {
	x.run, x.ready = nil, nil
	ps := &p.plans
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, pl := range ps.all {
		if sameSizes(pl.caps, x.caps) {
			pl.free = append(pl.free, x)
			return
		}
	}
}
