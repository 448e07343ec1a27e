package compare

import (
	"maps"
	"slices"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

func (r *Report) roles() []report.Block {
	var blocks []report.Block
	for _, t := range r.Tables {
		table := report.Table{
			Name: "use-" + anchor(t), Caption: []report.Span{report.Strong(t.title()), report.Text(": what the processes of each role took, all together, within the clock.")},
			Columns: []report.Column{
				{Name: "row"},
				{Name: "role"},
				{Name: "processes"},
				{Name: "user", Unit: "cores", Group: "processor"},
				{Name: "system", Unit: "cores", Group: "processor"},
				{Name: "each sample", Unit: "µs", Group: "processor"},
				{Name: "mean", Unit: "bytes", Group: "memory"},
				{Name: "peak", Unit: "bytes", Group: "memory"},
				{Name: "a second", Unit: "bytes", Group: "network"},
				{Name: "each sample", Unit: "bytes", Group: "network"},
			},
		}
		for _, x := range t.Rows {
			for _, role := range slices.Sorted(maps.Keys(x.Use)) {
				u := x.Use[role]
				second, sample := report.Number(u.BytesSecond, svg.Bytes), report.Number(u.BytesSample, report.Digits(0))
				if u.NotCounted != "" {
					second = report.Missing("not measured: " + u.NotCounted)
					sample = second
				}
				memory, peak := report.Number(u.MeanBytes, svg.Bytes), report.Number(u.PeakBytes, svg.Bytes)
				if u.MeanBytes == 0 {
					memory = report.Missing("not measured")
					peak = memory
				}
				table.Rows = append(table.Rows, report.Row{Muted: x.Crowded, Cells: []report.Cell{
					report.Name(x.System), report.Name(string(role)), report.Number(float64(u.Processes), report.Digits(0)),
					report.Number(u.UserShare, report.Digits(2)), report.Number(u.SystemShare, report.Digits(2)), report.Number(u.MicrosSample, report.Digits(2)),
					memory, peak, second, sample,
				}})
			}
		}
		if len(table.Rows) > 0 {
			table.Notes = []string{"Memory is the proportional set size, so that shared pages count once. Bytes are both directions of the processes' own interfaces."}
			blocks = append(blocks, table)
		}
	}
	return blocks
}

func (r *Report) phases() []report.Block {
	var figures []report.SmallFigure
	for _, t := range r.Tables {
		chart := svg.Stack{Title: "Where a step goes, " + t.title(), Share: true, Parts: report.Phases()}
		for _, x := range t.Rows {
			var sums []float64
			for _, one := range x.Trials {
				if one.Result.Error != "" || len(one.Result.Phases) == 0 {
					continue
				}
				if sums == nil {
					sums = make([]float64, len(phaseOrder))
				}
				for i, name := range phaseOrder {
					sums[i] += one.Result.Phases[name]
				}
			}
			row := svg.StackRow{Label: x.System, Values: sums}
			if sums == nil {
				row.Missing = "not measured: it has no such counters"
			}
			chart.Rows = append(chart.Rows, row)
		}
		if slices.ContainsFunc(chart.Rows, func(x svg.StackRow) bool { return x.Values != nil }) {
			figures = append(figures, report.SmallFigure{Title: t.title(), Chart: chart})
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []report.Block{report.Figures{Caption: caption("Shares of the workers' time by phase: what is not compute is the price of the topology."), Items: figures}}
}

// phaseOrder are the words of observe.Phase.
var phaseOrder = []string{"load", "compute", "serialise", "push", "pull", "wait-barrier", "wait-stale", "apply", "other"}
