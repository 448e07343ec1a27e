package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// bound is where a row of the parameter server stands in the sweep of staleness: BSP at 0, ASP beyond every bound. false: it is another
// row, or one of another rule.
func (x *Row) bound() (at int, ok bool) {
	switch name := strings.TrimSuffix(x.System, slow); {
	case name == "server-bsp":
		return 0, true
	case name == "server-asp":
		return math.MaxInt, true
	case x.Mode.Kind == "ssp" && name == fmt.Sprintf("server-ssp%d", x.Mode.Staleness):
		return x.Mode.Staleness, true
	}
	return 0, false
}

func boundWord(at int) string {
	switch at {
	case 0:
		return "0 (BSP)"
	case math.MaxInt:
		return "none (ASP)"
	}
	return fmt.Sprint(at)
}

// staleness is the sweep of the SSP bound: what it does to the speed, to the samples that are needed, and how stale reads were.
func (r *Report) staleness() []report.Block {
	table := report.Table{
		Name: "staleness", Caption: caption("What the staleness bound does: with a looser one workers may wait less, and a sample may be worth less."),
		Columns: []report.Column{
			{Name: "row"},
			{Name: "bound", Unit: "clocks", Right: true},
			{Name: "speed", Unit: "samples/s"},
			{Name: "samples to target"},
			{Name: "time to target"},
			{Name: "waited", Unit: "% of the time"},
			{Name: "reads behind", Unit: "clocks, mean"},
		},
	}
	var figures []report.SmallFigure // one a table: each has its rows under one axis
	var unrecorded []string          // rows
	for _, t := range r.Tables {
		rows := t.sweep()
		first := true
		chart := svg.Histogram{Title: "How many clocks reads were behind, " + t.title(), Whole: true, X: svg.Axis{Label: "Clocks behind"}}
		for _, x := range rows {
			at, _ := x.bound() // each has one
			heading := ""
			if first {
				heading, first = t.title(), false
			}
			behind := report.Missing("not recorded")
			bins := x.staleReads()
			if len(bins) > 0 {
				behind = report.Number(meanOf(bins), report.Digits(2))
			}
			target := report.Missing("not reached")
			samples := target
			if x.Reached == x.Good {
				target = x.Target.seconds()
				samples = report.Number(x.Samples.Median, quantity.Short)
				if uneven(x.System, x.Mode) {
					samples = report.Missing("not known: its workers wait for nobody, and one of them is behind")
				}
			}
			wait := report.Missing("not recorded")
			if w := waited(x.phases()); !math.IsNaN(w) {
				wait = report.Number(100*w, report.Digits(0))
			}
			table.Rows = append(table.Rows, report.Row{Heading: heading, Muted: x.Crowded, Unranked: !x.Ranked, Cells: []report.Cell{
				report.Name(x.System), report.Name(boundWord(at)), report.Interval(x.Rate.Median, x.Rate.Min, x.Rate.Max, quantity.Short), samples, target, wait, behind,
			}})
			if x.Mode != Sync {
				p := svg.Panel{Label: x.System, Hue: 1}
				if at < math.MaxInt {
					p.Marks = []svg.Mark{{At: float64(at), Label: fmt.Sprintf("bound %d", at)}}
				}
				for _, b := range slices.Sorted(maps.Keys(bins)) {
					p.Bins = append(p.Bins, svg.Bin{Lo: float64(b), Count: bins[b]})
				}
				if len(bins) == 0 {
					if !slices.Contains(unrecorded, x.System) {
						unrecorded = append(unrecorded, x.System)
					}
					continue
				}
				chart.Panels = append(chart.Panels, p)
			}
		}
		if len(chart.Panels) > 0 {
			figures = append(figures, report.SmallFigure{Title: t.title(), Chart: chart})
		}
	}
	if len(table.Rows) == 0 {
		return nil
	}
	blocks := []report.Block{table}
	if len(figures) > 0 {
		blocks = append(blocks, report.Figures{
			Caption: caption("How stale reads were under each bound: the bound is a limit, not a habit."),
			Items:   figures,
		})
	}
	if len(unrecorded) > 0 {
		blocks = append(blocks, say("Of %s it is not recorded how stale reads were: its workers counted none.", strings.Join(unrecorded, ", ")))
	}
	return blocks
}

// sweep are the rows of the table that differ in the bound alone, without a straggler and then with one, each in the order of the bound.
func (t *Table) sweep() (rows []*Row) {
	for _, x := range t.Rows {
		if _, ok := x.bound(); ok && x.Good > 0 {
			rows = append(rows, x)
		}
	}
	if len(rows) < 2 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b *Row) int {
		i, _ := a.bound()
		k, _ := b.bound()
		return cmp.Or(cmp.Compare(len(a.System)-len(strings.TrimSuffix(a.System, slow)), len(b.System)-len(strings.TrimSuffix(b.System, slow))), cmp.Compare(i, k))
	})
	return rows
}

// staleReads are the reads of all trials by how many clocks they were behind.
func (x *Row) staleReads() map[int]float64 {
	bins := map[int]float64{}
	for _, one := range x.Trials {
		for name, n := range one.Result.Staleness {
			var at int
			if _, err := fmt.Sscan(name, &at); err == nil && n > 0 { // of nothing there is no chart
				bins[at] += n
			}
		}
	}
	return bins
}

func meanOf(bins map[int]float64) float64 {
	var sum, n float64
	for at, c := range bins {
		sum, n = sum+float64(at)*c, n+c
	}
	return sum / n
}

// waited is the share of the workers' time in which they waited for others; NaN where phases were not counted.
func waited(phases map[string]float64) float64 {
	var sum float64
	for _, name := range phaseOrder { // in one order: the same trials give the same bytes of report.csv
		sum += phases[name]
	}
	if sum == 0 {
		return math.NaN()
	}
	return (phases["wait-barrier"] + phases["wait-stale"]) / sum
}
