//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunning: a run belongs to its Writer until that has written the result or is gone: others see that it is under way, and do not
// delete it.
func TestRunning(t *testing.T) {
	for after, end := range map[string]func(w *Writer) error{
		"finished":   func(w *Writer) error { return w.Finish(Result{Reason: "finished"}) },
		"unfinished": (*Writer).Close, // as the system does for one that dies
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "r")
		w, err := Create(dir, someHead())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // to look at it takes nothing
			if l, err := List(root); err != nil || len(l) != 1 || l[0].State() != "running" {
				t.Errorf("a run under way: %+v, %v", l, err)
			}
		}
		if err := Delete(dir); err == nil || !strings.Contains(err.Error(), dir+" is under way") {
			t.Errorf("its deletion: %v", err)
		}
		link := filepath.Join(root, "latest")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		if err := Delete(link); err != nil {
			t.Errorf("the deletion of a link to it: %v", err)
		}
		if err := end(w); err != nil {
			t.Fatal(err)
		}
		if e := Read(dir); e.State() != after || e.Running {
			t.Errorf("once it has ended it is %s, %v, want %s", e.State(), e.Running, after)
		}
		if err := Delete(dir); err != nil {
			t.Error(err)
		}
	}
}

// TestFolderGone: a folder that was removed or moved in mid-run, and written into by others since, is a run again with its result, and it is said.
func TestFolderGone(t *testing.T) {
	for what, lose := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+"-elsewhere") },
		"removed, and written into": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "checkpoints", "step-1"), 0o777))
		},
	} {
		dir := filepath.Join(t.TempDir(), "runs", "r")
		w, err := Create(dir, someHead())
		if err != nil {
			t.Fatal(err)
		}
		if err := lose(dir); err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(Result{Reason: "finished"}); err == nil || !strings.Contains(err.Error(), dir+" was removed or moved while ") {
			t.Errorf("%s: %v", what, err)
		}
		if e := Read(dir); !Is(dir) || e.State() != "finished" || e.Head.Model != someHead().Model {
			t.Errorf("%s: it is a run: %v; %+v", what, Is(dir), e)
		}
		if _, err := Open(dir); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := Delete(dir); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
