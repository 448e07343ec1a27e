package compare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// TestWorkersToBeatOneThread: a row that was measured with several numbers of workers says from which on it is ahead of local, by speed and by
// the time to the target; one that falls back behind is ahead from the last time on.
func TestWorkersToBeatOneThread(t *testing.T) {
	r := &Report{}
	for _, workers := range []int{5, 1, 3, 2} { // as the full run has them: in no order
		row := func(name string, rates map[int]float64, seconds float64) *Row {
			return &Row{System: name, Workers: workers, Good: 3, Ranked: seconds > 0, Rate: Spread{Median: rates[workers]}, Target: Spread{Median: seconds}}
		}
		local := row("local", map[int]float64{1: 100, 2: 100, 3: 100, 5: 100}, 10)
		local.Workers = 1
		table := &Table{Task: "mlp1", Batch: 100, Workers: workers, Rows: []*Row{
			local, row("allreduce", map[int]float64{1: 80, 2: 120, 3: 180, 5: 300}, 24/float64(workers)),
			row("server-bsp", map[int]float64{1: 50, 2: 110, 3: 90, 5: 150}, 0), row("mxnet-sync", map[int]float64{1: 10, 2: 20, 3: 30, 5: 50}, 30),
		}}
		if workers == 3 {
			table.Rows = append(table.Rows, row("server-asp", map[int]float64{3: 400}, 1)) // with one number of workers nothing is said
		}
		r.Tables = append(r.Tables, table)
	}
	cost := r.single()[1].(report.Table)
	var got []string
	for _, row := range cost.Rows {
		var words []string
		for _, c := range row.Cells {
			word := c.Missing
			if c.Value != nil {
				word = c.Text
			}
			for _, s := range c.Spans {
				word += s.Text
			}
			words = append(words, word)
		}
		got = append(got, fmt.Sprintf("%q", words))
	}
	want := []string{
		`["mlp1, batch 100 each, loopback" "allreduce" "1, 2, 3, 5" "2" "3"]`,
		`["mlp1, batch 100 each, loopback" "server-bsp" "1, 2, 3, 5" "5" "not ranked"]`,
		`["mlp1, batch 100 each, loopback" "mxnet-sync" "1, 2, 3, 5" "not with up to 5" "not with up to 5"]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestScalingOfCrowdedAlone: a row that is crowded from its first point on has its ideal too, of which the caption speaks.
func TestScalingOfCrowdedAlone(t *testing.T) {
	r := &Report{}
	for _, workers := range []int{3, 5} {
		r.Tables = append(r.Tables, &Table{Task: "mlp1", Workers: workers, Batch: 100, Rows: []*Row{
			{System: "server-bsp", Workers: workers, Effective: 100 * workers, Crowded: true, Good: 7, Rate: spread([]float64{10})},
		}})
	}
	f := r.scaling()[0].(report.Figures)
	if text := fmt.Sprint(f.Caption); !strings.Contains(text, "Dotted: what as many would do") {
		t.Errorf("the caption is %q", text)
	}
	for _, item := range f.Items {
		drawn, err := item.Chart.Draw(svg.Frame{ID: "c1", Width: 405})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(drawn, "d2 thin"); n != 1 {
			t.Errorf("%s has %d ideals, want 1: %s", item.Title, n, drawn)
		}
	}
}

// TestOfOneThread: a row is as many times as fast as one thread, and as soon at the target, as its rate is more and its time less; places among
// the rows of a regime are by time; and a crowded row is set back.
func TestOfOneThread(t *testing.T) {
	row := func(system string, rate, seconds float64, crowded bool) *Row {
		return &Row{System: system, Workers: 2, Good: 3, Ranked: true, Crowded: crowded, Rate: spread([]float64{rate}), Target: spread([]float64{seconds})}
	}
	table := &Table{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{row("local", 100, 10, false), row("allreduce", 300, 4, false), row("server-bsp", 50, 8, true), {System: "pytorch-ddp"}}}
	table.rank()
	r := &Report{Tables: []*Table{table}}
	got := r.single()[0].(report.Table).Rows[0].Cells
	if got[1].Spans[0].Text != "allreduce" || got[3].Text != "3.00" || got[4].Text != "2.50" {
		t.Errorf("three times the rate in two fifths of the time: %s, %s of the speed, %s to the target", got[1].Spans[0].Text, got[3].Text, got[4].Text)
	}
	if place := table.Rows[0].placeAmong([]*Row{table.Rows[0], table.Rows[2], table.Rows[3]}); place != 2 {
		t.Errorf("behind one row, beside one that has no place: place %d", place)
	}
	for _, rows := range table.regimes() {
		for i, line := range r.speedTable(table, rows).Rows {
			if line.Muted != rows[i].Crowded {
				t.Errorf("%s: set back %v", rows[i].System, line.Muted)
			}
		}
	}
}

// TestOneWayOfTimes: a time to the target is in the table of speed, in the sweep and beside the best row as it is in the lead.
func TestOneWayOfTimes(t *testing.T) {
	row := func(system string, mode Mode, target ...float64) *Row {
		return &Row{System: system, Mode: mode, Workers: 2, Good: len(target), Reached: len(target), Ranked: true, Rate: spread([]float64{100}), Target: spread(target)}
	}
	table := &Table{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{row("server-bsp", Sync, 131e-6, 89.8e-6, 142e-6), row("server-asp", Async, 0.01)}}
	r := &Report{Tables: []*Table{table}}
	cells := map[string]report.Cell{
		"speed": r.speedTable(table, table.Rows).Rows[0].Cells[2], "sweep": r.staleness()[0].(report.Table).Rows[0].Cells[4],
	}
	for where, c := range cells {
		if c.Text != "131 µs" || c.Range != "89.8–142 µs" {
			t.Errorf("%s: %s, %s", where, c.Text, c.Range)
		}
	}
}
