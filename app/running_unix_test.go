//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/data"
)

// TestRunsWhileTraining: a run that is training is listed as running, and not deleted, nor is what is named beside it.
func TestRunsWhileTraining(t *testing.T) {
	dir := t.TempDir()
	train := strings.Fields("train mlp:8 --data points --batch 30 --epochs 12 --name")
	if got := runWith(t.Context(), t, dir, Options{Sources: data.Sources{"points": points(-1, nil)}}, append(train, "before")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	run := func(args ...string) outcome { // where the training is
		var out, problems bytes.Buffer
		code := Run(t.Context(), args, &out, &problems, Options{})
		return outcome{code, out.String(), problems.String()}
	}
	var list, deleted outcome
	meanwhile := func() { list, deleted = run("runs", "status=running"), run("runs", "delete", "before", "now") }
	if got := runWith(t.Context(), t, dir, Options{Sources: data.Sources{"points": points(10, meanwhile)}}, append(train, "now")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if list.code != Done || !strings.Contains(list.out, "now") || strings.Contains(list.out, "before") {
		t.Errorf("the list exits with %d: %s%s", list.code, list.out, list.err)
	}
	if deleted.code != Misused || !strings.Contains(deleted.err, "runs/now is running") || deleted.out != "" {
		t.Errorf("the deletion exits with %d: %s%s", deleted.code, deleted.out, deleted.err)
	}
	if got := runIn(t, dir, "runs", "delete", "before", "now"); got.code != Done || strings.Count(got.out, "deleted") != 2 {
		t.Errorf("afterwards it exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestRunDirectoryThatIsRemoved: of a run whose directory is removed while it trains, what came of it is a run, and what is missing is said.
func TestRunDirectoryThatIsRemoved(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(60, func() {
		if err := os.RemoveAll(filepath.Join(dir, "runs", "x")); err != nil {
			t.Error(err)
		}
	})}}
	for _, c := range []struct{ command, says string }{
		{"train logistic --data points --epochs 30 --name x", "runs/x was removed or moved while the run was under way: "},
		{"runs", "finished"},
		{"eval x", "test.accuracy"},
		{"runs report x --to x.html", "x.html"},
		{"runs delete x", "deleted runs/x"},
	} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(c.command)...); got.code != Done || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("%s exits with %d, without %q: %s%s", c.command, got.code, c.says, got.out, got.err)
		}
	}
}
