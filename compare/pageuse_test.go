package compare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// TestUseOfSomeTrials: bytes are the median of the trials in which they were counted, whichever of the trials those are.
func TestUseOfSomeTrials(t *testing.T) {
	part := PerUse{BytesSample: 1, BytesSecond: 10, MicrosSample: 5, NotCounted: "worker 1 had ended before its bytes were read"}
	whole := PerUse{BytesSample: 100, BytesSecond: 1000, MicrosSample: 5}
	for _, list := range [][]PerUse{{part, whole, part}, {whole, part, part}} {
		if u := medianUse(list); u.BytesSample != 100 || u.BytesSecond != 1000 || u.NotCounted != "" || u.MicrosSample != 5 {
			t.Errorf("%+v", u)
		}
	}
	if u := medianUse([]PerUse{part, part}); u.NotCounted == "" {
		t.Errorf("counted in no trial: %+v", u)
	}
}

// TestBothDirections: what bytes are is said beside the bars, which show twice what the tables of the terminal do.
func TestBothDirections(t *testing.T) {
	x := &Row{System: "allreduce", Workers: 2, Good: 7, Use: map[Role]PerUse{WorkerRole: {Processes: 2, BytesSample: 632, BytesSecond: 1e6, MicrosSample: 1}}}
	r := &Report{Tables: []*Table{{Task: "softmax", Workers: 2, Batch: 100, Rows: []*Row{x}}}}
	if got := x.networkWord(); got != "316" {
		t.Errorf("the terminal has %s bytes a sample, want 316", got)
	}
	f, ok := r.roles()[0].(report.Figures)
	if !ok || !strings.Contains(fmt.Sprint(f.Caption), "both directions") {
		t.Errorf("the caption is %v", f.Caption)
	}
}

// TestScalingOneThread: the line of one thread is that of local with as many rows in an update as the others have.
func TestScalingOneThread(t *testing.T) {
	table := func(workers int, batch Batch, local, rate float64) *Table {
		return &Table{Task: "mlp1", Workers: workers, Batch: batch, Rows: []*Row{
			{System: "local", Workers: 1, Effective: int(batch), Good: 7, Rate: spread([]float64{local})},
			{System: "allreduce", Workers: workers, Effective: int(batch) * workers, Good: 7, Rate: spread([]float64{rate})},
		}}
	}
	r := &Report{Tables: []*Table{table(1, 300, 70, 60), table(3, 100, 50, 90)}}
	some := false
	for _, b := range r.scaling() {
		f := b.(report.Figures)
		if chart := f.Items[0].Chart.(svg.Scaling); strings.Contains(fmt.Sprint(f.Caption), "strong") {
			some = true
			if len(chart.YMarks) != 1 || chart.YMarks[0].At != 70 {
				t.Errorf("one thread is at %+v, want at 70, of 300 rows an update", chart.YMarks)
			}
		}
	}
	if !some {
		t.Fatal("there is no figure of 300 rows an update")
	}
}

// TestScalingOfCrowded: what has a core for each busy thread and what has not are on no line together, and the caption says from where on they are
// not; no row is left out for want of a colour.
func TestScalingOfCrowded(t *testing.T) {
	r := &Report{}
	for _, workers := range []int{1, 2, 3, 5} {
		table := &Table{Task: "mlp1", Workers: workers, Batch: 100}
		for i := range 10 {
			x := &Row{System: fmt.Sprint("row", i), Workers: workers, Effective: 100 * workers, Good: 7, Rate: spread([]float64{float64(workers)})}
			x.Crowded = i == 0 && workers > 1 || i > 0 && workers > 2
			table.Rows = append(table.Rows, x)
		}
		r.Tables = append(r.Tables, table)
	}
	f := r.scaling()[0].(report.Figures)
	const want = "Dashed: more busy threads than cores from 2 workers on (row0), from 3 workers on (row1, row2, row3, row4, row5, row6, row7, row8, row9)"
	if text := fmt.Sprint(f.Caption); !strings.Contains(text, want) {
		t.Errorf("%q does not say %q", text, want)
	}
	points := map[string]int{}
	for _, item := range f.Items {
		hues := map[int]string{}
		for _, s := range item.Chart.(svg.Scaling).Series {
			if other := hues[s.Hue]; other != "" && other != s.Name {
				t.Errorf("%s has the colour of %s", s.Name, other)
			}
			hues[s.Hue] = s.Name
			points[s.Name] += len(s.Points)
			for _, p := range s.Points {
				if crowded := s.Name == "row0" && p.X > 1 || s.Name != "row0" && p.X > 2; crowded != (s.Dash == svg.Dashed) {
					t.Errorf("%s: %v workers are on a line of dash %d", s.Name, p.X, s.Dash)
				}
			}
		}
	}
	if len(points) != 10 || points["row0"] != 8 || points["row9"] != 8 { // in two pictures each
		t.Errorf("points %v", points)
	}
}

// TestScalingHasTheRowsColours: a row has the colour that it has in the pictures of its table.
func TestScalingHasTheRowsColours(t *testing.T) {
	r := &Report{}
	for _, workers := range []int{1, 2} {
		table := &Table{Task: "mlp1", Workers: workers, Batch: 100}
		for _, system := range []string{"local", "server-bsp", "allreduce"} {
			x := &Row{System: system, Workers: workers, Effective: 100 * workers, Good: 1, Reached: 1, Rate: spread([]float64{1}), Target: spread([]float64{1})}
			x.Trials = []Repeat{{Result: Result{Curve: []Point{{Seconds: 1, Samples: 100, Loss: 1}, {Seconds: 2, Samples: 200, Loss: 0.5}}}}}
			table.Rows = append(table.Rows, x)
		}
		r.Tables = append(r.Tables, table)
	}
	want := map[string]int{}
	for _, s := range r.Tables[0].lossCharts(true)[0].Chart.(svg.Lines).Series {
		want[s.Name] = s.Hue
	}
	for _, item := range r.scaling()[0].(report.Figures).Items {
		for _, s := range item.Chart.(svg.Scaling).Series {
			if s.Hue != want[s.Name] {
				t.Errorf("%s: %s has colour %d, and %d where the losses are", item.Title, s.Name, s.Hue, want[s.Name])
			}
		}
	}
}

// TestNextToNoBytes: where nothing but a few bytes of the system's own were sent, an axis begins with whole ones.
func TestNextToNoBytes(t *testing.T) {
	table := &Table{Task: "softmax", Workers: 1, Batch: 100, Rows: []*Row{{System: "local", Use: map[Role]PerUse{WorkerRole: {BytesSample: 3.7e-5, BytesSecond: 0.5}}}}}
	for _, use := range uses {
		if !strings.HasPrefix(use.title, "Network") {
			continue
		}
		f, _ := table.useBars(use)
		drawn, err := f.Chart.Draw(svg.Frame{ID: "c", Width: 400})
		if err != nil || !strings.Contains(drawn, ">1 B</text>") || strings.Contains(drawn, "e-06 B") {
			t.Errorf("%s: %v\n%s", use.title, err, drawn)
		}
	}
}
