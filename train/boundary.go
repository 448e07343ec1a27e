package train

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
)

// begin starts the clock. Where an interrupt came between an update and its evaluation, that is made up for first.
func (r *Run) begin(ctx context.Context) {
	now := time.Now()
	r.watched = watched{start: now, began: r.at.Step, beganSamples: r.at.Samples, next: now.Add(watchEvery), loss: r.watched.loss}
	if r.at.Step > 0 {
		r.keeper.when = now // else the first epoch's end is time for one
	}
	if f := r.env.Watch.Begin; f != nil {
		f(r.Progress(now))
	}
	if slices.ContainsFunc(r.saved, func(v float32) bool { return v != 0 }) { // else no codec dropped anything, as where none encodes
		r.Notice(observe.Warn, "residual", "the checkpoint has what a codec dropped of gradients, and this run has no codec of gradients: that much is lost")
	}
	r.saved = nil
	r.took(func(c *checkpoint.Checkpoint) { c.Codecs = nil }) // who has codecs has asked for it
	if r.at.Step > 0 {
		r.boundary(ctx)
	}
}

// between lets a measurement take what it wants.
func (r *Run) between(ctx context.Context) {
	after := r.env.Between.After
	if after == nil || r.reason != "" {
		return
	}
	if err := after(ctx, r.at.Step, r.latest); err != nil && ctx.Err() == nil {
		r.Fail(err)
	}
}

// latest returns the job's model of this moment.
func (r *Run) latest(ctx context.Context) (trivium.Params, error) {
	if r.refresh != nil {
		if err := r.refresh(ctx); err != nil {
			return trivium.Params{}, err
		}
	}
	return r.Params, nil
}

// boundary does what is due between two updates: evaluation, early stop, checkpoint.
func (r *Run) boundary(ctx context.Context) {
	improved := false
	if r.evaluationDue() && r.reason == "" {
		if ctx.Err() != nil {
			return // the checkpoint at the end tells the next process to do it
		}
		var reason trivium.Reason
		var err error
		if reason, improved, err = r.evaluate(ctx); err != nil {
			if ctx.Err() == nil {
				r.Fail(err)
			}
			return
		}
		if reason != "" {
			r.over(reason, nil)
		}
	}
	if improved && r.at.Step == r.keeper.step { // made up for after a resume: what was resumed from is the best
		r.keeper.best = r.keeper.last
	}
	last := r.steps > 0 && r.at.Step >= r.steps // Result saves that one, when all is evaluated
	if r.reason == "" && !last && r.at.Step > r.keeper.step && (improved || r.checkpointDue()) {
		save := r.save
		if r.cuts != nil && !improved {
			save = r.cuts
		}
		if err := save(ctx); err != nil {
			r.Fail(err)
		}
	}
}

func (r *Run) evaluationDue() bool {
	if r.at.Step == r.evaluated || r.at.Step == 0 || r.env.AtEnd {
		return false
	}
	if n := r.Job.EvalEvery; n > 0 {
		return r.at.Step%n == 0
	}
	return r.at.Row == 0
}

// Agrees reports whether the others evaluate after the update that has just ended, where this worker has failed since and does not.
func (r *Run) Agrees() bool {
	return r.evaluationDue() || r.steps > 0 && r.at.Step >= r.steps // after the last, whatever was due
}

// MayEnd reports whether the update that has just ended is followed by an evaluation that may end training early: the same at all workers, so that
// they can see to it that what is measured has all updates before it.
func (r *Run) MayEnd() bool {
	return r.stopper.metric != "" && r.reason == "" && r.evaluationDue()
}

// Result ends the run: what was not yet evaluated is, the last checkpoint is written, and the strategy returns what this does.
func (r *Run) Result(ctx context.Context) (trivium.Result, error) {
	if r.reason == "" {
		r.over(trivium.Failed, errors.New("train: the strategy left its loop before the job was done"))
	}
	if r.reason != trivium.Failed && r.reason != trivium.Diverged {
		if err := r.finish(ctx); err != nil {
			r.Fail(err)
		}
	}
	r.progress(time.Now())
	if text := r.CPU.Width().Found(); text != "" {
		r.Notice(observe.Info, "threads", text)
	}
	switch {
	case r.err != nil:
		r.Event(observe.Error, string(r.reason), r.at.Step, r.err.Error())
	default:
		r.Event(observe.Info, "end", r.at.Step, string(r.reason))
	}
	return trivium.Result{
		Params: r.Params, Reason: r.reason, Steps: r.at.Step, Epochs: r.at.Epoch, Samples: r.at.Samples, Metrics: r.metrics,
	}, r.err
}

// finish evaluates what is left to, and saves.
func (r *Run) finish(ctx context.Context) error {
	if i := notFinite(r.Layout(), r.Params.Flat, nil); i >= 0 { // the last update broke it, and no loss said so
		return &trivium.DivergedError{Step: r.at.Step, Loss: r.watched.loss, Tensor: tensorName(r.Layout(), i)}
	}
	var lost error
	if r.reason != trivium.Interrupted {
		reason, _, err := r.evaluate(ctx)
		if reason != "" && r.reason == trivium.Finished { // as after any other update
			r.reason = reason
		}
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
			if l := LostOf(ctx); l != nil {
				lost = l
			} else {
				r.reason = trivium.Interrupted
			}
		}
	}
	if r.keeper.last != "" && r.at.Step == r.keeper.step || r.at.Step == 0 && r.reason == trivium.Interrupted {
		return lost // it is saved; or there is nothing, where more was wanted than the initial model
	}
	return errors.Join(lost, r.save(context.WithoutCancel(ctx)))
}

// Close lets go of what Open opened.
func (r *Run) Close() {
	for i := len(r.owned) - 1; i >= 0; i-- {
		r.owned[i]()
	}
	r.owned = nil
}
