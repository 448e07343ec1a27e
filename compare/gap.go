package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// A twin is the row of ours with the topology of a peer's; without one, why there is none.
type twin struct {
	peer, row, lacks string
	shipped          string // the peer's row as it is shipped; empty: its name with untouched behind it
}

var twins = []twin{
	{peer: "pytorch-ddp", row: "allreduce"},
	{peer: "horovod", row: "allreduce"},
	{peer: "mxnet-sync", row: "server-bsp"},
	{peer: "mxnet-async", row: wholeRow},
	{peer: "tensorflow-mirrored", row: "allreduce"},
	{peer: "pmls-ssp3-clock10", row: "server-ssp3-clock10", shipped: "pmls-ssp3-shipped"},
	{peer: "tensorflow-sync", lacks: noReplica},
	{peer: "tensorflow-async", lacks: noReplica},
	{peer: "spark", lacks: noDriver},
}

// untouched is how the row of a peer as it is shipped is called, after the tuned one.
const untouched = "-default"

// asShipped is the name of the peer's row as it is shipped, which not every peer has.
func (w *twin) asShipped() string { return orElse(w.shipped, w.peer+untouched) }

// gap is where the published gap goes: for each peer, the time to the target from the peer as shipped to the tuned one, from there to our
// row of the same topology (what the implementation costs), to the best row of the same algorithm, where that is faster (what the topology
// costs), and to the best row of the table, where that is another's (what the algorithm does: local has the rows of one worker in an update,
// a codec drops some of what others send, and under SSP and ASP workers read stale parameters).
func (r *Report) gap() []report.Block {
	var blocks []report.Block
	var without []string
	for _, t := range r.Tables {
		best, _ := t.first()
		for _, w := range twins {
			x := t.row(w.peer)
			if x == nil {
				continue
			}
			if !x.Ranked {
				if x.Good > 0 {
					without = append(without, fmt.Sprintf("%s on %s: %s", w.peer, t.title(), x.Why))
				}
				continue
			}
			blocks = append(blocks, t.waterfall(x, w, best))
		}
	}
	if len(blocks) == 0 {
		why := "no other system was measured here"
		if n := len(r.Absent); n > 0 {
			why = fmt.Sprintf("the systems of %s are not installed (see the end of the page)", quantity.Count(n, "row"))
		}
		if len(without) > 0 {
			why = "no row of another system may be ranked here"
		}
		blocks = append(blocks, say("Nothing is drawn: %s.", why))
	} else {
		blocks = append([]report.Block{say("Each chart goes from another system to the best row of the same table, by the median time to the same target, on the same cores. What lies between a system and our row of its topology is the implementation; between that and the best row that makes the same updates, the topology; and what a row with fewer rows in an update, or one that approximates or reads stale parameters, gains beyond that is another algorithm's.")}, blocks...)
	}
	if len(without) > 0 {
		l := report.List{}
		for _, x := range without {
			l.Items = append(l.Items, say("%s", x))
		}
		blocks = append(blocks, report.Details{Summary: caption("%d that cannot be drawn", len(without)), Blocks: []report.Block{l}})
	}
	return blocks
}

// writeGap writes the longest of these charts as gap.svg, to be shown elsewhere; where there is none, nothing.
func (r *Report) writeGap(dir string) error {
	var chart svg.Chart
	most := 1.0
	for _, t := range r.Tables {
		best, _ := t.first()
		for _, w := range twins {
			if x := t.row(w.peer); x != nil && x.Ranked && best != nil && x.Target.Median/best.Target.Median > most {
				chart, most = t.waterfallChart(x, w, best), x.Target.Median/best.Target.Median
			}
		}
	}
	if chart == nil {
		return nil
	}
	text, err := chart.Draw(svg.Frame{Width: 760, ID: "gap", Standalone: true})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "gap.svg"), func(f *os.File) error {
		_, err := f.WriteString(text)
		return err
	})
}

func (t *Table) waterfallChart(x *Row, w twin, best *Row) svg.Waterfall {
	chart := svg.Waterfall{
		Title: fmt.Sprintf("%s on %s", x.System, t.title()), HigherWorse: true,
		Value: svg.Axis{Label: "Time to " + t.Target.String(), Log: true, Format: quantity.Seconds},
	}
	step := func(label string, y *Row, note string) {
		l := svg.Level{Label: label, Note: note}
		switch {
		case y == nil:
			l.Missing = "not run"
		case !y.Ranked:
			l.Missing = "not ranked"
		default:
			l.Value, l.Lo, l.Hi = y.Target.Median, y.Target.Min, y.Target.Max
		}
		chart.Steps = append(chart.Steps, l)
	}
	label := "as run here" // beside nothing that would show what its settings do
	if y := t.row(w.asShipped()); y != nil && y.Ranked {
		step("as shipped", y, y.System)
		label = "tuned"
	}
	step(label, x, x.System)
	our := t.row(w.row)
	if w.row == "" {
		chart.Steps = append(chart.Steps, svg.Level{Label: "our twin", Missing: "no twin yet"})
	} else {
		step("our twin", our, "implementation: "+w.row)
	}
	same := t.fasterThan(x, our)
	if same != nil {
		step("best at this batch", same, "topology: "+same.System)
	}
	switch {
	case best == same, best == our, best == x:
	case best.Effective == x.Effective: // such as a codec, or local SGD
		step("best here", best, "another algorithm: "+best.System)
	default:
		step("best here", best, fmt.Sprintf("batch %s, not %s: %s", Batch(best.Effective), Batch(x.Effective), best.System))
	}
	return chart
}

func (t *Table) waterfall(x *Row, w twin, best *Row) report.Block {
	var words []string
	our := t.row(w.row)
	same, from := t.fasterThan(x, our), x
	switch {
	case w.row == "":
		words = append(words, "no twin yet: "+w.lacks)
	case our != nil && our.Ranked:
		words = append(words, fmt.Sprintf("%s in the implementation", times(x.Target.Median/our.Target.Median)))
		if from = our; same != nil {
			words = append(words, fmt.Sprintf("%s in the topology", times(our.Target.Median/same.Target.Median)))
			from = same
		}
	}
	if (our == nil || !our.Ranked) && same != nil {
		words = append(words, fmt.Sprintf("%s in implementation and topology", times(x.Target.Median/same.Target.Median)))
		from = same
	}
	switch {
	case best == from, best == x: // the system itself may be ahead of our twin
	case best.Effective == x.Effective:
		words = append(words, fmt.Sprintf("%s by %s, which is another algorithm", times(from.Target.Median/best.Target.Median), best.System))
	default:
		words = append(words, fmt.Sprintf("%s by %s with a batch of %s in place of %s, which is another algorithm", times(from.Target.Median/best.Target.Median), best.System, Batch(best.Effective), Batch(x.Effective)))
	}
	words = append(words, fmt.Sprintf("%s in all", times(x.Target.Median/best.Target.Median)))
	text := fmt.Sprintf("From %s to the best row of %s: %s.", x.System, t.title(), strings.Join(words, ", "))
	if x.Crowded || our != nil && our.Crowded || best.Crowded {
		text += " Oversubscribed: more busy threads than cores, so it carries no verdict."
	}
	return report.Figure{Chart: t.waterfallChart(x, w, best), Caption: caption("%s", text)}
}

func times(x float64) string { return quantity.Short(x) + " ×" }

// fasterThan returns the best ranked row of x's algorithm that is faster than our twin of x, or, where that may not be ranked, than x; nil:
// there is none.
func (t *Table) fasterThan(x, our *Row) *Row {
	best := x
	if our != nil && our.Ranked {
		best = our
	}
	from := best
	for _, y := range t.Rows {
		if y.Ranked && y.Place < best.Place && x.likewise(y) {
			best = y
		}
	}
	if best == from {
		return nil
	}
	return best
}

// likewise reports whether y makes the updates that x, a row of another system, does. Of ours that wait for nobody only wholeRow makes whole
// steps, as other systems' do.
func (x *Row) likewise(y *Row) bool {
	return y.Effective == x.Effective && y.Approx == "" && y.Mode == x.Mode && (y.Mode != Async || y.Peer || y.System == wholeRow)
}

// row returns the row of a system; nil: there is none.
func (t *Table) row(system string) *Row {
	for _, x := range t.Rows {
		if x.System == system {
			return x
		}
	}
	return nil
}
