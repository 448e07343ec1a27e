package train_test

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestOwnResume: a checkpoint that is the run's own is empty of what the run has taken of it; one that is not stays as it was, and both go on
// to the same bits.
func TestOwnResume(t *testing.T) {
	for _, optimizer := range []trivium.OptimizerSpec{{Name: "adam", Rate: 0.1}, {Name: "lbfgs"}} {
		env, job := traintest.Env(t, 1, false), traintest.Job()
		job.Optimizer, job.Batch, job.Epochs = optimizer, trivium.FullBatch, 3
		env.Blob = blob.Dir(t.TempDir())
		run(t, env, job)
		load := func() *checkpoint.Checkpoint {
			c, _, err := checkpoint.Latest(t.Context(), env.Blob)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Optimizer.Slots) == 0 || len(c.Params.Flat) == 0 {
				t.Fatalf("%s: the checkpoint has nothing to take", optimizer.Name)
			}
			c.Codecs = [][]byte{{1}}
			return c
		}
		shared, own := load(), load()
		from := env
		from.Blob = nil
		longer := *job
		longer.Epochs = 5
		from.Resume = shared
		want := run(t, from, &longer)
		if shared.Params.Flat == nil || shared.Optimizer == nil || shared.Optimizer.Slots[0] == nil || shared.Codecs == nil {
			t.Errorf("%s: the caller's checkpoint was emptied: %+v", optimizer.Name, shared)
		}
		traintest.Same(t, optimizer.Name+", a second time from the same", run(t, from, &longer), want)
		from.Resume, from.OwnResume = own, true
		traintest.Same(t, optimizer.Name+", from its own", run(t, from, &longer), want)
		if own.Params.Flat != nil || own.Optimizer != nil || own.Codecs != nil {
			t.Errorf("%s: what the run has taken is still in its checkpoint: %+v", optimizer.Name, own)
		}
	}
}

// TestLostResidual: a run without codecs says that what codecs had dropped is lost where they had dropped something.
func TestLostResidual(t *testing.T) {
	env, job := traintest.Env(t, 1, false), traintest.Job()
	env.Blob = blob.Dir(t.TempDir())
	run(t, env, job)
	job.Epochs++
	for _, dropped := range []float32{0, -0.5} {
		saved, _, err := checkpoint.Latest(t.Context(), env.Blob)
		if err != nil {
			t.Fatal(err)
		}
		residual := make([]float32, len(saved.Params.Flat))
		residual[1] = dropped
		saved.Optimizer.Names = append(saved.Optimizer.Names, "residual")
		saved.Optimizer.Slots = append(saved.Optimizer.Slots, residual)
		var said []string
		from := env
		from.Blob, from.Resume = nil, saved
		from.Watch.Notice = func(_ observe.Level, text string) { said = append(said, text) }
		run(t, from, job)
		if strings.Contains(strings.Join(said, "; "), "codec dropped") != (dropped != 0) {
			t.Errorf("%v was dropped: %q", dropped, said)
		}
	}
}
