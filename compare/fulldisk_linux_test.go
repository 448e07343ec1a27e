package compare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk: a disk that fills up in the middle of a comparison ends it, and no trial is counted as failed for that; with room, the same
// plan goes on to its end. A disk that is too small is refused before anything runs, with what is wanted.
func TestFullDisk(t *testing.T) {
	bookkeeping(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=90m"); err != nil {
		t.Skipf("not run here: a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err, syscall.Unmount(disk, syscall.MNT_DETACH))
		}
	})
	fill := func() {
		f, err := os.Create(filepath.Join(disk, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil { // until there is no room
			_, err = f.Write(make([]byte, 1<<16))
		}
		if !errors.Is(errors.Join(err, f.Close()), syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	empty := func() {
		if err := os.Remove(filepath.Join(disk, "fill")); err != nil {
			t.Fatal(err)
		}
	}
	p := small(t, inMemory(), digits(), "local", "allreduce")
	p.Dir = filepath.Join(disk, "report")

	fill()
	full := func(how string) {
		_, err := Run(t.Context(), p)
		if full := new(FullDiskError); !errors.As(err, &full) || full.Dir != p.Dir {
			t.Fatalf("%s it ends with %v", how, err)
		}
		if strings.Count(err.Error(), "make room") != 1 {
			t.Errorf("%s that is not said once: %v", how, err)
		}
	}
	full("on a full disk")
	empty()
	row := p.Systems[1]
	p.Systems[1] = late{row, fill}
	full("with a disk that fills up")
	if _, err := os.Stat(filepath.Join(p.Dir, workDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half of a trial is left: %v", err)
	}
	empty()
	p.Systems[1] = row
	r := run(t, p)
	for _, x := range r.Tables[0].Rows {
		if x.Error != "" || len(x.Trials) != 1 || x.Proof != proven {
			t.Errorf("%s, with room again: error %q, %d trials, proof %q", x.System, x.Error, len(x.Trials), x.Proof)
		}
	}
}

// A late is a row before whose start something happens.
type late struct {
	System
	before func()
}

// Start implements System.
func (l late) Start(ctx context.Context, s Spec) (Trial, error) {
	l.before()
	return l.System.Start(ctx, s)
}
