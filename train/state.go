package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/optim"
)

// OptimizerState returns the state of the job's optimizer, from the checkpoint where the run resumes one, and has it saved with each.
func (r *Run) OptimizerState() (*optim.State, error) {
	o, err := optim.New(r.Job.Optimizer, r.CPU.ISA)
	if err != nil {
		return nil, &JobError{err}
	}
	s, err := optim.NewState(r.Layout(), o, r.CPU)
	if err != nil {
		return nil, &JobError{err}
	}
	var names []string
	if rule, ok := o.(*optim.Rule); ok {
		names, r.rate = rule.SlotNames(), rule.Rate
	}
	if c := r.env.Resume; c != nil {
		saved := c.Optimizer
		if saved == nil {
			saved = new(checkpoint.OptimizerState)
		}
		if !slices.Equal(saved.Names, names) {
			return nil, r.stateMismatch(saved.Names, names)
		}
		if err := s.Restore(saved.Slots, saved.RowSteps); err != nil {
			return nil, &JobError{err}
		}
	}
	r.Keep(func(c *checkpoint.Checkpoint) error {
		c.Optimizer = &checkpoint.OptimizerState{Names: names, Slots: s.Slots(), RowSteps: s.RowSteps()}
		return nil
	})
	return s, nil
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
		if err := o.Restore(c.Optimizer.Slots[:n], c.Optimizer.Slots[n:]); err != nil {
			return nil, &JobError{err}
		}
	}
	r.Keep(func(c *checkpoint.Checkpoint) error {
		s, y := o.Pairs()
		c.Optimizer = &checkpoint.OptimizerState{Names: pairNames(len(s)), Slots: slices.Concat(s, y)}
		return nil
	})
	return o, nil
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

// NotBegun is what a strategy returns where Open, or what it does before its loop, failed: an interrupt is no failure.
func NotBegun(ctx context.Context, err error) (trivium.Result, error) {
	if ctx.Err() != nil {
		return trivium.Result{Reason: trivium.Interrupted}, nil //nolint:nilerr // as the comment says
	}
	return trivium.Result{Reason: trivium.Failed}, err
}
