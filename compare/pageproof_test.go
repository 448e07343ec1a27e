package compare

import (
	"fmt"
	"strings"
	"testing"
)

// TestOneColourARow: a row has one colour in all pictures of its table, and no two lines of a picture share one, also where rows between them
// have no curve, as those of a system that is not here.
func TestOneColourARow(t *testing.T) {
	curve := []Repeat{{Repeat: 1, Result: Result{Curve: []Point{{Update: 1, Seconds: 1, Samples: 100, Loss: 0.5, Value: 0.9}}}}}
	table := &Table{Task: "mlp1", Workers: 2, Batch: 100}
	for i := range 12 {
		x := &Row{System: fmt.Sprint("row", i), Mode: Sync, Good: 1, Reached: 1, Target: spread([]float64{1}), Trials: curve}
		if i%3 == 1 {
			x.Mode = Async
		}
		if i%3 == 2 {
			x.Trials = nil
		}
		table.Rows = append(table.Rows, x)
	}
	lines, _ := table.lossChart(true)
	bars, _ := table.targetChart()
	of, seen := map[string]int{}, map[int]string{}
	for _, g := range bars.Groups {
		of[g.Label] = g.Bars[0].Hue
	}
	for _, s := range lines.Series {
		if other := seen[s.Hue]; other != "" {
			t.Errorf("%s and %s have colour %d", other, s.Name, s.Hue)
		}
		if seen[s.Hue] = s.Name; of[s.Name] != s.Hue {
			t.Errorf("%s has colour %d as a line, %d as a bar", s.Name, s.Hue, of[s.Name])
		}
	}
}

// TestLeadNote: what is said of the second row stands behind its name.
func TestLeadNote(t *testing.T) {
	row := func(name string, effective int, crowded bool, seconds float64) *Row {
		return &Row{System: name, Effective: effective, Crowded: crowded, Ranked: true, Target: spread([]float64{seconds})}
	}
	table := &Table{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{row("local", 100, false, 1), row("server-bsp", 200, true, 2)}}
	table.rank()
	const want = "2.00 times as fast as server-bsp, which has 200 rows in an update where it has 100; oversubscribed, so no verdict"
	if text := fmt.Sprint((&Report{Tables: []*Table{table}}).lead()); !strings.Contains(text, want) {
		t.Errorf("%q does not say %q", text, want)
	}
}
