package train_test

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestStopNamesTheBest: a run that stops since nothing gets better says which checkpoint is the best model; where none is kept, none.
func TestStopNamesTheBest(t *testing.T) {
	for _, kept := range []bool{true, false} {
		job := traintest.Job()
		job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 2, MinDelta: 1000} // the first stays the best
		env := traintest.Env(t, 1, false)
		if kept {
			env.Blob = blob.Dir(t.TempDir())
		}
		var said []string
		env.Watch.Notice = func(_ observe.Level, text string) { said = append(said, text) }
		if r := run(t, env, job); r.Reason != trivium.Stopped {
			t.Fatalf("it ends with %q", r.Reason)
		}
		text := strings.Join(said, "\n")
		if !strings.Contains(text, "the best was after update 11") || strings.Contains(text, "by --checkpoint step-000000000011") != kept {
			t.Errorf("with checkpoints %v: %q", kept, text)
		}
	}
}
