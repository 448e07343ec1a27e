package allreduce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/finite"
)

// A finding is an evaluation as it travels from rank 0: the bits of each value, since JSON has no NaN.
type finding struct {
	Values map[string]uint64 `json:"values"`
	Error  string            `json:"error,omitempty"`
}

// agree returns at every rank what rank 0 found: see train.Run.Agree.
func (x *exchange) agree(ctx context.Context, values map[string]float64, failure error) (map[string]float64, error) {
	if x.g == nil {
		return values, failure
	}
	x.late.measures(x.rank != 0)
	defer x.late.measures(false)
	defer x.late.end()
	f := finding{Values: map[string]uint64{}}
	var message []byte
	if x.rank == 0 {
		for name, v := range values {
			f.Values[name] = math.Float64bits(v)
		}
		if failure != nil {
			f.Error = failure.Error()
		}
		var err error
		if message, err = json.Marshal(f); err != nil {
			return nil, err
		}
	}
	length := []int64{int64(len(message))}
	err := x.confirm(ctx)
	if err == nil {
		err = collective.BroadcastInto(ctx, x.g, length, 0)
	}
	if err == nil {
		if x.rank != 0 {
			message = make([]byte, length[0])
		}
		err = collective.BroadcastInto(ctx, x.g, message, 0)
	}
	if err != nil {
		x.over = true
		return nil, x.failed(ctx, err)
	}
	if failure != nil {
		x.over = true
	}
	if x.rank == 0 {
		return values, failure
	}
	if err := json.Unmarshal(message, &f); err != nil {
		return nil, fmt.Errorf("allreduce: the evaluation of rank 0: %w", err)
	}
	if f.Error != "" {
		x.over = true
		return nil, fmt.Errorf("allreduce: rank 0: %s", f.Error)
	}
	values = make(map[string]float64, len(f.Values))
	for name, v := range f.Values {
		values[name] = math.Float64frombits(v)
	}
	return values, nil
}

// share returns at every rank why one of them, the lowest of those, could not compute its gradient.
func (x *exchange) share(ctx context.Context, failure error) error {
	if x.g == nil {
		return failure
	}
	var text []byte
	if failure != nil {
		text = []byte(failure.Error())
	}
	all, counts, err := collective.AllGatherAll(ctx, x.g, text)
	if err != nil {
		return errors.Join(failure, x.failed(ctx, err))
	}
	for rank, n := range counts {
		if n > 0 && rank == x.rank {
			return failure
		}
		if n > 0 && finite.FirstNot(x.run.Params.Flat) >= 0 { // as there, where that was seen first
			return x.run.CheckLoss(math.NaN(), 1, x.total)
		}
		if n > 0 {
			return fmt.Errorf("allreduce: rank %d: %s", rank, all[:n])
		}
		all = all[n:]
	}
	return failure
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
