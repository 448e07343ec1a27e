package compare

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestFaults: a process that is killed ends the others, and the row says which it was. One that stands still is taken for dead by the
// others, who say so rather than that they were interrupted: by two, or by the half that has the lowest rank, which is worker 0's.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out of -short")
	}
	for name, faults := range map[string]int{"server-bsp": 4, "allreduce": 2} { // a kill and a stop of a worker, and of the server
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			testFaults(t, name, faults)
		})
	}
}

func testFaults(t *testing.T, name string, faults int) {
	p := small(t, byProcess(), digits(), name)
	p.Workers, p.Faults = []int{2}, true
	// 2 s (processes.Silence) are enough to be taken for dead, and 5 s on a machine whose noise has made them patient; see cluster.Policy.
	p.fault = faultTimes{after: 200 * time.Millisecond, stop: 6 * time.Second, hang: time.Minute}
	r := run(t, p)
	if len(r.Faults) != faults {
		t.Fatalf("%d faults, want %d", len(r.Faults), faults)
	}
	if f := r.Faults[0]; strings.Contains(f.Error, "not permitted") || strings.Contains(f.Error, "this system has no") {
		t.Logf("not run here: %s", f.Error)
		return
	}
	for _, f := range r.Faults {
		if f.Error != "" || !f.Whole && runtime.GOOS != "windows" {
			t.Errorf("%+v", f)
			continue
		}
		switch f.Signal {
		case "kill":
			// Whose end is heard first is a race: that of the process, or of a link to it. Either names it.
			if !f.Ended || f.Outcome != "the others end" || !strings.Contains(f.Said, "was killed") && !strings.Contains(f.Said, "lost") {
				t.Errorf("%+v", f)
			}
		default:
			if f.Outcome != "ends with an error" || f.Others != "gave it up" || strings.Contains(f.Said, "interrupted") || strings.Contains(f.Said, "did not end") {
				t.Errorf("%+v", f)
			}
		}
		t.Logf("%s %s %s: %s; the others %s; %s", f.System, f.Signal, f.Role, f.Outcome, f.Others, f.Said)
	}
}

// A timed system writes down the limits of its trials.
type timed struct {
	System
	limits *[]time.Duration
}

// Start implements System.
func (x timed) Start(ctx context.Context, s Spec) (Trial, error) {
	*x.limits = append(*x.limits, s.limit)
	return x.System.Start(ctx, s)
}

// TestFaultsOfSlowStart: a process is hit in the training, and what comes before may take as long as in any trial; a row that no trial of
// ended well is not started for it again.
func TestFaultsOfSlowStart(t *testing.T) {
	p := small(t, inMemory(), digits(), "allreduce")
	var good, bad []time.Duration
	crashes := fakePeers(t, "crashes")[0]
	p.Systems = []System{timed{p.Systems[0], &good}, timed{crashes, &bad}}
	p.Faults, p.Limit = true, 7*time.Minute
	r := run(t, p)
	if len(good) != 3 || len(bad) != 1 || len(r.Faults) != 2 { // a trial, a kill and a stop
		t.Fatalf("limits %v and %v, faults %+v", good, bad, r.Faults)
	}
	for _, limit := range good[1:] {
		if limit < p.Limit+time.Minute/2 {
			t.Errorf("all of a fault ends after %v, where a trial may take %v to its training", limit, p.Limit)
		}
	}
}

// TestFaultsStay: what was measured of faults is also in the report of a command that takes more, and does not ask for them.
func TestFaultsStay(t *testing.T) {
	p := small(t, inMemory(), digits(), "allreduce")
	p.Faults = true
	had := run(t, p).Faults
	p.Faults, p.Repeats = false, 2
	if got := run(t, p).Faults; len(had) != 2 || !slices.Equal(got, had) { // a kill and a stop
		t.Errorf("faults %+v, and then %+v", had, got)
	}
}

// A brief system's trials end at once, and say that they trained for half a second; it writes down how long they were to train.
type brief struct{ seconds *[]float64 }

func (brief) Name() string                          { return "brief" }
func (brief) About() About                          { return About{Title: "brief", Mode: Async} }
func (brief) Detect(context.Context) (Facts, error) { return Facts{}, nil }

// Start implements System.
func (x brief) Start(_ context.Context, s Spec) (Trial, error) {
	*x.seconds = append(*x.seconds, s.Seconds)
	return briefTrial{}, nil
}

type briefTrial struct{}

// Events implements Trial.
func (briefTrial) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for _, e := range []Event{{Kind: Ready}, {Kind: Begin}, {Kind: End}, {Kind: Finished, Update: 20, Samples: 2000, Seconds: 0.5}} {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Processes implements Trial: of a number that no process has.
func (briefTrial) Processes() []Process { return []Process{{Role: WorkerRole, PID: 1 << 30}} }

// Stop implements Trial.
func (briefTrial) Stop(context.Context) error { return nil }

// TestFaultsNotMeasured: where a trial ends before a process of it can be hit, one follows that is as much longer as that one was too short. A fault
// that could not be measured is said at the end, and tried again when the command is repeated, in the place that it had.
func TestFaultsNotMeasured(t *testing.T) {
	var seconds []float64
	p := small(t, inMemory(), digits())
	p.Systems, p.Workers, p.Faults = []System{brief{&seconds}}, []int{2}, true
	p.fault = faultTimes{after: time.Hour, stop: time.Hour, hang: time.Hour} // none of which is waited for
	tries := []float64{3 * 3600, 3 * 3600 * 3 * 3600 / 0.5}
	for i, want := range [][]float64{slices.Concat([]float64{p.Seconds}, tries, tries), slices.Concat(tries, tries)} { // a kill and a stop, and again
		seconds = nil
		r := run(t, p)
		if !slices.Equal(seconds, want) || len(r.Faults) != 2 || r.Faults[0].Signal != "kill" || r.Faults[0].Error != tooShort {
			t.Errorf("%d: trials of %v s, want %v; faults %+v", i, seconds, want, r.Faults)
		}
		var text strings.Builder
		if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "fault: stop of a worker of brief was not measured: it ended before it could be hit; the command tries it again") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
}

// TestFaultsOfFirstProcess: where a signal did not reach what the process of another system had started, nothing is said of what came of it.
func TestFaultsOfFirstProcess(t *testing.T) {
	stop := Fault{Signal: "stop", Role: WorkerRole, Outcome: "goes on", Others: "went on"}
	for _, c := range []struct {
		system string
		whole  bool
		want   bool
	}{{"pmls-ssp0", false, false}, {"pmls-ssp0", true, true}, {"allreduce", false, true}} {
		f := stop
		f.System, f.Whole = c.system, c.whole
		r := &Report{Faults: []Fault{f}, Tables: []*Table{{Rows: []*Row{{System: "pmls-ssp0", Peer: true}, {System: "allreduce"}}}}}
		r.Faults[0].Link.Mbit = 750
		if got := fmt.Sprint(r.effort()[0].(report.Table).Caption); !strings.Contains(got, " at 750 Mbit/s.") {
			t.Errorf("%s: the link is not said: %s", c.system, got)
		}
		row := fmt.Sprint(r.effort()[0].(report.Table).Rows)
		if got := strings.Contains(row, "went on"); got != c.want || strings.Contains(row, "not measured: the signal reached the first process alone") == c.want {
			t.Errorf("%s, whole %v: %s", c.system, c.whole, row)
		}
	}
}
