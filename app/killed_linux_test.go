package app

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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
	c := startCommand(t, dir, "train mlp:20 --data digits --rows 1200 --epochs 1000000 --workers 3 --processes --checkpoint-every 5 --name k")
	c.out.await(t, "epoch=3 ")
	c.kill(t, 1, 3)
	if code := c.wait(t); code != Lost || !strings.Contains(c.errs.String(), "was killed") {
		t.Errorf("the command ends with %d: %s", code, &c.errs)
	}
	resume := regexp.MustCompile(`resume with: trivium (.*)`).FindStringSubmatch(c.errs.String())
	if resume == nil {
		t.Fatalf("it does not say how to go on: %s", &c.errs)
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

// TestHangup: a terminal that is closed, which all processes of a command are told of, ends it as a Ctrl-C does, saved; under nohup it goes on.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("not run here: the tests run under nohup")
	}
	for _, ignored := range []bool{false, true} {
		if ignored {
			signal.Ignore(syscall.SIGHUP) // which the command inherits
		}
		c := startCommand(t, t.TempDir(), "train mlp:20 --data digits --rows 1200 --epochs 1000000 --workers 2 --processes --name h")
		signal.Reset(syscall.SIGHUP)
		c.out.await(t, "epoch=2 ")
		for _, pid := range append(childrenOf(t, c.Process.Pid), c.Process.Pid) {
			if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		if ignored {
			c.out.await(t, fmt.Sprintf("epoch=%d ", 50+strings.Count(c.out.String(), "epoch=")))
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		if code := c.wait(t); code != Interrupted || !strings.Contains(c.errs.String(), "resume with: ") {
			t.Errorf("it is ignored: %v: the command ends with %d: %s", ignored, code, &c.errs)
		}
	}
}

// TestInterruptWithoutReader: what reads the output, as a tee in a pipe, may be ended by the same signal. The model is saved all the same.
func TestInterruptWithoutReader(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command(self, commandArgument, "train", "softmax", "--data", "digits", "--rows", "1200", "--epochs", "1000000", "--name", "p", "--eval-every", "4000")
	var errs tape
	c.Dir, c.Stdout, c.Stderr = t.TempDir(), w, &errs
	if err := errors.Join(c.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }() // where the test fails before it has ended
	for lines := bufio.NewScanner(r); lines.Scan() && !strings.Contains(lines.Text(), "epoch="); {
	}
	if err := errors.Join(c.Process.Signal(syscall.SIGTERM), r.Close()); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != Interrupted || !strings.Contains(errs.String(), "resume with: ") {
		t.Errorf("the command ends with %v: %s", err, &errs)
	}
}

// A startedCommand is a command in a process of its own, whose children a test may kill.
type startedCommand struct {
	*exec.Cmd
	out, errs tape
	ended     chan error
}

func startCommand(t *testing.T, dir, args string) *startedCommand {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &startedCommand{Cmd: exec.Command(self, append([]string{commandArgument}, strings.Fields(args)...)...), ended: make(chan error, 1)}
	c.Dir, c.Stdout, c.Stderr = dir, &c.out, &c.errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() }) // where the test fails before it has ended
	return c
}

// kill kills the k-th of the children, in the order of their start, of which there are to be so many.
func (c *startedCommand) kill(t *testing.T, k, of int) {
	t.Helper()
	children := childrenOf(t, c.Process.Pid)
	if len(children) != of {
		t.Fatalf("the command has the children %v, want %d", children, of)
	}
	if err := syscall.Kill(children[k], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit code.
func (c *startedCommand) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(3 * time.Minute): // it ends a hang, no more
		t.Fatalf("the command does not end: %s%s", &c.out, &c.errs)
	}
	return c.ProcessState.ExitCode()
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
