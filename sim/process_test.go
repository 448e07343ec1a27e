//go:build unix

package sim_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

func TestRunProcesses(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("not run here: no sh")
	}
	script := func(text string) *exec.Cmd { return exec.Command(sh, "-c", text) }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The first is killed and runs again to its end; the second is frozen and goes on. Both live for a second longer than the fault takes to
	// come, which is what a busy machine may keep this process waiting.
	var out strings.Builder
	first, second := script("echo begun; sleep 1.5; echo ended"), script("sleep 1.1; exit 3")
	first.Stdout = &out
	begun := time.Now()
	record, err := sim.RunProcesses(ctx, []*exec.Cmd{first, second}, plan(t, "100ms crash 0 for 50ms; 20ms pause 1 for 1500ms"))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 1600*time.Millisecond {
		t.Errorf("all ended after %v: want at least the 1650ms of the first", took)
	}
	if got := strings.Fields(out.String()); len(got) < 2 || got[len(got)-1] != "ended" || strings.Count(out.String(), "ended") != 1 {
		t.Errorf("the first printed %q, want begun twice and ended once", got)
	}
	var seen [2][]string
	var at [2][]time.Duration
	for _, e := range record.Events {
		text := e.What
		if e.What == "exit" && e.Err != nil {
			text += " " + e.Err.Error()
		}
		seen[e.Node], at[e.Node] = append(seen[e.Node], text), append(at[e.Node], e.At)
	}
	if got, want := strings.Join(seen[0], ", "), "start, killed, exit signal: killed, start, exit"; got != want {
		t.Errorf("the first: %s, want %s", got, want)
	}
	if got, want := strings.Join(seen[1], ", "), "start, stopped (signal), continued, exit exit status 3"; got != want {
		t.Errorf("the second: %s, want %s", got, want)
	} else if at[1][3] < 1500*time.Millisecond {
		t.Errorf("the second ended at %v, frozen until 1520ms", at[1][3])
	}
}

func TestRunProcessesEnds(t *testing.T) {
	sleeper, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("not run here: no sleep")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	record, err := sim.RunProcesses(ctx, []*exec.Cmd{exec.Command(sleeper, "60")}, plan(t, "0s pause 0"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a run whose context ends returns %v", err)
	}
	if last := record.Events[len(record.Events)-1]; last.What != "exit" || last.Err == nil {
		t.Errorf("the process ended with %+v, want killed", last)
	}
	if _, err := sim.RunProcesses(t.Context(), []*exec.Cmd{exec.Command("/no/such/program")}, nil); err == nil {
		t.Error("a program that does not exist runs")
	}
	if _, err := sim.RunProcesses(t.Context(), []*exec.Cmd{exec.Command(sleeper, "0")}, plan(t, "0s loss arg 1")); err == nil {
		t.Error("a process loses frames")
	}
}
