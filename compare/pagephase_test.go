package compare

import (
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// TestWaitedIsOne: the same phases are the same share, to the last bit: a page and its CSV are the same bytes whenever they are made.
func TestWaitedIsOne(t *testing.T) {
	phases := map[string]float64{}
	for _, name := range phaseOrder {
		phases[name] = 1
	}
	phases["load"] = 1e16 // beside which a single 1 is lost, and eight together are not
	first := waited(phases)
	for range 1000 {
		if x := waited(phases); x != first {
			t.Fatalf("%v, and %v before", x, first)
		}
	}
}

// TestWaitedIsThatOfThePhases: the sweep has the share of waiting that the picture of a step's time has, of repeats that differ.
func TestWaitedIsThatOfThePhases(t *testing.T) {
	row := func(system string, mode Mode) *Row {
		x := &Row{System: system, Mode: mode, Workers: 2, Good: 3, Rate: spread([]float64{100})}
		for _, wait := range []float64{0, 0, 10} {
			x.Trials = append(x.Trials, Repeat{Result: Result{Phases: map[string]float64{"compute": 10, "wait-barrier": wait}}})
		}
		return x
	}
	r := &Report{Tables: []*Table{{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{row("server-bsp", Sync), row("server-asp", Async)}}}}
	stack := r.phases()[0].(report.Figures).Items[0].Chart.(svg.Stack).Rows[0].Values
	if got := r.staleness()[0].(report.Table).Rows[0].Cells[5].Text; got != "25" || stack[1] != 30 || stack[5] != 10 {
		t.Errorf("%s %% waited, of %v", got, stack)
	}
}
