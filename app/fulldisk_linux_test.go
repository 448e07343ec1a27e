package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/data"
)

// smallDisk mounts a disk of that size on a test's folder.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("not run here: a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() { // after the test's folder is another one
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err, syscall.Unmount(dir, syscall.MNT_DETACH))
		}
	})
	return dir
}

// TestFullDiskInit: a job file that does not fit leaves nothing, and overwrites nothing.
func TestFullDiskInit(t *testing.T) {
	dir := smallDisk(t, "8k")
	write(t, dir, "mine.yaml", "model: softmax\n")
	write(t, dir, "rest", strings.Repeat("x", 4096))
	for _, command := range []string{"init mlp:8", "init mlp:8 --force --to mine.yaml"} {
		got := runIn(t, dir, strings.Fields(command)...)
		if got.code != Failed || !strings.Contains(got.err, "no space left on device") {
			t.Errorf("%s: exits with %d: %s%s", command, got.code, got.out, got.err)
		}
	}
	left, err := os.ReadDir(dir)
	if text, e := os.ReadFile(filepath.Join(dir, "mine.yaml")); err != nil || len(left) != 2 || string(text) != "model: softmax\n" {
		t.Errorf("left: %v, %v; mine.yaml is %q, %v", left, err, text, e)
	}
}

// TestFullDiskPrints: what could not be printed is no success, whatever was to be.
func TestFullDiskPrints(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	runs := filepath.Join(dir, "runs")
	train := "train mlp:8 --data points --epochs 1 --out " + runs
	if got := runWith(t.Context(), t, dir, options, strings.Fields(train)...); got.code != Done {
		t.Fatal(got.err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, command := range []string{
		"eval last --out " + runs, "eval last --json --out " + runs, "runs show last --out " + runs, "rerun last --out " + runs, train,
		"data points", "version", "help", "help models", "train --help", "completion bash",
	} {
		var problems strings.Builder
		code := Run(t.Context(), strings.Fields(command), full, &problems, options)
		if code != Failed || !strings.Contains(problems.String(), "no space left on device") {
			t.Errorf("%s: exits with %d: %s", command, code, &problems)
		}
	}
}

// TestFullDisk: a disk that fills up while a checkpoint is written: exit code 1, and the checkpoints before it stay, load and resume.
func TestFullDisk(t *testing.T) {
	// A checkpoint of mlp:4096 on 3 inputs takes 300 KiB, all else some 60: there is room for the two that are kept, not for a third.
	dir := smallDisk(t, "800k")
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:4096 --data points --epochs 4 --name x --checkpoint-every 10")...)
	m := regexp.MustCompile(`no space left on device; the last one, step-0*20, stays; resume with: trivium (.*)`).FindStringSubmatch(got.err)
	if got.code != Failed || m == nil {
		t.Fatalf("exits with %d, want %d: %s%s", got.code, Failed, got.out, got.err)
	}
	if got := runWith(t.Context(), t, dir, options, "eval", "x"); got.code != Done {
		t.Errorf("the checkpoint before it: exits with %d: %s", got.code, got.err)
	}
	resume := strings.Replace(m[1], "runs/x", filepath.Join(dir, "runs/x"), 1)
	got = runWith(t.Context(), t, t.TempDir(), options, strings.Fields(resume)...)
	if got.code != Done || !strings.Contains(got.out, "from update 20 on") {
		t.Errorf("%s: exits with %d: %s%s", resume, got.code, got.out, got.err)
	}
}

// TestNoDiskForACluster: where the disk takes no state, being full or read-only, the command may be right: exit code 1. With files that are not to be
// used it is not.
func TestNoDiskForACluster(t *testing.T) {
	up := func(dir string, flags ...string) outcome {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // if it begins after all
		defer cancel()
		return runWith(ctx, t, dir, Options{}, append([]string{"up", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "cluster")}, flags...)...)
	}
	full := smallDisk(t, "8k")
	write(t, full, "rest", strings.Repeat("x", 8<<10))
	if got := up(full); got.code != Failed || !strings.HasSuffix(got.err, "no space left on device\n") {
		t.Errorf("on a full disk: exits with %d: %s", got.code, got.err)
	}
	dir := smallDisk(t, "8k")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if got := up(dir); got.code != Failed || !strings.HasSuffix(got.err, "read-only file system\n") {
		t.Errorf("on a read-only disk: exits with %d: %s", got.code, got.err)
	}
	for _, file := range []string{"none.pem", "/proc/self/mem"} { // which is not there, and whose first page is an input/output error
		if got := up(t.TempDir(), "--ca", file+","+file); got.code != Misused {
			t.Errorf("with an authority in %s: exits with %d: %s", file, got.code, got.err)
		}
	}
	dir = t.TempDir()
	write(t, dir, "cluster", "a file")
	if got := up(dir); got.code != Misused {
		t.Errorf("with a file in the place of the folder: exits with %d: %s", got.code, got.err)
	}
}

// TestOutputToAPipe: what is no plain file is written, not replaced by one: with root's rights that would end /dev/null.
func TestOutputToAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		text, err := os.ReadFile(pipe)
		read <- fmt.Sprintf("%s %v", text, err)
	}()
	err := writeTo(io.Discard, pipe, func(w io.Writer) error {
		_, err := io.WriteString(w, "predictions")
		return err
	})
	if got := <-read; err != nil || got != "predictions <nil>" {
		t.Errorf("%v, and what comes out is %s", err, got)
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is gone: %v %v", info, err)
	}
}

// TestOutputToWhatIsOpen: /dev/stdout and its like are links to what a process has open, perhaps a plain file. They are written: with root's
// rights another file would take the place of the link, for every program of the machine.
func TestOutputToWhatIsOpen(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "redirected"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = writeTo(io.Discard, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), func(w io.Writer) error {
		_, err := io.WriteString(w, "predictions")
		return err
	})
	if got, e := io.ReadAll(file); err != nil || e != nil || string(got) != "predictions" {
		t.Errorf("%v, %v, and the file has %q", err, e, got)
	}
}
