package exec

import (
	"container/heap"
	"math"
	"slices"
	"sync/atomic"
)

// A part is a segment in an instance.
type part struct {
	seg    *segment
	order  []*bound
	stages []*stage
}

// A stage is a run of a segment's nodes between two Scans, or one Scan: a Scan's body uses the pool itself, so that nothing else runs
// beside it. Its tasks are in the order in which threads take their tiles.
type stage struct {
	order []*bound
	tasks []*task
	ends  []int64 // of each task: tiles of it and those before it
	pool  bool    // worth sharing among threads
}

// A task is one node cut into tiles, or a run of small nodes that one thread computes in order. A thread takes the next tile in the
// order of tasks, and looks whether the tasks that this one depends on are done; if not it waits for the threads that compute them.
// Since tiles are taken in an order in which dependencies come first, the earliest unfinished tile never waits: there is no deadlock.
type task struct {
	nodes []*bound
	deps  []*task
	left  atomic.Int32 // tiles not done
	done  atomic.Bool
	tiles int32
	index int
	stage *stage
	_     [64]byte
}

// nodeCost is what calling a kernel costs, in the unit of Options.Grain (64 Ki are about 6 µs): 60 ns.
const nodeCost = 600

// schedule orders each segment's nodes and makes tasks of them.
func (x *instance) schedule() {
	x.parts = make([]part, len(x.p.segments))
	for i, s := range x.p.segments {
		pt := &x.parts[i]
		pt.seg = s
		pt.order = make([]*bound, len(s.nodes))
		for k, n := range s.nodes {
			pt.order[k] = x.bound[n.seq]
		}
		x.prioritise(pt)
		for from := 0; from < len(pt.order); {
			to := from + 1
			if pt.order[from].n.op != "Scan" {
				for to < len(pt.order) && pt.order[to].n.op != "Scan" {
					to++
				}
			}
			pt.stages = append(pt.stages, x.stage(pt.order[from:to]))
			from = to
		}
	}
}

func (x *instance) stage(order []*bound) *stage {
	st := &stage{order: order}
	x.bundle(st)
	total, critical, least := 0.0, 0.0, math.Inf(1)
	for _, b := range order {
		total += b.cost + nodeCost
		critical = max(critical, b.rank)
		least = min(least, b.rank-b.cost/float64(min(b.tiles, x.threads))-nodeCost)
	}
	critical -= least // the path within the stage, at least
	st.pool = x.threads > 1 && total >= 2*float64(x.p.o.Grain) && total >= 1.2*critical && order[0].n.op != "Scan"
	st.count()
	return st
}

// prioritise orders nodes by what they delay: first those that a Send waits for, then by the longest path behind them. In serial
// mode the order stays that of creation. A node's rank is its longest path to the end, tiles shared among threads.
func (x *instance) prioritise(pt *part) {
	n := len(pt.order)
	for i, b := range pt.order {
		b.at = int32(i)
	}
	next := make([][]int32, n)
	waits := make([]int, n)
	for i, b := range pt.order {
		b.n.sources(func(m *node) {
			if s := x.bound[m.seq]; s != nil && m.segment == b.n.segment {
				next[s.at] = append(next[s.at], int32(i))
				waits[i]++
			}
		})
	}
	rank := make([]float64, n)
	sends := make([]bool, n)
	for i := n - 1; i >= 0; i-- { // creation order is topological
		b := pt.order[i]
		behind := 0.0
		sends[i] = b.n.op == "Send"
		for _, k := range next[i] {
			behind = max(behind, rank[k])
			sends[i] = sends[i] || sends[k]
		}
		rank[i] = behind + nodeCost + b.cost/float64(min(b.tiles, x.threads))
		b.rank = rank[i]
	}
	if x.p.o.Serial {
		return
	}
	h := &ready{rank: rank, sends: sends}
	for i, w := range waits {
		if w == 0 {
			h.at = append(h.at, int32(i))
		}
	}
	heap.Init(h)
	order := make([]*bound, 0, n)
	for len(h.at) > 0 {
		i := heap.Pop(h).(int32)
		order = append(order, pt.order[i])
		for _, k := range next[i] {
			if waits[k]--; waits[k] == 0 {
				heap.Push(h, k)
			}
		}
	}
	pt.order = order
}

// ready is a heap of nodes whose operands are there.
type ready struct {
	at    []int32
	rank  []float64
	sends []bool
}

func (h *ready) Len() int { return len(h.at) }
func (h *ready) Less(i, j int) bool {
	a, b := h.at[i], h.at[j]
	if h.sends[a] != h.sends[b] {
		return h.sends[a]
	}
	if h.rank[a] != h.rank[b] {
		return h.rank[a] > h.rank[b]
	}
	return a < b
}
func (h *ready) Swap(i, j int) { h.at[i], h.at[j] = h.at[j], h.at[i] }
func (h *ready) Push(v any)    { h.at = append(h.at, v.(int32)) }
func (h *ready) Pop() any {
	v := h.at[len(h.at)-1]
	h.at = h.at[:len(h.at)-1]
	return v
}

// bundle makes tasks: a large node is one of its own, small ones are collected until they are worth a thread's while.
func (x *instance) bundle(pt *stage) {
	grain := float64(x.p.o.Grain)
	var open *task
	sum := 0.0
	for _, b := range pt.order {
		small := b.tiles == 1 && b.cost+nodeCost < grain
		if open == nil || !small || sum >= grain {
			open = &task{index: len(pt.tasks), stage: pt}
			pt.tasks = append(pt.tasks, open)
			sum = 0
		}
		open.nodes = append(open.nodes, b)
		b.task = open
		sum += b.cost + nodeCost
		if !small {
			open = nil
		}
	}
	for _, b := range pt.order {
		b.n.sources(func(m *node) {
			if s := x.bound[m.seq]; s != nil && s.task != nil {
				b.task.depend(s.task)
			}
		})
	}
	for _, t := range pt.tasks {
		t.tidy()
	}
}

// depend makes t wait for s. Tasks of another stage are done before this one begins.
func (t *task) depend(s *task) {
	if s != t && s.stage == t.stage && (len(t.deps) == 0 || t.deps[len(t.deps)-1] != s) {
		t.deps = append(t.deps, s)
	}
}

// tidy drops repeated dependencies; the latest comes first, since when it is done the others mostly are.
func (t *task) tidy() {
	slices.SortFunc(t.deps, func(a, b *task) int { return b.index - a.index })
	t.deps = slices.Compact(t.deps)
}

// count numbers the tiles.
func (pt *stage) count() {
	pt.ends = pt.ends[:0]
	end := int64(0)
	for _, t := range pt.tasks {
		t.tiles = 1
		if len(t.nodes) == 1 {
			t.tiles = int32(t.nodes[0].tiles)
		}
		end += int64(t.tiles)
		pt.ends = append(pt.ends, end)
	}
}
