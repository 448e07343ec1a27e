package allreduce_test

import (
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestProduced: a run has the numbers that the catalogue promises of it.
func TestProduced(t *testing.T) {
	env, job := traintest.Env(t, 1, false), traintest.Job()
	env.Blob = blob.Dir(t.TempDir())
	job.Optimizer.ClipNorm = 0.5
	c := &crew{env: env, n: 3}
	if _, err := c.Train(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	traintest.Produced(t, "allreduce", c.hubs...)
}
