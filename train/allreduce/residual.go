package allreduce

import (
	"context"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
)

// restore gives each worker an equal share of what codecs had dropped when the checkpoint was made, by whatever number of workers: what
// counts is the sum.
func (x *exchange) restore(env *train.Env, run *train.Run) {
	coded := false
	for i := range x.buckets {
		coded = coded || x.buckets[i].op.Codec != nil
	}
	if !coded {
		return
	}
	x.dropped = make([]float32, run.Layout().Len())
	saved := run.Residual(func() []float32 { return x.dropped })
	if saved == nil {
		return
	}
	copy(x.dropped, saved)
	var rate float64 // what is saved is measured in that of the last update before, under the job of then
	o, _ := optim.New(env.Resume.Job.Optimizer, 0)
	if rule, ok := o.(*optim.Rule); ok {
		rate = rule.Rate(env.Resume.Progress.Step)
	}
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.op.Codec == nil {
			continue
		}
		b.op.Residual.SetRate(rate)
		cells := b.op.Residual.Cells()
		for k, v := range saved[b.From:b.To] {
			cells[k] = v / float32(x.workers)
		}
	}
}

// rate rescales the residuals where the learning rate has changed.
func (x *exchange) rate(step int64) {
	if x.dropped == nil {
		return
	}
	rate := x.run.LearningRate(step)
	for i := range x.buckets {
		if op := &x.buckets[i].op; op.Codec != nil {
			op.Residual.SetRate(rate)
			op.Owner.SetRate(rate)
		}
	}
}

// collect adds all workers' residuals, for the checkpoint.
func (x *exchange) collect(ctx context.Context) error {
	clear(x.dropped)
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.op.Codec == nil {
			continue
		}
		part, owner := x.dropped[b.From:b.To], b.op.Owner.Cells()
		for k, v := range b.op.Residual.Cells() {
			part[k] = v + owner[k]
		}
	}
	if err := collective.AllReduceInto(ctx, x.g, x.dropped, x.dropped, collective.Sum); err != nil {
		return x.failed(ctx, err)
	}
	return nil
}
