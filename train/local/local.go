// Package local trains in one process: the oracle that every other strategy is measured against, and the whole algorithm in a dozen
// lines.
//
// Next in the life of a gradient: package nn, where a batch becomes one.
package local

import (
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
)

// Options of the strategy. There are none yet.
type Options struct{}

// A Strategy trains in the loop that calls it.
type Strategy struct{ env train.Env }

// New returns the strategy.
func New(env train.Env, _ Options) trivium.Strategy { return &Strategy{env} }

// Train runs job.
func (s *Strategy) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	run, err := train.Open(ctx, s.env, job, "local")
	if err != nil {
		return train.NotBegun(ctx, err)
	}
	defer run.Close()
	if job.Optimizer.Name == "lbfgs" {
		return lbfgs(ctx, run)
	}
	state, err := run.OptimizerState()
	if err != nil {
		return train.NotBegun(ctx, err)
	}
	gradient := train.NewGradient(run.Layout())
	for step, batch := range run.Updates(ctx) {
		lossSum, weightSum, err := run.Grad(batch, gradient)
		if err != nil {
			run.Fail(err)
			break
		}
		run.Enter(observe.Apply)
		state.Step(step, run.Params, gradient, weightSum)
		run.Pass()
		run.Finish(batch.Rows, lossSum, weightSum)
	}
	return run.Result(ctx)
}
