package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A Difference is what two comparisons say of the same row.
type Difference struct {
	Table   string  `json:"table"`
	System  string  `json:"system"`
	A       Spread  `json:"a"` // samples a second
	B       Spread  `json:"b"`
	Verdict Verdict `json:"verdict"`        // of the seconds a sample: Faster means that b's is the faster; TooFew repeats, or undecided, where there is none; of too few it has no interval: 0 to 0
	Only    string  `json:"only,omitempty"` // why there is no verdict: one of the two alone has the row, or a good trial of it
}

// Differences are all of them, with what is not the same about the two.
type Differences struct {
	Setup []string     `json:"setup"`
	Rows  []Difference `json:"rows"`
}

// Diff compares b with a, row by row. Verdicts are corrected for all rows of a table that carry one.
func Diff(a, b *Report) *Differences {
	d := &Differences{}
	for _, x := range []struct {
		name string
		a, b any
	}{
		{"machine", a.Machine, b.Machine},
		{"build", short(a.Build), short(b.Build)},
		{"cores of every row", a.Cores, b.Cores},
		{"seconds to measure", a.Seconds, b.Seconds},
		{"warm-up in seconds", a.WarmUp, b.WarmUp},
		{"processor frequency", a.Frequency, b.Frequency},
		{"congestion control of TCP", a.Control, b.Control},
	} {
		if x.a != x.b {
			d.Setup = append(d.Setup, fmt.Sprintf("%s: %v against %v", x.name, x.a, x.b))
		}
	}
	d.Setup = append(d.Setup, otherVersions(a, b)...)
	find := func(r *Report, t *Table, system string) *Row {
		for _, o := range r.Tables {
			if o.title() == t.title() && o.Model == t.Model && o.Target == t.Target && o.Checksum == t.Checksum {
				if x := o.row(system); x != nil {
					return x
				}
			}
		}
		return nil
	}
	for _, t := range a.Tables {
		first := len(d.Rows)
		var verdicts []Verdict
		for _, x := range t.Rows {
			y := find(b, t, x.System)
			one := Difference{Table: t.title(), System: x.System, A: x.Rate, Verdict: Verdict{Outcome: NoDifference, P: 1}}
			if y != nil {
				one.B = y.Rate
			}
			if one.Only = incomparable(x, y); one.Only == "" {
				one.Verdict = Judge(inverse(y.Rate.Values), inverse(x.Rate.Values))
				few := min(len(x.Rate.Values), len(y.Rate.Values)) < fewest
				if few { // the interval would be what the few happened to be
					one.Verdict.Low, one.Verdict.High = 0, 0
				}
				switch {
				case x.Crowded || y.Crowded:
					one.Verdict.Outcome = undecided // as in the report
				case few:
					one.Verdict.Outcome = TooFew
				default:
					verdicts = append(verdicts, one.Verdict)
				}
			}
			d.Rows = append(d.Rows, one)
		}
		verdicts = Holm(verdicts)
		for i := first; i < len(d.Rows); i++ {
			if o := d.Rows[i].Verdict.Outcome; d.Rows[i].Only == "" && o != undecided && o != TooFew {
				d.Rows[i].Verdict, verdicts = verdicts[0], verdicts[1:]
			}
		}
	}
	for _, t := range b.Tables {
		for _, y := range t.Rows {
			if find(a, t, y.System) == nil {
				d.Rows = append(d.Rows, Difference{Table: t.title(), System: y.System, B: y.Rate, Verdict: Verdict{Outcome: NoDifference, P: 1}, Only: alone})
			}
		}
	}
	return d
}

// otherVersions says which versions differ, of the systems that both have.
func otherVersions(a, b *Report) (list []string) {
	x, y := a.versions(), b.versions()
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if now, both := y[name]; both && now != x[name] {
			list = append(list, fmt.Sprintf("%s: %s against %s", name, x[name], now))
		}
	}
	return list
}

// alone is why a row has no verdict.
const alone = "it has no counterpart of the same model, data and target"

// incomparable is why row x of the first has no verdict beside y of the second, which may be nil; empty: it has one.
func incomparable(x, y *Row) string {
	const bad = "the %s has no good trial (%s)"
	switch {
	case y == nil:
		return alone
	case x.Good == 0:
		return fmt.Sprintf(bad, "first", x.Error)
	case y.Good == 0:
		return fmt.Sprintf(bad, "second", y.Error)
	}
	return ""
}

func inverse(x []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = 1 / x[i]
	}
	return out
}

// rateOrNone is the median in words; of no trial it is empty.
func rateOrNone(s Spread) string {
	if s.Median == 0 {
		return ""
	}
	return quantity.Short(s.Median)
}

// JSON writes d as an object.
func (d *Differences) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// Text writes d as a table.
func (d *Differences) Text(w io.Writer) error {
	for _, s := range d.Setup {
		fmt.Fprintf(w, "not the same %s\n", s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TABLE\tROW\tFIRST\tSECOND\tRATIO\t95 % INTERVAL\tVERDICT")
	for _, x := range d.Rows {
		if x.Only != "" {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\t\t%s\n", x.Table, x.System, rateOrNone(x.A), rateOrNone(x.B), x.Only)
			continue
		}
		v := x.Verdict
		interval, word := "", fmt.Sprintf("%s (p %.2g)", v.Outcome, v.P)
		if v.High > 0 {
			interval = fmt.Sprintf("%.2f-%.2f", v.Low, v.High)
		}
		switch v.Outcome {
		case undecided:
			word = "undecided: more busy threads than cores"
		case TooFew:
			word = fmt.Sprintf("too few repeats to say (%d and %d; it takes %d of each)", len(x.A.Values), len(x.B.Values), fewest)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.2f\t%s\t%s\n", x.Table, x.System, quantity.Short(x.A.Median), quantity.Short(x.B.Median), v.Ratio, interval, word)
	}
	return t.Flush()
}
