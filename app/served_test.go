package app

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestClocks: rounds of several steps are counted as updates, are the job's again in a rerun's flags, and refused where they make no sense.
func TestClocks(t *testing.T) {
	dir := t.TempDir()
	got := runIn(t, dir, strings.Fields("train "+small+" --topology server --workers 3 --batch 4 --clocks 10 --merge mean --lanes 2 --name apart")...)
	if got.code != Done || !strings.Contains(got.out, "server of 3 workers") {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	p := params(t, filepath.Join(dir, "runs", "apart"))
	if p.Job.Batch != 12 || p.Progress.Step != 30 || p.Progress.Samples != 3600 {
		t.Errorf("batch %d, %+v", p.Job.Batch, p.Progress)
	}
	got = runIn(t, dir, strings.Fields("train "+small+" --topology server --workers 2 --batch 20 --steps-per-round 5 --name steps")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if p := params(t, filepath.Join(dir, "runs", "steps")); p.Progress.Step != 18 {
		t.Errorf("%+v", p.Progress)
	}
	for words, want := range map[string]string{
		"--topology server --clocks 3 --steps-per-round 2":        "two ways",
		"--topology server --clocks 3 --optimizer-on server":      "has the optimizer",
		"--topology server --clocks 3 --merge product":            "want sum or mean",
		"--topology server --lanes 0":                             "--lanes: want 1 or more, found 0",
		"--topology server --lanes 65":                            "lanes: want 1 to 64 of each server, found 65",
		"--topology server --merge mean":                          "several a round",
		"--topology server --slow worker=0,factor=0.5":            "a factor of 1 or more",
		"--topology server --clocks 3 --exact":                    "several steps on a copy",
		"--topology allreduce --workers 2 --processes --clocks 3": "--clocks is an option of server, not of allreduce",
	} {
		if got := runIn(t, dir, strings.Fields("train "+small+" "+words)...); got.code != Misused || strings.Count(got.err, want) != 1 {
			t.Errorf("%s: exits with %d: %s", words, got.code, got.err)
		}
	}
}

// TestRefusedOptimizer: an optimizer that cannot be had is refused before workers are started, in the words of one process.
func TestRefusedOptimizer(t *testing.T) {
	dir := t.TempDir()
	want := runIn(t, dir, strings.Fields("train "+small+" --optimizer adam --set nix=1")...)
	if want.code != Misused || !strings.Contains(want.err, `adam has no parameter "nix"`) {
		t.Errorf("exits with %d: %s", want.code, want.err)
	}
	for _, topology := range []string{"server", "allreduce", "average", "allreduce --processes"} {
		if got := runIn(t, dir, strings.Fields("train "+small+" --optimizer adam --set nix=1 --workers 2 --topology "+topology)...); got != want {
			t.Errorf("%s: %+v, want %+v", topology, got, want)
		}
	}
}

// TestRefusedByWorkers: of a job that the workers refuse nothing is left, so that the command may be given again with the same name.
func TestRefusedByWorkers(t *testing.T) {
	for _, topology := range []string{"server", "server --processes", "allreduce", "average"} {
		dir := t.TempDir()
		words := "train " + small + " --name again --workers 2 --topology " + topology
		got := runIn(t, dir, strings.Fields(strings.Replace(words, "softmax", "logistic", 1))...)
		if got.code != Misused || !strings.Contains(got.err, "takes labels of 2 classes") {
			t.Errorf("%s: exits with %d: %s", topology, got.code, got.err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("%s: there is %v in the directory: %v", topology, left, err)
		}
		if got := runIn(t, dir, strings.Fields(words)...); got.code != Done {
			t.Errorf("%s: again, exits with %d: %s", topology, got.code, got.err)
		}
	}
}

// TestRowsAtEvaluations: where workers are after the same update, an evaluation counts the rows of that, whatever the others have said last.
func TestRowsAtEvaluations(t *testing.T) {
	got := runIn(t, t.TempDir(), strings.Fields("train softmax --rows 60 --batch 10 --epochs 3 -w 2 --topology server --consistency bsp --json")...)
	for _, want := range []string{`"samples":60,`, `"samples":120,`, `"samples":180,`} {
		if n := strings.Count(got.out, want); n < 1 {
			t.Errorf("%d of %s in %s%s", n, want, got.out, got.err)
		}
	}
}
