package allreduce

import (
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
)

// A search is training by L-BFGS, as MLlib does it: each gradient that the optimizer asks for is summed over all workers, and the rest of its
// work every worker does for itself, with the same bits.
type search struct {
	x     *exchange
	o     *optim.LBFGS
	ctx   context.Context // of the update under way
	batch *trivium.Batch
	last  totals // of the last sum
}

// update makes one update, the same at all workers. After optim.ErrConverged there is none to make.
func (s *search) update(ctx context.Context, _ int64, batch *trivium.Batch, _ *optim.State) (totals, error) {
	s.ctx, s.batch, s.last = ctx, batch, totals{}
	run := s.x.run
	run.Enter(observe.Apply)
	loss, _, err := s.o.Step(run.Params, s.gradient)
	run.Leave()
	if e := run.CheckLoss(loss, 1, s.o.Gradient()); e != nil {
		err = e
	}
	return s.last, err
}

// gradient implements optim.Objective, at the run's parameters, which the optimizer moves along its line.
func (s *search) gradient(_ trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error) {
	t, err := s.x.sum(s.ctx, s.batch)
	if err != nil {
		return 0, 0, err
	}
	s.last = t
	copy(g.Flat, s.x.total.Flat)
	for i, rows := range s.x.total.Rows {
		g.Rows[i] = append(g.Rows[i][:0], rows...)
	}
	return t.loss, t.weight, nil
}
