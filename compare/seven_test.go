package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestSevenAreEnough: where all rows of the full run are far apart, seven repeats prove it of claims that rest on dozens of comparisons, beside
// all the others.
func TestSevenAreEnough(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing in it runs at once")
	}
	p := paperPlan(t, Sources{})
	r := newReport(&p, &record{})
	r.Cores = 64
	groups := p.groups()
	for i := range groups {
		for k, x := range r.table(&groups[i], &p).Rows {
			var values []float64
			for n := range 7 {
				values = append(values, float64(k+1)+float64(n)/10)
			}
			x.Ranked, x.Good, x.Crowded = true, 7, false
			x.Target, x.Samples, x.Rate = spread(values), spread(values), spread(values)
		}
	}
	r.judge()
	if len(r.Verdicts) < 86 { // times 2/3432 that is more than 5 %
		t.Errorf("%d comparisons, which a correction of each would have let through", len(r.Verdicts))
	}
	want := map[string]string{"C9": holdsNot, "C10": holdsNot, "C13": holds, "C23": holdsNot} // what is later in a table takes longer, at more samples a second
	for _, c := range r.Claims {
		verdict, named := want[c.ID]
		switch {
		case !named:
		case c.Verdict != verdict:
			t.Errorf("%s is %s (%s), want %s", c.ID, c.Verdict, c.Why, verdict)
		case !(c.P > 0 && c.P < level) || !strings.Contains(c.Why, fmt.Sprintf("p of the claim %.2g, corrected for", c.P)):
			t.Errorf("%s has p %v: %s", c.ID, c.P, c.Why)
		}
	}
}

// TestClaimsTogether: what a claim's comparisons prove by itself is not proven where so many claims are judged that one of them may say so by chance;
// the p of a comparison is its own, and that of the claim is said beside it.
func TestClaimsTogether(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3}, []float64{3, 3.1, 3.2, 3.3} // p is 2/70
	row := func(name string, seconds []float64) *Row {
		return &Row{System: name, Ranked: true, Good: 4, Target: spread(seconds), Rate: spread(inverse(seconds)), Samples: spread(seconds)}
	}
	rows := []*Row{row("server-ssp3", quick), row("server-bsp", slow), row("server-ssp10", quick)}
	for _, c := range []struct {
		rows []*Row
		want string // of C13
		p    string
	}{
		{rows[:2], holds, "p 0.029); p of the claim 0.029, corrected for 1 claim"},
		{rows, undecided, "p 0.029); p of the claim 0.057, corrected for 2 claims"}, // C24, of the samples that SSP 10 needs, is the other
	} {
		r := &Report{Cores: 8, Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 100, Rows: c.rows}}}
		r.judge()
		x := r.Claims[slices.IndexFunc(r.Claims, func(c Claim) bool { return c.ID == "C13" })]
		if x.Verdict != c.want || !strings.HasSuffix(x.Why, c.p) {
			t.Errorf("C13 is %s: %s; want %s, and %s", x.Verdict, x.Why, c.want, c.p)
		}
	}
}

// TestTogether: the p of several hypotheses, by hand.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"simes, one of four", simes([]float64{0.01}, 4), 0.04},
		{"simes, two of four", simes([]float64{0.012, 0.01}, 4), 0.024},
		{"simes, none", simes(nil, 4), 1},
		{"simes, all are 1", simes([]float64{1, 1}, 2), 1},
		{"two at least of four", atLeast(2, []float64{0.03, 0.01, 0.02}, 4), 0.06},
		{"three at least of three", atLeast(3, []float64{0.03, 0.01, 0.02}, 3), 0.03},
		{"three at least of two", atLeast(3, []float64{0.01, 0.02}, 4), 1},
		{"one at least of four", atLeast(1, []float64{0.5}, 4), 1},
	} {
		if !(math.Abs(c.got-c.want) <= 1e-12) {
			t.Errorf("%s: p %v, want %v", c.name, c.got, c.want)
		}
	}
	// One comparison of four refutes the claim: its p is that of one among four.
	refuted := ruling{list: []judged{{verdict: Verdict{Outcome: Slower, P: 0.01}}, {}, {}, {}}}
	if got := (&rule{}).p(&refuted); !(math.Abs(got-0.04) <= 1e-12) {
		t.Errorf("one behind among four: p %v, want 0.04", got)
	}
	for among, want := range map[int][]float64{3: {0.06, 0.03, 0.06}, 5: {0.12, 0.05, 0.12}} {
		got := holm([]float64{0.04, 0.01, 0.03}, among)
		if len(got) != 3 || math.Abs(got[0]-want[0])+math.Abs(got[1]-want[1])+math.Abs(got[2]-want[2]) > 1e-12 {
			t.Errorf("corrected among %d: %v, want %v", among, got, want)
		}
	}
}

// TestClaimOfTheBatch: that the batch changes nothing is said of one row in two tables: a difference refutes it, and no difference proves nothing.
func TestClaimOfTheBatch(t *testing.T) {
	some, more := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	table := func(batch Batch, workers int, crowded bool, rates []float64) *Table {
		return &Table{Task: "logistic", Workers: workers, Batch: batch, Rows: []*Row{
			{System: "mxnet-sync", Ranked: true, Good: 7, Crowded: crowded, Effective: int(batch) * workers, Rate: spread(rates)},
		}}
	}
	for _, c := range []struct {
		tables []*Table
		want   string
		why    []string
	}{
		{[]*Table{table(100, 3, false, some), table(500, 3, false, more)}, holdsNot, []string{"mxnet-sync against itself at batch 500, samples a second: 0.", "two batches also give a line: here, with"}},
		{[]*Table{table(500, 3, false, some), table(100, 3, false, more)}, holdsNot, []string{"batch 100 each", "against itself at batch 500"}},
		{[]*Table{table(100, 3, false, some), table(500, 3, false, some)}, undecided, []string{"none is excluded", "against itself at batch 500, samples a second: 1.00 ×"}},
		{[]*Table{table(100, 3, true, some), table(500, 3, true, more)}, undecided, []string{"two batches give a line, and no test: here, oversubscribed,"}},
		{[]*Table{table(100, 3, false, some), table(500, 5, false, more)}, undecided, []string{"it needs MXNet at two batches"}},
		{[]*Table{table(100, 3, false, some), table(-1, 3, false, more)}, undecided, []string{"it needs MXNet at two batches"}},
	} {
		r := &Report{Cores: 8, Tables: c.tables}
		r.judge()
		x := r.Claims[slices.IndexFunc(r.Claims, func(c Claim) bool { return c.ID == "C4" })]
		if x.Verdict != c.want {
			t.Errorf("C4 is %s (%s), want %s", x.Verdict, x.Why, c.want)
		}
		for _, why := range c.why {
			if !strings.Contains(x.Why, why) {
				t.Errorf("C4 is %s: %q does not say %q", x.Verdict, x.Why, why)
			}
		}
	}
}

// TestClaimsOfAllTheySay: asynchronous rows are to be ahead in time to the target too, and the bound is to change the speed beside a straggler too.
func TestClaimsOfAllTheySay(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	row := func(name string, seconds, rates []float64) *Row {
		return &Row{System: name, Ranked: true, Good: 7, Target: spread(seconds), Rate: spread(rates)}
	}
	for _, c := range []struct {
		id   string
		rows []*Row
		want string
	}{
		{"C9", []*Row{row("server-asp", quick, slow), row("server-bsp", slow, quick)}, holds},
		{"C9", []*Row{row("server-asp", slow, slow), row("server-bsp", quick, quick)}, holdsNot},
		{"C9", []*Row{row("server-asp", quick, slow), row("server-bsp", quick, quick)}, undecided},
		{"C13", []*Row{row("server-ssp3", quick, slow), row("server-bsp", quick, quick), row("server-ssp3-slow", quick, slow), row("server-bsp-slow", quick, quick)}, holds},
		{"C13", []*Row{row("server-ssp3", quick, slow), row("server-bsp", quick, quick), row("server-ssp3-slow", quick, slow), row("server-bsp-slow", quick, slow)}, undecided},
	} {
		r := &Report{Cores: 8, Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 100, Rows: c.rows}}}
		r.judge()
		if x := r.Claims[slices.IndexFunc(r.Claims, func(x Claim) bool { return x.ID == c.id })]; x.Verdict != c.want {
			t.Errorf("%s is %s (%s), want %s", c.id, x.Verdict, x.Why, c.want)
		}
	}
}
