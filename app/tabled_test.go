package app

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
)

// tabled is a model that is trained on tables.
type tabled struct{ trivium.Model }

func (tabled) Tables() []ps.Spec                                      { return nil }
func (tabled) Round(context.Context, *ps.Worker, trivium.Batch) error { return nil }

// A model that has no gradients names the topology it wants, and nothing is written. Under that, no optimizer is named that it has no use for.
func TestTabled(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}, Models: nn.Models{
		"tabled": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax("", s, cpu)
			return tabled{m}, err
		},
	}}
	train := func(topology ...string) outcome {
		return runWith(t.Context(), t, dir, options, append([]string{"train", "tabled", "--data", "points", "--batch", "10", "--epochs", "1"}, topology...)...)
	}
	for _, topology := range [][]string{nil, {"--topology", "allreduce", "--workers", "2"}, {"--topology", "average", "--workers", "2"}} {
		got := train(topology...)
		if got.code != Misused || !strings.Contains(got.err, "tabled is trained on tables and has no gradients: give --topology server") {
			t.Errorf("%v: exits with %d: %s%s", topology, got.code, got.out, got.err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: there is %v in the directory: %v", topology, left, err)
		}
	}
	got := train("--topology", "server", "--workers", "2")
	if want := "tabled on 800 rows, batch 20, server of 2 workers\n"; !strings.Contains(got.out, want) {
		t.Errorf("exits with %d: %s%s, want %s", got.code, got.out, got.err, want)
	}
}

// TestTabledDiverged: what helps with gradients is no advice for a model that has none.
func TestTabledDiverged(t *testing.T) {
	for tabled, advice := range map[bool]string{true: "", false: "; a lower learning rate or clipping usually helps"} {
		job := &training{topology: served, tabled: tabled, kept: "kept", saved: "step-1"}
		err := job.verdict(&session{}, trivium.Result{Reason: trivium.Diverged}, &trivium.DivergedError{Step: 7, Loss: math.Inf(1)})
		if want := "diverged at update 7: the loss is +Inf" + advice + "; the last good checkpoint is " + filepath.Join("kept", "step-1"); err.Error() != want {
			t.Errorf("trained on tables: %v: %v, want %s", tabled, err, want)
		}
	}
}

// TestTabledUntried: a model of tables that knows less of labels than their mean is told of no flag that it refuses.
func TestTabledUntried(t *testing.T) {
	for tabled, want := range map[bool]string{true: "other arguments of its own, as in mf:KEY=X, more --epochs", false: "another --rate, more --epochs"} {
		job := &training{job: &trivium.Job{Model: "mf:4,rate=0.001", Data: trivium.Data{Scale: "standard"}}, tabled: tabled}
		if got := job.untried(); got != want {
			t.Errorf("trained on tables: %v: %q, want %q", tabled, got, want)
		}
	}
}

// TestTabledOptimizer: a model that is trained on tables heeds no flag about an optimizer, and who gives one is told so.
func TestTabledOptimizer(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}, Models: nn.Models{
		"tabled": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax("", s, cpu)
			return tabled{m}, err
		},
	}}
	for flags, want := range map[string]string{
		"--rate 0.1":                              "--rate; what",
		"--optimizer sgd --workers 2":             "--optimizer; what",
		"--set momentum=0.5 --optimizer momentum": "--optimizer, --set; what",
		"--l1 0 --clip-value 3 --schedule step:2,0.5 --optimizer-on worker": "--clip-value, --l1, --schedule, --optimizer-on; what",
	} {
		got := runWith(t.Context(), t, dir, options, append([]string{"train", "tabled:3", "--data", "points", "--topology", "server"}, strings.Fields(flags)...)...)
		if got.code != Misused || !strings.Contains(got.err, "tabled is trained on tables, without an optimizer: give no "+want) {
			t.Errorf("%s: exits with %d: %s%s", flags, got.code, got.out, got.err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: there is %v in the directory: %v", flags, left, err)
		}
	}
}

// keeping is a model that keeps something of each row at its worker.
type keeping struct{ tabled }

func (keeping) Keeps() string { return "the mood" }

// TestInterruptedKeeper: of a run that cannot be resumed no command is printed that would.
func TestInterruptedKeeper(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options := Options{Sources: data.Sources{"points": points(10, cancel)}, Models: nn.Models{
		"keeping": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax("", s, cpu)
			return keeping{tabled{m}}, err
		},
	}}
	dir := t.TempDir()
	got := runWith(ctx, t, dir, options, strings.Fields("train keeping --data points --topology server --order index --batch 30 --epochs 1000000 --name k")...)
	const want = "; it cannot be resumed, since the workers alone have the mood of each row: repeat the command\n"
	if got.code != Interrupted || !strings.Contains(got.err, "interrupted after update") || !strings.Contains(got.err, want) {
		t.Errorf("exits with %d: %s%s, want %s", got.code, got.out, got.err, want)
	}
	// Nor where it ran at a cluster, whose submitter has its checkpoint alone.
	there := &training{topology: served}
	err := there.fromThere(t.Context(), &session{models: options.Models, command: "trivium"}, Lost, errors.New("lost"), []string{filepath.Join(dir, "runs", "k")}, onFlags{})
	if err == nil || err.Error() != "lost"+strings.TrimSuffix(want, "\n") {
		t.Errorf("at a cluster: %v", err)
	}
}
