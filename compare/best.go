package compare

import (
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

// best is the last line of a user's own comparison: the best row of the table in which a row is the soonest at the target.
func best(tables []*Table, p *Plan) *Best {
	t := tables[0]
	for _, other := range tables {
		a, _ := t.first()
		if b, _ := other.first(); b != nil && (a == nil || b.Target.Median < a.Target.Median) {
			t = other
		}
	}
	a, b := t.first()
	if a == nil {
		return &Best{Text: "best: none, since no row may be ranked: " + t.whyNone()}
	}
	x := &Best{System: a.System}
	i := slices.IndexFunc(p.Systems, func(s System) bool { return s.Name() == a.System })
	if o, ok := p.Systems[i].(*own); ok {
		x.Command = o.trainCommand(t, a, p)
	}
	x.Text = fmt.Sprintf("best: %s reaches %v in %s", a.System, t.Target, quantity.Seconds(a.Target.Median))
	if b != nil {
		x.Next = b.System
		list := []Verdict{Judge(a.Target.Values, b.Target.Values)} // the next, and with it all that are behind: each would have been chosen
		for _, y := range t.Rows {
			if y.Ranked && y != a && y != b {
				list = append(list, Judge(a.Target.Values, y.Target.Values))
			}
		}
		x.Verdict = Holm(list)[0]
		x.Text += fmt.Sprintf(", %.2f times as fast as the next, %s (95 %% interval %.2f to %.2f", x.Verdict.Ratio, b.System, x.Verdict.Low, x.Verdict.High)
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
