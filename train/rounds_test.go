package train_test

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestRoundsOfResumed: where the short last update is dropped, a run goes on in its epoch as long as that has rows for a round, though they
// are too few for the job's batch.
func TestRoundsOfResumed(t *testing.T) {
	job := traintest.Job()
	job.Last, job.Batch, job.Steps = trivium.LastDrop, 20, 9 // 180 of 203 rows
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(t.TempDir())
	run(t, env, job)
	var err error
	if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
		t.Fatal(err)
	}
	job.Batch, job.Steps = 100, 0
	r, err := train.Open(t.Context(), env, job, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Rounds(20); err != nil {
		t.Fatal(err)
	}
	if at := r.At(); at.Epoch != 0 || at.Row != 180 {
		t.Errorf("it goes on in epoch %d at row %d, want 0 and 180", at.Epoch, at.Row)
	}
	if want := int64(9 + 1 + 3*10); r.Progress(time.Now()).Steps != want {
		t.Errorf("%d updates in all, want %d", r.Progress(time.Now()).Steps, want)
	}
}
