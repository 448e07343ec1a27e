package compare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestPlacesLookedAt: a row that did not reach the target says up to where it was looked for, which is before the epochs end within which it
// would count.
func TestPlacesLookedAt(t *testing.T) {
	table := &Table{Target: Target{"train", "loss", 0.2, false}, Cap: 25, Rows: []*Row{{System: "server-ssp3", Mode: Stale(3)}}}
	for repeat, last := range []int64{205, 206, 203} {
		table.add(0, repeat+1, Result{SamplesPerSec: 10, Updates: 210, Best: 0.3, Curve: []Point{{Update: 36, Value: 0.4}, {Update: last, Value: 0.3}}})
	}
	table.add(0, 4, Result{SamplesPerSec: 10, Updates: 210, Best: 0.2, Reached: true, Curve: []Point{{Update: 209, Value: 0.2}}})
	if x := table.Rows[0]; x.Ranked || x.Why != "not reached where it was looked for, up to update 206 (best 0.2, reached in 1 of 4 repeats)" {
		t.Errorf("not ranked: %q", x.Why)
	}
}

// TestFewReadings: how often a role's memory was read is that of the process, and of the trial, with the fewest readings; of too few there is no
// peak, and of trials before they were counted there is one.
func TestFewReadings(t *testing.T) {
	s := &sampler{peaks: map[int]*memory{7: {sum: 30, n: 30, peak: 2}, 8: {sum: 12, n: 12, peak: 3}, 9: {sum: 4, n: 2, peak: 2}}}
	s.first = reading{processes: []Process{{Role: WorkerRole, PID: 7}, {Role: WorkerRole, Rank: 1, PID: 8}, {Role: ServerRole, PID: 9}}}
	s.last = reading{cpu: map[int]cpuTime{}}
	many := s.use()
	few := map[Role]Use{WorkerRole: many[ServerRole], ServerRole: many[ServerRole]}
	old := map[Role]Use{WorkerRole: {Processes: 1, MeanBytes: 1, PeakBytes: 2}}
	for _, c := range []struct {
		name       string
		trials     []map[Role]Use
		read, peak string // of the workers, as the page has them
	}{
		{"enough", []map[Role]Use{many, many}, "12", "5"},
		{"once too few", []map[Role]Use{many, few, many}, "2", "not known"},
		{"before they were counted", []map[Role]Use{old}, "not counted", "2"},
		{"some of before", []map[Role]Use{old, many, old}, "12", "2"},
	} {
		table := &Table{Rows: []*Row{{System: "pytorch-ddp", Mode: Sync}}}
		for i, use := range c.trials {
			table.add(0, i+1, Result{SamplesPerSec: 10, Seconds: 1, Samples: 10, PerRole: use})
		}
		page := table.useTable()
		at := func(name string) string {
			row := page.Rows[len(page.Rows)-1].Cells // the server's row is before it
			cell := row[slices.IndexFunc(page.Columns, func(x report.Column) bool { return x.Name == name })]
			if cell.Value == nil {
				return cell.Missing
			}
			return fmt.Sprint(*cell.Value)
		}
		if read, peak := at("read"), at("peak"); read != c.read || peak != c.peak {
			t.Errorf("%s: read %q, peak %q; want %q and %q", c.name, read, peak, c.read, c.peak)
		}
	}
}

// TestWhoIsRanked: a row is ranked where three repeats ended well, all reached the target, and all computed what local does; else it says why not.
func TestWhoIsRanked(t *testing.T) {
	reached := Result{Reached: true, SecondsToTarget: 1, Proof: proven, Deviation: 1e-9, Curve: []Point{{Update: 5, Seconds: 1, Value: 0.9}}}
	other := reached
	other.Proof, other.Deviation = "not the same computation: 0.41 against 0.32 at update 5", 0.07
	missed := reached
	missed.Reached, missed.Best = false, 0.8
	cut := missed
	cut.Cut = true
	for name, c := range map[string]struct {
		results []Result
		shared  bool
		why     string
	}{
		"three":                     {[]Result{reached, reached, reached}, false, ""},
		"two":                       {[]Result{reached, reached}, false, "2 of 2 repeats ended well, and 3 are wanted"},
		"two and a failure":         {[]Result{reached, {Error: "it hangs"}, reached}, false, "2 of 3 repeats ended well, and 3 are wanted"},
		"three and a failure":       {[]Result{reached, {Error: "it hangs"}, reached, reached}, false, ""},
		"failures":                  {[]Result{{Error: "it hangs"}, {Error: "it fell"}}, false, "it fell"},
		"another computation":       {[]Result{reached, other, reached}, false, other.Proof},
		"another computation first": {[]Result{other, reached, reached}, false, other.Proof},
		"one missed":                {[]Result{reached, missed, reached}, false, "not reached where it was looked for, up to update 5 (best 0.8, reached in 2 of 3 repeats)"},
		"cut":                       {[]Result{cut, cut, cut}, false, "not reached within the time limit of a trial (best 0.8)"},
		"shared memory":             {[]Result{reached, reached, reached}, true, extra},
	} {
		x := &Row{Shared: c.shared}
		for i, r := range c.results {
			one := Repeat{Repeat: i + 1, Result: r}
			for _, p := range r.Curve {
				one.Curve = append(one.Curve, curveOf(p))
			}
			x.Trials = append(x.Trials, one)
		}
		table := &Table{Target: Target{"test", "accuracy", 0.85, true}, Rows: []*Row{x}}
		x.count(table)
		if x.Ranked != (c.why == "") || x.Why != c.why {
			t.Errorf("%s: ranked %v, %q; want %q", name, x.Ranked, x.Why, c.why)
		}
		largest := 0.0
		for _, r := range c.results {
			largest = max(largest, r.Deviation)
		}
		if x.Largest != largest {
			t.Errorf("%s: largest deviation %v, want %v", name, x.Largest, largest)
		}
		if c.shared { // in a user's own job it is what he can have
			table.Own = true
			if x.count(table); !x.Ranked {
				t.Errorf("%s, own: %s", name, x.Why)
			}
		}
	}
}
