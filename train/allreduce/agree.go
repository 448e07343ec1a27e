package allreduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/wire/control"
)

// A finding is what a worker tells all others: at rank 0 what an evaluation found, and anywhere why it cannot go on.
type finding struct {
	Values   map[string]float64     `cbor:"1,keyasint,omitempty"`
	Error    string                 `cbor:"2,keyasint,omitempty"` // empty: it can go on
	Misuse   bool                   `cbor:"3,keyasint,omitempty"` // Error is of a train.JobError
	Diverged *trivium.DivergedError `cbor:"4,keyasint,omitempty"` // Error is of this
}

func findingOf(values map[string]float64, failure error) finding {
	f := finding{Values: values}
	if failure == nil {
		return f
	}
	f.Error = control.Text(cmp.Or(failure.Error(), "it does not say why"))
	_, f.Misuse = errors.AsType[*train.JobError](failure)
	f.Diverged, _ = errors.AsType[*trivium.DivergedError](failure)
	return f
}

// failure is why rank, whose finding f is, cannot go on, as the others say it; nil: it can.
func (f *finding) failure(rank int) error {
	switch {
	case f.Error == "":
		return nil
	case f.Diverged != nil:
		return f.Diverged
	}
	err := fmt.Errorf("allreduce: rank %d: %s", rank, f.Error)
	if f.Misuse {
		return &train.JobError{Err: err}
	}
	return err
}

// agree returns at every rank what rank 0 found, or why one of them, the lowest of those, cannot go on: see train.Run.Agree.
func (x *exchange) agree(ctx context.Context, values map[string]float64, failure error) (map[string]float64, error) {
	if x.g == nil {
		return values, failure
	}
	x.late.measures(x.rank != 0)
	defer x.late.measures(false)
	defer x.late.end()
	if err := x.confirm(ctx); err != nil {
		x.over = true
		return nil, x.failed(ctx, err)
	}
	if x.rank != 0 { // which has measured the model for all
		values = nil
	}
	found, err := x.tell(ctx, values, failure)
	x.over = err != nil
	return found, err
}

// share returns at every rank why one of them, the lowest of those, could not compute its gradient.
func (x *exchange) share(ctx context.Context, failure error) error {
	_, err := x.tell(ctx, nil, failure)
	return err
}

// tell returns at every rank the values of rank 0, or why one of them, the lowest of those, cannot go on.
func (x *exchange) tell(ctx context.Context, values map[string]float64, failure error) (map[string]float64, error) {
	if x.g == nil {
		return values, failure
	}
	x.measured.pause(true)
	defer x.measured.pause(false)
	own, err := control.Append(nil, findingOf(values, failure))
	if err != nil {
		return nil, err
	}
	all, counts, err := collective.AllGatherAll(ctx, x.g, own)
	if err != nil {
		return nil, errors.Join(failure, x.failed(ctx, err))
	}
	var first finding // of rank 0
	for rank, n := range counts {
		var f finding
		if err := control.Decode("finding", all[:n], &f); err != nil {
			return nil, fmt.Errorf("allreduce: of rank %d: %w", rank, err)
		}
		if all = all[n:]; rank == 0 {
			first = f
		}
		if err := f.failure(rank); err != nil && rank == x.rank {
			return nil, failure
		} else if err != nil {
			return nil, err
		}
	}
	return first.Values, nil
}

// silence makes this worker's part empty: it could not compute it, and the others wait for it.
func (x *exchange) silence() {
	if x.exact != nil {
		clear(x.exact.facts)
		for _, g := range x.exact.sums {
			empty(g)
		}
		return
	}
	empty(x.own) // what its buckets hold is of no account
}

// empty makes g touch no rows.
func empty(g trivium.Gradient) {
	for i := range g.Rows {
		if g.Rows[i] != nil {
			g.Rows[i] = g.Rows[i][:0]
		}
	}
}
