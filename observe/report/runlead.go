package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe"
)

// lead says what came of the runs: in sentences, and for a single one in large print.
func lead(all []*measured) []Block {
	var blocks []Block
	for _, m := range all {
		who := Strong(m.label)
		if len(all) == 1 {
			who = Text("The run")
		}
		blocks = append(blocks, Paragraph{who, Text(" " + outcome(m) + " " + verdict(m))})
	}
	if len(all) > 1 {
		return blocks
	}
	m := all[0]
	tiles := Tiles{}
	if m.total.SamplesPerSec > 0 {
		tiles = append(tiles, Tile{Value: quantity.Short(m.total.SamplesPerSec), Label: "samples per second", Note: "all workers, inside updates"})
	}
	if m.total.Seconds > 0 {
		tiles = append(tiles, Tile{Value: quantity.Seconds(m.total.Seconds), Label: "in updates", Note: quantity.Count(m.total.Steps, "update")})
	}
	if name := headline(m.total.Metrics); name != "" {
		tiles = append(tiles, Tile{Value: quantity.Figure(m.total.Metrics[name]), Label: name, Note: "at the last evaluation"})
	}
	if peak := m.peakResident(); peak > 0 {
		tiles = append(tiles, Tile{Value: quantity.Bytes(peak), Label: "resident memory at most", Note: "of the largest process"})
	}
	return append(blocks, tiles)
}

func outcome(m *measured) string {
	end := "has not finished, or did not live to say so,"
	if m.Result != nil {
		switch m.Result.Reason {
		case "finished":
			end = "finished"
		default:
			end = "ended: " + m.Result.Reason
		}
	}
	s := fmt.Sprintf("%s after %s", end, quantity.Count(m.total.Steps, "update"))
	if m.total.Seconds > 0 {
		s += fmt.Sprintf(" in %s, at %s samples a second", quantity.Seconds(m.total.Seconds), quantity.Short(m.total.SamplesPerSec))
	}
	if name := headline(m.total.Metrics); name != "" {
		s += fmt.Sprintf(", with %s at %s", name, quantity.Figure(m.total.Metrics[name]))
	}
	return s + "."
}

// headline picks the metric that a reader asks for first: of test before valid before train rows, and anything before a loss.
func headline(metrics map[string]float64) string {
	best, bestRank := "", 99
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if !finite.Is(metrics[name]) {
			continue
		}
		split, metric, _ := strings.Cut(name, ".")
		rank := map[string]int{"test": 0, "valid": 2, "train": 4}[split]
		if metric == "loss" {
			rank++
		}
		if rank < bestRank {
			best, bestRank = name, rank
		}
	}
	return best
}

// phases adds up what a run's workers spent, in seconds.
func (m *measured) phases() (sum [observe.NumPhases]float64, total float64) {
	for _, w := range m.of(observe.Worker) {
		for _, p := range observe.Phases() {
			v := time.Duration(w.last.Counter(observe.PhaseTime(p))).Seconds()
			sum[p] += v
			total += v
		}
	}
	return sum, total
}

// verdict names the phase that decided, by the order and the bounds of the bottleneck verdict, as far as counters of workers tell.
func verdict(m *measured) string {
	sum, total := m.phases()
	if total == 0 {
		return "Where its time went was not recorded."
	}
	share := func(p observe.Phase) float64 { return sum[p] / total }
	moving := share(observe.Serialise) + share(observe.Push) + share(observe.Pull)
	switch {
	case share(observe.Load) >= 0.3:
		return fmt.Sprintf("Its workers waited for input: loading batches took %s of their time.", quantity.Percent(share(observe.Load)))
	case share(observe.WaitBarrier) >= 0.3:
		return fmt.Sprintf("Its workers waited for each other for %s of their time.", quantity.Percent(share(observe.WaitBarrier)))
	case share(observe.WaitStale) >= 0.2:
		return fmt.Sprintf("The staleness bound held its workers for %s of their time.", quantity.Percent(share(observe.WaitStale)))
	case share(observe.Compute) >= 0.6:
		return fmt.Sprintf("Its workers computed for %s of their time.", quantity.Percent(share(observe.Compute)))
	case moving >= 0.3:
		return fmt.Sprintf("Moving parameters took %s of its workers' time.", quantity.Percent(moving))
	}
	return fmt.Sprintf("No phase decided: computing took %s of its workers' time, moving parameters %s.", quantity.Percent(share(observe.Compute)), quantity.Percent(moving))
}

func (m *measured) peakResident() float64 {
	peak := 0.0
	for _, s := range m.sources {
		if n, v := s.resident.values(); n > 0 {
			peak = max(peak, v)
		}
	}
	return peak
}

// resultSection is the table of what came of the runs.
func resultSection(all []*measured) Section {
	metrics := map[string]bool{}
	for _, m := range all {
		for name := range m.total.Metrics {
			metrics[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(metrics))
	s := Section{Title: "Result"}
	if len(names) > shownColumns {
		s.Blocks, names = append(s.Blocks, metricTable(all, names)), nil
	}
	t := Table{Name: "result", Columns: []Column{
		{Name: "run"},
		{Name: "ended"},
		{Name: "updates"},
		{Name: "time", Unit: "in updates"},
		{Name: "speed", Unit: "samples/s"},
	}}
	for _, n := range names {
		t.Columns = append(t.Columns, Column{Name: n})
	}
	for _, m := range all {
		row := Row{Cells: []Cell{
			Name(m.label),
			ended(m),
			Number(float64(m.total.Steps), Digits(0)),
			Number(m.total.Seconds, quantity.Seconds),
			Number(m.total.SamplesPerSec, Digits(0)),
		}}
		for _, n := range names {
			row.Cells = append(row.Cells, m.metric(n))
		}
		t.Rows = append(t.Rows, row)
	}
	if len(all) > 1 {
		t.Notes = []string{"One run each: nothing is known of the spread, so a small difference means nothing, and none is marked as best."}
	}
	s.Blocks = slices.Insert(s.Blocks, 0, Block(t))
	return s
}

// metricTable is the metrics by runs: of more than are beside each other on a sheet.
func metricTable(all []*measured, names []string) Table {
	t := Table{Name: "metrics", Columns: []Column{{Name: "metric"}}}
	for _, m := range all {
		t.Columns = append(t.Columns, Column{Name: m.label})
	}
	for _, n := range names {
		row := Row{Cells: []Cell{Name(n)}}
		for _, m := range all {
			row.Cells = append(row.Cells, m.metric(n))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// metric is the cell of a metric at the end of the run.
func (m *measured) metric(name string) Cell {
	switch v, ok := m.total.Metrics[name]; {
	case !ok:
		return Missing("not measured")
	case !finite.Is(v):
		return Missing("not finite")
	default:
		return Number(v, quantity.Figure)
	}
}

func ended(m *measured) Cell {
	if m.Result == nil {
		return Verdict(Open, "unfinished")
	}
	switch m.Result.Reason {
	case "finished", "stopped", "target met":
		return Verdict(Good, m.Result.Reason)
	case "interrupted":
		return Verdict(Open, m.Result.Reason)
	}
	c := Verdict(Bad, m.Result.Reason)
	if m.Result.Error != "" {
		c = c.With(m.Result.Error)
	}
	return c
}
