package train_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestLastUpdateBreaksTheModel: parameters that the last update made infinite are no result, though no loss was computed of them.
func TestLastUpdateBreaksTheModel(t *testing.T) {
	job := traintest.Job()
	job.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1e38, Decay: 1e38} // their product is beyond float32
	job.Steps = 1
	r, err := local.New(traintest.Env(t, 1, false), local.Options{}).Train(t.Context(), job)
	diverged, ok := errors.AsType[*trivium.DivergedError](err)
	if !ok || r.Reason != trivium.Diverged || diverged.Step != 1 || diverged.Tensor != "weight" {
		t.Errorf("%s, %v; want a divergence after update 1, of tensor weight", r.Reason, err)
	}
}

// TestFirstFailureCounts: what fails because training has failed is not why it did.
func TestFirstFailureCounts(t *testing.T) {
	r, err := train.Open(t.Context(), traintest.Env(t, 1, false), traintest.Job(), "local")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := errors.New("first")
	r.Fail(first)
	r.Fail(errors.New("second"))
	if result, err := r.Result(t.Context()); !errors.Is(err, first) || result.Reason != trivium.Failed {
		t.Errorf("%s, %v; want the first failure", result.Reason, err)
	}
}

// TestLastEvaluationCountsOnce: the end of training evaluates what is not known yet, and takes nothing for an evaluation without progress that was
// one already.
func TestLastEvaluationCountsOnce(t *testing.T) {
	job := traintest.Job()
	job.Stop = trivium.EarlyStop{Metric: "train.loss", Patience: 1}
	if r := run(t, traintest.Env(t, 1, false), job); r.Reason != trivium.Finished || r.Epochs != job.Epochs {
		t.Errorf("%s after %d epochs of a loss that falls, want all %d", r.Reason, r.Epochs, job.Epochs)
	}
}

func TestStopOnTrainingRows(t *testing.T) {
	job := traintest.Job()
	job.Epochs = 500
	job.Stop = trivium.EarlyStop{Metric: "train.f1", Target: ">= 0.8"}
	scored := run(t, traintest.Env(t, 1, false), job)
	if scored.Reason != trivium.TargetMet || scored.Metrics["train.f1"] < 0.8 {
		t.Errorf("%s, %v", scored.Reason, scored.Metrics)
	}
	plain := traintest.Job()
	plain.Epochs = scored.Epochs
	if r := run(t, traintest.Env(t, 1, false), plain); r.Metrics["train.loss"] != scored.Metrics["train.loss"] {
		t.Errorf("train.loss is %v where the training rows are scored, want that of the epoch, %v", scored.Metrics["train.loss"], r.Metrics["train.loss"])
	}
	job.Stop = trivium.EarlyStop{Metric: "train.loss", Target: "< 0.7"}
	r := run(t, traintest.Env(t, 1, false), job)
	if r.Reason != trivium.TargetMet || r.Metrics["train.loss"] >= 0.7 {
		t.Errorf("%s, %v", r.Reason, r.Metrics)
	}
	if _, scored := r.Metrics["train.accuracy"]; scored {
		t.Errorf("the training rows were scored for a loss that is known: %v", r.Metrics)
	}
}

// TestPatience: training ends after as many evaluations without progress as patience is, whichever way the metric is better.
func TestPatience(t *testing.T) {
	for name, sign := range map[string]float64{"valid.loss": 1, "valid.accuracy": -1} {
		job := traintest.Job()
		job.Epochs = 300
		job.Stop = trivium.EarlyStop{Metric: name, Patience: 3, MinDelta: 0.004}
		env := traintest.Env(t, 1, false)
		var values []float64
		env.Watch.Evaluated = func(_ train.Progress, m map[string]float64) { values = append(values, sign*m[name]) }
		r := run(t, env, job)
		best, bad, epochs := math.Inf(1), 0, 0
		for _, v := range values {
			if bad == 3 {
				break
			}
			if epochs, bad = epochs+1, bad+1; v < best-0.004 {
				best, bad = v, 0
			}
		}
		if r.Reason != trivium.Stopped || bad != 3 || r.Epochs != epochs || epochs < 6 {
			t.Errorf("%s: %s after epoch %d, want it after %d: %v", name, r.Reason, r.Epochs, epochs, values)
		}
	}
}

// TestPatienceOfResumed: a run in two parts stops where one in one part does, whether the first part was interrupted, at the end of an epoch before
// its evaluation, or had all its updates, if they end in an epoch too. The second part saves nothing before the pause between two checkpoints is over, but what is best.
func TestPatienceOfResumed(t *testing.T) {
	job := traintest.Job()
	job.Epochs = 20
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 5, MinDelta: 1000} // the first stays the best
	whole := run(t, traintest.Env(t, 1, false), job)
	epoch := whole.Steps / int64(whole.Epochs)
	if whole.Reason != trivium.Stopped || whole.Epochs != 6 {
		t.Fatalf("%s after epoch %d, want it stopped after 6", whole.Reason, whole.Epochs)
	}
	for _, c := range []struct {
		interrupted bool
		steps       int64
		saved       []int64
	}{
		{true, 1, []int64{epoch, whole.Steps}},
		{true, epoch, []int64{whole.Steps}},
		{true, epoch + 1, []int64{whole.Steps}},
		{true, 3 * epoch, []int64{whole.Steps}},
		{false, epoch, []int64{whole.Steps}},
		{false, 3 * epoch, []int64{whole.Steps}},
		{false, epoch + 1, []int64{whole.Steps}}, // whose last evaluation is off the schedule
		{false, whole.Steps - 1, []int64{whole.Steps}},
	} {
		env := traintest.Env(t, 1, false)
		env.Blob = blob.Dir(t.TempDir())
		first, part := env, *job
		ctx, interrupt := context.WithCancel(t.Context())
		if c.interrupted {
			first.Between.After = func(_ context.Context, step int64, _ func(context.Context) (trivium.Params, error)) error {
				if step == c.steps {
					interrupt()
				}
				return nil
			}
		} else {
			part.Steps = c.steps
		}
		r, err := local.New(first, local.Options{}).Train(ctx, &part)
		interrupt()
		if err != nil || r.Steps != c.steps || (r.Reason == trivium.Interrupted) != c.interrupted {
			t.Fatalf("%+v: %s after update %d, %v", c, r.Reason, r.Steps, err)
		}
		if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
			t.Fatal(err)
		}
		var saved []int64
		env.Watch.Checkpointed = func(p train.Progress, _ string) { saved = append(saved, p.Step) }
		if r = run(t, env, job); r.Reason != whole.Reason || r.Steps != whole.Steps {
			t.Errorf("%+v: %s after update %d, want %s after %d", c, r.Reason, r.Steps, whole.Reason, whole.Steps)
		}
		if !slices.Equal(saved, c.saved) {
			t.Errorf("%+v: then checkpoints after updates %v", c, saved)
		}
	}
}
