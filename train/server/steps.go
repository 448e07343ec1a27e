package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
)

// checkApart returns what is wrong with steps that workers take by themselves.
func (o Options) checkApart(job *trivium.Job) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("server: "+format, args...)) }
	if o.StepsPerRound < 0 || o.Clocks < 0 {
		bad("steps: want 0 or more steps a round and rounds an epoch, found %d and %d", o.StepsPerRound, o.Clocks)
	}
	if o.StepsPerRound > 1 && o.Clocks > 0 {
		bad("steps: %d steps a round and %d rounds an epoch are two ways to say one thing: give one", o.StepsPerRound, o.Clocks)
	}
	if o.Mean && !o.apart() {
		bad("steps: a mean of the workers' steps wants several a round: give --steps-per-round or --clocks")
	}
	if !o.apart() {
		return errors.Join(errs...)
	}
	if o.OptimizerAt == AtServer {
		bad("steps: a worker that takes several steps by itself has the optimizer, and the server's steps once a round: give --optimizer-on worker, or leave that to the default")
	}
	if job.Exact {
		bad("steps: exact mode promises the bits of one process, and several steps on a copy of one's own are another algorithm")
	}
	if job.Batch == trivium.FullBatch && o.StepsPerRound > 1 {
		bad("steps: a step that takes all rows leaves none for a second: give a batch")
	}
	return errors.Join(errs...)
}

// RowsPerRound is how many of the training rows lie between two rounds: those of the job's batch, or of several steps.
func (o Options) RowsPerRound(job *trivium.Job, rows int64) int {
	switch {
	case o.Clocks > 0:
		return int((rows + int64(o.Clocks) - 1) / int64(o.Clocks))
	case o.StepsPerRound > 1:
		return int(min(rows, int64(job.Batch)*int64(o.StepsPerRound)))
	}
	return job.Batch
}

// rounds makes the run's updates rounds of several steps.
func (o Options) rounds(run *train.Run) error {
	if o.Clocks == 0 && o.StepsPerRound <= 1 {
		return nil
	}
	return run.Rounds(o.RowsPerRound(run.Job, run.Splits().Train.Rows()))
}

// descent is training by gradients with several steps a round: each worker takes them on its own copy of the parameters, which is then
// compared with what it was. PMLS's regressions are trained so, with a row a step.
type descent struct {
	gradients
	rows  int           // of a step
	fused descender     // takes steps of single rows by itself; nil: the model cannot, or the optimizer is not plain
	steps int64         // that this worker has taken
	old   []float32     // the parameters when the round began
	view  trivium.Batch // of a step
	seen  [][]int32     // of each row-sparse tensor: the rows that the round touched
}

// A descender is a model that takes a step of plain gradient descent for each row of a batch by itself, without writing a gradient: those of
// nn that are linear do. It returns the sums of loss and weight, each row's before its step.
type descender interface {
	Descend(p trivium.Params, b trivium.Batch, rate float32) (lossSum, weightSum float64, err error)
}

func newDescent(w *worker) *descent {
	d := &descent{gradients: gradients{w}, rows: 1 << 62}
	if b := w.job.Batch; b > 0 {
		d.rows = max(1, b/w.env.Workers())
	}
	if x := w.job.Optimizer; d.rows == 1 && x.Name == "sgd" && x.L1 == 0 && x.L2 == 0 && x.Decay == 0 && x.ClipValue == 0 && x.ClipNorm == 0 {
		d.fused, _ = w.run.Model.(descender)
	}
	if w.job.Batch > 0 {
		round, epoch := w.run.Extent()
		d.steps = stepsBefore(w.run.At().Samples, epoch, round, int64(d.rows), w.env.Rank, w.env.Workers())
	}
	l := w.run.Layout()
	d.old = tensor.Aligned[float32](l.Len())
	d.seen = make([][]int32, l.Tensors())
	return d
}

// stepsBefore is how many steps of so many rows a worker has taken, when all have gone through samples: rounds of round rows, which are cut
// among the workers, in epochs of epoch rows, whose last round is short if need be.
func stepsBefore(samples, epoch, round, rows int64, rank, workers int) int64 {
	of := func(all int64) int64 { // the steps of a round
		own := all*int64(rank+1)/int64(workers) - all*int64(rank)/int64(workers)
		return (own + rows - 1) / rows
	}
	in := func(all int64) int64 { return all/round*of(round) + of(all%round) }
	return samples/epoch*in(epoch) + in(samples%epoch)
}

// Round implements Program.
func (d *descent) Round(ctx context.Context, _ *ps.Worker, b trivium.Batch) error {
	w := d.w
	if err := d.pull(ctx, &b); err != nil {
		return err
	}
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	params := w.run.Params
	w.run.Enter(observe.Compute)
	copy(d.old, params.Flat)
	loss, weight, err := d.descend(&b)
	w.run.Leave()
	if err != nil {
		return fmt.Errorf("train: update %d: %w", w.round, err)
	}
	w.sums = append(w.sums[:0], partSum{0, loss, weight})
	if weight == 0 || !finite.Is(loss) {
		return nil
	}
	w.run.Enter(observe.Push)
	defer w.run.Leave()
	kernel.Sub(w.run.CPU.ISA, w.update, params.Flat, d.old)
	if w.o.Mean {
		share := w.share(b.Rows)
		for i := range w.update {
			w.update[i] *= share
		}
	}
	return w.tables.inc(0, w.update, d.touched())
}

// descend takes the steps of b, and returns the sums of loss and weight, of each step's rows before it.
func (d *descent) descend(b *trivium.Batch) (lossSum, weightSum float64, err error) {
	w := d.w
	if d.fused != nil {
		for at := 0; at < b.Rows; {
			n := b.Rows - at
			rate := w.run.LearningRate(d.steps + 1)
			if w.job.Optimizer.Schedule != "" {
				n = 1 // each step has a rate of its own
			}
			b.SliceInto(&d.view, at, at+n)
			loss, weight, err := d.fused.Descend(w.run.Params, d.view, float32(rate))
			if err != nil {
				return 0, 0, err
			}
			lossSum, weightSum = lossSum+loss, weightSum+weight
			at, d.steps = at+n, d.steps+int64(n)
		}
		return lossSum, weightSum, nil
	}
	for i := range d.seen {
		d.seen[i] = d.seen[i][:0]
	}
	for at := 0; at < b.Rows; {
		n := min(d.rows, b.Rows-at)
		b.SliceInto(&d.view, at, at+n)
		loss, weight, err := w.run.Sum(w.run.Params, &d.view, w.gradient)
		if err != nil {
			return 0, 0, err
		}
		at, d.steps = at+n, d.steps+1
		if lossSum, weightSum = lossSum+loss, weightSum+weight; lossSum-lossSum != 0 {
			return lossSum, weightSum, nil
		}
		if weight == 0 {
			continue
		}
		w.stateMu.Lock()
		w.state.Step(d.steps, w.run.Params, w.gradient, weight)
		w.stateMu.Unlock()
		for i, rows := range w.gradient.Rows {
			d.seen[i] = append(d.seen[i], rows...)
		}
	}
	return lossSum, weightSum, nil
}

// touched are the rows of row-sparse tensors that the round changed; nil where there are no such tensors.
func (d *descent) touched() [][]int32 {
	w := d.w
	if len(w.tables.sparse) == 0 {
		return nil
	}
	for i, x := range w.tables.sparse {
		if d.fused == nil {
			slices.Sort(d.seen[x.tensor])
			d.seen[x.tensor] = slices.Compact(d.seen[x.tensor])
		} else if d.seen[x.tensor] = w.touched.rows(i); d.seen[x.tensor] == nil {
			d.seen[x.tensor] = x.run(0, x.rows)
		}
	}
	return d.seen
}
