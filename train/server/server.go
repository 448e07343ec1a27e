// Package server trains with parameters that live in tables on servers: workers read them, compute the gradient of their part of an
// update, and add it.
//
// It is the topology of PMLS, MXNet's KVStore and the dmlc parameter server. How far workers may drift apart is the tables' mode: under
// [ps.BSP] every update is made by all together, under [ps.SSP] and [ps.ESSP] a worker reads what lacks at most Staleness rounds, under
// [ps.ASP] it waits for nobody. The optimizer's step is the server's, on the sum of a round's gradients (BSP) or on each worker's as it
// arrives; or the worker's, which then adds its update.
//
//	read the tables → gradient of the worker's rows → add → Clock → read …
//
// A worker may take several steps by itself before it meets the tables (Options.StepsPerRound, Clocks): PMLS's way, and Multiverso's
// model averaging. What a worker does in a round is a [Program]; a model that is trained otherwise than by its gradient brings its own.
//
// In exact mode, under BSP, workers send a partial sum for each maximal subtree of their virtual shards, the server finishes the tree,
// and the bits are those of train/local for every number of workers and servers.
//
// A checkpoint is rank 0's, in the one format, with the optimizer's state from the servers: a run goes on as local, or as this strategy
// with other numbers of workers and servers. Where workers are not after the same update, or keep what belongs in it, it is made of a
// snapshot at a clock cut (cut.go).
//
// Next in the life of a gradient: package ps.
package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
)

// Options of the strategy. The zero value is SSP(0) with one server: see DefaultOptions.
type Options struct {
	Mode      ps.Mode `json:"mode"`
	Staleness int     `json:"staleness"` // rounds, of SSP and ESSP

	// Servers is how many ranks hold shards beside their training, where the job has no processes that only serve. 0: one.
	Servers int `json:"servers,omitempty"`

	// Lanes is how many parts each server is of, at most MaxLanes. Each holds its share of the model, applies what has come for it, and answers
	// what is read of it, while the rest of a round is still on its way. 0: under BSP, as many as suit links that are measured at the start; else one.
	Lanes int `json:"lanes,omitempty"`

	OptimizerAt Place `json:"optimizer_at,omitempty"`

	// StepsPerRound is how many steps a worker takes by itself, on a copy of its own, before it meets the tables; a step takes its share
	// of the job's batch. 0 and 1: none, every update is a round. Clocks says the same as rounds an epoch.
	StepsPerRound int `json:"steps_per_round,omitempty"`
	Clocks        int `json:"clocks,omitempty"`

	// Compress names a codec of package compress, such as "topk:0.01", by which workers send what they add to dense tensors and long rows;
	// what it drops of a round they send with the next. Empty: none.
	Compress string `json:"compress,omitempty"`

	// Mean adds to the tables the mean of what the workers' steps came to, weighted by their rows (Multiverso's model averaging), in place
	// of all (PMLS).
	Mean bool `json:"mean,omitempty"`

	// Slow makes workers wait, for experiments with stragglers.
	Slow Slow `json:"slow,omitzero"`

	Wait time.Duration `json:"-"` // for the slowest to end its round; 0: 10 minutes. A worker that is gone is noticed at once, by its link
}

// DefaultOptions are SSP at the staleness of the published comparison of PMLS.
func DefaultOptions() Options { return Options{Mode: ps.SSP, Staleness: ps.DefaultStaleness} }

// MaxLanes is the largest number of a server's lanes.
const MaxLanes = ps.MaxLanes

// A Place is where the optimizer's step is made.
type Place uint8

// The places.
const (
	AtServer Place = iota
	AtWorker
)

func (p Place) String() string { return [...]string{"server", "worker"}[p&1] }

// apart reports whether workers take several steps before they meet.
func (o Options) apart() bool { return o.StepsPerRound > 1 || o.Clocks > 0 }

// A Strategy is one process's part: a worker, or a server where Env.Role says so.
type Strategy struct {
	env train.Env
	o   Options
}

// New returns the strategy.
func New(env train.Env, o Options) trivium.Strategy {
	if o.Servers == 0 {
		o.Servers = 1
	}
	return &Strategy{env, o}
}

// Check returns what is wrong with these options, and what of job this strategy cannot do with them. own are the program's optimizers; one
// that it does not know is not its business.
func (o Options) Check(job *trivium.Job, own optim.Optimizers, workers int) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("server: "+format, args...)) }
	if o.Mode > ps.ASP {
		bad("consistency: want bsp, ssp, essp or asp, found %d", o.Mode)
	}
	if o.Staleness < 0 {
		bad("staleness: want 0 rounds or more, found %d", o.Staleness)
	}
	if o.Servers < 0 {
		bad("servers: want 1 or more, found %d", o.Servers)
	}
	if o.Lanes < 0 || o.Lanes > MaxLanes {
		bad("lanes: want 1 to %d of each server, found %d", MaxLanes, o.Lanes)
	}
	if o.OptimizerAt > AtWorker {
		bad("optimizer: want it on the server or on the worker, found %d", o.OptimizerAt)
	}
	if err := o.Slow.validate(); err != nil {
		errs = append(errs, err)
	}
	switch codec, auto, err := compress.ParseAuto(o.Compress); {
	case err != nil:
		bad("%w", err)
	case auto:
		bad("nothing predicts here where a codec saves time, as %s wants it: say %s, which encodes all that it fits, or train under allreduce", o.Compress, codec)
	case codec != nil && job.Exact:
		bad("exact mode promises the bits of one process, and %s changes them", codec)
	}
	errs = append(errs, o.checkApart(job))
	if job.Exact && o.Mode != ps.BSP {
		bad("exact mode promises the bits of one process, which only bsp has; found %s: give --consistency bsp", o.Mode)
	}
	if job.Exact && o.OptimizerAt == AtWorker {
		bad("exact mode wants the optimizer on the server: to round each worker's update by itself gives other bits than to round their sum")
	}
	if job.Optimizer.Name == "ftrl" && workers > 1 {
		errs = append(errs, o.checkFTRL())
	}
	if job.Optimizer.Name == "lbfgs" {
		bad("lbfgs searches along a line, which local and allreduce do")
	} else if rule, err := own.New(job.Optimizer, kernel.Go); err == nil && o.OptimizerAt == AtServer {
		errs = append(errs, checkAtServer(job, rule))
	}
	return errors.Join(errs...)
}

// checkAtServer returns what servers cannot do of the job's rule.
func checkAtServer(job *trivium.Job, rule trivium.Optimizer) error {
	name, instead := job.Optimizer.Name, "give --optimizer-on worker"
	if job.Exact { // which refuses that
		instead = "train under allreduce"
	}
	_, ours := rule.(*optim.Rule)
	switch {
	case rule.Elementwise():
	case ours:
		return fmt.Errorf("server: clipping by the norm of the whole gradient wants all of it in one place, and servers hold shards: clip by value, or %s", instead)
	default:
		return fmt.Errorf("server: optimizer %s looks at more than one cell of the gradient, and servers hold shards: %s", name, instead)
	}
	if n := rule.Slots(); n > maxSlots {
		return fmt.Errorf("server: optimizer %s has %d state vectors, and servers keep %d of a rule: %s", name, n, maxSlots, instead)
	}
	return nil
}

// checkFTRL returns what is wrong with FTRL at several workers that take several steps by themselves. Its update is w - p: where the worker's own sums
// of gradients put a parameter, less the parameter that it read. So it takes back all that p is away from w. With p some rounds old, or with n whole
// such updates added, more than all is taken back, and p swings ever wider. One worker reads all that it has added, in every mode, and
// with one step a round sums follow the parameter (proximal).
func (o Options) checkFTRL() error {
	const what = "server: ftrl puts a parameter where the sums of its gradients say: "
	ahead := o.Mode == ps.ASP || o.Staleness > 0
	switch {
	case !o.apart():
	case ahead:
		return errors.New(what + "with sums of their own, and parameters that are some rounds old, workers that take several steps drive it apart: give --consistency bsp, one step a round, or another optimizer")
	case !o.Mean:
		return errors.New(what + "where each worker does so by itself, their moves added up go too far: give --merge mean")
	}
	return nil
}

// overshoots returns a sentence where a rate that suits local can be far too high, or nothing. A worker that reads what lacks its own last s
// steps, by one momentum of all, pushes on for as long; momentum of its own on parameters that have its steps does not.
func (o Options) overshoots(job *trivium.Job) string {
	momentum := job.Optimizer.Name == "momentum" || job.Optimizer.Name == "nesterov"
	stale := (o.Mode == ps.SSP || o.Mode == ps.ESSP) && o.Staleness > 0
	if !momentum || !stale || o.OptimizerAt == AtWorker {
		return ""
	}
	return fmt.Sprintf("%s at the server overshoots at lower rates than in one process, since workers read parameters that lack up to %d rounds, their own too: if the loss stays high, give --optimizer-on worker, --consistency asp, or a lower --rate",
		job.Optimizer.Name, o.Staleness)
}

// Train runs this process's part of job. A worker returns the model as it last read it; under BSP it is the same at all.
func (s *Strategy) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	env, hard := s.env, train.UntilLost(ctx)
	if err := s.o.Check(job, env.Optimizers, env.Workers()); err != nil && env.Role != observe.Server {
		// What Open finds is told with it: a user mends all at once.
		run, more := train.Open(hard, env, job, "server")
		if more == nil {
			run.Close()
		}
		return train.NotBegun(hard, &train.JobError{Err: errors.Join(err, more)})
	}
	if env.Role == observe.Server {
		c, err := newCluster(ctx, &env, s.o, job, nil, 0)
		if err != nil && ctx.Err() == nil {
			return trivium.Result{Reason: trivium.Failed}, err
		}
		if err != nil { // the workers were done before they had begun
			return served(ctx)
		}
		defer c.close()
		return c.serve(ctx)
	}
	env.Shares = true
	if env.Sharded {
		return train.NotBegun(hard, &train.JobError{Err: errors.New("server: each update is shared out anew, so every worker reads all rows: they cannot be shipped")})
	}
	run, err := train.Open(hard, env, job, "server")
	if err != nil {
		return train.NotBegun(hard, err)
	}
	defer run.Close()
	if err := errors.Join(s.o.rounds(run), s.o.checkRows(run, env.Workers()), s.o.checkProgram(run), checkNames(run)); err != nil {
		return train.NotBegun(hard, err)
	}
	if s.o.Mode != ps.ASP && s.o.Staleness == 0 {
		env.TakeTurns()
	}
	c, err := newCluster(hard, &env, s.o, job, run.Recorder, 4*run.Layout().Len())
	if err != nil {
		return train.NotBegun(hard, err)
	}
	defer c.close()
	w := &worker{run: run, env: &env, o: s.o, job: job, cluster: c}
	if w.codec, err = compress.Parse(s.o.Compress); err != nil {
		return train.NotBegun(hard, &train.JobError{Err: err})
	}
	return w.train(ctx)
}
