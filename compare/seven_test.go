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
	want := map[string]string{"C9": "", "C10": holdsNot, "C13": holds, "C23": holdsNot} // what is later in a table takes longer, at more samples a second
	for _, c := range r.Claims {
		verdict, named := want[c.ID]
		switch {
		case !named:
		case c.Verdict == undecided || verdict != "" && c.Verdict != verdict:
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
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: p %v, want %v", c.name, c.got, c.want)
		}
	}
	if got, want := holm([]float64{0.04, 0.01, 0.03}), []float64{0.06, 0.03, 0.06}; len(got) != 3 || math.Abs(got[0]-want[0])+math.Abs(got[1]-want[1])+math.Abs(got[2]-want[2]) > 1e-12 {
		t.Errorf("corrected %v, want %v", got, want)
	}
}
