package report_test

import (
	"bytes"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// To look at the page: go test ./observe/report -run TestPage$ -page page.html
var (
	pageFile = flag.String("page", "", "write the page of TestPage to this file")
	update   = flag.Bool("update", false, "write the golden files")
)

func words(s string) []report.Span { return []report.Span{report.Text(s)} }

// demo is a page with something of everything, in the shape of a comparison. Its numbers are made up.
func demo() *report.Page {
	curve := func(rate, floor, noise float64, n int) []svg.Point {
		var points []svg.Point
		for i := range n {
			x := float64(i+1) / float64(n) * 40
			wiggle := noise * math.Sin(float64(i*i%97))
			y := floor + (2.3-floor)*math.Exp(-rate*x) + wiggle*0.1
			points = append(points, svg.Point{X: x, Y: y, Lo: y * (1 - noise), Hi: y * (1 + noise)})
		}
		return points
	}
	loss := svg.Lines{
		Title: "Training loss against time, mlp1, 3 workers, batch 100",
		X:     svg.Axis{Label: "Time since the first update", Unit: "s"},
		Y:     svg.Axis{Label: "Training loss", Log: true},
		Series: []svg.Series{
			{Name: "local", Points: curve(0.08, 0.11, 0.02, 60), Hue: 8, Band: true},
			{Name: "server, SSP 3", Points: curve(0.19, 0.095, 0.05, 400), Hue: 1, Band: true},
			{Name: "server, BSP", Points: curve(0.15, 0.1, 0.03, 60), Hue: 2, Band: true},
			{Name: "allreduce", Points: curve(0.24, 0.1, 0.02, 60), Hue: 3, Band: true},
			{Name: "PyTorch DDP", Points: curve(0.06, 0.12, 0.04, 20), Hue: 4, Band: true},
		},
		YMarks: []svg.Mark{{At: 0.2, Label: "target 0.20"}},
	}
	gap := svg.Waterfall{
		Title: "Where the published gap goes: logistic regression, PMLS against Spark",
		Value: svg.Axis{Label: "Time to training loss 0.30", Log: true, Format: quantity.Seconds}, HigherWorse: true,
		Steps: []svg.Level{
			{Label: "peer as shipped", Note: "Spark MLlib 4.0", Value: 161, Lo: 148, Hi: 181},
			{Label: "peer tuned", Note: "settings", Value: 74, Lo: 70, Hi: 80},
			{Label: "our twin of its topology", Note: "implementation", Value: 9.1, Lo: 8.8, Hi: 9.9},
			{Label: "equal batch", Note: "algorithm", Value: 1.9, Lo: 1.8, Hi: 2.05},
			{Label: "best topology", Note: "design: allreduce", Value: 1.02, Lo: 0.99, Hi: 1.1},
		},
	}
	bars := svg.Bars{
		Title: "Samples per second, mlp1, batch 100", Value: svg.Axis{Label: "Median of seven repeats", Unit: "samples/s"},
		Series: []string{"here", "published, other hardware"}, Hues: []int{1, 8},
		Groups: []svg.Group{
			{Label: "allreduce", Bars: []svg.Bar{{Value: 312e3, Lo: 299e3, Hi: 325e3}}},
			{Label: "server, BSP", Bars: []svg.Bar{{Value: 201e3, Lo: 188e3, Hi: 214e3}}},
			{Label: "PyTorch DDP", Bars: []svg.Bar{{Value: 106e3, Lo: 92e3, Hi: 111e3}}},
			{Label: "TensorFlow, synchronous", Bars: []svg.Bar{{Value: 48e3, Lo: 44e3, Hi: 52e3}, {Series: 1, Value: 23485, Outline: true}}},
			{Label: "Spark", Bars: []svg.Bar{{Missing: "not installed: looked for spark-submit on PATH"}, {Series: 1, Value: 24303, Outline: true}}},
		},
	}
	phases := svg.Stack{Title: "Where a step goes", Share: true, Parts: report.Phases(), Rows: []svg.StackRow{
		{Label: "local", Values: []float64{4, 88, 0, 0, 0, 0, 0, 6, 2}},
		{Label: "server, BSP", Values: []float64{3, 42, 5, 9, 8, 28, 0, 3, 2}},
		{Label: "server, SSP 3", Values: []float64{3, 57, 6, 10, 10, 0, 8, 4, 2}},
		{Label: "allreduce", Values: []float64{3, 61, 7, 11, 9, 5, 0, 3, 1}},
		{Label: "PyTorch DDP", Missing: "not measured: the peer has no such counters"},
	}}
	stale := svg.Histogram{Title: "How stale reads were", Whole: true, X: svg.Axis{Label: "Clocks behind"}, Panels: []svg.Panel{
		{Label: "SSP 1", Bins: []svg.Bin{{Lo: 0, Count: 812}, {Lo: 1, Count: 188}}, Marks: []svg.Mark{{At: 1, Label: "bound 1"}}, Hue: 1},
		{Label: "SSP 3", Bins: []svg.Bin{{Lo: 0, Count: 410}, {Lo: 1, Count: 322}, {Lo: 2, Count: 171}, {Lo: 3, Count: 97}}, Marks: []svg.Mark{{At: 3, Label: "bound 3"}}, Hue: 1},
		{Label: "ASP", Bins: []svg.Bin{{Lo: 0, Count: 120}, {Lo: 1, Count: 322}, {Lo: 2, Count: 271}, {Lo: 3, Count: 97}, {Lo: 4, Count: 50}, {Lo: 5, Count: 33}, {Lo: 6, Count: 12}, {Lo: 7, Count: 4}}, Hue: 1},
	}}
	scaling := svg.Scaling{
		Title: "Speed against workers", X: svg.Axis{Label: "Workers"}, Y: svg.Axis{Unit: "samples/s"},
		Series: []svg.Series{
			{Name: "allreduce", Hue: 3, Points: []svg.Point{{X: 1, Y: 180e3}, {X: 2, Y: 321e3, Lo: 310e3, Hi: 330e3}, {X: 3, Y: 430e3, Lo: 401e3, Hi: 460e3}, {X: 5, Y: 590e3, Lo: 570e3, Hi: 611e3}}},
			{Name: "server, BSP", Hue: 2, Points: []svg.Point{{X: 1, Y: 150e3}, {X: 2, Y: 231e3}, {X: 3, Y: 301e3}, {X: 5, Y: 340e3}}},
			{Name: "predicted", Hue: 2, Dash: svg.Dashed, Points: []svg.Point{{X: 1, Y: 152e3}, {X: 2, Y: 236e3}, {X: 3, Y: 297e3}, {X: 5, Y: 352e3}}},
		},
		YMarks: []svg.Mark{{At: 211e3, Label: "best single thread"}},
	}
	table := report.Table{
		Name: "table-3", Caption: words("Table 3. Samples per second; median, minimum to maximum of seven repeats"),
		Columns: []report.Column{
			{Name: "row"},
			{Name: "b 100", Group: "softmax", Unit: "samples/s", Best: report.Highest},
			{Name: "b 500", Group: "softmax", Unit: "samples/s", Best: report.Highest},
			{Name: "b 100", Group: "one hidden layer", Unit: "samples/s", Best: report.Highest},
			{Name: "b 500", Group: "one hidden layer", Unit: "samples/s", Best: report.Highest, Bars: true},
			{Name: "same result"},
		},
		Notes: []string{"Rows are ranked within one table only. ★ is the best of its column among ranked rows."},
		Rows: []report.Row{
			{Heading: "Trivium", Cells: []report.Cell{report.Name("allreduce"), report.Interval(466e3, 450e3, 470e3, report.Digits(0)), report.Interval(1.06e6, 1.01e6, 1.1e6, report.Digits(0)), report.Interval(421e3, 411e3, 431e3, report.Digits(0)), report.Interval(600e3, 570e3, 611e3, report.Digits(0)), report.Verdict(report.Good, "proven")}},
			{Cells: []report.Cell{report.Name("server, BSP"), report.Interval(366e3, 350e3, 370e3, report.Digits(0)), report.Interval(0.86e6, 0.81e6, 0.88e6, report.Digits(0)), report.Interval(221e3, 211e3, 231e3, report.Digits(0)), report.Interval(410e3, 401e3, 422e3, report.Digits(0)).With("one repeat flagged: foreign processor time 7 %"), report.Verdict(report.Good, "proven")}},
			{Unranked: true, Cells: []report.Cell{report.Name("server, ASP"), report.Number(401e3, report.Digits(0)), report.Number(math.NaN(), nil), report.Interval(251e3, 241e3, 261e3, report.Digits(0)), report.Missing("not reached in 20 epochs (best 0.934)"), report.Verdict(report.Open, "exempt")}},
			{Heading: "Peers", Cells: []report.Cell{report.Name("PyTorch DDP"), report.Interval(116e3, 110e3, 119e3, report.Digits(0)), report.Interval(531e3, 520e3, 540e3, report.Digits(0)), report.Interval(106e3, 101e3, 109e3, report.Digits(0)), report.Interval(290e3, 281e3, 299e3, report.Digits(0)), report.Verdict(report.Good, "proven")}},
			{Unranked: true, Cells: []report.Cell{report.Name("Horovod"), report.Number(51e3, report.Digits(0)), report.Number(449e3, report.Digits(0)), report.Number(73e3, report.Digits(0)), report.Number(214e3, report.Digits(0)), report.Verdict(report.Bad, "not the same: 0.41 against 0.32 at update 200")}},
			{Cells: []report.Cell{report.Name("Spark"), report.Missing("not installed: looked for spark-submit on PATH"), report.Missing("not installed: looked for spark-submit on PATH")}},
			{Heading: "Published, other hardware", Muted: true, Cells: []report.Cell{report.Name("TensorFlow, sync"), {}, report.Number(113787, report.Digits(0)), {}, report.Number(23485, report.Digits(0))}},
			{Muted: true, Cells: []report.Cell{report.Name("MXNet, sync"), {}, report.Number(221853, report.Digits(0)), {}, report.Number(24383, report.Digits(0))}},
		},
	}
	claims := report.Table{
		Name: "claims", Columns: []report.Column{{Name: ""}, {Name: "Claim"}, {Name: "Verdict"}, {Name: "Ratio", Best: report.NoBest}, {Name: "p, corrected"}},
		Rows: []report.Row{
			{Cells: []report.Cell{report.Name("C1"), report.Name("PMLS is fastest on logistic regression"), report.Verdict(report.Bad, "does not hold here"), report.Interval(0.42, 0.39, 0.46, quantity.Ratio), report.Number(0.004, quantity.Short)}},
			{Cells: []report.Cell{report.Name("C9"), report.Name("Asynchronous beats synchronous, in samples per second and in time to target"), report.Verdict(report.Good, "holds here"), report.Interval(1.31, 1.22, 1.4, quantity.Ratio), report.Number(0.011, quantity.Short)}},
			{Cells: []report.Cell{report.Name("C21"), report.Name("Dataflow lacks mutable state and fast iterations"), report.Verdict(report.Open, "undecided"), report.Missing("no twin yet"), {}}},
		},
	}
	return &report.Page{
		Title: "The same model under every topology", Subtitle: "trivium 0.4 · 2 cores, Sapphire Rapids, 8 GiB · 21 November 2026 · seven interleaved repeats", Contents: true,
		Lead: []report.Block{
			report.Paragraph{report.Text("On this machine "), report.Strong("allreduce reaches the target first"), report.Text(" in three of four tasks, 2.0 times as fast as the best peer. Every ranked row computed the same thing, within 0.001 in loss.")},
			report.Tiles{{Value: "2.0 ×", Label: "best row against best peer", Note: "1.8 to 2.2, mlp1, batch 100", Tone: report.Good}, {Value: "1.02 s", Label: "shortest time to target", Note: "allreduce, logistic"}, {Value: "0.4 %", Label: "cost of the harness", Note: "of a trial that only counts"}},
		},
		Sections: []report.Section{
			{Title: "Where the published gap goes", Blocks: []report.Block{
				report.Paragraph{report.Text("Each step changes one thing. Equal factors are equally long.")},
				report.Figure{Chart: gap, Caption: []report.Span{report.Strong("Most of the gap is implementation, not design."), report.Text(" Whiskers are minimum and maximum.")}},
			}},
			{Title: "Claims", Blocks: []report.Block{claims}},
			{Title: "Setup", Blocks: []report.Block{
				report.Facts{{Name: "Processor", Value: words("Intel Xeon, 2 cores, AVX-512")}, {Name: "Memory", Value: words("8 GiB")}, {Name: "Links", Value: words("750 Mbit/s, shaped (tbf)")}, {Name: "Data", Value: []report.Span{report.Mono("mnist 9f3c2a"), report.Text(", 60,000 images")}}, {Name: "Seed", Value: words("42")}},
				report.Callout{Tone: report.Warn, Title: "Oversubscribed", Blocks: []report.Block{report.Paragraph{report.Text("Three workers and a server share two cores. Such rows carry no verdict on a claim.")}}},
				report.Details{Summary: words("Last lines of a peer that failed"), Blocks: []report.Block{report.Code{Caption: "TensorFlow, repeat 3", Text: "Traceback (most recent call last):\n  File \"train.py\", line 61\nRuntimeError: <rank 1> timed out & left"}}},
			}},
			{Title: "Speed", Blocks: []report.Block{table, report.Figure{Chart: bars, Caption: []report.Span{report.Strong("Speed of one hidden layer."), report.Text(" Outlines are published figures of other hardware.")}, Data: &table}}},
			{Title: "Loss against time", Blocks: []report.Block{report.Figure{Chart: loss, Caption: []report.Span{report.Strong("allreduce is first at the target."), report.Text(" Bands span the repeats.")}}}},
			{Title: "Scaling", Blocks: []report.Block{report.Figure{Chart: scaling, Caption: words("Dotted lines grow as the workers do.")}}},
			{Title: "Where a step goes", Blocks: []report.Block{report.Figure{Chart: phases, Caption: words("Shares of the training thread's wall time.")}}},
			{Title: "Staleness", Blocks: []report.Block{report.Figure{Chart: stale, Caption: words("Reads by the number of clocks they were behind.")}, report.Figures{Caption: words("Small multiples."), Items: []report.SmallFigure{{Title: "allreduce", Chart: loss}, {Title: "scaling", Chart: scaling}}}}},
		},
		Footer: []report.Span{report.Text("Written by "), report.Mono("trivium compare"), report.Text(". Published figures: Zhang, Alqahtani, Demirbas, ICCCN 2017.")},
	}
}

func TestPage(t *testing.T) {
	var a, b bytes.Buffer
	if err := demo().WriteHTML(&a); err != nil {
		t.Fatal(err)
	}
	if err := demo().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same page came out as different bytes")
	}
	if *pageFile != "" {
		if err := os.WriteFile(*pageFile, a.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
