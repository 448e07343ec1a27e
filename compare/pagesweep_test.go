package compare

import (
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// TestHistogramsOfAllSweeps: each table of the full run in which workers read stale parameters has a picture of how stale, with a panel for
// each such row, and none has a label twice.
func TestHistogramsOfAllSweeps(t *testing.T) {
	p := paperPlan(t, Sources{})
	r, groups := newReport(&p, &record{}), p.groups()
	want := map[string]int{} // panels, by the table's title
	for i := range groups {
		table := r.table(&groups[i], &p)
		for _, x := range table.Rows {
			x.Good = 1
			x.Trials = []Repeat{{Repeat: 1, Result: Result{Staleness: map[string]float64{"1": 3}}}}
			if _, ok := x.bound(); ok && x.Mode != Sync {
				want[table.title()]++
			}
		}
	}
	if len(want) != 8 { // four tasks at two batches
		t.Fatalf("tables with stale reads: %v", want)
	}
	for _, b := range r.staleness() {
		f, ok := b.(report.Figures)
		if !ok {
			continue
		}
		for _, item := range f.Items {
			chart, labels := item.Chart.(svg.Histogram), map[string]bool{}
			for _, panel := range chart.Panels {
				if labels[panel.Label] {
					t.Errorf("%s has %s twice", item.Title, panel.Label)
				}
				labels[panel.Label] = true
			}
			if len(chart.Panels) != want[item.Title] {
				t.Errorf("%s has %d panels, want %d", item.Title, len(chart.Panels), want[item.Title])
			}
			delete(want, item.Title)
			if _, err := chart.Draw(svg.Frame{ID: "c1", Width: 405}); err != nil {
				t.Error(err)
			}
		}
	}
	for title := range want {
		t.Errorf("%s has no picture", title)
	}
}

// TestUnrecordedStaleness: the rows without a record of how stale their reads were are named, once.
func TestUnrecordedStaleness(t *testing.T) {
	r := &Report{}
	for range 2 {
		ssp := &Row{System: "server-ssp3", Mode: Mode{Kind: "ssp", Staleness: 3}, Good: 1, Trials: []Repeat{{Result: Result{Staleness: map[string]float64{"1": 3}}}}}
		asp := &Row{System: "server-asp", Mode: Async, Good: 1}
		r.Tables = append(r.Tables, &Table{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{ssp, asp}})
	}
	blocks := r.staleness()
	const want = "Of server-asp it is not recorded how stale reads were: its workers counted none."
	if got := blocks[len(blocks)-1].(report.Paragraph)[0].Text; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
