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
	System  string  `json:"system"`
	Next    string  `json:"next,omitempty"`
	Verdict Verdict `json:"verdict"`
	Command string  `json:"command"`
	Text    string  `json:"text"`
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
	x := &Best{System: a.System}
	i := slices.IndexFunc(p.Systems, func(s System) bool { return s.Name() == a.System })
	if o, ok := p.Systems[i].(*own); ok {
		x.Command = o.trainCommand(t, a, p)
	}
	name := namer(tables)
	x.Text = fmt.Sprintf("best: %s reaches %v in %s", name(first), t.Target, quantity.Seconds(a.Target.Median))
	if slices.ContainsFunc(tables, func(o *Table) bool { return o.Link != t.Link }) {
		x.Text += fmt.Sprintf(" (%s)", t.Link)
	}
	if rest := list[1:]; len(rest) > 0 {
		b := rest[0].row
		x.Next = b.System
		var verdicts []Verdict // of the next, and of all that are behind it: each would have been chosen
		for _, c := range rest {
			verdicts = append(verdicts, Judge(a.Target.Values, c.row.Target.Values))
		}
		x.Verdict = Holm(verdicts)[0]
		x.Text += fmt.Sprintf(", %.2f times as fast as the next, %s (95 %% interval %.2f to %.2f", x.Verdict.Ratio, name(rest[0]), x.Verdict.Low, x.Verdict.High)
		switch {
		case a.Crowded || b.Crowded:
			x.Verdict = Verdict{Outcome: NoDifference, P: 1, Ratio: x.Verdict.Ratio, Low: x.Verdict.Low, High: x.Verdict.High}
			x.Text += "; oversubscribed: more busy threads than cores, so it carries no verdict)"
		case x.Verdict.Outcome == Faster:
			x.Text += fmt.Sprintf(", p = %.2g)", x.Verdict.P)
		case len(a.Target.Values) < fewest:
			x.Text += fmt.Sprintf("; %d repeats prove nothing: --repeats 7)", len(a.Target.Values))
		default:
			x.Text += "; no difference is proven)"
		}
	}
	if x.Command != "" {
		x.Text += "; repeat it with: " + x.Command
	}
	return x
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

// whyNone is why no row of the table may be ranked.
func (t *Table) whyNone() string {
	var words []string
	for _, x := range t.Rows {
		words = append(words, x.System+": "+orElse(x.Why, "not measured"))
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
