package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/svg"
)

// curvePoints is how many points a curve of a report has: each then is the mean of enough steps to read a trend from.
const curvePoints = 160

// lossSection is the loss of the steps over time and over samples, and the evaluations.
func lossSection(all []*measured) Section {
	time := svg.Lines{
		Title: "Loss of the steps against time", X: svg.Axis{Label: "Time since the first update", Unit: "s"}, Y: svg.Axis{Label: "Training loss"},
	}
	samples := svg.Lines{Title: "Loss of the steps against samples", X: svg.Axis{Label: "Samples, of all workers"}, Y: svg.Axis{Label: "Training loss"}}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, m := range all {
		workers := m.of(observe.Worker)
		i := slices.IndexFunc(workers, func(s *source) bool { n, _ := s.loss.values(); return n > 0 })
		if i < 0 {
			continue
		}
		w := workers[i]
		perStep := 1.0
		if m.total.Steps > 0 && m.total.Samples > 0 {
			perStep = float64(m.total.Samples) / float64(m.total.Steps)
		}
		line := svg.Series{Name: m.label, Hue: m.hue, Band: true, Points: w.loss.points(curvePoints, 1)}
		time.Series = append(time.Series, line)
		line.Points = w.samples.points(curvePoints, perStep)
		samples.Series = append(samples.Series, line)
		for _, p := range line.Points {
			if !math.IsNaN(p.Y) {
				lo, hi = min(lo, p.Lo), max(hi, p.Hi)
			}
		}
	}
	s := Section{Title: "Loss"}
	if len(time.Series) > 0 {
		logarithmic := lo > 0 && hi/lo > 20
		time.Y.Log, samples.Y.Log = logarithmic, logarithmic
		note := " Lines are means of neighbouring steps of the first worker, on its own rows; bands span their single steps."
		s.Blocks = append(s.Blocks, Figure{Chart: time, Caption: []Span{Strong("Loss against time."), Text(note)}})
		if len(all) > 1 {
			s.Blocks = append(s.Blocks, Figure{Chart: samples, Caption: []Span{Strong("Loss against samples."), Text(" What speed has no part in.")}})
		}
	}
	if f := scoreFigures(all); len(f.Items) > 0 {
		s.Blocks = append(s.Blocks, f)
	}
	return s
}

// A page is no list of a thousand workers; a run directory is. What is left out is said.
const (
	shownWorkers   = 16 // of a run
	shownProcesses = 12 // as lines of one chart
	shownMetrics   = 12 // as charts
	shownColumns   = 6  // of metrics, else they are rows
	shownScores    = 400
)

// phaseSection is where the time of a step went, by worker.
func phaseSection(all []*measured) Section {
	chart := svg.Stack{Title: "Where the time of the workers went", Share: true, Parts: Phases()}
	data := Table{Name: "phases", Columns: []Column{{Name: "worker"}}}
	for _, p := range observe.Phases() {
		data.Columns = append(data.Columns, Column{Name: p.String(), Unit: "s"})
	}
	steps := Table{
		Name: "steps", Caption: []Span{Text("Time of a step")},
		Columns: []Column{{Name: "worker"}, {Name: "steps"}, {Name: "mean"}, {Name: "p50"}, {Name: "p95"}, {Name: "longest"}, {Name: "overlapped", Unit: "beside the steps"}},
		Notes:   []string{"Percentiles are those of a histogram whose buckets are at most 12.5 % wide. Overlapped work ran in the background and is no part of a step."},
	}
	left := 0
	for _, m := range all {
		workers := m.of(observe.Worker)
		left += max(len(workers)-shownWorkers, 0)
		for _, w := range workers[:min(len(workers), shownWorkers)] {
			label := sourceLabel(all, m, w)
			row := svg.StackRow{Label: label}
			cells := []Cell{Name(label)}
			overlapped := 0.0
			for _, p := range observe.Phases() {
				v := time.Duration(w.last.Counter(observe.PhaseTime(p))).Seconds()
				overlapped += time.Duration(w.last.Counter(observe.OverlapTime(p))).Seconds()
				row.Values = append(row.Values, v)
				cells = append(cells, Number(v, Digits(3)))
			}
			if w.last.Counter(observe.WallTime) == 0 {
				row.Missing = "no step was recorded"
			} else {
				row.Text = quantity.Seconds(time.Duration(w.last.Counter(observe.WallTime)).Seconds())
			}
			chart.Rows = append(chart.Rows, row)
			data.Rows = append(data.Rows, Row{Cells: cells})
			steps.Rows = append(steps.Rows, Row{Cells: stepCells(label, &w.last.Distributions[observe.StepTime], overlapped)})
		}
	}
	if !slices.ContainsFunc(chart.Rows, func(r svg.StackRow) bool { return r.Missing == "" }) {
		return Section{}
	}
	if left > 0 {
		steps.Notes = append(steps.Notes, fmt.Sprintf("Left out, beyond the first %d of a run: %s.", shownWorkers, quantity.Count(left, "worker")))
	}
	s := Section{Title: "Where the time goes"}
	s.Blocks = append(s.Blocks, Figure{
		Chart: chart, Data: &data,
		Caption: []Span{Strong("Nine phases make up a worker's time."), Text(" Exactly one is open at any instant, so that they add up to all of it, which stands at the right.")},
	}, steps.withoutZeros())
	return s
}

func stepCells(label string, d *observe.Histogram, overlapped float64) []Cell {
	cells := []Cell{Name(label), Number(float64(d.Count), Digits(0))}
	if d.Count == 0 {
		return append(cells, Missing("not measured"), Missing("not measured"), Missing("not measured"), Missing("not measured"), Number(overlapped, quantity.Seconds))
	}
	quantile := func(q float64) Cell {
		lo, hi := d.Quantile(q)
		return Number((float64(lo)+float64(hi))/2e9, quantity.Seconds)
	}
	return append(
		cells, Number(d.Mean()/1e9, quantity.Seconds), quantile(0.5), quantile(0.95), Number(float64(d.Max)/1e9, quantity.Seconds), Number(overlapped, quantity.Seconds),
	)
}

// sourceLabel names a source, by its run too where there are several.
func sourceLabel(all []*measured, m *measured, s *source) string {
	name := fmt.Sprintf("%s %d", s.Role, s.Rank)
	if len(all) > 1 {
		return m.label + ": " + name
	}
	return name
}

// stalenessSection is how far reads were behind, where the topology has such a thing.
func stalenessSection(all []*measured) Section {
	chart := svg.Histogram{Title: "How stale reads were", Whole: true, X: svg.Axis{Label: "Clocks behind"}}
	bySteps, measuredAny, asked := false, false, false
	for _, m := range all {
		if m.Head.Strategy != "server" {
			continue
		}
		asked = true
		panel := svg.Panel{Label: m.label, Hue: m.hue, Missing: "not recorded"}
		var merged observe.Histogram
		byStep := map[uint16]uint64{}
		for _, s := range m.sources {
			merged.Merge(&s.last.Distributions[observe.Staleness])
			for k, n := range s.staleness {
				byStep[k] += n
			}
		}
		switch {
		case merged.Count > 0:
			panel.Missing = ""
			for b, n := range merged.Buckets {
				if n > 0 {
					lo, hi := observe.BucketBounds(b)
					panel.Bins = append(panel.Bins, svg.Bin{Lo: float64(lo), Hi: float64(hi) + 1, Count: float64(n)})
					chart.Whole = chart.Whole && lo == hi
				}
			}
		case slices.Max(append(slices.Collect(maps.Keys(byStep)), 0)) > 0:
			bySteps = true
			panel.Missing = ""
			for _, k := range slices.Sorted(maps.Keys(byStep)) {
				panel.Bins = append(panel.Bins, svg.Bin{Lo: float64(k), Hi: float64(k) + 1, Count: float64(byStep[k])})
			}
		}
		measuredAny = measuredAny || panel.Missing == ""
		chart.Panels = append(chart.Panels, panel)
	}
	switch {
	case !asked:
		return Section{}
	case !measuredAny:
		return Section{Title: "Staleness", Blocks: []Block{Paragraph{Text("How stale the workers' reads were was not recorded in these runs.")}}}
	}
	caption := []Span{Strong("How many clocks a read was behind,"), Text(" as shares of all reads.")}
	if bySteps {
		caption = []Span{Strong("How many clocks the stalest read of a step was behind,"), Text(" as shares of the recorded steps.")}
	}
	s := Section{Title: "Staleness", Blocks: []Block{Figure{Chart: chart, Caption: caption}}}
	for _, t := range []Table{readsTable(all), waitsTable(all)} {
		if len(t.Rows) > 0 {
			s.Blocks = append(s.Blocks, t)
		}
	}
	return s
}

// readsTable is how many reads of tables the caches of the workers answered.
func readsTable(all []*measured) Table {
	t := Table{
		Name: "reads", Caption: []Span{Text("Reads of tables")}, Columns: []Column{{Name: "worker"}, {Name: "reads"}, {Name: "answered by the cache"}},
		Notes: []string{"The other reads waited for a server. Rows that were asked for ahead, and are there when they are read, come from the cache."},
	}
	left := 0
	for _, m := range all {
		if m.Head.Strategy != "server" {
			continue
		}
		workers := m.of(observe.Worker)
		left += max(len(workers)-shownWorkers, 0)
		for _, w := range workers[:min(len(workers), shownWorkers)] {
			hits, misses := float64(w.last.Counter(observe.CacheHits)), float64(w.last.Counter(observe.CacheMisses))
			if hits+misses > 0 {
				cells := []Cell{Name(sourceLabel(all, m, w)), Number(hits+misses, Digits(0)), Number(hits/(hits+misses), quantity.Percent)}
				t.Rows = append(t.Rows, Row{Cells: cells})
			}
		}
	}
	if left > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("Left out, beyond the first %d of a run: %s.", shownWorkers, quantity.Count(left, "worker")))
	}
	return t
}

// waitsTable is whom the workers have waited for, longest first.
func waitsTable(all []*measured) Table {
	t := Table{
		Name: "waits", Caption: []Span{Text("Whom workers waited for")},
		Columns: []Column{{Name: "worker"}, {Name: "time of the others"}, {Name: "share of all waits"}},
		Notes:   []string{"What a read, or the end of a round, waited for others' rounds is counted at the worker that was the last to complete them."},
	}
	left := 0
	for _, m := range all {
		var ranks []int
		var sum time.Duration
		for rank, d := range m.total.Waited {
			if sum += d; d > 0 {
				ranks = append(ranks, rank)
			}
		}
		slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(m.total.Waited[b], m.total.Waited[a]) })
		left += max(len(ranks)-shownWorkers, 0)
		for _, rank := range ranks[:min(len(ranks), shownWorkers)] {
			d := m.total.Waited[rank].Seconds()
			label := sourceLabel(all, m, &source{Source: observe.Source{Role: observe.Worker, Rank: rank}})
			t.Rows = append(t.Rows, Row{Cells: []Cell{Name(label), Number(d, quantity.Seconds), Number(d/sum.Seconds(), quantity.Percent)}})
		}
	}
	if left > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("Left out, beyond the first %d of a run: %s.", shownWorkers, quantity.Count(left, "worker")))
	}
	return t
}

// machineSection is what the processes took of their machines.
func machineSection(all []*measured) Section {
	cpu := svg.Lines{Title: "Processor cores kept busy, by process", X: svg.Axis{Label: "Time since the run began", Unit: "s"}, Y: svg.Axis{Label: "Busy cores", Hi: 0.1}}
	memory := svg.Lines{
		Title: "Resident memory by process", X: svg.Axis{Label: "Time since the run began", Unit: "s"},
		Y: svg.Axis{Label: "Resident memory", Format: quantity.Bytes[float64], Binary: true, Hi: 1 << 20},
	}
	t := Table{
		Name: "processes", Columns: []Column{
			{Name: "process"},
			{Name: "user", Group: "processor time"},
			{Name: "system", Group: "processor time"},
			{Name: "at most", Group: "resident memory"},
			{Name: "at the end", Group: "resident memory"},
			{Name: "pauses", Group: "garbage collector"},
			{Name: "throttled"},
			{Name: "read", Group: "storage"},
			{Name: "written", Group: "storage"},
		},
	}
	for _, m := range all {
		place := 0
		for _, s := range m.sources {
			n, peak := s.resident.values()
			if n == 0 && s.last.Counter(observe.CPUUser) == 0 {
				continue // a thread: its process is another source
			}
			label := sourceLabel(all, m, s)
			cells := []Cell{Name(label)}
			for _, c := range []observe.Counter{observe.CPUUser, observe.CPUSystem} {
				cells = append(cells, Number(time.Duration(s.last.Counter(c)).Seconds(), quantity.Seconds))
			}
			if n == 0 {
				cells = append(cells, Missing("not measured"), Missing("not measured"))
			} else {
				now, _ := s.last.Gauge(observe.ResidentBytes)
				cells = append(cells, Number(peak, quantity.Bytes), Number(now, quantity.Bytes))
			}
			for _, c := range []observe.Counter{observe.GCPauses, observe.Throttled} {
				cells = append(cells, Number(time.Duration(s.last.Counter(c)).Seconds(), quantity.Seconds))
			}
			for _, c := range []observe.Counter{observe.DiskRead, observe.DiskWritten} {
				cells = append(cells, Number(float64(s.last.Counter(c)), quantity.Bytes))
			}
			t.Rows = append(t.Rows, Row{Cells: cells})
			if len(cpu.Series) == shownProcesses {
				continue
			}
			series := svg.Series{Name: label}
			if len(all) > 1 {
				series.Hue, series.Dash = m.hue, svg.Dash(place%4)
			}
			place++
			series.Points = bare(s.cpu.points(curvePoints, 1))
			cpu.Series = append(cpu.Series, series)
			series.Points = bare(s.resident.points(curvePoints, 1))
			memory.Series = append(memory.Series, series)
		}
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	s := Section{Title: "Processor and memory", Blocks: []Block{t.withoutZeros()}}
	figures := Figures{Caption: []Span{Strong("What each process took."), Text(" As it reported it, about once a second.")}}
	if len(t.Rows) > shownProcesses {
		figures.Caption = append(figures.Caption, Text(fmt.Sprintf(" Lines are those of the first %d in the table.", shownProcesses)))
	}
	for _, chart := range []svg.Lines{cpu, memory} {
		longest := 0
		for _, line := range chart.Series {
			longest = max(longest, len(line.Points))
		}
		if longest > 2 { // of a run of a second there is no course to draw
			figures.Items = append(figures.Items, SmallFigure{Title: strings.TrimSuffix(chart.Title, ", by process"), Chart: chart})
		}
	}
	if len(figures.Items) > 0 {
		s.Blocks = append(s.Blocks, figures)
	}
	return s
}

// bare drops the ranges of points that need none.
func bare(points []svg.Point) []svg.Point {
	for i := range points {
		points[i].Lo, points[i].Hi = 0, 0
	}
	return points
}
