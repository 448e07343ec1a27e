package compare

import (
	"context"
	"iter"
	"math"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestUseByWindow: what processes took is divided by the time in which it was counted, and not by that of the clock, which stood still meanwhile;
// a result from before that was recorded says it by its laps, and one that does not has no such figures.
func TestUseByWindow(t *testing.T) {
	u := Use{Processes: 2, User: 3, System: 1, MeanBytes: 7, In: 600, Out: 400}
	lap := func(seconds float64) map[string]float64 { return map[string]float64{"start": 9, "train": seconds} }
	var known PerUse
	for _, c := range []struct {
		name                          string
		result                        Result
		cores, micros, second, sample float64
	}{
		{"measured", Result{Seconds: 2, Samples: 100, SamplesPerSec: 50, Window: 2.5}, 1.6, 40_000, 400, 10},
		{"before it was recorded", Result{Seconds: 2, Samples: 100, SamplesPerSec: 50, Wall: lap(2.5)}, 1.6, 40_000, 400, 10},
		{"before it was, and a worker was not through", Result{Seconds: 4, Samples: 200, SamplesPerSec: 50, Wall: lap(2)}, 2, 40_000, 500, 10},
		{"measured, and all were", Result{Seconds: 4, Samples: 200, SamplesPerSec: 50, Window: 5, Wall: lap(2)}, 0.8, 20_000, 200, 5},
	} {
		x := u.per(&c.result)
		for _, f := range [][2]float64{{x.UserShare + x.SystemShare, c.cores}, {x.MicrosSample, c.micros}, {x.BytesSecond, c.second}, {x.BytesSample, c.sample}} {
			if !(math.Abs(f[0]-f[1]) <= 1e-9*f[1]) || x.NotTimed != "" {
				t.Errorf("%s: %v, want %v: %+v", c.name, f[0], f[1], x)
			}
		}
		known = x
	}
	blank := u.per(&Result{Seconds: 2, Samples: 100, SamplesPerSec: 50})
	if blank.NotTimed == "" || blank.UserShare != 0 || blank.BytesSample != 0 || blank.MeanBytes != 7 {
		t.Errorf("for how long it was counted is not known, and it has %+v", blank)
	}
	for _, list := range [][]PerUse{{blank, known, blank}, {known, blank}} {
		if x := medianUse(list); x.NotTimed != "" || x.UserShare != known.UserShare || x.BytesSample != known.BytesSample {
			t.Errorf("known in one trial: %+v, want %+v", x, known)
		}
	}
	if x := medianUse([]PerUse{blank, blank}); x.NotTimed == "" {
		t.Errorf("known in no trial: %+v", x)
	}
	row := &Row{System: "server-asp", Workers: 2, Use: map[Role]PerUse{WorkerRole: blank}}
	if got := row.networkWord(); got != "not measured" {
		t.Errorf("bytes a sample that are not known are %q", got)
	}
	if _, measured := (&Table{Rows: []*Row{row}}).useBars(uses[0]); measured {
		t.Error("busy cores that are not known are drawn")
	}
	for i, cell := range (&Table{Rows: []*Row{row}}).useTable().Rows[0].Cells {
		if counted := slices.Contains([]int{3, 4, 5, 8, 9, 10, 11, 12, 13}, i); counted != (cell.Missing != "") {
			t.Errorf("cell %d is %+v", i, cell)
		}
	}
}

// copying is a system whose clock stands still for a third of the time in which its processes are measured.
type copying struct{}

func (copying) Name() string                               { return "copying" }
func (copying) About() About                               { return About{Title: "copies", Mode: Async} }
func (copying) Detect(context.Context) (Facts, error)      { return Facts{}, nil }
func (copying) Start(context.Context, Spec) (Trial, error) { return copyingTrial{}, nil }

type copyingTrial struct{}

func (copyingTrial) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for _, e := range []Event{{Kind: Ready}, {Kind: Begin}, {Kind: End}, {Kind: Finished, Update: 10, Samples: 100, Seconds: 0.5}} {
			if e.Kind == End {
				time.Sleep(750 * time.Millisecond) // of the bubble's time
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (copyingTrial) Processes() []Process { return []Process{{Role: WorkerRole, PID: os.Getpid()}} }

func (copyingTrial) Stop(context.Context) error { return nil }

// TestWindowOfATrial: a trial says for how long its processes were measured, beside what its clock says.
func TestWindowOfATrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Plan
		p.defaults()
		r := &runner{plan: &p}
		result, _ := r.measure(t.Context(), copying{}, Spec{Updates: 10}, Status{}, &laps{now: p.now, last: p.now(), sum: map[string]float64{}})
		if result.Error != "" || result.Seconds != 0.5 || !(math.Abs(result.Window-0.75) <= 1e-9) || result.PerRole[WorkerRole].Processes != 1 {
			t.Errorf("%q: its clock says %v s, and it was measured for %v s: %+v", result.Error, result.Seconds, result.Window, result.PerRole)
		}
	})
}
