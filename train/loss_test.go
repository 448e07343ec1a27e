package train_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestLossOfResumed: until a run that goes on has made an update, its loss is the mean of the epoch so far, and not 0.
func TestLossOfResumed(t *testing.T) {
	job := traintest.Job()
	job.Steps = 5
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(t.TempDir())
	run(t, env, job)
	var err error
	if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
		t.Fatal(err)
	}
	var began train.Progress
	env.Watch.Begin = func(p train.Progress) { began = p }
	run(t, env, job)
	if p := env.Resume.Progress; began.Loss != p.LossSum/p.WeightSum || began.Loss == 0 {
		t.Errorf("it begins with loss %v, want %v", began.Loss, p.LossSum/p.WeightSum)
	}
}

// TestLossBeforeTheFirstUpdate: a job that makes none shows no loss of an update.
func TestLossBeforeTheFirstUpdate(t *testing.T) {
	job := traintest.Job()
	job.Epochs = 0
	env := traintest.Env(t, 1, false)
	var shown []train.Progress
	env.Watch.Evaluated = func(p train.Progress, _ map[string]float64) { shown = append(shown, p) }
	run(t, env, job)
	if len(shown) != 1 || shown[0].Step != 0 || !math.IsNaN(shown[0].Loss) {
		t.Errorf("%+v, want one evaluation, after update 0, with no loss", shown)
	}
}

// TestTrainLoss: train.loss is the mean over the rows of its own epoch by weight, and not of those before: where an update takes all rows, that of the model
// before it.
func TestTrainLoss(t *testing.T) {
	job := traintest.Job()
	job.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 0.5}
	job.Batch, job.Epochs = trivium.FullBatch, 3 // an epoch's loss is that of the model before it
	env := traintest.Env(t, 1, false)
	var got []float64
	env.Watch.Evaluated = func(_ train.Progress, m map[string]float64) { got = append(got, m["train.loss"]) }
	run(t, env, job)

	splits, err := env.Sources["toy"](t.Context(), job.Data)
	if err != nil {
		t.Fatal(err)
	}
	for epoch, loss := range got {
		before := *job
		before.Epochs = epoch
		r := run(t, traintest.Env(t, 1, false), &before)
		m, err := env.Models.Build(job.Model, splits.Train.Schema(), env.CPU)
		if err != nil {
			t.Fatal(err)
		}
		e, err := train.NewEvaluator(m, nil, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		want, err := e.Evaluate(t.Context(), r.Params, splits.Train)
		if err != nil {
			t.Fatal(err)
		}
		if !(math.Abs(loss-want.Loss) <= 1e-6) {
			t.Errorf("epoch %d: train.loss is %v, of the model before it %v", epoch+1, loss, want.Loss)
		}
	}
	if len(got) != job.Epochs {
		t.Errorf("%d evaluations, want %d", len(got), job.Epochs)
	}
}

// TestTargetAtTheEnd: an evaluation that is made only because training ends may find the target met, too.
func TestTargetAtTheEnd(t *testing.T) {
	job := traintest.Job()
	job.Steps, job.EvalEvery = 20, 1000
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Target: "< 100"}
	if r := run(t, traintest.Env(t, 1, false), job); r.Reason != trivium.TargetMet || r.Steps != 20 {
		t.Errorf("%s after %d updates, want the target met after 20", r.Reason, r.Steps)
	}
}

// TestLossOfNoWeight: an update whose rows weigh nothing has no loss; the one that is shown is of the update before.
func TestLossOfNoWeight(t *testing.T) {
	job := traintest.Job()
	job.Data.Order, job.Steps, job.EvalEvery = "index", 3, 1
	env := traintest.Env(t, 1, false)
	weightless(t, &env, job.Batch, 2*job.Batch)
	var loss []float64
	env.Watch.Evaluated = func(p train.Progress, _ map[string]float64) { loss = append(loss, p.Loss) }
	run(t, env, job)
	if len(loss) != 3 || loss[1] != loss[0] || loss[2] == loss[1] || !(loss[2] > 0) {
		t.Errorf("losses %v, want the second to be the first", loss)
	}
}

// TestLossOfNoWeightYet: a worker that has had no rows that weigh anything shows no loss, and not one of 0.
func TestLossOfNoWeightYet(t *testing.T) {
	job := traintest.Job()
	job.Data.Order, job.Steps, job.EvalEvery = "index", 2, 1
	env := traintest.Env(t, 1, false)
	weightless(t, &env, 0, job.Batch)
	var loss []float64
	env.Watch.Evaluated = func(p train.Progress, _ map[string]float64) { loss = append(loss, p.Loss) }
	run(t, env, job)
	if len(loss) != 2 || !math.IsNaN(loss[0]) || !(loss[1] > 0) {
		t.Errorf("losses %v, want none after the first update, and that of the second", loss)
	}
}

// TestStopByNoLoss: where no row of an epoch weighs anything, as at a worker without rows, a stop by their loss ends in words, like one by an AUC of
// rows of one class.
func TestStopByNoLoss(t *testing.T) {
	job := traintest.Job()
	job.Data.Order, job.Last = "index", trivium.LastDrop // the last row, which weighs something, is in no batch
	job.Stop = trivium.EarlyStop{Metric: "train.loss", Patience: 2}
	env := traintest.Env(t, 1, false)
	weightless(t, &env, 0, 202)
	var said string
	env.Watch.Notice = func(_ observe.Level, text string) { said = text }
	if r := run(t, env, job); r.Reason != trivium.Stopped || r.Epochs != 2 || !strings.Contains(said, "train.loss had no value in any of 2 evaluations") {
		t.Errorf("%s after epoch %d: %q", r.Reason, r.Epochs, said)
	}
}

// weightless makes training rows [from, to) weigh nothing.
func weightless(t *testing.T, env *train.Env, from, to int) {
	t.Helper()
	toy := env.Sources["toy"]
	env.Sources["toy"] = func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
		s, err := toy(ctx, d)
		if err != nil {
			return nil, err
		}
		var b trivium.Batch
		if err := s.Train.Read(ctx, &b, 0, s.Train.Rows()); err != nil {
			return nil, err
		}
		b.Weights = slices.Clone(b.Weights)
		clear(b.Weights[from:to])
		s.Train = data.Memory(s.Train.Schema(), b)
		return s, nil
	}
}
