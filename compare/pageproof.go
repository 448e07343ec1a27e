package compare

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

func (r *Report) proof() []report.Block {
	t := report.Table{Name: "equality", Caption: caption("Largest deviation of the training loss from that of local at the same effective batch, over 1 + loss, at up to %d updates of each repeat. Up to 0.001 is equal.", proofPoints)}
	t.Columns = []report.Column{{Name: "row"}, {Name: "largest deviation"}, {Name: "proof"}}
	var figures []report.SmallFigure
	for _, table := range r.Tables {
		heading := table.title() // of its first row
		for _, x := range table.Rows {
			if x.Good == 0 {
				continue
			}
			verdict := report.Verdict(report.Good, "equal")
			switch {
			case x.Approx != "":
				verdict = report.Verdict(report.Neutral, "exempt: "+x.Approx)
			case x.Mode != Sync:
				verdict = report.Verdict(report.Neutral, "exempt: workers read stale parameters")
			case x.Proof != proven:
				verdict = report.Verdict(report.Bad, "failed: "+x.Proof)
			}
			deviation := report.Cell{}
			if x.Approx == "" && x.Mode == Sync {
				deviation = report.Number(x.Largest, func(v float64) string { return power(v, 1) })
			}
			t.Rows = append(t.Rows, report.Row{Heading: heading, Cells: []report.Cell{report.Name(x.System), deviation, verdict}})
			heading = ""
		}
		figures = append(figures, table.lossCharts(false)...)
	}
	blocks := []report.Block{say("Samples per second compare nothing where the systems compute different things. At fixed updates each row's parameters were saved and evaluated afterwards, all by one program.")}
	switch c := &r.Check; {
	case c.Compared > 0 && c.Largest <= checkTolerance:
		blocks = append(blocks, report.Callout{Tone: report.Good, Title: "Checked by NumPy", Blocks: []report.Block{say("check.py, which shares no code with this program, recomputed %d of these losses from the saved parameters; the largest difference is %s.", c.Compared, power(c.Largest, 1))}})
	case c.Compared > 0:
		blocks = append(blocks, report.Callout{Tone: report.Bad, Title: "NumPy disagrees", Blocks: []report.Block{say("check.py recomputed %d losses; one differs by %.1e, and 1e-5 is allowed.", c.Compared, c.Largest)}})
	case c.Why != "":
		blocks = append(blocks, report.Callout{Tone: report.Open, Title: "Not checked by NumPy", Blocks: []report.Block{say("%s", c.Why)}})
	}
	if len(t.Rows) > 0 {
		blocks = append(blocks, t)
	}
	if len(figures) > 0 {
		text := fmt.Sprintf("Training loss against samples, of up to %s a picture: synchronous rows with as many rows in an update lie on one line.", quantity.Count(svg.Hues, "row"))
		if slices.ContainsFunc(r.Tables, func(t *Table) bool {
			return slices.ContainsFunc(t.Rows, func(x *Row) bool { return uneven(x.System, x.Mode) })
		}) {
			text += " Where workers wait for nobody and one of them is behind, samples are not known, and there is no line."
		}
		blocks = append(blocks, report.Figures{Caption: caption("%s", text), Items: figures})
	}
	return blocks
}

// lossCharts are the training losses of all rows against time or samples: of each sort in pictures of their own, of as many rows as there are
// colours.
func (t *Table) lossCharts(time bool) (figures []report.SmallFigure) {
	var c svg.Lines
	sort := -1
	end := func() {
		if len(c.Series) == 1 { // which has no legend
			c.Title += ": " + c.Series[0].Name
		}
		if len(c.Series) > 0 {
			figures = append(figures, report.SmallFigure{Title: c.Title, Chart: c})
		}
		c = svg.Lines{Title: t.title(), Y: svg.Axis{Label: "Training loss", Log: true}, X: svg.Axis{Label: "Samples"}}
		if time {
			c.X = svg.Axis{Label: "Time since the first update", Unit: "s"}
		}
		if t.Target.Split == "train" && t.Target.Metric == "loss" {
			c.YMarks = []svg.Mark{{At: t.Target.Value, Label: fmt.Sprintf("target %v", t.Target.Value)}}
		}
	}
	for i, x := range t.drawn() {
		if x.sort() == len(sorts) {
			break
		}
		if !time && uneven(x.System, x.Mode) {
			continue
		}
		if x.sort() != sort || len(c.Series) == svg.Hues {
			end()
			sort = x.sort()
			c.Title += ", " + sorts[sort]
		}
		s := svg.Series{Name: x.System, Hue: hue(i)}
		for _, p := range x.losses() {
			at := float64(p.Samples)
			if time {
				at = p.Seconds
			}
			s.Points = append(s.Points, svg.Point{X: at, Y: p.Loss, Lo: p.Loss, Hi: p.Loss})
		}
		c.Series = append(c.Series, s)
	}
	end()
	return figures
}

// sorts are those of rows whose losses are drawn together: the first must have the same where as many rows are in an update.
var sorts = []string{"synchronous", "synchronous, other systems", "stale parameters", "approximations"}

// sort is the row's place among sorts, or, where it has no curve, the one behind them.
func (x *Row) sort() int {
	switch {
	case len(x.losses()) == 0:
		return len(sorts)
	case x.Approx != "":
		return 3
	case x.Mode != Sync:
		return 2
	case x.Peer:
		return 1
	}
	return 0
}

// drawn are the rows in the order of their colours, which are the same in all pictures of a table: by their sorts, and last what has no
// curve, so that no two lines of a picture share one. Of a sort, those come last that have no line against samples.
func (t *Table) drawn() []*Row {
	rows := slices.Clone(t.Rows)
	place := func(x *Row) int {
		if uneven(x.System, x.Mode) {
			return 2*x.sort() + 1
		}
		return 2 * x.sort()
	}
	slices.SortStableFunc(rows, func(a, b *Row) int { return cmp.Compare(place(a), place(b)) })
	return rows
}

// hue is the colour of the row that is at a place among drawn.
func hue(place int) int { return place%svg.Hues + 1 }

// hues are the colours of rows in pictures of several tables: those that they have in the first table with them.
func (r *Report) hues() map[string]int {
	of := map[string]int{}
	for _, t := range r.Tables {
		for i, x := range t.drawn() {
			if of[x.System] == 0 {
				of[x.System] = hue(i)
			}
		}
	}
	return of
}

// losses are the places of the row's first good repeat at which its loss was looked at: the others differ in time alone.
func (x *Row) losses() (list []Point) {
	for _, one := range x.Trials {
		if one.Result.Error != "" {
			continue
		}
		for _, p := range one.Result.Curve {
			if p.Loss > 0 { // a logarithm has nothing else, and NaN is none
				list = append(list, p)
			}
		}
		break
	}
	return list
}

func (r *Report) way() []report.Block {
	var figures []report.SmallFigure
	for _, t := range r.Tables {
		if c, ok := t.targetChart(); ok {
			figures = append(figures, report.SmallFigure{Title: "Time to target: " + t.title(), Chart: c})
		}
		for _, f := range t.lossCharts(true) {
			f.Title = "Loss against time: " + f.Title
			figures = append(figures, f)
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []report.Block{
		say("Rows rank by the time to the target, which includes how far each update comes. The clock stands still while parameters are copied for evaluation; what is not reached is never extrapolated. The same losses against samples are in the equality proof."),
		report.Figures{Caption: caption("Time to the target, with minimum and maximum; and training loss against time, in the first repeat that ended well, of up to %s a picture, in which the lowest line is the fastest way.", quantity.Count(svg.Hues, "row")), Items: figures},
	}
}

// targetChart is the time to the target of each row; false: none has one.
func (t *Table) targetChart() (svg.Bars, bool) {
	c := svg.Bars{Title: "Time to " + t.Target.String() + ", " + t.title(), Value: svg.Axis{Label: "Time to " + t.Target.String(), Log: true, Format: quantity.Seconds}}
	some, drawn := false, t.drawn()
	for _, x := range t.Rows {
		b := svg.Bar{Hue: hue(slices.Index(drawn, x))}
		switch {
		case x.Ranked || x.Good > 0 && x.Reached == x.Good:
			b.Value, b.Lo, b.Hi = x.Target.Median, x.Target.Min, x.Target.Max
			some = true
		case x.Good == 0:
			continue
		case x.Why == unseen:
			b.Missing = "not seen"
		default:
			b.Missing = "not reached"
		}
		g := svg.Group{Label: x.System, Bars: []svg.Bar{b}}
		if !x.Ranked {
			g.Note = "not ranked"
		}
		c.Groups = append(c.Groups, g)
	}
	return c, some
}
