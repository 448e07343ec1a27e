package train_test

import (
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
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
