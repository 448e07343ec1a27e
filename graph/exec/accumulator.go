package exec

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// An accumulator collects gradients computed at its step or later; older ones are dropped and counted. Taking gives the mean of all that
// are there, once enough are, and goes one step further.
type accumulator struct {
	name    string
	perRow  bool
	mu      sync.Mutex
	step    int64
	sum     *tensor.Tensor
	count   int   // gradients in sum
	rows    []int // gradients that touched each row
	last    []int // of each row: number of the gradient that touched it last, the accumulator's first being 1
	number  int   // of gradients added so far, also by steps that are over
	dropped int64
	takes   []*waiter
}

func (s *State) accumulator(r *graph.Resource) *accumulator {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accs[r.Name]
	if a == nil {
		sizes, _ := r.Types[0].Shape.Fixed()
		a = &accumulator{name: r.Name, perRow: r.MeanPerRow, sum: tensor.New(r.Types[0].DType, sizes...)}
		if len(sizes) > 0 {
			a.rows, a.last = make([]int, sizes[0]), make([]int, sizes[0])
		}
		s.accs[r.Name] = a
	}
	return a
}

// holds reports, as an error, gradients of another type or shape: graphs find an accumulator by its name alone.
func (a *accumulator) holds(r *graph.Resource) error {
	sizes, _ := r.Types[0].Shape.Fixed()
	if a.sum.DType() != r.Types[0].DType || !sameSizes(a.sum.Shape(), sizes) {
		return fmt.Errorf("accumulator %q is %v%v in this State, and %v in the graph", a.name, a.sum.DType(), a.sum.Shape(), r.Types[0])
	}
	return nil
}

// apply adds a gradient computed at a local step, dense if rows is nil; false if it is stale.
func (a *accumulator) apply(local int64, rows []int32, g *slot) bool {
	wake, ok := a.add(local, rows, g)
	for _, f := range wake {
		f()
	}
	return ok
}

func (a *accumulator) add(local int64, rows []int32, g *slot) (wake []func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if local < a.step {
		a.dropped++
		return nil, false
	}
	a.number++
	if a.sum.DType() == graph.F64 {
		accumulate(a, tensor.Flat[float64](a.sum), rows, flat[float64](g))
	} else {
		accumulate(a, tensor.Flat[float32](a.sum), rows, flat[float32](g))
	}
	a.count++
	return a.serve(), true
}

// accumulate adds a gradient's cells, and counts it once for each row that it has.
func accumulate[T float](a *accumulator, sum []T, rows []int32, g []T) {
	if rows == nil {
		for i, v := range g {
			sum[i] += v
		}
		for r := range a.rows {
			a.rows[r]++
		}
		return
	}
	cols := len(sum) / max(len(a.rows), 1)
	for i, r := range rows {
		d := sum[int(r)*cols:][:cols]
		for c, v := range g[i*cols : (i+1)*cols] {
			d[c] += v
		}
		if a.last[r] != a.number {
			a.last[r] = a.number
			a.rows[r]++
		}
	}
}

// take wants the mean of at least n gradients.
func (a *accumulator) take(ctx context.Context, n int64, done func([]*tensor.Tensor, error)) {
	if n < 1 {
		done(nil, fmt.Errorf("take %d gradients from %q: want at least 1", n, a.name))
		return
	}
	a.mu.Lock()
	w := &waiter{need: int(n), done: done}
	a.takes = append(a.takes, w)
	wake := a.serve()
	if slices.Contains(a.takes, w) {
		w.stop = context.AfterFunc(ctx, func() {
			a.mu.Lock()
			i := slices.Index(a.takes, w)
			if i >= 0 {
				a.takes = slices.Delete(a.takes, i, i+1)
			}
			have, step := a.count, a.step
			wake := a.serve() // who waited behind it
			a.mu.Unlock()
			for _, f := range wake {
				f()
			}
			if i >= 0 {
				done(nil, fmt.Errorf("take from %q at its step %d: %d of %d gradients arrived: %w", a.name, step, have, n, context.Cause(ctx)))
			}
		})
	}
	a.mu.Unlock()
	for _, f := range wake {
		f()
	}
}

// serve gives the mean to the first who waits, if there is enough. The caller has the lock, and calls what is returned without it.
func (a *accumulator) serve() []func() {
	if len(a.takes) == 0 || a.count < a.takes[0].need {
		return nil
	}
	w := a.takes[0]
	a.takes = a.takes[1:]
	mean := tensor.New(a.sum.DType(), a.sum.Shape()...)
	if a.sum.DType() == graph.F64 {
		meanOf(a, tensor.Flat[float64](mean), tensor.Flat[float64](a.sum))
	} else {
		meanOf(a, tensor.Flat[float32](mean), tensor.Flat[float32](a.sum))
	}
	a.count = 0
	clear(a.rows)
	a.step++
	return []func(){func() {
		if w.stop != nil {
			w.stop()
		}
		w.done([]*tensor.Tensor{mean}, nil)
	}}
}

// meanOf divides the sum, by rows where that was asked for, and empties it.
func meanOf[T float](a *accumulator, mean, sum []T) {
	n := T(a.count)
	cols := len(sum) / max(len(a.rows), 1)
	for i, v := range sum {
		if a.perRow && len(a.rows) > 0 {
			n = T(max(a.rows[i/cols], 1))
		}
		mean[i] = v / n
	}
	clear(sum)
}

// AccumulatorStep returns an accumulator's step, the gradients that it holds, and how many it dropped as stale.
func (s *State) AccumulatorStep(r *graph.Accumulator) (step int64, held int, dropped int64) {
	a := s.accumulator(r.Resource)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.step, a.count, a.dropped
}

// SetAccumulatorStep moves an accumulator forward to a step. Moving it back is an error: it would count gradients that it has dropped
// the likes of.
func (s *State) SetAccumulatorStep(r *graph.Accumulator, step int64) error {
	a := s.accumulator(r.Resource)
	a.mu.Lock()
	defer a.mu.Unlock()
	if step < a.step {
		return fmt.Errorf("exec: accumulator %q is at step %d and cannot go back to %d", a.name, a.step, step)
	}
	a.step = step
	return nil
}
