package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// Open makes a Run of job under the strategy of that name: the data is read, the model built, its parameters made or taken from the
// checkpoint. Mistakes in the job are a JobError that has as many of them as can be seen at once.
func Open(ctx context.Context, env Env, job *trivium.Job, strategy string) (r *Run, err error) {
	r = &Run{Job: job, env: env, log: env.Log, metrics: map[string]float64{}, evaluated: -1, watched: watched{loss: math.NaN()}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			r.Close()
			r = nil
			if ctx.Err() == nil {
				err = &JobError{err}
			}
		}
	}()
	if err := r.check(); err != nil {
		return r, err
	}
	if r.CPU == nil {
		r.CPU = tensor.NewCPU(0, job.Exact)
		if env.Workers() == 1 {
			r.CPU.Adapt()
		}
		r.owned = append(r.owned, r.CPU.Close)
	}
	if err := r.openData(ctx); err != nil {
		return r, err
	}
	if err := r.build(ctx); err != nil {
		return r, err
	}
	role := env.Role
	if role == "" {
		role = observe.Worker
	}
	r.Recorder = env.Observe.Recorder(observe.Source{Run: env.Run, Strategy: strategy, Role: role, Rank: env.Rank})
	r.say(r.splits.Notes)
	return r, nil
}

// check finds the mistakes that show without data and model.
func (r *Run) check() error {
	errs := []error{r.Job.Validate()}
	var err error
	r.stopper, err = NewStopper(r.Job.Stop)
	errs = append(errs, err, r.env.Optimizers.CheckSpec(r.Job.Optimizer))
	if r.Job.Optimizer.Name == "lbfgs" && r.Job.Batch != trivium.FullBatch {
		errs = append(errs, fmt.Errorf("train: lbfgs works on all rows at once: want batch full, found %d", r.Job.Batch))
	}
	if r.CPU = r.env.CPU; r.CPU != nil && r.Job.Exact && r.CPU.ISA == kernel.Go {
		errs = append(errs, errors.New("train: exact mode wants kernels whose bits are those of every machine: tensor.NewCPU(threads, true)"))
	}
	if n := r.env.Checkpoints.Every; n < 0 {
		errs = append(errs, fmt.Errorf("train: a checkpoint every %d updates: want 1 or more, or 0 for once an epoch", n))
	}
	return errors.Join(errs...)
}

// OpenData opens the data of job, with the transform of the checkpoint if env resumes one. The caller closes it.
func OpenData(ctx context.Context, env Env, job *trivium.Job) (*data.Splits, error) {
	o := data.Options{Sources: env.Sources, Labels: Labels(job.Model), Walk: env.Walk, Unsummed: env.Unsummed, Budget: env.Budget}
	if c := env.Resume; c != nil && len(c.Transform) > 0 {
		t, err := data.DecodeTransform(c.Transform)
		if err != nil {
			return nil, err
		}
		o.Transform = t
	}
	return data.Open(ctx, job.Data, o)
}

func (r *Run) openData(ctx context.Context) error {
	r.splits = r.env.Splits
	if r.splits == nil {
		s, err := OpenData(ctx, r.env, r.Job)
		if err != nil {
			return err
		}
		r.splits = s
		r.owned = append(r.owned, func() {
			if err := s.Close(); err != nil {
				r.log.Warn("close the data", "error", err)
			}
		})
	}
	if r.splits.Train == nil || r.splits.Train.Rows() == 0 {
		return errors.New("train: there are no rows to train on")
	}
	batch := r.Job.Batch
	if r.env.Sharded && batch > 0 {
		batch = max(1, batch/r.env.Workers())
	}
	return r.size(batch)
}

// size makes an update so many rows.
func (r *Run) size(rows int) error {
	r.batch = rows
	all := r.splits.Train.Rows()
	batch := int64(rows)
	if batch < 0 {
		batch = all
	}
	drop := r.Job.Last == trivium.LastDrop && rows > 0
	updates := func(rows int64) int64 { // that so many make
		if drop {
			return rows / batch
		}
		return (rows + batch - 1) / batch
	}
	perEpoch := updates(all)
	if perEpoch == 0 {
		return fmt.Errorf("train: an update takes %d rows, there are %d, and the short last one is dropped: there is nothing to train", batch, all)
	}
	// Updates before a resume may have had other numbers of rows: what counts is the rows that they have left of the epoch.
	left := updates(all - r.at.Row)
	if left <= 0 {
		r.at.Epoch, r.at.Row, left = r.at.Epoch+1, 0, perEpoch
	}
	r.epochRows, r.epochEnd = all, all
	if drop {
		r.epochRows, r.epochEnd = perEpoch*batch, r.at.Row+left*batch
	}
	r.steps = 0
	if n := int64(r.Job.Epochs); n > 0 {
		r.steps = r.at.Step + max(0, (n-int64(r.at.Epoch)-1)*perEpoch+left)
	}
	if s := r.Job.Steps; s > 0 && (r.steps == 0 || s < r.steps) {
		r.steps = s
	}
	return nil
}

// Labels returns what a model of that name takes labels for. Most take what the data has.
func Labels(model string) data.LabelMode {
	if name, _, _ := strings.Cut(model, ":"); name == "linear" {
		return data.LabelsReal
	}
	return data.LabelsAuto
}

// NameLabel says of a model's refusal of labels which column of a table they are; empty: of none.
func NameLabel(err error, column string) error {
	if _, ok := errors.AsType[*nn.LabelError](err); ok && column != "" {
		return fmt.Errorf("%w (column %q is the label; --label names another)", err, column)
	}
	return err
}

func (r *Run) build(ctx context.Context) error {
	models := r.env.Models
	if models == nil {
		models = nn.Standard()
	}
	var err error
	if r.Model, err = models.Build(r.Job.Model, r.splits.Train.Schema(), r.CPU); err != nil {
		return NameLabel(err, r.splits.LabelColumn())
	}
	if err := CheckData(r.Model, r.splits.Train.Schema()); err != nil {
		return fmt.Errorf("model %q: %w", r.Job.Model, err)
	}
	l := r.Model.Layout()
	r.Params = trivium.Params{Layout: l, Flat: tensor.Aligned[float32](l.Len())}
	if r.Job.Exact {
		r.tree = NewTree(l, r.CPU)
		r.shard.f = r.shardSum
		r.shard.own, r.shard.end = shards.Of(r.env.Rank, r.env.Workers(), r.Job.VirtualShards())
	}
	errs := []error{r.buildEvaluator()}
	if r.env.Resume != nil {
		errs = append(errs, r.resume(ctx))
	} else {
		r.Model.Init(r.Job.Seed, r.Params)
	}
	return errors.Join(errs...)
}

func (r *Run) buildEvaluator() error {
	e, err := evaluatorOf(r.Model, r.env.Metrics, r.Job)
	if err != nil {
		return err
	}
	if e == nil {
		r.say([]string{errNoPredictor.Error() + r.unused()})
		return nil
	}
	if b := r.batch; b >= 64 && b <= 1024 {
		e.batch = b // the model has made room for so many
	}
	r.evaluator = e
	for _, split := range []string{"train", "valid", "test"} {
		if ds := r.split(split); ds != nil && ds.Rows() > 0 && r.wanted(split, true) {
			if err := e.suits(ds.Schema().Labels); err != nil {
				return fmt.Errorf("train: the %s rows cannot be measured of a model for %v: %w", split, e.outputs.Task, err)
			}
		}
	}
	stop := r.stopper.metric
	if stop == "" {
		return nil
	}
	if ds := r.split(r.stopper.split); ds == nil || ds.Rows() == 0 {
		return fmt.Errorf("train: stop.metric is %s, but the data has no %s rows", r.Job.Stop.Metric, r.stopper.split)
	}
	s, err := e.empty()
	if err != nil {
		return err
	}
	for _, m := range s.Metrics {
		if m.Name() == stop {
			r.stopper.higher = m.HigherIsBetter()
		}
	}
	return nil
}

// unused says which rows no model that makes no predictions has a use for.
func (r *Run) unused() string {
	var parts []string
	for _, name := range []string{"valid", "test"} {
		if ds := r.split(name); ds != nil && ds.Rows() > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", ds.Rows(), name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("; its %s rows are neither measured nor trained on: data.train says which rows are for training, such as 0:", strings.Join(parts, " and "))
}

func (r *Run) split(name string) data.Dataset {
	switch name {
	case "train":
		return r.splits.Measured()
	case "valid":
		return r.splits.Valid
	case "test":
		return r.splits.Test
	}
	return nil
}

// resume takes parameters and progress from the checkpoint.
func (r *Run) resume(ctx context.Context) error {
	c := r.env.Resume
	if err := c.Fits(r.Layout()); err != nil {
		return err
	}
	if c.Data != "" && r.splits.Checksum != "" && c.Data != r.splits.Checksum {
		return fmt.Errorf("train: the checkpoint was trained on data with checksum %s, this has %s: it cannot go on in the middle", c.Data, r.splits.Checksum)
	}
	at := c.Progress
	if r.env.Sharded { // it counts the rows of all workers: each goes on as far in its own
		n := int64(r.env.Workers())
		at.Row, at.Samples = at.Row/n, at.Samples/n
	}
	if c.Progress.Row < 0 || at.Row > r.splits.Train.Rows() || at.Step < 0 || at.Epoch < 0 {
		return fmt.Errorf("train: the checkpoint is at update %d, epoch %d, row %d of %d", at.Step, at.Epoch, at.Row, r.splits.Train.Rows())
	}
	copy(r.Params.Flat, c.Params.Flat)
	r.took(func(c *checkpoint.Checkpoint) { c.Params.Flat = nil })
	r.at = at
	if err := r.size(r.batch); err != nil {
		return err
	}
	if c.Job != nil && c.Job.Stop.Metric != r.Job.Stop.Metric { // the best of another metric is no bound for this one
		r.at.Best, r.at.BestStep, r.at.Bad = nil, 0, 0
	}
	r.evaluated = c.Progress.Evaluated
	for k, v := range c.Progress.Metrics {
		r.metrics[k] = v
	}
	if r.at.WeightSum > 0 {
		r.watched.loss = r.at.LossSum / r.at.WeightSum
	}
	if r.env.Blob == nil {
		return nil
	}
	names, err := checkpoint.List(ctx, r.env.Blob)
	if err != nil {
		return err
	}
	if k := &r.keeper; len(names) > 0 { // it goes on where its checkpoints are
		k.last, k.step = names[len(names)-1], r.at.Step
		for _, n := range names {
			if checkpoint.FromSave(n) { // a copy that somebody made is not for us to prune
				k.mine = append(k.mine, n)
			}
		}
		for _, n := range names {
			if r.at.Best != nil && strings.HasPrefix(n, fmt.Sprintf("step-%012d", r.at.BestStep)) {
				k.best = n
			}
		}
	}
	return nil
}

func (r *Run) say(notes []string) {
	for _, n := range notes {
		r.log.Info(n)
		if f := r.env.Watch.Note; f != nil {
			f(n)
		}
	}
}
