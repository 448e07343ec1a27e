package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
)

// A Run is a job under way in this process. It belongs to one goroutine.
type Run struct {
	Job    *trivium.Job
	Model  trivium.Model
	CPU    *tensor.CPU
	Params trivium.Params
	*observe.Recorder

	env       Env
	log       *slog.Logger
	splits    *data.Splits
	evaluator *Evaluator // nil: the model makes no predictions
	stopper   *Stopper
	tree      *Tree // nil: not in exact mode
	keeper    keeper
	rate      func(step int64) float64             // the learning rate, where the optimizer has one
	norm      func() (norm float64, known bool)    // of the mean gradient, where the optimizer steps all of it
	keep      func(c *checkpoint.Checkpoint) error // adds the optimizer's state to a checkpoint
	agree     agreement                            // nil: this process decides alone
	dropped   func() []float32                     // what codecs have dropped; nil: there are none
	codecs    func() [][]byte                      // what those of each worker keep; nil: that is not saved
	saved     []float32                            // the same, from the checkpoint, if nobody has asked for it
	cuts      func(ctx context.Context) error      // begins a checkpoint, which SaveCut ends; nil: save is all
	refresh   func(ctx context.Context) error      // brings Params up to date; nil: they are

	at        checkpoint.Progress
	walk      data.Walk
	gather    func(n int, f func(i, worker int)) // shuffled rows are gathered by all threads
	batch     int                                // rows of an update here; trivium.FullBatch: all
	epochRows int64                              // that an epoch consumes: less than there are where the last update is dropped
	epochEnd  int64                              // the same of the epoch at hand, which may have begun with updates of another size
	steps     int64                              // in all; 0: as many as there are
	ids       bool                               // batches say which rows theirs are
	watched   watched
	shard     shardGrad
	metrics   map[string]float64
	evaluated int64 // the update after which at was evaluated; -1: never

	reason trivium.Reason // why it ended; empty: it goes on
	err    error
	owned  []func()
}

// watched is what Progress is made of.
type watched struct {
	start        time.Time
	began        int64
	beganSamples int64
	next         time.Time
	loss         float64 // of the last update with rows that weigh anything; NaN before the first
}

// watchEvery is the time between two calls of Watch.Progress.
const watchEvery = 100 * time.Millisecond

// shardGrad is what a call of Grad leaves for the tree's leaves: kept here, so that a step allocates nothing.
type shardGrad struct {
	own, end int // this rank's virtual shards, from own to end-1
	p        trivium.Params
	batch    *trivium.Batch
	view     trivium.Batch
	f        func(v int, g trivium.Gradient, ready func(tensor int)) (float64, float64, error)
}

// Layout returns the layout of the model's parameters.
func (r *Run) Layout() *trivium.Layout { return r.Params.Layout }

// Splits returns the job's data.
func (r *Run) Splits() *data.Splits { return r.splits }

// At returns how far training is.
func (r *Run) At() checkpoint.Progress { return r.at }

// Keep tells r how to add the optimizer's state to a checkpoint.
func (r *Run) Keep(f func(c *checkpoint.Checkpoint) error) { r.keep = f }

// Refresh tells r how to bring Params up to date where the model lives elsewhere: f is called before what is measured or saved is looked
// at, by the rank that looks.
func (r *Run) Refresh(f func(ctx context.Context) error) { r.refresh = f }

// Updates walks the batches of all updates from where the run is, numbered from 1: epochs in their order, until the job or its early
// stop or ctx ends it. The time between two of them, up to the first phase that the loop enters, is phase load. A batch is valid
// until the next; each is to be ended by Finish, or by leaving the loop after Fail.
func (r *Run) Updates(ctx context.Context) iter.Seq2[int64, *trivium.Batch] {
	return func(yield func(int64, *trivium.Batch) bool) {
		defer r.Abandon()
		defer r.CPU.Width().Leave()
		r.gather = r.CPU.Pool.Run
		_ = data.Prepare(ctx, r.splits.Train, r.batches()) // an error comes again when the epoch begins
		r.begin(ctx)
		for r.more(ctx) {
			r.load()
			if !r.epoch(ctx, yield) {
				r.over(trivium.Failed, errors.New("train: the strategy left its loop without saying why"))
				return
			}
			r.Abandon()
		}
	}
}

// epoch yields the batches of what is left of an epoch; false: the strategy left its loop.
func (r *Run) epoch(ctx context.Context, yield func(int64, *trivium.Batch) bool) bool {
	err := r.walk.Begin(ctx, r.splits.Train, r.batches())
	if err == nil {
		defer r.walk.End()
	}
	for {
		var b *trivium.Batch
		if err == nil {
			b, err = r.walk.Next(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.Fail(fmt.Errorf("train: update %d: %w", r.at.Step+1, err))
		}
		if err != nil || b == nil {
			return true
		}
		r.Pass()
		if !yield(r.at.Step+1, b) {
			return false
		}
		r.between(ctx)
		r.boundary(ctx)
		if r.at.Row == 0 || !r.more(ctx) {
			return true
		}
		r.load()
	}
}

// Due reports whether the model may be measured or saved after the update at hand: it is the last of the job, or, unless nothing is
// before the end (Env.AtEnd), the last of an epoch, or one after which there is an evaluation or a checkpoint. It is the same at all workers.
func (r *Run) Due() bool {
	step := r.at.Step + 1
	if step == r.steps || r.env.AtEnd {
		return step == r.steps
	}
	every := func(n int64) bool { return n > 0 && step%n == 0 }
	return r.at.Row+r.UpdateRows() >= r.epochEnd || every(r.Job.EvalEvery) || every(r.env.Checkpoints.Every)
}

// MaySave is Due for checkpoints alone: where nothing stops training early, none follows from an evaluation. It is the same at all workers,
// though only the one that saves knows whether it has where to, and whether the last one was long enough ago.
func (r *Run) MaySave() bool {
	step := r.at.Step + 1
	if step == r.steps || r.env.AtEnd {
		return step == r.steps
	}
	due := func(every int64) bool { // 0: at the end of each epoch
		if every > 0 {
			return step%every == 0
		}
		return r.at.Row+r.UpdateRows() >= r.epochEnd
	}
	// What an evaluation finds to be the best so far, or the end, is saved.
	return due(r.env.Checkpoints.Every) || r.Job.Stop.Metric != "" && due(r.Job.EvalEvery)
}

// load begins the next update with its phase load.
func (r *Run) load() {
	r.CPU.Width().Begin()
	r.BeginIn(r.at.Step+1, observe.Load)
}

// batches describes the rest of this epoch.
func (r *Run) batches() data.BatchOptions {
	o := data.BatchOptions{
		Batch: r.batch, Last: r.Job.Last, Shuffle: r.Job.Data.Order != "index", Seed: r.Job.Seed, Epoch: r.at.Epoch, From: r.at.Row,
		Run: r.gather, IDs: r.ids,
	}
	if m, ok := r.Model.(trivium.RowReader); ok {
		o.Apart = m.ReadsRows()
	}
	if r.env.Shares {
		o.Part, o.Parts = r.env.Rank, r.env.Workers()
		if r.tree != nil {
			from, to := r.shard.own, r.shard.end
			o.Part, o.Parts, o.Span = from, r.Job.VirtualShards(), to-from
			if from == to {
				o.Part, o.Span = 0, -1
			}
		}
	}
	return o
}

// UpdateRows is the number of rows, at all workers together, of the update at hand.
func (r *Run) UpdateRows() int64 {
	left := r.epochEnd - r.at.Row
	if r.batch < 0 {
		return left
	}
	return min(int64(r.batch), left)
}

// more decides between two updates whether there is another.
func (r *Run) more(ctx context.Context) bool {
	switch {
	case r.reason != "":
	case r.steps > 0 && r.at.Step >= r.steps, r.steps == 0 && r.Job.Steps == 0:
		r.over(trivium.Finished, nil)
	case ctx.Err() != nil:
		if lost := LostOf(ctx); lost != nil {
			r.over(trivium.Failed, lost)
			break
		}
		r.over(trivium.Interrupted, nil)
	}
	return r.reason == ""
}

// over ends the run, unless it has ended.
func (r *Run) over(reason trivium.Reason, err error) {
	if r.reason == "" {
		r.reason, r.err = reason, err
	}
}

// Stop ends the run for that reason, because of what text says: a strategy calls it and leaves its loop.
func (r *Run) Stop(reason trivium.Reason, text string) {
	r.over(reason, nil)
	r.Notice(observe.Info, "stop", text)
}

// Replaced says that the parameters are others than the last update made: what was measured and saved before is not of them.
func (r *Run) Replaced() {
	r.evaluated, r.keeper.step = -1, -1
	for name := range r.metrics {
		if !strings.HasPrefix(name, "train.") {
			delete(r.metrics, name)
		}
	}
}

// EpochSums makes the sums of loss and weight of the epoch at hand, of which train.loss is the ratio, others than this worker's own rows have.
func (r *Run) EpochSums(lossSum, weightSum float64) {
	r.at.LossSum, r.at.WeightSum = lossSum, weightSum
}

// Reason says why the run ended; empty: it goes on.
func (r *Run) Reason() trivium.Reason { return r.reason }

// Fail ends the run with err: a strategy calls it and leaves its loop. It holds also for a run that has made all its updates, and then
// cannot do what is left.
func (r *Run) Fail(err error) {
	if r.reason != trivium.Failed && r.reason != trivium.Diverged {
		r.reason = ""
	}
	if _, ok := errors.AsType[*trivium.DivergedError](err); ok {
		switch {
		case r.keeper.last != "":
			err = fmt.Errorf("%w; the last good checkpoint is %s", err, r.keeper.last)
		case r.env.Blob != nil:
			err = fmt.Errorf("%w; there was no checkpoint yet", err)
		}
		r.over(trivium.Diverged, err)
		return
	}
	if _, mistake := errors.AsType[*data.Error](err); mistake || errors.Is(err, optim.ErrTooLarge) { // of its rows, or as its columns are
		err = &JobError{err}
	}
	r.over(trivium.Failed, err)
}

// Grad writes to g the gradient sum over b, in phase compute, which lasts until the next is entered, and returns the sums of loss and
// weight. In exact mode there is one call of the model for each virtual shard, and the sums are added along a fixed tree. A loss that is
// not finite is a DivergedError. It is not interrupted: a step that was begun is finished.
func (r *Run) Grad(b *trivium.Batch, g trivium.Gradient) (lossSum, weightSum float64, err error) {
	r.Enter(observe.Compute)
	lossSum, weightSum, err = r.Sum(r.Params, b, g)
	r.Pass()
	if err != nil {
		return 0, 0, fmt.Errorf("train: update %d: %w", r.at.Step+1, err)
	}
	return lossSum, weightSum, r.CheckLoss(lossSum, weightSum, g)
}

// Sum is Grad at parameters of the caller's choice, without a phase and without a look at the loss.
func (r *Run) Sum(p trivium.Params, b *trivium.Batch, g trivium.Gradient) (lossSum, weightSum float64, err error) {
	if r.tree == nil {
		return r.ModelGrad(p, *b, g, nil)
	}
	r.shard.p, r.shard.batch = p, b
	lossSum, weightSum, err = r.tree.Sum(r.Job.VirtualShards(), g, r.shard.f, nil)
	if err == nil {
		r.tree.Finish(g)
	}
	return lossSum, weightSum, err
}

// SumShards writes to g the gradient sum over the virtual shards [from, to), of those that this rank owns, of which b has the rows,
// added along the tree; they are one of its subtrees, or more than one where nobody else adds to them. It is Sum for a rank of exact mode.
func (r *Run) SumShards(b *trivium.Batch, from, to int, g trivium.Gradient) (lossSum, weightSum float64, err error) {
	return r.SumShardsReady(b, from, to, g, nil)
}

// SumShardsReady is SumShards, and calls ready, if it is not nil, for tensors of g that are final before the rest is: see Tree.Sum.
func (r *Run) SumShardsReady(b *trivium.Batch, from, to int, g trivium.Gradient, ready func(tensor int)) (lossSum, weightSum float64, err error) {
	r.shard.p, r.shard.batch = r.Params, b
	return r.tree.Sum(to-from, g, func(v int, g trivium.Gradient, ready func(int)) (float64, float64, error) {
		return r.shardSum(from+v, g, ready)
	}, ready)
}

// shardSum is the gradient of virtual shard v of the batch at hand; of an empty one, +0.
func (r *Run) shardSum(v int, g trivium.Gradient, ready func(tensor int)) (lossSum, weightSum float64, err error) {
	s := &r.shard
	rows, first := s.batch.Rows, 0
	if r.env.Shares { // the batch has those of our own shards
		rows = int(r.UpdateRows())
		first, _ = r.Job.Shard(min(s.own, r.Job.VirtualShards()-1), rows)
	}
	from, to := r.Job.Shard(v, rows)
	from, to = from-first, to-first
	if from == to {
		g.Zero()
		return 0, 0, nil
	}
	s.batch.SliceInto(&s.view, from, to)
	return r.ModelGrad(s.p, s.view, g, ready)
}

// ModelGrad is the model's Grad, which is not interrupted. It refuses a weight sum that no rows have: divided by one below 0, the gradient would
// lead uphill.
func (r *Run) ModelGrad(p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(tensor int)) (lossSum, weightSum float64, err error) {
	lossSum, weightSum, err = r.Model.Grad(context.Background(), p, b, g, ready)
	if err == nil && !(weightSum >= 0) {
		err = fmt.Errorf("the model, a %T, returns %v as the sum of the weights of %d rows: want 0 or more", r.Model, weightSum, b.Rows)
	}
	return lossSum, weightSum, err
}

// CheckLoss returns a DivergedError if the loss is not finite. It names the first tensor that is not: of the parameters, else of the
// gradient.
func (r *Run) CheckLoss(lossSum, weightSum float64, g trivium.Gradient) error {
	if finite.Is(lossSum) && finite.Is(weightSum) {
		return nil
	}
	l := r.Layout()
	i := notFinite(l, r.Params.Flat, nil)
	if i < 0 {
		i = notFinite(l, g.Flat, g.Rows)
	}
	err := &trivium.DivergedError{Step: r.at.Step + 1, Loss: lossSum / weightSum, Tensor: tensorName(l, i)}
	if i < 0 {
		err.Largest = tensorName(l, largest(l, g))
	}
	return err
}

// Finish ends an update of so many rows: the step's time is booked and the run moves on. Where workers share an update, rows are this
// one's, the sums those of all, and the run moves on by the rows of all.
func (r *Run) Finish(rows int, lossSum, weightSum float64) {
	a := &r.at
	all := int64(rows)
	if r.env.Shares {
		all = r.UpdateRows()
	}
	if a.Row == 0 {
		a.LossSum, a.WeightSum = 0, 0
	}
	a.Step++
	a.Samples += all
	a.Row += all
	a.LossSum += lossSum
	a.WeightSum += weightSum
	if weightSum != 0 {
		r.watched.loss = lossSum / weightSum
	}
	if a.Row >= r.epochEnd {
		a.Epoch++
		a.Row, r.epochEnd = 0, r.epochRows
	}
	r.CPU.Width().End()
	r.Add(observe.Updates, 1)
	r.End(observe.Facts{Samples: int64(rows), Loss: r.watched.loss})
	now, observed := r.Ended()
	if !observed {
		now = time.Now()
	}
	if now.After(r.watched.next) {
		r.watched.next = now.Add(watchEvery)
		r.progress(now)
	}
}

// progress tells observers and watchers how far training is.
func (r *Run) progress(now time.Time) {
	p := r.Progress(now)
	r.Put(observe.CurrentEpoch, float64(p.Epoch))
	if r.rate != nil {
		r.Put(observe.LearningRate, r.rate(max(p.Step, 1)))
	}
	if r.norm != nil {
		if norm, known := r.norm(); known && finite.Is(norm) {
			r.Put(observe.GradientNorm, norm)
		}
	}
	if p.Rows > 0 {
		r.Put(observe.EpochProgress, float64(p.Row)/float64(p.Rows))
	}
	if f := r.env.Watch.Progress; f != nil {
		f(p)
	}
}

// Progress returns how far training is.
func (r *Run) Progress(now time.Time) Progress {
	a := &r.at
	p := Progress{
		Step: a.Step, Steps: r.steps, Epoch: a.Epoch + 1, Epochs: r.Job.Epochs, Row: a.Row, Rows: r.epochEnd, Samples: a.Samples,
		Loss: r.watched.loss, EpochLoss: a.LossSum / a.WeightSum,
		Elapsed: now.Sub(r.watched.start), Began: r.watched.began, BeganSamples: r.watched.beganSamples,
	}
	if a.Row == 0 && a.Step > 0 { // an epoch just ended
		p.Epoch, p.Row = a.Epoch, p.Rows
	}
	return p
}
