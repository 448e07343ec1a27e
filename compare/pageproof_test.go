package compare

import (
	"fmt"
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
