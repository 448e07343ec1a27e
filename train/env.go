// Package train runs a Job with a Strategy: what all topologies share lives here, once.
//
// An [Env] is what a process brings: threads, models, sources, a place for checkpoints. [Open] makes a [Run] of it and a job, or says
// everything that is wrong with the job. The Run hands out the updates' batches in the order that seed and epoch give, resumes where a
// checkpoint ends, sums the gradient (over virtual shards along a fixed tree in exact mode), evaluates, stops early, checkpoints, and
// keeps time. A strategy is what is left:
//
//	run, err := train.Open(ctx, env, job, "local")
//	...
//	defer run.Close()
//	for step, batch := range run.Updates(ctx) {
//		lossSum, weightSum, err := run.Grad(batch, gradient)
//		...
//		state.Step(step, run.Params, gradient, weightSum)
//		run.Finish(batch.Rows, lossSum, weightSum)
//	}
//	return run.Result(ctx)
//
// Next in the life of a gradient: package nn.
package train

import (
	"context"
	"log/slog"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// An Env is what a process brings to a job: all that is not in the job, and changes no result. The zero value trains on all cores,
// knows the models of nn and the sources of data, and leaves nothing behind.
type Env struct {
	Run  string       // names the run in what is observed
	Role observe.Role // empty: observe.Worker

	// Of a job in several processes, this one's place. Peers are its workers by rank, this one among them; empty: it is alone. Port is
	// where they are reached, Epoch that of the view that they are the members of.
	Rank  int
	Peers []transport.Name
	Port  transport.Port
	Epoch transport.Epoch

	// Servers are processes of the job that train nothing, and only serve: one whose Role is observe.Server is among them, Rank its place.
	Servers []transport.Name

	// Hosts are the ranks of Peers by the host that they are on, of each in ascending order, where they are on several. nil: they are all on one,
	// or that is not known.
	Hosts [][]int

	CPU        *tensor.CPU // nil: the Run makes one with a thread a core, of which a single worker's steps take as many as make them fastest, and closes it
	Models     nn.Models   // nil: nn.Standard
	Sources    data.Sources
	Optimizers optim.Optimizers // beside those of optim
	Metrics    metric.Metrics   // beside those of metric
	Splits     *data.Splits     // the job's data, if it is open already: then the caller closes it
	Sharded    bool             // Splits.Train are this rank's rows alone, and an update takes its share of Job.Batch from them

	Shares bool // all workers share every update: this one gets its part of the update's rows, which may be none (see Run.Agree)

	// Walk is data.Options': which rows this process is expected to train on, where it is the same ones every epoch. nil: any.
	Walk func(rows int64) data.BatchOptions

	Unsummed bool  // data.Options' too: another process has the checksum
	Budget   int64 // data.Options' too: bytes of memory for the rows of one file; 0: its own

	AtEnd bool // nothing is evaluated or saved before the end: what there is until then is not the job's model

	Blob        blob.Store // where checkpoints go; nil: there are none
	Checkpoints Checkpoints
	Resume      *checkpoint.Checkpoint // where to go on; nil: from the start. It is only read, unless OwnResume is set
	OwnResume   bool                   // Resume is nobody else's: what the run takes of it is gone there, so that it is not in memory twice
	Notes       map[string]string      // go into checkpoints as they are

	// Narrow keeps this process to the threads that it computes with, and these to cores of their own if there is one for each: where the job's
	// processes fill the machine, neither those that wait nor what travels meanwhile should take cores on which others compute. nil: it may
	// not, or there are cores enough.
	Narrow         func()
	Near           bool // all workers are on this host, a process each
	MayShareMemory bool // all are Near, and nothing is to travel by TCP

	Observe *observe.Hub // nil: nothing is observed
	Log     *slog.Logger // nil discards
	Watch   Watch
	Between Between
}

// TakeTurns is for workers that wait for one another after each step. Where they share this host's cores, which are fewer, it sees to it that
// none of them idles meanwhile.
func (e *Env) TakeTurns() {
	if e.Near && e.CPU != nil {
		e.CPU.Among(e.Rank, e.Workers())
	}
}

// Between is a measurement's place between two updates, on the training thread: what it takes belongs to no update's time.
type Between struct {
	// After is called after each update. latest brings the job's model of this moment, which is valid until the next update; only
	// rank 0 may ask for it, and where workers train apart (local SGD), only after an update at which they average. nil: off.
	After func(ctx context.Context, step int64, latest func(context.Context) (trivium.Params, error)) error
}

// Checkpoints say when there is one, beside the one at the end and the one at an interrupt, and which are kept.
type Checkpoints struct {
	// Every is the number of updates from one to the next. 0: at the end of the first epoch, and of each that is Pause or more after
	// the last one.
	Every int64

	// Keep is how many of the newest are kept, beside the best by Job.Stop's metric; 0: 2, so that a damaged one has a predecessor.
	Keep int
}

// Pause is the least time between two checkpoints where no number of updates is given: to lose so much work is cheap, and short
// epochs do not wait for the disk.
const Pause = 5 * time.Second

// Watch is told how training goes, on the training thread or while that waits: it should be quick. Nil funcs are off.
type Watch struct {
	Begin        func(Progress)                         // the data is read, the model built
	Progress     func(Progress)                         // about ten times a second, and at the end
	Evaluated    func(p Progress, m map[string]float64) // by split.metric
	Checkpointed func(p Progress, name string)          // it is safe
	Note         func(text string)                      // a sentence that a user should read, such as that the data is generated
	Notice       func(level observe.Level, text string) // what to know of training: an early stop, a checkpoint that could not be pruned
	Scores       func(split string, s *Evaluation)      // the metrics themselves, such as a confusion matrix
}

// Progress says how far training is.
type Progress struct {
	Step, Steps   int64   // updates done, and in all (0: unknown)
	Epoch, Epochs int     // at work, from 1, and in all (0: as many as Steps need)
	Row, Rows     int64   // of this epoch
	Samples       int64   // rows consumed, since the start of the job
	Loss          float64 // of the last update with rows (here) that weigh anything; NaN before the first
	EpochLoss     float64 // the mean over this epoch so far
	Elapsed       time.Duration
	Began         int64 // updates that were done when this process began
	BeganSamples  int64
}

// SamplesPerSec returns the rate of this process so far.
func (p Progress) SamplesPerSec() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Samples-p.BeganSamples) / p.Elapsed.Seconds()
}

// Left returns how long the rest will take at the rate so far; negative: unknown.
func (p Progress) Left() time.Duration {
	done := p.Step - p.Began
	if p.Steps <= 0 || done <= 0 {
		return -1
	}
	return time.Duration(float64(p.Elapsed) / float64(done) * float64(p.Steps-p.Step))
}

// Workers returns the number of processes that share the job.
func (e *Env) Workers() int { return max(1, len(e.Peers)) }

// A JobError is a mistake in the job, its data, or the checkpoint to resume from: the user's to mend.
type JobError struct{ Err error }

func (e *JobError) Error() string { return e.Err.Error() }

func (e *JobError) Unwrap() error { return e.Err }
