package compare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestDiffOfUnequalSets: what only the second comparison has is shown too; another model is no counterpart; and what else is not the same is said.
func TestDiffOfUnequalSets(t *testing.T) {
	row := func(name string) *Row {
		return &Row{System: name, Good: 7, Rate: spread([]float64{1, 2, 3, 4, 5, 6, 7})}
	}
	table := func(task, model string, rows ...*Row) *Table {
		return &Table{Task: task, Model: model, Workers: 2, Batch: 100, Rows: rows}
	}
	a := &Report{Cores: 2, Seconds: 5, WarmUp: 2, Tables: []*Table{
		table("job", "mlp:100", row("local"), row("server-bsp")), table("other", "softmax", row("local")),
	}}
	other := Diff(&Report{Tables: []*Table{{Task: "job", Rows: []*Row{row("local")}, Target: Target{"test", "accuracy", 0.9, true}, Checksum: "a"}}}, &Report{Tables: []*Table{
		{Task: "job", Rows: []*Row{row("local")}, Target: Target{"test", "accuracy", 0.95, true}, Checksum: "a"},
		{Task: "job", Rows: []*Row{row("local")}, Target: Target{"test", "accuracy", 0.9, true}, Checksum: "b"},
	}})
	for _, x := range other.Rows {
		if x.Only == "" {
			t.Errorf("compared with another target or other data: %+v", x)
		}
	}
	b := &Report{Cores: 4, Seconds: 3, WarmUp: 1, Tables: []*Table{
		table("job", "mlp:100", row("local"), row("allreduce")), table("other", "mlp:9", row("local")),
	}}
	d := Diff(a, b)
	var got []string
	for _, x := range d.Rows {
		got = append(got, fmt.Sprintf("%s %s %v %v %v", strings.Fields(x.Table)[0], x.System, x.Only != "", x.A.Median > 0, x.B.Median > 0))
	}
	want := []string{
		"job, local false true true", "job, server-bsp true true false", "other, local true true false",
		"job, allreduce true false true", "other, local true false true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	for _, what := range []string{"cores", "seconds", "warm-up"} {
		if !slices.ContainsFunc(d.Setup, func(s string) bool { return strings.HasPrefix(s, what) }) {
			t.Errorf("that the %s differ is not said: %q", what, d.Setup)
		}
	}
	var text strings.Builder
	if err := d.Text(&text); err != nil || strings.Count(text.String(), "counterpart") != 4 {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestDiffOfFailedRows: a row that the other comparison has, and has no good trial of, says so, and why.
func TestDiffOfFailedRows(t *testing.T) {
	of := func(good int, why string) *Report {
		x := &Row{System: "spark", Good: good, Error: why}
		if good > 0 {
			x.Rate = spread([]float64{1, 2, 3})
		}
		return &Report{Tables: []*Table{{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{x}}}}
	}
	well, hung, absent := of(3, ""), of(0, "it hangs: no end after 10m0s"), of(0, "not installed")
	for _, c := range []struct {
		a, b *Report
		want string
	}{
		{well, hung, "2  the second has no good trial (it hangs: no end after 10m0s)"},
		{absent, well, "2  the first has no good trial (not installed)"},
		{absent, hung, "the first has no good trial (not installed)"},
	} {
		var text strings.Builder
		if err := Diff(c.a, c.b).Text(&text); err != nil || !strings.Contains(strings.Join(strings.Fields(text.String()), " "), strings.Join(strings.Fields(c.want), " ")) {
			t.Errorf("%v; want %q of\n%s", err, c.want, text.String())
		}
	}
}

// TestDiffOfFewRepeats: of fewer repeats than a verdict takes nothing is said, not even that there is no difference; and they do not count among the
// verdicts that the others are corrected for.
func TestDiffOfFewRepeats(t *testing.T) {
	of := func(repeats int, step float64) *Row {
		var rates []float64
		for i := range repeats {
			rates = append(rates, 1+step+0.01*float64(i))
		}
		return &Row{System: fmt.Sprint("row", repeats), Good: repeats, Rate: spread(rates)}
	}
	report := func(step float64, repeats ...int) *Report {
		t := &Table{Task: "mlp1", Workers: 2, Batch: 100}
		for _, n := range repeats {
			t.Rows = append(t.Rows, of(n, step))
		}
		return &Report{Tables: []*Table{t}}
	}
	alone := Diff(report(0, 5), report(1, 5)).Rows[0].Verdict
	d := Diff(report(0, 1, 3, 5), report(1, 1, 3, 5))
	if got := d.Rows[2].Verdict; got.Outcome != Faster || got.P != alone.P {
		t.Errorf("five repeats beside fewer: %v with p %v, want %v with p %v", got.Outcome, got.P, Faster, alone.P)
	}
	for i, want := range []string{"too few repeats to say (1 and 1; it takes 4 of each)", "too few repeats to say (3 and 3; it takes 4 of each)"} {
		if d.Rows[i].Verdict.Outcome != TooFew {
			t.Errorf("row %d: %v, want %v", i, d.Rows[i].Verdict.Outcome, TooFew)
		}
		var text strings.Builder
		if err := d.Text(&text); err != nil || !strings.Contains(text.String(), want) || strings.Contains(text.String(), string(NoDifference)) {
			t.Errorf("%v; want %q of\n%s", err, want, text.String())
		}
	}
}

// TestDiffOfFewCrowdedRepeats: a row with more busy threads than cores is undecided, and of too few repeats it has no interval either.
func TestDiffOfFewCrowdedRepeats(t *testing.T) {
	of := func(rates ...float64) *Report {
		x := &Row{System: "local", Good: len(rates), Crowded: true, Rate: spread(rates)}
		return &Report{Tables: []*Table{{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{x}}}}
	}
	many := of(1, 2, 3, 4)
	for _, c := range []struct {
		a, b *Report
		want bool // an interval
	}{{of(1), of(2), false}, {many, of(2), false}, {of(1, 2, 3), many, false}, {many, many, true}} {
		d := Diff(c.a, c.b)
		var text strings.Builder
		if err := d.Text(&text); err != nil {
			t.Fatal(err)
		}
		v, line := d.Rows[0].Verdict, strings.Split(text.String(), "\n")[1]
		if v.Outcome != undecided || (v.Low > 0) != c.want || (v.High > 0) != c.want || strings.Contains(line, fmt.Sprintf("%.2f-", v.Low)) != c.want {
			t.Errorf("%d and %d repeats: %+v, want an interval: %v\n%s", len(d.Rows[0].A.Values), len(d.Rows[0].B.Values), v, c.want, line)
		}
	}
}
