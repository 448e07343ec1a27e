package compare

import (
	"fmt"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
)

// blocks are the answer to a user's own job: the best row and how sure it is, the command that repeats it, and the others beside it.
func (x *Best) blocks() []report.Block {
	tone, title := x.title()
	callout := report.Callout{Tone: tone, Title: title, Blocks: []report.Block{say("%s", strings.TrimSuffix(x.Text, x.repeated()))}}
	if x.Command != "" {
		callout.Blocks = append(callout.Blocks, report.Code{Caption: "Repeat it with", Text: x.Command})
	}
	blocks := []report.Block{callout}
	if len(x.Behind) > 0 {
		blocks = append(blocks, x.beside())
	}
	return blocks
}

// title is the answer in a line, in the tone of how sure it is.
func (x *Best) title() (report.Tone, string) {
	switch {
	case x.System == "":
		return report.Open, "No row may be ranked"
	case len(x.Behind) == 0:
		return report.Open, fmt.Sprintf("%s is the only row that may be ranked", x.name)
	case x.Verdict.Outcome == Faster && x.Flagged > 0:
		return report.Warn, fmt.Sprintf("%s is ahead, in repeats of which some are flagged", x.name)
	case x.Verdict.Outcome == Faster:
		return report.Good, fmt.Sprintf("%s is proven to be ahead", x.name)
	}
	return report.Open, fmt.Sprintf("%s is the soonest at the target, and not proven to be ahead of %s", x.name, x.Behind[0].Name)
}

// beside is the table of all rows that may be ranked, the best first, and of those that may not.
func (x *Best) beside() report.Table {
	table := report.Table{
		Name:    "best",
		Caption: caption("The time to %v, median [minimum–maximum], and how many times the best row's that is, with its 95 %% interval.", x.table.Target),
		Columns: []report.Column{{Name: "row"}, {Name: "to target", Right: true}, {Name: "of the best's", Unit: "×"}, {Name: "is it behind?"}},
		Notes:   []string{"A verdict is Mann and Whitney's exact test of the repeats, corrected by Holm for all pairs of the rows that have one, since which row is the best is found by the same repeats; and an interval without 1."},
	}
	table.Rows = append(table.Rows, report.Row{Muted: x.row.Crowded, Cells: []report.Cell{x.row.withDoubts(report.Name(x.name)), x.row.Target.seconds(), report.Number(1, report.Digits(2)), {}}})
	for i := range x.Behind {
		y := &x.Behind[i]
		ratio := report.Number(y.Verdict.Ratio, report.Digits(2))
		if y.repeats >= fewest {
			ratio = report.Interval(y.Verdict.Ratio, y.Verdict.Low, y.Verdict.High, report.Digits(2))
		}
		table.Rows = append(table.Rows, report.Row{Muted: y.Crowded, Cells: []report.Cell{y.row.withDoubts(report.Name(y.Name)), y.Target.seconds(), ratio, y.verdict()}})
	}
	for _, y := range x.table.Rows {
		if !y.Ranked {
			table.Rows = append(table.Rows, report.Row{Unranked: true, Muted: y.Crowded, Cells: []report.Cell{report.Name(y.System), report.Missing("not ranked: " + orElse(y.Why, orElse(y.Error, notYet)))}})
		}
	}
	return table
}

// seconds is how a page has a time, everywhere in the same way.
func (s Spread) seconds() report.Cell {
	return report.Interval(s.Median, s.Min, s.Max, quantity.Seconds)
}

// verdict is whether the row is behind the best.
func (x *Behind) verdict() report.Cell {
	switch {
	case x.Crowded:
		return report.Verdict(report.Neutral, "no verdict: oversubscribed, with more busy threads than cores")
	case x.Verdict.Outcome == TooFew:
		return report.Verdict(report.Open, fmt.Sprintf("not proven: %s prove nothing", quantity.Count(x.repeats, "repeat")))
	case x.Verdict.Outcome == Faster:
		return report.Words(report.Badge(report.Good, "yes"), report.Text(fmt.Sprintf(" p = %.2g", x.Verdict.P)))
	}
	return report.Words(report.Badge(report.Open, "not proven"), report.Text(fmt.Sprintf(" p = %.2g", x.Verdict.P)))
}
