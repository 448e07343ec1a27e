package compare

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe/svg"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/server"
)

// TestWindowOfAStraggler: where workers wait for nobody, what they take is measured until the last is through, and not until rank 0 is: else it would
// be divided by samples that a slower one has not trained on.
func TestWindowOfAStraggler(t *testing.T) {
	bookkeeping(t)
	host := inMemory()
	late := row{
		name: "late", title: "one worker a third as fast", topology: "server", mode: Async,
		options: server.Options{Mode: ps.ASP, Slow: server.Slow{Worker: 1, Factor: 3, Unit: time.Millisecond}},
	}
	task := digits()
	task.Cap = 1
	p := small(t, host, task)
	p.Systems, p.Workers, p.Seconds = []System{&own{row: &late, host: host}}, []int{2}, 0.2
	x := run(t, p).Tables[0].Rows[0]
	if x.Error != "" {
		t.Fatal(x.Error)
	}
	// The clock's seconds are those at the rate of all together: one and a half times rank 0's, and half of the last worker's.
	if r := x.Trials[0].Result; r.Window < r.Seconds {
		t.Errorf("its processes were measured for %v s, where their updates took %v s at the rate of all together", r.Window, r.Seconds)
	}
}

// TestSamplesOfAStraggler: where workers wait for nobody and one is slow, rank 0's updates do not say how many samples a place has taken: no figure
// and no line against samples is made of them, also of a recorded trial that has one.
func TestSamplesOfAStraggler(t *testing.T) {
	table := &Table{Task: "mlp1", Workers: 3, Batch: 100, Target: Target{"test", "accuracy", 0.9, true}}
	for _, x := range []*Row{
		{System: "server-asp-slow", Mode: Async}, {System: "server-asp", Mode: Async}, {System: "server-bsp-slow", Mode: Sync}, {System: "server-ssp3-slow", Mode: Stale(3)},
	} {
		x.Trials = []Repeat{{Repeat: 1, Result: Result{
			SamplesPerSec: 1, Reached: true, SecondsToTarget: 1, SamplesToTarget: 300, Curve: []Point{{Update: 1, Seconds: 1, Samples: 300, Loss: 0.5, Value: 0.9}},
		}}}
		x.count(table)
		if known := x.System != "server-asp-slow"; len(x.Target.Values) != 1 || (len(x.Samples.Values) == 1) != known {
			t.Errorf("%s: %v s and %v samples to the target", x.System, x.Target.Values, x.Samples.Values)
		}
		table.Rows = append(table.Rows, x)
	}
	for against, want := range map[bool]int{true: 4, false: 3} {
		names := ""
		lines := 0
		for _, f := range table.lossCharts(against) {
			for _, s := range f.Chart.(svg.Lines).Series {
				names += s.Name + " "
				lines++
			}
		}
		if lines != want || strings.Contains(names, "asp-slow") != against {
			t.Errorf("against time %v: the lines are %s", against, names)
		}
	}
	r := &Report{Cores: 8, Repeats: 1, Tables: []*Table{table}}
	if text := fmt.Sprint(r.staleness()); strings.Count(text, "not known: its workers wait for nobody") != 1 {
		t.Errorf("the sweep says %s", text)
	}
	if text := fmt.Sprint(r.proof()); strings.Count(text, "samples are not known") != 1 {
		t.Errorf("the proof says %s", text)
	}
}
