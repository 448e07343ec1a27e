package compare

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// fromOn are so many seconds from the first one on, a hundredth apart.
func fromOn(first float64, n int) (list []float64) {
	for i := range n {
		list = append(list, first+0.01*float64(i))
	}
	return list
}

// ownTable is a user's own comparison with a row for each list of seconds.
func ownTable(seconds ...[]float64) *Table {
	t := &Table{Task: "job", Own: true, Workers: 2, Batch: 60, Target: Target{"valid", "accuracy", 0.9, true}}
	for i, s := range seconds {
		x := &Row{System: fmt.Sprint("row", i), Workers: 2, Ranked: true, Good: len(s), Reached: len(s), Target: spread(s), Rate: spread(s), cell: fmt.Sprint("row", i)}
		for k, sec := range s {
			x.Trials = append(x.Trials, Repeat{Repeat: k + 1, Result: Result{SecondsToTarget: sec, Reached: true, Curve: []Point{{Update: 1, Seconds: sec / 2}}}})
		}
		t.Rows = append(t.Rows, x)
	}
	t.rank()
	return t
}

// bestOf is what a comparison of those rows says.
func bestOf(t *testing.T, table *Table) *Best {
	t.Helper()
	p := &Plan{Tasks: []Task{{Name: "job"}}}
	for _, x := range table.Rows {
		p.Systems = append(p.Systems, recorded{name: x.System})
	}
	return best([]*Table{table}, p)
}

// TestBestIsAsSureAsItsRepeats: the line, and the box of the page, say no more than the repeats prove.
func TestBestIsAsSureAsItsRepeats(t *testing.T) {
	crowded := ownTable(fromOn(1, 5), fromOn(2, 5), fromOn(3, 5), fromOn(4, 5), fromOn(5, 5))
	for _, x := range crowded.Rows[2:] {
		x.Crowded = true
	}
	nextCrowded := ownTable(fromOn(1, 7), fromOn(2, 7))
	nextCrowded.Rows[1].Crowded = true
	flagged := ownTable(fromOn(1, 7), fromOn(2, 7))
	flagged.Rows[1].Trials[3].Result.Flags = []string{"other programs took 20 % of the cores"}
	lone := ownTable(fromOn(1, 7), fromOn(2, 7))
	lone.Rows[0].Ranked, lone.Rows[0].Why, lone.Rows[0].Place = false, "diverged at update 3", 0
	for name, c := range map[string]struct {
		table   *Table
		outcome Outcome
		p       float64 // of the next; 0: whatever
		tone    report.Tone
		says    string
	}{
		"seven repeats": {ownTable(fromOn(1, 7), fromOn(2, 7)), Faster, 2. / 3432, report.Good, "next, row1 (95 % interval 1.92 to 2.02, p = 0.00058)"},
		// Which row is the first is found by the same repeats: three rows are three pairs.
		"three rows":           {ownTable(fromOn(1, 7), fromOn(2, 7), fromOn(3, 7)), Faster, 3 * 2. / 3432, report.Good, "p = 0.0017"},
		"three repeats":        {ownTable(fromOn(1, 3), fromOn(2, 3)), TooFew, 0, report.Open, "next, row1 (3 repeats prove nothing: --repeats 7)"},
		"three on one side":    {ownTable(fromOn(1, 7), fromOn(2, 3)), TooFew, 0, report.Open, "next, row1 (3 repeats prove nothing"},
		"too few for the rows": {ownTable(fromOn(1, 5), fromOn(2, 5), fromOn(3, 5), fromOn(4, 5), fromOn(5, 5)), TooFew, 0, report.Open, "; 5 repeats of so many rows prove nothing: --repeats 7)"},
		"crowded rows have no verdict to be corrected for": {crowded, Faster, 2. / 252, report.Good, ""},
		"crowded": {nextCrowded, undecided, 1, report.Open, "oversubscribed: more busy threads than cores, so it carries no verdict)"},
		"close":   {ownTable(fromOn(1, 7), fromOn(1.01, 7)), NoDifference, 0, report.Open, "no difference is proven)"},
		"others":  {ownTable(fromOn(1, 7), fromOn(1.4, 7), append(fromOn(3, 6), 0.9), append(fromOn(4, 6), 0.9)), Faster, 0, report.Good, "; not proven to be ahead of row2, row3"},
		"flagged": {flagged, Faster, 0, report.Warn, "; 1 of these 14 repeats are flagged"},
		"lone":    {lone, "", 0, report.Open, "best: row1 reaches valid.accuracy >= 0.9 in 2.03 s; no other row may be ranked: row0: diverged at update 3"},
		"alone":   {ownTable(fromOn(1, 7)), "", 0, report.Open, "best: row0 reaches valid.accuracy >= 0.9 in 1.03 s"},
	} {
		x := bestOf(t, c.table)
		tone, title := x.title()
		if x.Verdict.Outcome != c.outcome || c.p > 0 && !(math.Abs(x.Verdict.P-c.p) <= 1e-12) || tone != c.tone || !strings.Contains(x.Text, c.says) {
			t.Errorf("%s: %s with p %v, tone %d, %q\n%s\nwant %s with %v, tone %d, %s", name, x.Verdict.Outcome, x.Verdict.P, tone, title, x.Text, c.outcome, c.p, c.tone, c.says)
		}
		if name == "alone" && strings.Contains(x.Text, "no other row") {
			t.Errorf("there is no other: %s", x.Text)
		}
		if c.outcome == TooFew && len(c.table.Rows) == 2 && strings.Contains(x.Text, "interval") {
			t.Errorf("%s: an interval of what three repeats happened to be: %s", name, x.Text)
		}
		if proven := strings.Contains(title, "is proven to be ahead"); proven != (tone == report.Good) {
			t.Errorf("%s: %q in tone %d", name, title, tone)
		}
		threats := &Report{Tables: []*Table{c.table}, Best: x, Repeats: 7}
		threats.threats()
		few := strings.Contains(strings.Join(threats.Threats, " "), "Too few for verdicts")
		if c.outcome != "" && few != (c.outcome == TooFew) {
			t.Errorf("%s: that there are too few repeats is said: %v", name, few)
		}
	}
}

// TestBehindTheBest: the table of the answer has every row, with how sure it is that it is behind; of one that may not be ranked, why.
func TestBehindTheBest(t *testing.T) {
	table := ownTable(fromOn(1, 7), fromOn(2, 7), fromOn(1.01, 7), fromOn(3, 7), fromOn(4, 3), fromOn(1, 7))
	table.Rows[3].Crowded = true
	table.Rows[5].Ranked, table.Rows[5].Why, table.Rows[5].Place = false, "diverged at update 3", 0
	var got []string
	for _, r := range bestOf(t, table).beside().Rows {
		var words []string
		for _, c := range r.Cells {
			text := c.Text + c.Missing
			for _, s := range c.Spans {
				text += s.Text
			}
			if c.Range != "" {
				text += " [" + c.Range + "]"
			}
			words = append(words, text)
		}
		got = append(got, strings.Join(words, " | "))
	}
	want := []string{
		"row0 | 1.03 s [1–1.06 s] | 1.00 | ",
		"row2 | 1.04 s [1.01–1.07 s] | 1.01 [0.98–1.04] | not proven p = 0.93",
		"row1 | 2.03 s [2–2.06 s] | 1.97 [1.92–2.02] | yes p = 0.0017",
		"row3 | 3.03 s [3–3.06 s] | 2.94 [2.88–3.01] | no verdict: oversubscribed, with more busy threads than cores",
		"row4 | 4.01 s [4–4.02 s] | 3.89 | not proven: 3 repeats prove nothing",
		"row5 | not ranked: diverged at update 3",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPageOfOwnJob: a user's page begins with the answer, its command can be copied, and it has nothing that is the paper's.
func TestPageOfOwnJob(t *testing.T) {
	r := &Report{Tables: []*Table{ownTable(fromOn(1, 7), fromOn(2, 7))}, Repeats: 7, Efforts: []Effort{{System: "row0"}}}
	r.Best = bestOf(t, r.Tables[0])
	r.Best.Command = "trivium train -f job.yaml"
	r.Best.Text += r.Best.repeated()
	var page bytes.Buffer
	if err := r.page().WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{"<h1>Topologies compared: job</h1>", "row0 is proven to be ahead", "<code>trivium train -f job.yaml</code>", "Speed</h2>", "Faults</h2>"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not have %s", want)
		}
	}
	for _, not := range []string{"paper's layout", "repeat it with: ", "lines of code", "class=\"tile"} {
		if strings.Contains(text, not) {
			t.Errorf("it has %s", not)
		}
	}
	if answer, contents := strings.Index(text, "is proven to be ahead"), strings.Index(text, "<nav"); answer < 0 || contents < answer {
		t.Errorf("the contents, at %d, are before the answer, at %d", contents, answer)
	}
}

// TestCanProve: as many repeats as can prove a difference are those of which the exact test does, where one side is below all of the other.
func TestCanProve(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for m := 1; m <= 8; m++ {
			v := Judge(fromOn(1, n), fromOn(2, m))
			for _, verdicts := range []int{0, 1, 2, 5, 15} {
				want := v.Outcome == Faster && v.P*float64(max(1, verdicts)) < level
				if got := canProve(n, m, verdicts); got != want {
					t.Errorf("%d against %d beside %d: %v, want %v (p %v)", n, m, verdicts, got, want, v.P)
				}
			}
		}
	}
}

// TestDoubtsInText: what the reader of the terminal's table should doubt it by is below it: that something else had the cores, and a target that is met at once.
func TestDoubtsInText(t *testing.T) {
	table := ownTable(fromOn(1, 4), fromOn(2, 4))
	table.Rows[0].Trials[0].Result.Flags = []string{"other programs took 20 % of the cores"}
	for i := range table.Rows[1].Trials {
		x := &table.Rows[1].Trials[i].Result
		x.SecondsToTarget = x.Curve[0].Seconds
	}
	var out strings.Builder
	if err := (&Report{Tables: []*Table{table}}).Text(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\ndoubt: 1 of 8 trials are flagged: other programs took more than 5 % of the cores.\n",
		"\ndoubt: In job, 2 workers, batch 60 the target is met where it is first looked for, by row1: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\ndoes not say %s", out.String(), want)
		}
	}
}

// TestTilesOfFewRepeats: how many times as fast the best row is stands beside its interval, or beside none.
func TestTilesOfFewRepeats(t *testing.T) {
	few := &Report{Tables: []*Table{ownTable(fromOn(1, 3), fromOn(2, 3))}}
	if got := few.tiles()[0].Value; got != "row0, 1.01 s" {
		t.Errorf("the tile says %q, and so not which row", got)
	}
	for n, want := range map[int]string{3: "1.99 times as fast as row1", 7: "1.97 times as fast as row1 (95 % interval 1.92 to 2.02)"} {
		r := &Report{Tables: []*Table{ownTable(fromOn(1, n), fromOn(2, n))}}
		if got := r.tiles()[0].Note; got != want {
			t.Errorf("%d repeats: %q, want %q", n, got, want)
		}
	}
}

// TestFlaggedIsSaidFirst: where more than a tenth of the trials are flagged, the page begins with that; each trial counts once, in however many tables it is.
func TestFlaggedIsSaidFirst(t *testing.T) {
	for n, want := range map[int]bool{0: false, 2: false, 3: true} {
		table := ownTable(fromOn(1, 10), fromOn(2, 10))
		for i := range n {
			table.Rows[0].Trials[i].Result.Flags = []string{"other programs took 20 % of the cores", "the machine was busy"}
		}
		r := &Report{Tables: []*Table{table, table}}
		title := fmt.Sprintf("%d of 20 trials are flagged", n)
		said := false
		for _, b := range r.lead() {
			if c, ok := b.(report.Callout); ok && c.Tone == report.Warn && c.Title == title {
				said = true
			}
		}
		if said != want {
			t.Errorf("%s: said %v", title, said)
		}
	}
}
