package compare

import "testing"

// TestPaperBatches: below a head of the paper's tables that says the batch stands what was measured at that, or nothing; below the others, what the
// same number of workers did at the largest batch, which is said.
func TestPaperBatches(t *testing.T) {
	table := func(task string, batch Batch, workers int, rate float64) *Table {
		x := &Table{Task: task, Workers: workers, Batch: batch, Rows: []*Row{{System: "tensorflow-sync", Workers: workers}, {System: "mxnet-sync", Workers: workers}}}
		for i := range x.Rows {
			x.add(i, 1, Result{SamplesPerSec: rate})
		}
		return x
	}
	const missing = "not run"
	for _, c := range []struct {
		tables []*Table
		places []place
		want   []string // of TensorFlow and MXNet
	}{
		{[]*Table{table("logistic", 100, 3, 1000)}, table1[1:5], []string{"1k", missing, "1k", missing}},
		{[]*Table{table("logistic", 100, 3, 1000), table("logistic", 500, 3, 5000)}, table1[1:5], []string{"1k", "5k", "1k", "5k"}},
		{[]*Table{table("mlp1", 100, 3, 1000), table("mlp1", 1500, 1, 9000)}, []place{table3[1], table3[3]}, []string{"1k at batch 100", "1k at batch 100"}},
	} {
		r := &Report{Repeats: 1, Cores: 4, Tables: c.tables}
		lines := r.paperLines(c.tables[0].Task, c.places)
		for i, want := range c.want {
			cell := lines[0].Cells[2+i]
			got := orElse(cell.Text, cell.Missing)
			if len(cell.Notes) > 0 {
				got += " " + cell.Notes[0]
			}
			if got != want {
				t.Errorf("%s: %q; want %q", c.places[i].head, got, want)
			}
		}
	}
}
