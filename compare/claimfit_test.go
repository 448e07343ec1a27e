package compare

import (
	"strings"
	"testing"
)

// TestFitOfEqualWorkers: the line through two batches is of rows with as many workers.
func TestFitOfEqualWorkers(t *testing.T) {
	table := func(workers int, batch Batch, micros float64) *Table {
		return &Table{Task: "logistic", Workers: workers, Batch: batch, Rows: []*Row{{System: "mxnet-sync", Good: 7, Effective: workers * int(batch), Rate: Spread{Median: 1e6 / micros}}}}
	}
	three := &Report{Tables: []*Table{table(3, 100, 30), table(3, 500, 14)}} // 10 µs a sample, 6 ms a step
	want := three.fit("mxnet-sync")
	if !strings.Contains(want, "a sample costs 10 µs and a step 6 ms") {
		t.Fatalf("%q", want)
	}
	mixed := &Report{Tables: []*Table{table(1, 100, 90), table(3, 100, 30), table(3, 500, 14)}}
	if got := mixed.fit("mxnet-sync"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&Report{Tables: []*Table{table(1, 100, 90), table(3, 500, 14)}}).fit("mxnet-sync"); got != "" {
		t.Errorf("two batches of other workers give %q", got)
	}
}

// TestFitOfAStep: the line gives back what a step costs all workers, and what a sample of all together does, and says where the cores do not suffice.
func TestFitOfAStep(t *testing.T) {
	const workers, step, sample = 3, 3000.0, 10.0 // in µs: of a step, and of each sample of a worker
	for _, crowded := range []bool{false, true} {
		r := &Report{}
		for _, batch := range []int{100, 500} {
			rate := workers * float64(batch) / (step + sample*float64(batch)) * 1e6
			x := &Row{System: "mxnet-sync", Good: 3, Workers: workers, Effective: workers * batch, Crowded: crowded, Rate: spread([]float64{rate})}
			r.Tables = append(r.Tables, &Table{Task: "logistic", Workers: workers, Batch: Batch(batch), Rows: []*Row{x}})
		}
		text := r.fit("mxnet-sync")
		for _, want := range []string{"with the samples of 3 workers counted together, a sample costs 3.33 µs and a step 3 ms", "at 300 rows an update"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q", text, want)
			}
		}
		if strings.Contains(text, "oversubscribed") != crowded {
			t.Errorf("oversubscribed %v: %q", crowded, text)
		}
	}
}
