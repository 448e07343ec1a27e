package compare

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestErrorOnOneLine: a row with several mistakes is a line of its table like the others.
func TestErrorOnOneLine(t *testing.T) {
	said, _, _ := why(&TrialError{Why: errors.Join(errors.New("one mistake"), errors.New("another")).Error()})
	plain, _, _ := why(errors.Join(errors.New("one mistake"), errors.New("another")))
	if said != "one mistake; another" || plain != said {
		t.Errorf("%q and %q", said, plain)
	}
	x := &Row{System: "server-ssp3", Trials: []Repeat{{Repeat: 1, Result: Result{Error: said}}}}
	table := &Table{Task: "job", Own: true, Workers: 2, Batch: 100, Rows: []*Row{x, {System: "local", Good: 1, Reached: 1, Rate: spread([]float64{1}), Target: spread([]float64{1})}}}
	x.count(table)
	var out strings.Builder
	if err := table.Text(&out); err != nil || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// TestFewBytes: a part of a byte a sample, as a codec sends at the full batch, is not none.
func TestFewBytes(t *testing.T) {
	row := func(bytes float64) *Row {
		return &Row{System: "allreduce-topk", Workers: 2, Use: map[Role]PerUse{WorkerRole: {BytesSample: bytes}}}
	}
	for bytes, want := range map[float64]string{0.38: "0.19", 6.4: "3.2", 15.8: "7.9", 632.4: "316"} {
		if got := row(bytes).networkWord(); got != want {
			t.Errorf("%v both ways is %q, want %q", bytes, got, want)
		}
	}
	table := (&Table{Rows: []*Row{row(0.38)}}).useTable()
	i := slices.IndexFunc(table.Columns, func(c report.Column) bool { return c.Group == "network" && c.Name == "each sample" })
	if cell := table.Rows[0].Cells[i]; cell.Text != "0.38" {
		t.Errorf("the page has %q", cell.Text)
	}
}

// TestOneWorker: one is not a plural.
func TestOneWorker(t *testing.T) {
	for want, x := range map[string]Table{
		"mlp1, 1 worker, batch 100, loopback":       {Task: "mlp1", Workers: 1, Batch: 100},
		"mlp1, 2 workers, batch 100 each, loopback": {Task: "mlp1", Workers: 2, Batch: 100},
		"job, 1 worker, batch 60":                   {Task: "job", Workers: 1, Batch: 60, Own: true},
	} {
		if got := x.title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNoDeviation: of a row whose losses are those of local to the last bit the difference is 0, and no power of ten.
func TestNoDeviation(t *testing.T) {
	for largest, want := range map[float64]string{0: "yes (0)", 6.1e-9: "yes (6e-09)"} {
		if got := (&Row{Mode: Sync, Proof: proven, Largest: largest}).proofWord(); got != want {
			t.Errorf("%v is %q, want %q", largest, got, want)
		}
	}
}
