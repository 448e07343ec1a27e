package app

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilledWorkerProcess: where a worker's process is killed, the command exits with code 3 and says how to go on, and what it says does: from
// the newest checkpoint, not from the beginning.
func TestKilledWorkerProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: starts processes, twice")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := "train mlp:20 --data digits --rows 1200 --epochs 1000000 --workers 3 --processes --checkpoint-every 5 --name k"
	command := exec.Command(self, append([]string{commandArgument}, strings.Fields(args)...)...)
	var out, errs tape
	command.Dir, command.Stdout, command.Stderr = dir, &out, &errs
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill() }) // where this test fails before it has ended
	out.await(t, "epoch=3 ")
	workers := childrenOf(t, command.Process.Pid)
	if len(workers) != 3 {
		t.Fatalf("the command has the children %v, want 3", workers)
	}
	if err := syscall.Kill(workers[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-ended:
	case <-time.After(3 * time.Minute): // it ends a hang, no more
		t.Fatalf("the command does not end: %s%s", &out, &errs)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != Lost || !strings.Contains(errs.String(), "was killed") {
		t.Errorf("the command ends with %v: %s", err, &errs)
	}
	resume := regexp.MustCompile(`resume with: trivium (.*)`).FindStringSubmatch(errs.String())
	if resume == nil {
		t.Fatalf("it does not say how to go on: %s", &errs)
	}
	saved := params(t, filepath.Join(dir, "runs", "k")).Progress.Step
	if saved < 5 {
		t.Fatalf("the newest checkpoint is of update %d", saved)
	}
	got := runIn(t, dir, append(strings.Fields(resume[1]), "--steps", fmt.Sprint(saved+7), "--name", "on")...)
	if got.code != Done {
		t.Fatalf("%s exits with %d: %s%s", resume[1], got.code, got.out, got.err)
	}
	r, err := findRun(filepath.Join(dir, "runs"), "on")
	if err != nil {
		t.Fatal(err)
	}
	from := fmt.Sprintf(" at update %d", saved)
	resumed := func(note string) bool { return strings.HasPrefix(note, resumedNote) && strings.HasSuffix(note, from) }
	if !slices.ContainsFunc(r.Head.Notes, resumed) || r.Head.Workers != 3 {
		t.Errorf("it went on with %d workers and the notes %q, want one of update %d", r.Head.Workers, r.Head.Notes, saved)
	}
	if step := params(t, filepath.Join(dir, "runs", "on")).Progress.Step; step != saved+7 {
		t.Errorf("its newest checkpoint is of update %d, want %d", step, saved+7)
	}
}

// childrenOf are the processes that a process has started, in the order of their ids.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		// 7 (a name) S 1 ...: the state and the parent follow the name, which may have spaces and brackets.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != fmt.Sprint(parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}
