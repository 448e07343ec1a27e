package compare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestWaterfallWithoutTwin: what the best row gains with fewer rows in an update begins where the best with as many rows is, also where no
// twin of ours lies between.
func TestWaterfallWithoutTwin(t *testing.T) {
	row := func(name string, effective int, seconds float64) *Row {
		return &Row{System: name, Effective: effective, Ranked: true, Good: 7, Target: spread([]float64{seconds})}
	}
	table := &Table{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{row("tensorflow-sync", 300, 40), row("allreduce", 300, 4), row("local", 100, 2)}}
	table.rank()
	best, _ := table.first()
	for _, w := range []twin{{peer: "tensorflow-sync", lacks: noReplica}, {peer: "tensorflow-sync", row: "server-bsp"}} {
		text := fmt.Sprint(table.waterfall(table.row("tensorflow-sync"), w, best).(report.Figure).Caption)
		for _, part := range []string{"10 × in implementation and topology", "2 × by local", "20 × in all"} {
			if !strings.Contains(text, part) {
				t.Errorf("twin %q: %q lacks %q", w.row, text, part)
			}
		}
	}
}

// TestLeadOfCrowdedRows: rows that carry no verdict do not get one in what a reader sees first.
func TestLeadOfCrowdedRows(t *testing.T) {
	table := &Table{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{
		{System: "allreduce", Ranked: true, Good: 7, Target: spread([]float64{1})},
		{System: "local", Ranked: true, Good: 7, Target: spread([]float64{2})},
	}}
	table.rank()
	for crowded, want := range map[bool]string{true: "2.00 times as fast as local; oversubscribed, so no verdict", false: "2.00 times as fast as local"} {
		table.Rows[0].Crowded = crowded
		r := &Report{Tables: []*Table{table}}
		if got := r.lead()[0].(report.Tiles)[0].Note; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
