package train

import (
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Tree adds gradients along the fixed tree of exact mode, as they come, shard by shard: neighbours first, then neighbouring pairs,
// and so on; a short last group joins at the end, smallest first. It keeps one partial sum for each level: log₂ of the number of
// shards, 4 for 16. Every addition is one float32 addition a cell, so the bits do not depend on threads.
type Tree struct {
	layout   *trivium.Layout
	isa      kernel.ISA
	pool     *tensor.Pool
	sparse   bool
	pending  []partial // by level, the sum of 2^level shards
	free     []trivium.Gradient
	a, b     []float32 // of the addition under way, or the pass
	onBlock  func(i, worker int)
	onNaN    func(i, worker int)
	merged   []int32
	early    []bool // tensors of the sum under way that are final before its last shard is done
	ownRange []int  // cell ranges of dense tensors, from and to, without the tied ones
}

// A partial is the sum of some shards.
type partial struct {
	g                  trivium.Gradient
	lossSum, weightSum float64
}

// addBlock cells are added by one thread at a time: a fork-join is worth it for a few of them.
const addBlock = 1 << 15

// NewTree returns a tree for gradients of this layout. A nil cpu is one thread.
func NewTree(l *trivium.Layout, cpu *tensor.CPU) *Tree {
	t := &Tree{layout: l, isa: kernel.Best()}
	if cpu != nil {
		t.isa, t.pool = cpu.ISA, cpu.Pool
	}
	for i := range l.Tensors() {
		spec := l.Spec(i)
		from, to := l.Range(i)
		switch {
		case spec.Tie != "":
		case spec.RowSparse:
			t.sparse = true
		case len(t.ownRange) > 0 && t.ownRange[len(t.ownRange)-1] == from: // one run with its neighbour
			t.ownRange[len(t.ownRange)-1] = to
		default:
			t.ownRange = append(t.ownRange, from, to)
		}
	}
	t.onBlock, t.onNaN = t.addBlock, t.nanBlock
	return t
}

// Sum writes to g the sum of n shards, which shard writes one after the other, and returns the sums of loss and weight, added along
// the same tree. The gradient that shard is given holds anything; it must write all of it.
//
// Sum calls ready, if it is not nil, for each dense tensor of g that is final while the last shard is still being written: shard is given a
// function then, to be called as trivium.Model's ready. The rest is final at the end. Tensors must not be tied then.
func (t *Tree) Sum(n int, g trivium.Gradient, shard func(v int, g trivium.Gradient, ready func(tensor int)) (lossSum, weightSum float64, err error),
	ready func(tensor int),
) (lossSum, weightSum float64, err error) {
	defer t.release()
	for v := range n {
		now := partial{g: g}
		if v < n-1 { // g itself takes the last shard, which all others are added to
			now.g = t.take()
		}
		var each func(int)
		if v == n-1 && ready != nil {
			t.early = append(t.early[:0], make([]bool, t.layout.Tensors())...)
			each = func(i int) { t.addEarly(g, i, ready) }
		}
		if now.lossSum, now.weightSum, err = shard(v, now.g, each); err != nil {
			if v < n-1 {
				t.free = append(t.free, now.g)
			}
			return 0, 0, err
		}
		// v+1 shards are there: each trailing zero bit of that is a pair that is complete. After the last shard, all join.
		for size := v + 1; len(t.pending) > 0 && (size%2 == 0 || v == n-1); size /= 2 {
			last := t.pending[len(t.pending)-1]
			t.pending = t.pending[:len(t.pending)-1]
			t.add(now.g, last.g, each != nil)
			now.lossSum, now.weightSum = last.lossSum+now.lossSum, last.weightSum+now.weightSum
			t.free = append(t.free, last.g)
		}
		if v == n-1 {
			return now.lossSum, now.weightSum, nil
		}
		t.pending = append(t.pending, now)
	}
	g.Zero()
	return 0, 0, nil
}

// Finish makes every NaN of g, the sum of all shards of a job, the one that exact mode has (kernel.OneNaN): which one a sum of NaNs is depends
// on the order of operands, and so on how the shards were divided among workers. Sums of some shards need it not.
func (t *Tree) Finish(g trivium.Gradient) {
	for i := 0; i < len(t.ownRange); i += 2 {
		t.nanCells(g.Flat[t.ownRange[i]:t.ownRange[i+1]])
	}
	if !t.sparse {
		return
	}
	for i, rows := range g.Rows {
		if spec := t.layout.Spec(i); spec.RowSparse && spec.Tie == "" {
			x, cols := g.Tensor(i), t.layout.Cols(i)
			for _, r := range rows {
				kernel.OneNaN(t.isa, x[int(r)*cols:(int(r)+1)*cols])
			}
		}
	}
}

func (t *Tree) nanCells(x []float32) {
	if t.a = x; len(x) <= 2*addBlock {
		kernel.OneNaN(t.isa, x)
		return
	}
	t.pool.Run((len(x)+addBlock-1)/addBlock, t.onNaN)
}

func (t *Tree) nanBlock(i, _ int) {
	from, to := i*addBlock, min((i+1)*addBlock, len(t.a))
	kernel.OneNaN(t.isa, t.a[from:to])
}

func (t *Tree) take() trivium.Gradient {
	if n := len(t.free); n > 0 {
		g := t.free[n-1]
		t.free = t.free[:n-1]
		return g
	}
	return NewGradient(t.layout)
}

// release takes back the partial sums of a call that failed.
func (t *Tree) release() {
	for _, p := range t.pending {
		t.free = append(t.free, p.g)
	}
	t.pending = t.pending[:0]
}

// addEarly adds to a tensor of the last shard, which is final, what waits for it: from the last partial sum to the first, as Sum does.
func (t *Tree) addEarly(g trivium.Gradient, i int, ready func(tensor int)) {
	if spec := t.layout.Spec(i); spec.RowSparse || spec.Tie != "" || t.early[i] {
		return
	}
	for k := len(t.pending) - 1; k >= 0; k-- {
		kernel.AddInto(t.isa, g.Tensor(i), t.pending[k].g.Tensor(i))
	}
	t.early[i] = true
	ready(i)
}

// add is g += h, but for what addEarly has added.
func (t *Tree) add(g, h trivium.Gradient, early bool) {
	if early {
		for i, done := range t.early {
			if spec := t.layout.Spec(i); !done && !spec.RowSparse && spec.Tie == "" {
				t.addCells(g.Tensor(i), h.Tensor(i))
			}
		}
	} else {
		for i := 0; i < len(t.ownRange); i += 2 {
			t.addCells(g.Flat[t.ownRange[i]:t.ownRange[i+1]], h.Flat[t.ownRange[i]:t.ownRange[i+1]])
		}
	}
	if !t.sparse {
		return
	}
	for i, rows := range h.Rows {
		if spec := t.layout.Spec(i); spec.RowSparse && spec.Tie == "" {
			g.Rows[i] = t.addRows(g.Rows[i], rows, g.Tensor(i), h.Tensor(i), t.layout.Cols(i))
		}
	}
}

func (t *Tree) addCells(a, b []float32) {
	if t.a, t.b = a, b; len(a) <= 2*addBlock {
		kernel.AddInto(t.isa, a, b)
		return
	}
	t.pool.Run((len(a)+addBlock-1)/addBlock, t.onBlock)
}

func (t *Tree) addBlock(i, _ int) {
	from, to := i*addBlock, min((i+1)*addBlock, len(t.a))
	kernel.AddInto(t.isa, t.a[from:to], t.b[from:to])
}

// addRows adds the rows hs of b to a, whose rows are gs, and returns the union, in gs' memory. A row that only b has is copied.
func (t *Tree) addRows(gs, hs []int32, a, b []float32, cols int) []int32 {
	t.merged = t.merged[:0]
	i := 0
	for _, r := range hs {
		for i < len(gs) && gs[i] < r {
			t.merged = append(t.merged, gs[i])
			i++
		}
		from, to := int(r)*cols, (int(r)+1)*cols
		if i < len(gs) && gs[i] == r {
			kernel.AddInto(t.isa, a[from:to], b[from:to])
			i++
		} else {
			copy(a[from:to], b[from:to])
		}
		t.merged = append(t.merged, r)
	}
	t.merged = append(t.merged, gs[i:]...)
	return append(slices.Grow(gs[:0], len(t.merged)), t.merged...)
}

// NewGradient returns a zero gradient in memory that kernels like: its cells begin at a cache line.
func NewGradient(l *trivium.Layout) trivium.Gradient {
	g := trivium.Gradient{Layout: l, Flat: tensor.Aligned[float32](l.Len()), Rows: make([][]int32, l.Tensors())}
	for i := range g.Rows {
		if l.Spec(i).RowSparse {
			g.Rows[i] = []int32{}
		}
	}
	return g
}
