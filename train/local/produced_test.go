package local_test

import (
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestProduced: a run has the numbers that the catalogue promises of it.
func TestProduced(t *testing.T) {
	env, job := traintest.Env(t, 1, false), traintest.Job()
	env.Blob, env.Observe = blob.Dir(t.TempDir()), observe.NewHub(observe.Options{})
	job.Optimizer.ClipNorm = 0.5
	r, err := local.New(env, local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	traintest.Produced(t, "local", env.Observe)
	for _, report := range env.Observe.Latest() {
		if n := report.Frame.Counter(observe.Updates); n != uint64(r.Steps) || n == 0 {
			t.Errorf("%d updates are counted, of %d", n, r.Steps)
		}
	}
}
