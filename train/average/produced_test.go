package average_test

import (
	"errors"
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestProduced: a run has the numbers that the catalogue promises of it.
func TestProduced(t *testing.T) {
	envs, j := group(t, 2), job()
	j.Optimizer.ClipNorm = 0.5
	envs[0].Blob = blob.Dir(t.TempDir())
	var hubs []*observe.Hub
	for i := range envs {
		envs[i].Observe = observe.NewHub(observe.Options{})
		hubs = append(hubs, envs[i].Observe)
	}
	if _, errs := run(t.Context(), envs, j); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	traintest.Produced(t, "average", hubs...)
}
