package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/observe"
)

// A keeper knows which checkpoints there are.
type keeper struct {
	step int64 // of the last one
	when time.Time
	last string // its name; empty: none yet
	best string
	mine []string // this run's, oldest first
}

func (r *Run) checkpointDue() bool {
	if r.env.Blob == nil || r.env.AtEnd {
		return false
	}
	if n := r.env.Checkpoints.Every; n > 0 {
		return r.at.Step%n == 0
	}
	return r.at.Row == 0 && time.Since(r.keeper.when) >= Pause
}

// save writes a checkpoint and deletes those that are too many. A failure to write leaves the last one in its place and is an error.
func (r *Run) save(ctx context.Context) error {
	if r.env.Blob == nil {
		return nil
	}
	if r.refresh != nil {
		if err := r.refresh(ctx); err != nil {
			return err
		}
	}
	if i := notFinite(r.Layout(), r.Params.Flat, nil); i >= 0 {
		return &trivium.DivergedError{Step: r.at.Step, Loss: r.watched.loss, Tensor: tensorName(r.Layout(), i)}
	}
	start := time.Now()
	c, err := r.checkpoint(r.Params, r.at)
	if err != nil {
		return err
	}
	if r.keep != nil {
		if err := r.keep(c); err != nil {
			return err
		}
	}
	return r.write(ctx, c, start)
}

// checkpoint is what one says of the job and its data.
func (r *Run) checkpoint(p trivium.Params, at checkpoint.Progress) (*checkpoint.Checkpoint, error) {
	c := &checkpoint.Checkpoint{
		Job: r.Job, Schema: r.splits.Train.Schema(), Data: r.splits.Checksum, Params: p, Progress: at, Notes: r.env.Notes,
	}
	if r.env.Sharded { // as if all were where this worker is in its own rows
		n := int64(r.env.Workers())
		c.Progress.Row, c.Progress.Samples = n*at.Row, n*at.Samples
	}
	c.Progress.Evaluated = r.evaluated
	c.Progress.Metrics = map[string]float64{}
	for k, v := range r.metrics {
		if finite.Is(v) { // JSON has no others
			c.Progress.Metrics[k] = v
		}
	}
	if t := r.splits.Transform; t != nil {
		p, err := t.Encode()
		if err != nil {
			return nil, fmt.Errorf("train: the transform of the data: %w", err)
		}
		c.Transform = p
	}
	return c, nil
}

// write saves c.
func (r *Run) write(ctx context.Context, c *checkpoint.Checkpoint, start time.Time) error {
	name, err := checkpoint.Save(context.WithoutCancel(ctx), r.env.Blob, c)
	if err != nil {
		if r.keeper.last != "" {
			err = fmt.Errorf("%w; the last one, %s, stays", err, r.keeper.last)
		}
		return err
	}
	k := &r.keeper
	if r.at.Best != nil && r.at.BestStep == c.Progress.Step {
		k.best = name
	}
	k.step, k.when, k.last, k.mine = c.Progress.Step, time.Now(), name, append(k.mine, name)
	r.Add(observe.Checkpoints, 1)
	r.Put(observe.CheckpointSeconds, k.when.Sub(start).Seconds())
	if objects, err := r.env.Blob.List(ctx, name+"/"); err == nil {
		var size int64
		for _, o := range objects {
			size += o.Size
		}
		r.Put(observe.CheckpointBytes, float64(size))
	}
	r.Event(observe.Info, "checkpoint", c.Progress.Step, name)
	r.log.Info("checkpoint", "name", name, "step", c.Progress.Step)
	if f := r.env.Watch.Checkpointed; f != nil {
		f(r.Progress(k.when), name)
	}
	r.prune(ctx)
	return nil
}

// prune deletes this run's oldest checkpoints, down to those it is to keep. Those of a run that was here before are
// its own only if it goes on with that run.
func (r *Run) prune(ctx context.Context) {
	k := &r.keeper
	keep := r.env.Checkpoints.Keep
	if keep <= 0 {
		keep = 2
	}
	var left []string
	var errs []error
	for i, name := range k.mine {
		if i >= len(k.mine)-keep || name == k.best {
			left = append(left, name)
			continue
		}
		errs = append(errs, checkpoint.Delete(context.WithoutCancel(ctx), r.env.Blob, name))
	}
	k.mine = left
	if err := errors.Join(errs...); err != nil {
		r.Say(observe.Warn, "prune", fmt.Sprintf("old checkpoints stay: %v", err))
	}
}

// Notice tells whoever watches, in a sentence, what it should know of the run; kind is the event's. It is the same at all workers: rank 0 says it.
func (r *Run) Notice(level observe.Level, kind, text string) {
	if r.env.Rank == 0 {
		r.Say(level, kind, text)
	}
}

// Say is Notice for what this process alone knows. It may be called on another thread, while that of training waits.
func (r *Run) Say(level observe.Level, kind, text string) {
	r.Event(level, kind, r.at.Step, text)
	r.log.Info(text, "kind", kind, "step", r.at.Step)
	if f := r.env.Watch.Notice; f != nil {
		f(level, text)
	}
}

// evaluate measures the validation and the test rows, and the training rows where early stopping looks at them. After an update that
// was evaluated already, only what is not known yet. It returns early stopping's verdict.
func (r *Run) evaluate(ctx context.Context) (reason trivium.Reason, improved bool, err error) {
	stop := r.stopper
	fresh := r.at.Step != r.evaluated // there was no evaluation after this update
	due := r.evaluationDue()          // else it is that of a last update which a run of more updates would not evaluate
	scored := false
	values := map[string]float64{}
	if r.at.WeightSum > 0 {
		values["train."+lossName] = r.at.LossSum / r.at.WeightSum
	}
	if r.evaluator != nil && (r.agree == nil || r.env.Rank == 0) {
		if r.refresh != nil {
			err = r.refresh(ctx)
		}
		if err == nil {
			scored, err = r.score(ctx, values, fresh)
		}
	}
	if r.agree != nil {
		own := len(values)
		values, err = r.agree(ctx, values, err)
		scored = scored || len(values) > own
	}
	if err != nil {
		return "", false, err
	}
	if len(values) == 0 {
		return "", false, nil
	}
	if fresh || scored {
		r.record(values)
	}
	if fresh && stop.metric != "" {
		value, ok := values[r.Job.Stop.Metric]
		if !ok && r.Job.Stop.Metric == "train."+lossName {
			value, ok = math.NaN(), true // of no rows, as where rank 0 has none: no progress, and that is said
		}
		if ok {
			state := StopState{r.at.Best, r.at.BestStep, r.at.Bad}
			reason, improved = stop.Next(value, r.at.Step, &state)
			if due {
				r.at.Best, r.at.BestStep, r.at.Bad = state.Best, state.BestStep, state.Bad
			} else if improved = false; reason == trivium.Stopped { // a run that goes on from here is to end where one in one part does
				reason = ""
			}
		}
		switch reason {
		case trivium.TargetMet:
			r.Notice(observe.Info, "stop", fmt.Sprintf("%s is %.6g: the target %s is met", r.Job.Stop.Metric, values[r.Job.Stop.Metric], r.Job.Stop.Target))
		case trivium.Stopped:
			r.Notice(observe.Info, "stop", r.noProgress())
		}
	}
	r.evaluated = r.at.Step
	return reason, improved, nil
}

// noProgress says why early stopping ran out of patience, and where the best model is.
func (r *Run) noProgress() string {
	if r.at.Best == nil { // such as an AUC over rows of one class
		return fmt.Sprintf("%s had no value in any of %d evaluations: look at the rows that it is measured on", r.Job.Stop.Metric, r.at.Bad)
	}
	text := fmt.Sprintf("%s made no progress in %d evaluations; the best was after update %d", r.Job.Stop.Metric, r.at.Bad, r.at.BestStep)
	switch {
	case r.keeper.best != "":
		text += ": eval, apply and export take that model by --checkpoint " + r.keeper.best
	case r.env.Blob != nil && r.at.BestStep <= r.watched.began:
		text += ": that model is among the checkpoints of the run that this one went on from, or of one before it"
	}
	return text
}

// An agreement gives all workers what rank 0 found.
type agreement func(ctx context.Context, values map[string]float64, err error) (map[string]float64, error)

// Agree makes rank 0's evaluations those of all workers, so that all stop early after the same update: f is called at every rank, and
// returns at every rank what it was called with at rank 0. The other ranks measure nothing, and say nothing of it.
func (r *Run) Agree(f func(ctx context.Context, values map[string]float64, err error) (map[string]float64, error)) {
	r.agree = f
}

// score measures the splits that are due, into values.
func (r *Run) score(ctx context.Context, values map[string]float64, fresh bool) (scored bool, err error) {
	for _, split := range []string{"train", "valid", "test"} {
		ds := r.split(split)
		if ds == nil || ds.Rows() == 0 || !r.wanted(split, fresh) {
			continue
		}
		s, err := r.evaluator.Evaluate(ctx, r.Params, ds)
		if err != nil {
			return scored, fmt.Errorf("train: evaluation on the %s rows after update %d: %w", split, r.at.Step, err)
		}
		scored = true
		running, hasRunning := values["train."+lossName]
		s.Values(split, values)
		if split == "train" && hasRunning {
			values["train."+lossName] = running // the loss of the epoch, as always
		}
		if f := r.env.Watch.Scores; f != nil {
			f(split, s)
		}
	}
	return scored, nil
}

// wanted tells whether a split is due.
func (r *Run) wanted(split string, fresh bool) bool {
	if split == "train" && (r.stopper.split != "train" || r.stopper.metric == lossName) {
		return false
	}
	_, known := r.metrics[split+"."+lossName]
	return fresh || !known
}

// record tells observers and watchers of an evaluation.
func (r *Run) record(values map[string]float64) {
	maps.Copy(r.metrics, values)
	if r.agree != nil && r.env.Rank != 0 {
		r.progress(time.Now()) // how far this worker is at the evaluation of another
		return
	}
	for name, v := range values {
		if err := r.Evaluate(name, v, r.at.Step); err != nil {
			r.log.Warn("evaluation not recorded", "metric", name, "error", err)
		}
	}
	if f := r.env.Watch.Evaluated; f != nil {
		f(r.Progress(time.Now()), maps.Clone(r.metrics))
	}
}
