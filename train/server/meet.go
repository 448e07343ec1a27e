package server

import (
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
)

// refresh makes rank 0's parameters what the tables have.
func (w *worker) refresh(context.Context) error {
	if w.o.Mode != ps.BSP && w.run.Reason() == trivium.Interrupted {
		if w.settled {
			return nil
		}
		return w.settle() // the others stop too, each after an update of its own
	}
	if w.own != nil {
		return w.failure(w.own.read(w.ctx, w.run.Params))
	}
	for _, x := range w.tables.sparse {
		if err := w.tables.getRows(w.ctx, x, w.run.Params.Flat); err != nil {
			return w.failure(err)
		}
	}
	return nil
}

// slack is how many rounds a read may lack.
func (w *worker) slack() int {
	if w.own != nil {
		return max(w.o.Staleness, w.own.slack)
	}
	return w.o.Staleness
}

// settle waits until the others have made their last updates, where nobody waits otherwise, and reads what came of them.
func (w *worker) settle() error {
	w.settled = true
	return w.meet()
}

// meetToMeasure has an evaluation that may end training measure the model that all updates up to it have made: else it would lack what others
// have still to add, and so would what is left where training ends. The others wait for what rank 0 finds in any case.
func (w *worker) meetToMeasure() error {
	if w.settled || w.own == nil && w.o.Mode == ps.BSP || !w.run.MayEnd() {
		return nil
	}
	return w.meet()
}

// meet waits until all have ended as many rounds, and reads what came of them.
func (w *worker) meet() error {
	if err := w.w.Barrier(w.ctx); err != nil {
		return w.failure(err)
	}
	for range w.slack() { // so that a read may lack nothing
		if _, err := w.w.Clock(w.ctx); err != nil {
			return w.failure(err)
		}
	}
	switch {
	case w.env.Rank != 0 && (w.settled || w.own != nil): // it needs no model, or reads what it needs
		return nil
	case w.env.Rank != 0: // it goes on from there, if they go on
		return w.failure(w.tables.getDense(w.ctx, w.run.Params.Flat))
	case w.own != nil:
		return w.failure(w.own.read(w.ctx, w.run.Params))
	}
	return w.failure(w.tables.getAll(w.ctx, w.run.Params.Flat))
}
