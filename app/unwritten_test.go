package app

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/data"
)

// TestRunDirectoryThatCannotBeWritten: training goes on and says so, and where its model is, which all that wants a model finds there.
func TestRunDirectoryThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "")
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	interrupted := Options{Sources: data.Sources{"points": points(60, cancel)}}
	train := strings.Fields("train logistic --data points --epochs 30 --out file/runs")
	model := ""
	for _, c := range []struct {
		outcome
		code int
		ends string
	}{
		{runWith(t.Context(), t, dir, options, train...), Done, "finished  "},
		{runWith(ctx, t, dir, interrupted, train...), Interrupted, "interrupted  "},
	} {
		m := regexp.MustCompile(`the model goes to (` + dir + `/trivium-[0-9]+) instead, `).FindStringSubmatch(c.out)
		if c.outcome.code != c.code || m == nil {
			t.Fatalf("exits with %d: %s%s", c.outcome.code, c.out, c.err)
		}
		for _, want := range []string{"the run directory cannot be written: ", "training goes on", c.ends} {
			if !strings.Contains(c.out, want) {
				t.Errorf("no %q in:\n%s", want, c.out)
			}
		}
		model = m[1]
		if resume := "; resume with: trivium train --resume " + model + " --out file/runs\n"; strings.HasSuffix(c.err, resume) != (c.code == Interrupted) {
			t.Errorf("%s says %q", c.ends, c.err)
		}
	}
	for _, c := range []struct {
		command, says string
		code          int
	}{
		{"train --resume " + model + " --name rest", "/run.json", Done},
		{"eval " + model, "/run.json", Done},
		{"apply " + model + " --data points --to p.csv", "/run.json", Done},
		{"export " + model + " --to m.onnx", "/run.json", Done},
		{"runs show " + model, "want no more than its checkpoints\n", Misused},
		{"rerun " + model, "want no more than its checkpoints\n", Misused},
		{"runs delete " + model, model + " has no run.json", Misused},
		{"eval " + model + "/checkpoints", model + "/checkpoints is no run directory, and holds no ", Misused},
		{"eval " + dir + "/none", "no run in runs is called ", Misused},
	} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(c.command)...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%s exits with %d, want %d and %q: %s%s", c.command, got.code, c.code, c.says, got.out, got.err)
		}
	}
}

// TestCheckpointThatCannotBeWritten: exit code 1, and the one before stays, from which the job goes on, by one worker as by two.
func TestCheckpointThatCannotBeWritten(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		t.Run(workers, func(t *testing.T) { stopAtCheckpoint(t, workers) })
	}
}

func stopAtCheckpoint(t *testing.T, workers string) {
	dir := t.TempDir()
	blocked := filepath.Join("runs", "x", checkpointsDir)
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	hindered := Options{Sources: data.Sources{"points": points(1, func() {
		if err := os.MkdirAll(filepath.Join(dir, blocked), 0o755); err != nil {
			t.Error(err)
		}
		write(t, filepath.Join(dir, blocked), "step-000000000020", "in the way")
	})}}
	got := runWith(t.Context(), t, dir, hindered, strings.Fields("train mlp:8 --data points --epochs 6 --name x --checkpoint-every 10 --workers "+workers)...)
	if got.code != Failed || !strings.Contains(got.err, "step-000000000020") {
		t.Errorf("exits with %d, want %d: %s", got.code, Failed, got.err)
	}
	if got := runWith(t.Context(), t, dir, options, "eval", "x", "--checkpoint", "step-000000000010"); got.code != Done {
		t.Errorf("the checkpoint before it: exits with %d: %s", got.code, got.err)
	}
	resume := regexp.MustCompile(`resume with: trivium (.*)`).FindStringSubmatch(got.err)
	if resume == nil {
		t.Fatalf("does not say how to resume: %s", got.err)
	}
	if err := os.Remove(filepath.Join(dir, blocked, "step-000000000020")); err != nil {
		t.Fatal(err)
	}
	if got := runWith(t.Context(), t, dir, options, append(strings.Fields(resume[1]), "--name", "y")...); got.code != Done || !strings.Contains(got.out, "from update 10 on") {
		t.Errorf("%s: exits with %d: %s%s", resume[1], got.code, got.out, got.err)
	}
}
