package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

const (
	// blockCells is the number of cells that are stepped at a time: the update takes 16 KiB, which stays in the first-level cache
	// from the division to the addition.
	blockCells = 4096

	// forkCells is the number of cells from which on the threads are worth waking: below, a step takes less than about ten fork-joins.
	forkCells = 1 << 16
)

// A State is an optimizer at work on a whole model: its slots, and for row-sparse tensors how often each row was updated. It is used
// by one goroutine at a time, and allocates nothing once it is made.
type State struct {
	layout *trivium.Layout
	opt    trivium.Optimizer
	rule   *Rule // opt, if it is one of ours
	isa    kernel.ISA
	pool   *tensor.Pool

	forkFrom int // forkCells but in tests

	slots    [][]float32
	rowSteps [][]uint32 // per tensor; nil where rows are not counted

	blocks  []block
	scratch [][]float32 // per worker: the mean gradient of a block, then its update
	norms   []float64   // sums of squares per block
	whole   []float32   // the mean gradient, where opt needs all of it at once

	// The step under way.
	step    int64
	begun   bool // there was an update: those without weight are none, so that the first need not be number 1
	fresh   bool // this is the first
	p       trivium.Params
	g       trivium.Gradient
	mean    float32
	scale   float32
	squares float64 // the sum of the mean gradient's, where it is clipped by its norm
	tensor  int
	chunk   int // rows of it that are stepped at a time
	onBlock func(i, worker int)
	onNorm  func(i, worker int)
	onRows  func(i, worker int)
	views   [][][]float32 // per worker: sub-slices of slots
	gathers []gather      // per worker; nil: no tensor is row-sparse
}

// A block is a run of cells of one dense tensor.
type block struct {
	tensor, from, to int
	spec             trivium.Spec
}

// NewState returns the state of opt before the first update of parameters with this layout. A nil cpu is one thread.
func NewState(l *trivium.Layout, opt trivium.Optimizer, cpu *tensor.CPU) (*State, error) {
	s := &State{layout: l, opt: opt, isa: kernel.Best(), forkFrom: forkCells, rowSteps: make([][]uint32, l.Tensors())}
	if cpu != nil {
		s.isa, s.pool = cpu.ISA, cpu.Pool
	}
	s.rule, _ = opt.(*Rule)
	for i := range l.Tensors() {
		spec := l.Spec(i)
		if spec.Buffer || spec.Tie != "" {
			continue
		}
		if spec.RowSparse {
			if s.rule == nil && !opt.Elementwise() {
				return nil, fmt.Errorf("optim: tensor %q is row-sparse, and this optimizer, which is not elementwise, wants all cells of the gradient", spec.Name)
			}
			if s.rule == nil || s.rule.steps {
				s.rowSteps[i] = make([]uint32, l.Rows(i))
			}
			if s.gathers == nil {
				s.gathers = make([]gather, max(s.pool.Threads(), 1))
			}
			continue
		}
		from, to := l.Range(i)
		for ; from < to; from += blockCells {
			s.blocks = append(s.blocks, block{i, from, min(from+blockCells, to), spec})
		}
	}
	for range opt.Slots() {
		s.slots = append(s.slots, tensor.Aligned[float32](l.Len()))
	}
	for range max(s.pool.Threads(), 1) {
		s.scratch = append(s.scratch, tensor.Aligned[float32](blockCells))
		s.views = append(s.views, make([][]float32, opt.Slots()))
	}
	for i := range s.gathers {
		s.gathers[i] = newGather(opt.Slots())
	}
	s.norms = make([]float64, len(s.blocks))
	if s.rule == nil && !opt.Elementwise() {
		s.whole = tensor.Aligned[float32](2 * l.Len())
	}
	s.onBlock, s.onNorm, s.onRows = s.stepBlock, s.normBlock, s.stepRows
	return s, nil
}

// Slots returns the state vectors, a view: each has a cell for each of the layout's.
func (s *State) Slots() [][]float32 { return s.slots }

// RowSteps returns, per tensor, how often each row was updated, a view; nil for tensors whose rows are not counted, because they are
// dense or because this optimizer's updates do not depend on it.
func (s *State) RowSteps() [][]uint32 { return s.rowSteps }

// Restore makes the state that of slots and rowSteps, copies of what Slots and RowSteps returned.
func (s *State) Restore(slots [][]float32, rowSteps [][]uint32) error {
	return s.Take(slices.Clone(slots), rowSteps, func() {})
}

// Take is Restore for a caller that has no more use for slots: as soon as a vector is copied it is nil there, and taken is called, so that
// not all of them are in memory twice.
func (s *State) Take(slots [][]float32, rowSteps [][]uint32, taken func()) error {
	if len(slots) != len(s.slots) {
		return fmt.Errorf("optim: the optimizer has %d state vectors, found %d: was it saved by another one?", len(s.slots), len(slots))
	}
	for k, v := range slots {
		if len(v) != len(s.slots[k]) {
			return fmt.Errorf("optim: state vector %d: want %d cells, found %d", k, len(s.slots[k]), len(v))
		}
	}
	for i, want := range s.rowSteps {
		if want == nil {
			continue
		}
		if i >= len(rowSteps) || len(rowSteps[i]) != len(want) {
			return fmt.Errorf("optim: tensor %q: want the number of updates of each of %d rows", s.layout.Spec(i).Name, len(want))
		}
	}
	for k := range slots {
		copy(s.slots[k], slots[k])
		slots[k] = nil
		taken()
	}
	for i, want := range s.rowSteps {
		if want != nil {
			copy(want, rowSteps[i])
		}
	}
	return nil
}

// Step updates p from the gradient sum g over rows whose weights sum to weightSum: the one division, the update, the addition. step
// counts the model's updates, the first is 1. A weight sum of 0 makes no update, since there is no mean.
func (s *State) Step(step int64, p trivium.Params, g trivium.Gradient, weightSum float64) {
	if weightSum == 0 {
		return
	}
	s.step, s.p, s.g, s.mean, s.scale = step, p, g, float32(weightSum), 1
	s.fresh, s.begun = !s.begun, true
	pool := s.pool
	if s.layout.Len() < s.forkFrom {
		pool = nil
	}
	if s.whole != nil {
		s.stepWhole()
		return
	}
	if s.rule != nil && s.rule.clipNorm > 0 {
		s.squares = s.norm(pool)
		s.scale = s.rule.normScale(s.squares)
	}
	pool.Run(len(s.blocks), s.onBlock)
	for i, rows := range g.Rows {
		if spec := s.layout.Spec(i); len(rows) > 0 && !spec.Buffer && spec.Tie == "" {
			s.tensor = i
			pool.Run(s.chunks(len(rows), pool), s.onRows)
		}
	}
}

// GradientNorm returns the Euclidean norm of the last Step's mean gradient, before it was scaled down; false: there is none, or nobody clips
// by it, so that it is not computed.
func (s *State) GradientNorm() (norm float64, known bool) {
	return math.Sqrt(s.squares), s.begun && s.rule != nil && s.rule.clipNorm > 0
}

// stepBlock steps the cells of one block: each pass finds them in the cache.
func (s *State) stepBlock(i, worker int) {
	b := &s.blocks[i]
	var at at
	if s.rule != nil {
		at = s.rule.at(s.step, &b.spec)
		at.fresh = at.fresh || s.fresh
	}
	s.stepCells(at, s.step, worker, b.from, b.to)
}

// stepCells steps up to blockCells cells of one tensor.
func (s *State) stepCells(at at, step int64, worker, from, to int) {
	u, p := s.scratch[worker][:to-from], s.p.Flat[from:to]
	kernel.ScaleInto(s.isa, u, s.g.Flat[from:to], s.mean)
	slots := s.views[worker]
	for k, v := range s.slots {
		slots[k] = v[from:to]
	}
	if s.rule != nil {
		s.rule.clip(u, s.scale)
		s.rule.apply(s.rule, at, p, u, u, slots)
	} else {
		s.opt.Apply(step, s.layout, from, p, u, u, slots)
	}
	kernel.AddInto(s.isa, p, u)
}

// norm returns the sum of squares of the mean gradient, in the order of normOf; of a row-sparse tensor, of its touched rows.
func (s *State) norm(pool *tensor.Pool) float64 {
	pool.Run(len(s.blocks), s.onNorm)
	var sum float64
	next := 0
	for i := range s.layout.Tensors() {
		for ; next < len(s.blocks) && s.blocks[next].tensor == i; next++ {
			sum += s.norms[next]
		}
		if spec := s.layout.Spec(i); i < len(s.g.Rows) && !spec.Buffer && spec.Tie == "" {
			first, _ := s.layout.Range(i)
			cols := s.layout.Cols(i)
			for _, row := range s.g.Rows[i] {
				for from, to := first+int(row)*cols, first+(int(row)+1)*cols; from < to; from += blockCells {
					sum += s.meanSquares(0, from, min(from+blockCells, to))
				}
			}
		}
	}
	return sum
}

func (s *State) normBlock(i, worker int) {
	s.norms[i] = s.meanSquares(worker, s.blocks[i].from, s.blocks[i].to)
}

func (s *State) meanSquares(worker, from, to int) float64 {
	g := s.scratch[worker][:to-from]
	kernel.ScaleInto(s.isa, g, s.g.Flat[from:to], s.mean)
	return SumSquares(s.isa, g)
}

// stepWhole steps a foreign optimizer that needs all cells of a gradient at once.
func (s *State) stepWhole() {
	n := s.layout.Len()
	g, u := s.whole[:n], s.whole[n:]
	kernel.ScaleInto(s.isa, g, s.g.Flat, s.mean)
	s.opt.Apply(s.step, s.layout, 0, s.p.Flat, g, u, s.slots)
	kernel.AddInto(s.isa, s.p.Flat, u)
}
