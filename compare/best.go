package compare

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/internal/shell"
)

// A Best says which row a user should take for his own job.
type Best struct {
	System  string   `json:"system"`
	Next    string   `json:"next,omitempty"`
	Verdict Verdict  `json:"verdict"`           // of the next
	Behind  []Behind `json:"behind,omitempty"`  // all that may be ranked beside it, the next first
	Flagged int      `json:"flagged,omitempty"` // of its repeats and the next's: what they took is partly another program's doing
	Command string   `json:"command"`
	Text    string   `json:"text"`

	table *Table // that it is of
	row   *Row
	name  string
}

// A Behind is a row beside the best one.
type Behind struct {
	Name    string  `json:"name"`
	Target  Spread  `json:"seconds_to_target"`
	Verdict Verdict `json:"verdict"` // Faster: the best is proven to be ahead; see sure
	Crowded bool    `json:"crowded,omitempty"`

	row     *Row
	repeats int // of this row or the best, the fewer
}

// best is the last line of a user's own comparison: the row that is the soonest at the target, and how far it is ahead of all others on the same
// link, whatever their workers.
func best(tables []*Table, p *Plan) *Best {
	list := contenders(tables)
	if len(list) == 0 {
		return &Best{Text: "best: none, since no row may be ranked: " + tables[0].whyNone()}
	}
	first := list[0]
	a, t := first.row, first.table
	name := namer(tables)
	x := &Best{System: a.System, row: a, table: t, name: name(first), Behind: behind(list, name)}
	i := slices.IndexFunc(p.Systems, func(s System) bool { return s.Name() == a.System })
	if o, ok := p.Systems[i].(*own); ok {
		x.Command = o.trainCommand(t, a, p)
	}
	x.Text = fmt.Sprintf("best: %s reaches %v in %s", x.name, t.Target, quantity.Seconds(a.Target.Median))
	if slices.ContainsFunc(tables, func(o *Table) bool { return o.Link != t.Link }) {
		x.Text += fmt.Sprintf(" (%s)", t.Link)
	}
	if why := t.whyNone(); len(x.Behind) == 0 && why != "" {
		x.Text += "; no other row may be ranked: " + why
	}
	if len(x.Behind) > 0 {
		next := x.Behind[0]
		x.Next, x.Verdict = next.row.System, next.Verdict
		x.Text += fmt.Sprintf(", %.2f times as fast as the next, %s (%s)", next.Verdict.Ratio, next.Name, next.sure())
		if more := x.unproven(); len(more) > 0 {
			x.Text += "; not proven to be ahead of " + listed(more)
		}
		flagged, of := a.flagged()
		also, and := next.row.flagged()
		if x.Flagged = flagged + also; x.Flagged > 0 {
			x.Text += fmt.Sprintf("; %d of these %s are flagged", x.Flagged, quantity.Count(of+and, "repeat"))
		}
	}
	x.Text += x.repeated()
	return x
}

// repeated is the end of the text.
func (x *Best) repeated() string {
	if x.Command == "" {
		return ""
	}
	return "; repeat it with: " + x.Command
}

// behind compares the first of the contenders with all others. Which is the first is found by the same repeats, and any of them would have been chosen:
// so verdicts are corrected for all pairs of the rows that carry one, and not for those with the first alone.
func behind(list []contender, name func(contender) string) (all []Behind) {
	a := list[0].row
	var verdicts []Verdict
	for _, c := range list[1:] {
		b := c.row
		x := Behind{
			Name: name(c), Target: b.Target, Verdict: Judge(a.Target.Values, b.Target.Values), Crowded: a.Crowded || b.Crowded,
			row: b, repeats: min(len(a.Target.Values), len(b.Target.Values)),
		}
		switch {
		case x.Crowded:
			x.Verdict.Outcome, x.Verdict.P = undecided, 1
		case x.repeats < fewest:
			x.Verdict.Outcome = TooFew
		default:
			verdicts = append(verdicts, x.Verdict)
		}
		all = append(all, x)
	}
	pairs := pairsOf(len(verdicts))
	corrected := correct(verdicts, pairs)
	for i := range all {
		x := &all[i]
		if x.Verdict.Outcome == undecided || x.Verdict.Outcome == TooFew {
			continue
		}
		x.Verdict, corrected = corrected[0], corrected[1:]
		if !canProve(x.repeats, x.repeats, pairs) {
			x.Verdict.Outcome = TooFew
		}
	}
	return all
}

// pairsOf are the pairs of the best row and so many others.
func pairsOf(others int) int { return others * (others + 1) / 2 }

// sure says how sure it is that the best row is ahead. Of fewer repeats than a verdict takes, an interval would be what the few happened to be.
func (x *Behind) sure() string {
	interval := fmt.Sprintf("95 %% interval %.2f to %.2f", x.Verdict.Low, x.Verdict.High)
	few := x.repeats < fewest
	switch {
	case x.Crowded && few:
		return crowdedWord
	case x.Crowded:
		return interval + "; " + crowdedWord
	case few:
		return fmt.Sprintf("%s prove nothing: --repeats 7", quantity.Count(x.repeats, "repeat"))
	case x.Verdict.Outcome == TooFew:
		return fmt.Sprintf("%s; %s of so many rows prove nothing: --repeats 7", interval, quantity.Count(x.repeats, "repeat"))
	case x.Verdict.Outcome == Faster:
		return fmt.Sprintf("%s, p = %.2g", interval, x.Verdict.P)
	}
	return interval + "; no difference is proven"
}

const crowdedWord = "oversubscribed: more busy threads than cores, so it carries no verdict"

// unproven are the rows after the next that could be judged, and that the best is not proven to be ahead of.
func (x *Best) unproven() (names []string) {
	for _, y := range x.Behind[1:] {
		if y.Verdict.Outcome == NoDifference {
			names = append(names, y.Name)
		}
	}
	return names
}

// A contender is a row that may be the best, in one of its tables.
type contender struct {
	row   *Row
	table *Table
}

// contenders are the rows that may be ranked, the soonest at the target first: those of the link on which that one is, since a link is what there is, and
// no choice. A row that several tables show is one.
func contenders(tables []*Table) (list []contender) {
	for _, t := range tables {
		for _, x := range t.Rows {
			if x.Ranked && !slices.ContainsFunc(list, func(c contender) bool { return c.table.Link == t.Link && c.row.cell == x.cell }) {
				list = append(list, contender{x, t})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b contender) int { return cmp.Compare(a.row.Target.Median, b.row.Target.Median) })
	if len(list) == 0 {
		return nil
	}
	link := list[0].table.Link
	return slices.DeleteFunc(list, func(c contender) bool { return c.table.Link != link })
}

// namer says how contenders are called: where the tables differ in their workers, a row of several processes with how many it has.
func namer(tables []*Table) func(c contender) string {
	several := slices.ContainsFunc(tables, func(t *Table) bool { return t.Workers != tables[0].Workers })
	return func(c contender) string {
		if x := c.row; several && !strings.HasPrefix(x.System, "local") {
			return fmt.Sprintf("%s with %s", x.System, quantity.Count(x.Workers, "worker"))
		}
		return c.row.System
	}
}

// whyNone is why rows of the table may not be ranked; empty: all may.
func (t *Table) whyNone() string {
	var words []string
	for _, x := range t.Rows {
		if !x.Ranked {
			words = append(words, x.System+": "+orElse(x.Why, orElse(x.Error, notYet)))
		}
	}
	return strings.Join(words, "; ")
}

// trainCommand is what trains a row by itself.
func (o *own) trainCommand(t *Table, x *Row, p *Plan) string {
	words := []string{p.programName(), "train"}
	var file, source string
	var job trivium.Job
	for _, task := range p.Tasks {
		if task.Name == t.Task {
			file, source, job = task.File, task.Data, task.Job
		}
	}
	if file != "" {
		words = append(words, "-f", shell.Word(file))
		if source != "" {
			words = append(words, "--data", shell.Word(source))
		}
	} else {
		words = append(words, t.Model)
	}
	if !o.alone {
		words = append(words, "--topology", o.topology, "--workers", fmt.Sprint(x.Workers), "--processes")
		if o.flags != "" {
			words = append(words, o.flags)
		}
		if o.whole {
			words = append(words, "--rate", fmt.Sprintf("%.6g", job.Optimizer.Rate*float64(x.Workers)))
		}
	}
	if !o.allCores || x.Threads != runtime.NumCPU() { // else it is what train does without being told
		words = append(words, "--threads", fmt.Sprint(x.Threads))
	}
	if t.Own && x.Effective > 0 && x.Effective%x.Workers == 0 {
		words = append(words, "--batch", fmt.Sprint(x.Effective/x.Workers))
	}
	if t.Own && t.Target.Metric != "" { // in place of the file's own early stop, which no row had
		metric, condition, _ := strings.Cut(t.Target.String(), " ")
		words = append(words, "--stop-metric", metric, "--target", shell.Word(condition))
		if job.Stop.Patience > 0 {
			words = append(words, "--patience", "0")
		}
	}
	return strings.Join(words, " ")
}

func (p *Plan) programName() string {
	if name, _, ok := strings.Cut(p.Command, " compare"); ok && name != "" {
		return name
	}
	return "trivium"
}
