package train

import (
	"context"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
)

// A Cut is what the model was after an update that is past, of a job whose workers are never after the same update at once.
type Cut struct {
	Params    trivium.Params
	Progress  checkpoint.Progress // as At said then
	Optimizer *checkpoint.OptimizerState
	Codecs    [][]byte // what those of each worker keep; nil: there are none
}

// Cuts has the checkpoints between updates made from cuts: begin is called where one is due, and returns before it is known what the
// model is there. The strategy finds that out while training goes on, and calls SaveCut. At the end, at an interrupt, and where early
// stopping found its best model, what there is is saved as ever.
func (r *Run) Cuts(begin func(ctx context.Context) error) { r.cuts = begin }

// SaveCut writes a cut as a checkpoint, unless there is a later one.
func (r *Run) SaveCut(ctx context.Context, x Cut) error {
	if r.env.Blob == nil || x.Progress.Step <= r.keeper.step {
		return nil
	}
	start := time.Now()
	if i := notFinite(r.Layout(), x.Params.Flat, nil); i >= 0 {
		return &trivium.DivergedError{Step: x.Progress.Step, Loss: r.watched.loss, Tensor: tensorName(r.Layout(), i)}
	}
	c, err := r.checkpoint(x.Params, x.Progress)
	if err != nil {
		return err
	}
	if c.Progress.Evaluated >= x.Progress.Step { // who goes on from here is before that evaluation, also if it is of this update
		c.Progress.Evaluated = -1
	}
	c.Optimizer, c.Codecs = x.Optimizer, x.Codecs
	return r.write(ctx, c, start)
}
