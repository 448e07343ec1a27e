package train_test

import (
	"context"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestCutBeforeItsEvaluation: a cut knows how far training was when an update ended, and nothing of the evaluation that followed. Who goes on
// from it makes up for that, so that early stopping counts it.
func TestCutBeforeItsEvaluation(t *testing.T) {
	job := traintest.Job()
	job.Epochs, job.Steps, job.EvalEvery = 0, 20, 5
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 1000, MinDelta: 1000} // the first stays the best
	env := traintest.Env(t, 1, false)
	env.Blob, env.Checkpoints = blob.Dir(t.TempDir()), train.Checkpoints{Every: 1000, Keep: 100}
	r, err := train.Open(t.Context(), env, job, "local")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	state, err := r.OptimizerState()
	if err != nil {
		t.Fatal(err)
	}
	r.Cuts(func(context.Context) error { return nil })
	g := train.NewGradient(r.Layout())
	var cut train.Cut
	for step, b := range r.Updates(t.Context()) {
		lossSum, weightSum, err := r.Grad(b, g)
		if err != nil {
			t.Fatal(err)
		}
		state.Step(step, r.Params, g, weightSum)
		r.Finish(b.Rows, lossSum, weightSum)
		switch step {
		case 10:
			cut = train.Cut{
				Params: trivium.Params{Layout: r.Layout(), Flat: slices.Clone(r.Params.Flat)}, Progress: r.At(),
				Optimizer: &checkpoint.OptimizerState{Names: []string{"velocity"}, Slots: [][]float32{slices.Clone(state.Slots()[0])}, RowSteps: state.RowSteps()},
			}
		case 11:
			if err := r.SaveCut(t.Context(), cut); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	if env.Resume, err = checkpoint.Load(t.Context(), env.Blob, "step-000000000010"); err != nil {
		t.Fatal(err)
	}
	env.Blob = blob.Dir(t.TempDir())
	run(t, env, job)
	c, _, err := checkpoint.Latest(t.Context(), env.Blob)
	if err != nil || c.Progress.Step != 20 || c.Progress.Bad != 3 { // those after updates 10, 15 and 20
		t.Errorf("%v: after update %d, %d evaluations without progress, want 3 after 20", err, c.Progress.Step, c.Progress.Bad)
	}
}
