// Package average trains in many processes that do not talk: each runs the loop of train/local on its own shard of the rows, and at the
// end the models are averaged over the transport, weighted by the rows that each has seen.
//
// It is one-shot averaging, after Zinkevich, Weimer, Li and Smola 2010, "Parallelized stochastic gradient descent", section 3: for a
// convex loss the mean is better than its parts. For others it is a baseline, and no more. What travels is one model a process and run.
package average

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// Options of the strategy. The zero value works.
type Options struct {
	Wait time.Duration // for the slowest, once this worker is done; 0: thirty days. One that is lost is not waited for
}

// A Strategy trains one worker's part.
type Strategy struct {
	env  train.Env
	wait time.Duration
}

// New returns the strategy.
func New(env train.Env, o Options) trivium.Strategy {
	if o.Wait == 0 {
		o.Wait = 30 * 24 * time.Hour
	}
	return &Strategy{env, o.Wait}
}

// Check returns what of job this strategy cannot do.
func Check(job *trivium.Job) error {
	var errs []error
	if job.Exact {
		errs = append(errs, errors.New("average: exact mode promises the bits of one process, and a mean of models has others"))
	}
	if job.Optimizer.Name == "lbfgs" {
		errs = append(errs, errors.New("average: lbfgs works on all rows at once, and each worker has its own"))
	}
	if job.Stop.Metric != "" {
		errs = append(errs, errors.New("average: an early stop wants the model between two updates, and there is none before the end; a resumed run goes on without its own by --stop-metric= --patience 0"))
	}
	return errors.Join(errs...)
}

// Train runs this worker's part of job and returns the averaged model, which is the same at all.
func (s *Strategy) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	env := s.env
	env.AtEnd = true
	hard := train.UntilLost(ctx) // an interrupted run is averaged as it is, so that none may be missing
	if err := Check(job); err != nil {
		return train.NotBegun(hard, &train.JobError{Err: err})
	}
	done, err := shard(hard, &env, job)
	if err != nil {
		return train.NotBegun(hard, &train.JobError{Err: err})
	}
	defer done()
	run, err := train.Open(hard, env, job, "average")
	if err != nil {
		return train.NotBegun(hard, err)
	}
	defer run.Close()
	env.CountTraffic(run.Recorder)
	state, err := run.OptimizerState()
	if err != nil {
		return train.NotBegun(hard, err)
	}
	gradient := train.NewGradient(run.Layout())
	before := run.At().Samples // of a run that this one goes on with: there, all were the same model
	for step, batch := range run.Updates(ctx) {
		lossSum, weightSum, err := run.Grad(batch, gradient)
		if err != nil {
			run.Fail(err)
			break
		}
		run.Enter(observe.Apply)
		state.Step(step, run.Params, gradient, weightSum)
		run.Leave()
		run.Finish(batch.Rows, lossSum, weightSum)
	}
	if reason := run.Reason(); reason != trivium.Failed && reason != trivium.Diverged {
		if err := s.mean(hard, run, run.At().Samples-before); err != nil {
			run.Fail(err)
		}
	}
	return run.Result(ctx)
}

// shard makes this rank's rows env's training data. Only rank 0 keeps those that the model is measured on. The caller calls done when
// they are no longer read.
func shard(ctx context.Context, env *train.Env, job *trivium.Job) (done func(), err error) {
	done = func() {}
	if env.Splits == nil {
		opened, err := train.OpenData(ctx, *env, job)
		if err != nil {
			return done, err
		}
		env.Splits = opened
		done = func() { _ = opened.Close() } // it was only read
	}
	splits := *env.Splits
	if !env.Sharded {
		if err := train.CheckShards(splits.Train.Rows(), env.Workers()); err != nil {
			done()
			return func() {}, err
		}
		rows, err := data.Shard(ctx, splits.Train, data.ShardOptions{
			Part: env.Rank, Parts: env.Workers(), Shuffle: job.Data.Order != "index", Seed: job.Seed,
		})
		if err != nil {
			done()
			return func() {}, err
		}
		splits.Train, env.Sharded = rows, true
	}
	if env.Rank != 0 {
		splits.Valid, splits.Test = nil, nil
	}
	env.Splits = &splits
	return done, nil
}

// mean makes the parameters the mean over all workers, weighted by the rows that each has consumed since all had the same, and the epoch's
// training loss that of all their rows. It fails when ctx ends.
func (s *Strategy) mean(ctx context.Context, run *train.Run, rows int64) error {
	env := &s.env
	if env.Workers() == 1 {
		return nil
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.wait)
	defer cancel()
	stream, err := env.Port.Stream("average", transport.StreamOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	g, err := collective.New(stream, collective.View{Epoch: env.Epoch, Peers: env.Peers, Self: env.Rank}, collective.Options{Deadline: s.wait})
	if err != nil {
		return err
	}
	defer g.Close()
	// What ends ctx ends the group, at once: to give a sum up would first settle with all others that it is void, of whom one that has failed
	// never comes to it.
	defer context.AfterFunc(ctx, func() { _ = g.Close() })()
	mine := float64(rows)
	all := []float64{mine, run.At().LossSum, run.At().WeightSum}
	if err := g.AllReduce64(waiting, all); err != nil {
		return failed(ctx, "the rows that each worker saw", err)
	}
	n := float64(env.Workers()) // a checkpoint's sums are gone on from at each worker, and so are an nth of all
	run.EpochSums(all[1]/n, all[2]/n)
	if all[0] == 0 {
		return nil // interrupted before the first update of any: all are as they began
	}
	share, p := float32(mine/all[0]), run.Params.Flat
	for i := range p {
		p[i] *= share
	}
	if err := g.AllReduce32(waiting, p); err != nil {
		return failed(ctx, "the models", err)
	}
	run.Replaced()
	return nil
}

// hearWait is how long a worker that finds another gone waits to be told why: that one may only have heard of a loss before this one, and left.
const hearWait = time.Second

// failed says why what could not be added over all: a worker that is lost is named as such.
func failed(ctx context.Context, what string, err error) error {
	blame, ok := errors.AsType[*collective.Blame](err)
	gone := ok && blame.Cause == collective.Lost
	if gone {
		told, cancel := context.WithTimeout(ctx, hearWait)
		<-told.Done()
		cancel()
	}
	if lost := train.LostOf(ctx); lost != nil {
		return lost
	}
	err = fmt.Errorf("average: %s: %w", what, err)
	if gone {
		return &train.LostError{Peer: blame.Name, Why: err.Error()}
	}
	return err
}
