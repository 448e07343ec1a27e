// Package allreduce trains in many processes that hold equal parameters: each computes the gradient of its part of every update, the
// sums are added over all, and every process makes the same optimizer step.
//
// It is the topology of MPI programs and Horovod. What travels is the gradient, in buckets, the last layers first, while the backward
// pass still computes the others; with it travel the sums of loss and weight, and whether somebody wants to stop. Updates count once all
// workers have them, up to 64 by one vote ([collective.Group.Commit]): either every worker makes them, or every worker returns the same
// error, and what it has made of them is neither measured nor saved.
//
// In exact mode the workers own the job's virtual shards, add along their one tree, and get the bits of train/local for every number of
// workers.
//
// A checkpoint is rank 0's, in the one format: a run goes on as local, or as this strategy with another number of workers.
//
// Next in the life of a gradient: package collective.
package allreduce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
)

// Options of the strategy. The zero value works.
type Options struct {
	// Compress names a codec of package compress, such as "topk:0.01", with error feedback; empty: none. Tensors that are row-sparse, and
	// those that are too small for the codec, travel as they are; under "auto:topk:0.01" also those whose sums it is not predicted to make clearly
	// faster, and all where workers share memory. What that goes by is measured as with Calibrate.
	Compress string `json:"compress,omitempty"`

	// Every is local SGD (Stich 2019): each worker makes so many updates by itself, on its part of the rows, and then the parameters and
	// the optimizer's state are averaged, weighted by rows. What ends a run ends it at an average, where all hear of it. 0 and 1: every update
	// is made by all together.
	Every int64 `json:"every,omitempty"`

	// Accumulate computes a worker's part of an update in so many pieces, whose gradients are added, for batches that the memory does not
	// hold at once. 0 and 1: in one.
	Accumulate int `json:"accumulate,omitempty"`

	// ShardOptimizer has each worker keep the optimizer's state of its part of the parameters alone (ZeRO, stage 1).
	ShardOptimizer bool `json:"shard_optimizer,omitempty"`

	// Calibrate measures what sums cost among the workers, for two seconds at most, before training begins, and has their algorithms, and
	// without a codec the gradient's buckets, chosen by that: a run that does it again may add in another order. More than two workers of one
	// host share memory then, too. Else they are chosen by a guess that is the same in every run.
	Calibrate bool `json:"calibrate,omitempty"`

	Wait time.Duration `json:"-"` // for the slowest; 0: 10 minutes. A worker that is gone is noticed at once, by its link
}

// A Strategy trains one worker's part.
type Strategy struct {
	env train.Env
	o   Options
}

// New returns the strategy.
func New(env train.Env, o Options) trivium.Strategy {
	if o.Wait == 0 {
		o.Wait = 10 * time.Minute
	}
	return &Strategy{env, o}
}

// Check returns what of job this strategy cannot do with these options. own are the program's optimizers; one that it does not know is
// not its business.
func (o Options) Check(job *trivium.Job, own optim.Optimizers) error {
	var errs []error
	codec, _, err := compress.ParseAuto(o.Compress)
	if err != nil {
		errs = append(errs, fmt.Errorf("allreduce: %w", err))
	}
	if o.Every < 0 {
		errs = append(errs, fmt.Errorf("allreduce: averaging every %d updates: want 1 or more", o.Every))
	}
	if o.Accumulate < 0 {
		errs = append(errs, fmt.Errorf("allreduce: gradients of %d pieces: want 1 or more", o.Accumulate))
	}
	if job.Exact {
		if codec != nil {
			errs = append(errs, fmt.Errorf("allreduce: exact mode promises the bits of one process, and %s changes them: leave out --compress", o.Compress))
		}
		if o.Every > 1 {
			errs = append(errs, errors.New("allreduce: exact mode promises the bits of one process, and local SGD has others: leave out --every"))
		}
		if o.Accumulate > 1 {
			errs = append(errs, errors.New("allreduce: exact mode computes a gradient by its virtual shards, and cuts it into no other pieces: leave out --accumulate"))
		}
	}
	if codec != nil && o.Every > 1 {
		errs = append(errs, errors.New("allreduce: local SGD sends parameters, and codecs are for gradients: give one of --every and --compress"))
	}
	if o.ShardOptimizer && o.Every > 1 {
		errs = append(errs, errors.New("allreduce: under local SGD every worker makes updates by itself, and needs all of the optimizer's state: give one of --every and --shard-optimizer"))
	}
	if o.ShardOptimizer && job.Optimizer.Name != "lbfgs" {
		if rule, err := own.New(job.Optimizer, 0); err == nil && !rule.Elementwise() {
			what, mend := "the norm of the whole gradient", "give one of --clip-norm and --shard-optimizer"
			if _, ours := rule.(*optim.Rule); !ours {
				what, mend = "more than one cell of the gradient", "leave out --shard-optimizer"
			}
			errs = append(errs, fmt.Errorf("allreduce: optimizer %s looks at %s, and no worker has it where the optimizer's state is sharded: %s", job.Optimizer.Name, what, mend))
		}
	}
	if job.Optimizer.Name == "lbfgs" {
		if codec != nil {
			errs = append(errs, fmt.Errorf("allreduce: lbfgs compares the gradients of two points, and %s changes them: leave out --compress", o.Compress))
		}
		if o.Every > 1 {
			errs = append(errs, errors.New("allreduce: lbfgs works on all rows at once, and under local SGD each worker has its own: leave out --every"))
		}
		if o.ShardOptimizer {
			errs = append(errs, errors.New("allreduce: lbfgs looks at whole vectors, and no worker has them where the optimizer's state is sharded: leave out --shard-optimizer"))
		}
	}
	return errors.Join(errs...)
}

// Auto says whether a codec encodes where that is predicted to pay.
func (o Options) Auto() bool {
	_, auto, _ := compress.ParseAuto(o.Compress)
	return auto
}

// measures says whether what sums cost is measured before training.
func (o Options) measures() bool { return o.Calibrate || o.Auto() }

// lostWait is how long a worker that hears that another is gone waits for its links to say so too: what they say is the same everywhere.
const lostWait = time.Second

// Train runs this worker's part of job and returns the model, which is the same at all.
func (s *Strategy) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	env := s.env
	env.Shares = true
	hard := train.UntilLost(ctx)
	if err := s.o.Check(job, env.Optimizers); err != nil {
		return train.NotBegun(hard, &train.JobError{Err: err})
	}
	if env.Sharded {
		return train.NotBegun(hard, &train.JobError{Err: errors.New("allreduce: each update is shared out anew, so every worker reads all rows: they cannot be shipped")})
	}
	run, err := train.Open(hard, env, job, "allreduce")
	if err != nil {
		return train.NotBegun(hard, err)
	}
	defer run.Close()
	var state *optim.State // nil: the exchange has a part of it, or
	var lbfgs *optim.LBFGS // has none
	switch {
	case job.Optimizer.Name == "lbfgs":
		lbfgs, err = run.LBFGS()
	case !s.o.ShardOptimizer || env.Workers() == 1:
		state, err = run.OptimizerState()
	}
	if err != nil {
		return train.NotBegun(hard, err)
	}
	// What ends training here must end it everywhere, after the same update: agreed ends when all know.
	agreed, stop := context.WithCancelCause(context.WithoutCancel(hard))
	defer stop(nil)
	heard := make(chan struct{})
	unhook := context.AfterFunc(hard, func() {
		defer close(heard)
		if lost := train.LostOf(hard); lost != nil {
			select {
			case <-time.After(lostWait):
				stop(lost)
			case <-agreed.Done():
			}
		}
	})
	defer func() {
		stop(nil)
		if !unhook() {
			<-heard
		}
	}()
	x, err := newExchange(agreed, &env, s.o, run, func() bool { return ctx.Err() != nil && train.LostOf(ctx) == nil },
		func() *train.LostError { return train.LostOf(hard) })
	if err != nil {
		return train.NotBegun(hard, err)
	}
	defer x.close()
	defer x.closeOn(agreed)()
	run.Agree(x.agree)
	if x.auto != nil && x.rank == 0 {
		x.auto.tell(run)
	}
	if cells := x.codedCells(); x.uncoded != nil || cells > 0 && x.auto == nil {
		run.Coded(cells, x.uncoded)
	} else if x.g == nil && s.o.Compress != "" {
		run.Notice(observe.Warn, "codec", s.o.Compress+" encodes nothing, for one worker sends nothing")
	}
	update := x.update
	switch {
	case lbfgs != nil:
		update = (&search{x: x, o: lbfgs}).update
	case s.o.Every > 1 && x.g != nil:
		update = newMean(x, s.o.Every, state).update
	default:
		env.TakeTurns()
	}
	for step, batch := range run.Updates(agreed) {
		t, err := update(agreed, step, batch, state)
		x.late.end()
		if errors.Is(err, optim.ErrConverged) {
			run.Converged()
			break
		}
		if err != nil { // at all workers
			x.over = true
			run.Fail(err)
			break
		}
		if t.stop {
			stop(errStopped)
		}
		run.Finish(x.rows, t.loss, t.weight)
	}
	alone := run.Reason() == trivium.Failed || run.Reason() == trivium.Diverged
	if alone && agreed.Err() == nil && !x.over { // the others are about to make the next update
		return x.withdraw(agreed)
	}
	return run.Result(agreed)
}

// update makes one update, the same at all workers.
func (x *exchange) update(ctx context.Context, step int64, batch *trivium.Batch, state *optim.State) (totals, error) {
	x.rate(step)
	t, err := x.sum(ctx, batch)
	if err == nil && x.sharding != nil && !(finite.Is(t.loss) && finite.Is(t.weight)) {
		err = x.sharding.total(ctx) // it is told which tensor is not finite
	}
	if err == nil {
		err = x.run.CheckLoss(t.loss, t.weight, x.total)
	}
	if err == nil && x.dropped != nil && (t.stop || x.run.MaySave()) {
		err = x.collect(ctx)
	}
	if err != nil {
		return t, err
	}
	if x.sharding != nil {
		err := x.sharding.step(ctx, step, t.weight)
		if err == nil && (t.stop || x.run.MaySave()) {
			err = x.sharding.collect(ctx)
		}
		return t, err
	}
	x.run.Enter(observe.Apply)
	state.Step(step, x.run.Params, x.total, t.weight)
	x.run.Leave()
	return t, nil
}

var errStopped = errors.New("a worker was asked to stop")
