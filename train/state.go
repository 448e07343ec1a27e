package train

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
)

// OptimizerState returns the state of the job's optimizer, from the checkpoint where the run resumes one, and has it saved with each.
func (r *Run) OptimizerState() (*optim.State, error) {
	var s *optim.State
	all := func(slots [][]float32, rowSteps [][]uint32) ([][]float32, [][]uint32, error) {
		return slots, rowSteps, nil
	}
	s, err := r.OptimizerPart(r.Layout(), all, func() ([][]float32, [][]uint32) { return s.Slots(), s.RowSteps() })
	if err == nil {
		r.norm = s.GradientNorm
	}
	return s, err
}

// OptimizerPart is OptimizerState for a process that keeps a part of it, of the layout l: pick returns that part of what was saved, all
// of it, and whole returns all of it for a checkpoint.
func (r *Run) OptimizerPart(
	l *trivium.Layout, pick func(slots [][]float32, rowSteps [][]uint32) ([][]float32, [][]uint32, error), whole func() ([][]float32, [][]uint32),
) (*optim.State, error) {
	o, err := r.env.Optimizers.New(r.Job.Optimizer, r.CPU.ISA)
	if err != nil {
		return nil, &JobError{err}
	}
	s, err := optim.NewState(l, o, r.CPU)
	if err != nil {
		return nil, &JobError{err}
	}
	names := optim.NamesOf(o)
	r.rate = optim.RateOf(o)
	if c := r.env.Resume; c != nil {
		saved := c.Optimizer
		if saved == nil {
			saved = new(checkpoint.OptimizerState)
		}
		savedNames, slots := saved.Names, saved.Slots
		if n := len(savedNames); n > 0 && savedNames[n-1] == residualName {
			savedNames, slots, r.saved = savedNames[:n-1], slots[:n-1], slots[n-1]
		}
		if !slices.Equal(savedNames, names) {
			return nil, r.stateMismatch(savedNames, names)
		}
		own, rowSteps, err := pick(slots, saved.RowSteps)
		if err == nil && r.env.OwnResume {
			err = s.Take(own, rowSteps, r.shed)
		} else if err == nil {
			err = s.Restore(own, rowSteps)
		}
		if err != nil {
			return nil, &JobError{err}
		}
		r.took(func(c *checkpoint.Checkpoint) { c.Optimizer = nil })
	}
	r.Keep(func(c *checkpoint.Checkpoint) error {
		slots, rowSteps := whole()
		c.Optimizer = &checkpoint.OptimizerState{Names: names, Slots: slots, RowSteps: rowSteps}
		if r.dropped != nil {
			if dropped := r.dropped(); dropped != nil {
				c.Optimizer.Names = append(slices.Clone(names), residualName)
				c.Optimizer.Slots = append(slices.Clone(slots), dropped)
			}
		}
		if r.codecs != nil {
			c.Codecs = r.codecs()
		}
		return nil
	})
	return s, nil
}

// took lets go of what the run has taken of the checkpoint that it goes on from, if that is its own.
func (r *Run) took(letGo func(c *checkpoint.Checkpoint)) {
	if c := r.env.Resume; c != nil && r.env.OwnResume {
		letGo(c)
		r.shed()
	}
}

// shed gives back the memory that was let go of, at once: the vectors that come next are made before a collection would be due.
func (r *Run) shed() {
	if r.Layout().Len() >= 1<<18 { // 1 MiB: what is less is not worth a collection
		debug.FreeOSMemory()
	}
}

// residualName is what a checkpoint calls the gradient that codecs have dropped so far, at all workers together.
const residualName = "residual"

// Residual has what codecs dropped saved with each checkpoint, after the optimizer's state: dropped returns its sum over all workers, of
// the length of the parameters, or nil. It returns that of the checkpoint from which the run goes on, or nil. It is called after
// OptimizerState.
func (r *Run) Residual(dropped func() []float32) (saved []float32) {
	r.dropped, saved, r.saved = dropped, r.saved, nil
	return saved
}

// Codecs has what the codecs of each worker keep saved with each checkpoint, so that as many workers go on with the same bits. It returns
// what the checkpoint has from which the run goes on, or nil.
func (r *Run) Codecs(keep func() [][]byte) (saved [][]byte) {
	r.codecs = keep
	if c := r.env.Resume; c != nil {
		saved = c.Codecs
	}
	return saved
}

// Coded says so where the codec of what workers send encodes little of it: so many cells, or none, and why.
func (r *Run) Coded(cells int, why error) {
	switch all := r.Layout().Len(); {
	case cells == 0:
		r.Notice(observe.Warn, "codec", fmt.Sprintf("all that workers send travels as it is, for the codec fits no part of it: %v", why))
	case cells < all/2:
		r.Notice(observe.Info, "codec", fmt.Sprintf("the codec encodes what is sent for %d of the model's %d parameters: the rest travels as it is", cells, all))
	}
}

// LearningRate is the optimizer's at update step; 0: it tells none.
func (r *Run) LearningRate(step int64) float64 {
	if r.rate == nil {
		return 0
	}
	return r.rate(step)
}

// SavedRate is the LearningRate of the last update before the checkpoint that the run goes on from, under the job of then.
func (r *Run) SavedRate() (float64, error) {
	c := r.env.Resume
	if c == nil {
		return 0, nil
	}
	o, err := r.env.Optimizers.New(c.Job.Optimizer, r.CPU.ISA)
	if err != nil {
		return 0, &JobError{fmt.Errorf("train: the job of the checkpoint: %w", err)}
	}
	if rate := optim.RateOf(o); rate != nil {
		return rate(c.Progress.Step), nil
	}
	return 0, nil
}

// LBFGS returns the job's L-BFGS, from the checkpoint where the run resumes one, and has its history saved with each.
func (r *Run) LBFGS() (*optim.LBFGS, error) {
	o, err := optim.NewLBFGS(r.Job.Optimizer, r.Layout(), r.CPU)
	if err != nil {
		return nil, &JobError{err}
	}
	if c := r.env.Resume; c != nil && c.Optimizer != nil {
		n := len(c.Optimizer.Slots) / 2
		if names := pairNames(n); !slices.Equal(c.Optimizer.Names, names) {
			return nil, r.stateMismatch(c.Optimizer.Names, names)
		}
		steps, changes := c.Optimizer.Slots[:n], c.Optimizer.Slots[n:]
		if r.env.OwnResume {
			err = o.Take(steps, changes, r.shed)
		} else {
			err = o.Restore(steps, changes)
		}
		if err != nil {
			return nil, &JobError{err}
		}
		r.took(func(c *checkpoint.Checkpoint) { c.Optimizer = nil })
	}
	r.Keep(func(c *checkpoint.Checkpoint) error {
		s, y := o.Pairs()
		c.Optimizer = &checkpoint.OptimizerState{Names: pairNames(len(s)), Slots: slices.Concat(s, y)}
		return nil
	})
	return o, nil
}

// Converged ends training where L-BFGS can make no update.
func (r *Run) Converged() {
	r.Stop(trivium.Finished, "no step makes the loss smaller: L-BFGS has converged")
}

// pairNames are what a checkpoint calls the n pairs of L-BFGS: steps, then changes of the gradient, oldest first.
func pairNames(n int) (names []string) {
	for _, what := range []string{"step", "change"} {
		for i := range n {
			names = append(names, fmt.Sprintf("%s%d", what, i))
		}
	}
	return names
}

func (r *Run) stateMismatch(saved, want []string) error {
	return &JobError{fmt.Errorf("train: the checkpoint has optimizer state %q, optimizer %q keeps %q: resume with the optimizer that it was saved under", saved, r.Job.Optimizer.Name, want)}
}

// NotBegun is what a strategy returns where Open, or what it does before its loop, failed under ctx: an interrupt is no failure, and one
// because something is lost is that loss.
func NotBegun(ctx context.Context, err error) (trivium.Result, error) {
	if lost := LostOf(ctx); lost != nil {
		return trivium.Result{Reason: trivium.Failed}, lost
	}
	if ctx.Err() != nil {
		return trivium.Result{Reason: trivium.Interrupted}, nil //nolint:nilerr // as the comment says
	}
	return trivium.Result{Reason: trivium.Failed}, err
}
