package compare

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"
)

// A held trial trains until it is let go.
type held struct {
	list []Process
	let  chan struct{}
}

// Events implements Trial.
func (t *held) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if yield(Event{Kind: Begin}, nil) {
			<-t.let
			yield(Event{Kind: Finished}, nil)
		}
	}
}

// Processes implements Trial.
func (t *held) Processes() []Process { return t.list }

// Stop implements Trial.
func (t *held) Stop(context.Context) error { return nil }

// TestFaultOfWhole: a system's process that only starts the one that trains, as PMLS's and Spark's do, is hit with that one.
func TestFaultOfWhole(t *testing.T) {
	for signal, want := range map[string]string{"stop": "T", "kill": "Z"} { // or, once it is reaped, nothing
		peer := newPeerTrial(t.Context(), time.Minute)
		close(peer.driven) // by nobody here
		if err := peer.start(WorkerRole, 0, []string{os.Args[0], "fake-peer", "starts@" + mark()}, t.TempDir(), "", nil, nil); err != nil {
			t.Fatal(err)
		}
		child := (<-peer.lines).word.Update
		hit := &held{peer.Processes(), make(chan struct{})}
		r := &runner{plan: &Plan{fault: faultTimes{stop: time.Hour, hang: time.Hour}, now: time.Now}}
		f := Fault{Signal: signal, Role: WorkerRole}
		done := make(chan struct{})
		go func() { defer close(done); <-r.hit(t.Context(), hit, &f).over }()
		got := stateOf(child)
		for end := time.Now().Add(20 * time.Second); got != want && got != "" && time.Now().Before(end); got = stateOf(child) {
			time.Sleep(time.Millisecond)
		}
		close(hit.let)
		<-done
		if got != want && (got != "" || signal == "stop") || !f.Whole {
			t.Errorf("%s: the process that works has state %q, want %q: %+v", signal, got, want, f)
		}
		if err := peer.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// stateOf is a letter, as /proc has it; empty: there is no such process.
func stateOf(pid int64) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}
