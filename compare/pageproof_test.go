package compare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
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
	bars, _ := table.targetChart()
	of, lines := map[string]int{}, 0
	for _, g := range bars.Groups {
		of[g.Label] = g.Bars[0].Hue
	}
	for _, f := range table.lossCharts(true) {
		seen := map[int]string{}
		for _, s := range f.Chart.(svg.Lines).Series {
			lines++
			if other := seen[s.Hue]; other != "" {
				t.Errorf("%s and %s have colour %d", other, s.Name, s.Hue)
			}
			if seen[s.Hue] = s.Name; of[s.Name] != s.Hue {
				t.Errorf("%s has colour %d as a line, %d as a bar", s.Name, s.Hue, of[s.Name])
			}
		}
	}
	if lines != 8 {
		t.Errorf("%d lines, want 8", lines)
	}
}

// TestAllRowsDrawn: each row with a curve has its line on the page, in a picture of its sort, and no picture has more lines than there are colours.
func TestAllRowsDrawn(t *testing.T) {
	curve := []Repeat{{Repeat: 1, Result: Result{Curve: []Point{{Update: 1, Seconds: 1, Samples: 100, Loss: 0.5, Value: 0.9}, {Update: 2, Seconds: 2, Samples: 200, Loss: 0.4, Value: 0.9}}}}}
	table := &Table{Task: "mlp1", Workers: 2, Batch: 100}
	for i := range 14 {
		x := &Row{System: fmt.Sprintf("line-%c", 'a'+i), Mode: Sync, Good: 1, Trials: curve}
		switch i {
		case 10:
			x.Peer = true
		case 11:
			x.Mode = Async
		case 12:
			x.Approx = "a codec"
		case 13:
			x.Trials = nil
		}
		table.Rows = append(table.Rows, x)
	}
	r := &Report{Tables: []*Table{table}}
	for name, blocks := range map[string][]report.Block{"proof": r.proof(), "way": r.way()} {
		page := report.Page{Title: name}
		var figures report.Figures
		for _, b := range blocks {
			if f, ok := b.(report.Figures); ok {
				figures = f
			}
		}
		page.Sections = []report.Section{{Title: "losses", Blocks: []report.Block{figures}}}
		var text strings.Builder
		if err := page.WriteHTML(&text); err != nil {
			t.Fatal(err)
		}
		for i := range 13 {
			if s := fmt.Sprintf("line-%c<", 'a'+i); !strings.Contains(text.String(), s) {
				t.Errorf("%s: %s is not drawn", name, s)
			}
		}
		var lines []int
		for _, f := range figures.Items {
			if c, ok := f.Chart.(svg.Lines); ok {
				lines = append(lines, len(c.Series))
			}
		}
		if want := []int{8, 2, 1, 1, 1}; !slices.Equal(lines, want) {
			t.Errorf("%s: pictures of %v lines, want %v", name, lines, want)
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
