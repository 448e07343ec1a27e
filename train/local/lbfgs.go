package local

import (
	"context"
	"errors"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
)

// lbfgs is the loop of the one optimizer that asks for gradients itself: its vector work is phase apply, what it asks for compute.
func lbfgs(ctx context.Context, run *train.Run) (trivium.Result, error) {
	o, err := run.LBFGS()
	if err != nil {
		return train.NotBegun(ctx, err)
	}
	var batch *trivium.Batch
	var lossSum, weightSum float64 // where the search ended, or, if it did not begin, at its start
	gradient := func(p trivium.Params, g trivium.Gradient) (float64, float64, error) {
		run.Enter(observe.Compute)
		defer run.Leave()
		var err error
		lossSum, weightSum, err = run.Sum(p, batch, g)
		return lossSum, weightSum, err
	}
	for _, batch = range run.Updates(ctx) {
		lossSum, weightSum = 0, 0
		run.Enter(observe.Apply)
		loss, _, err := o.Step(run.Params, gradient)
		run.Leave()
		if e := run.CheckLoss(loss, 1, o.Gradient()); e != nil {
			run.Fail(e)
			break
		}
		if errors.Is(err, optim.ErrConverged) {
			run.Converged()
			break
		}
		if err != nil {
			run.Fail(err)
			break
		}
		run.Finish(batch.Rows, lossSum, weightSum)
	}
	return run.Result(ctx)
}
