package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestCase10Derived: every ratio that the claims quote follows from the published tables, within its rounding.
func TestCase10Derived(t *testing.T) {
	of := func(task, system string, batch int) float64 {
		t.Helper()
		x := rateOf(task, system, batch)
		if x == 0 {
			t.Fatalf("%s of %s at batch %d was not published", task, system, batch)
		}
		return x
	}
	const full = 0
	spark, tf, mx := "Spark", "TensorFlow", "MXNet"
	for _, c := range []struct {
		name      string
		got, want float64
		digits    int
	}{
		{"C1", of("logistic", "PMLS SSP 3", 1) / of("logistic", mx, 500), 1.10, 2},
		{"C2 below MXNet", of("logistic", mx, 100) / of("logistic", spark, full), 3.3, 1},
		{"C2 below PMLS", of("logistic", "PMLS SSP 3", 1) / of("logistic", spark, full), 3.6, 1},
		{"C2 above TensorFlow 500", of("logistic", spark, full) / of("logistic", tf, 500), 13, 0},
		{"C2 above TensorFlow 100", of("logistic", spark, full) / of("logistic", tf, 100), 15, 0},
		{"C5", of("softmax", spark, full) / of("softmax", "MXNet async", 500), 1.64, 2},
		{"C6 two, TensorFlow sync", of("mlp2", spark, full) / of("mlp2", "TensorFlow sync", 500), 0.60, 2},
		{"C6 two, TensorFlow async", of("mlp2", spark, full) / of("mlp2", "TensorFlow async", 500), 0.41, 2},
		{"C6 one, TensorFlow sync", of("mlp1", spark, full) / of("mlp1", "TensorFlow sync", 500), 1.03, 2},
		{"C6 one, below MXNet in percent", 100 * (1 - of("mlp1", spark, full)/of("mlp1", "MXNet sync", 500)), 0.3, 1},
		{"C8 Spark", of("softmax", spark, full) / of("mlp2", spark, full), 46, 0},
		{"C8 TensorFlow", of("softmax", "TensorFlow sync", 500) / of("mlp2", "TensorFlow sync", 500), 7, 0},
		{"C8 MXNet", of("softmax", "MXNet sync", 500) / of("mlp2", "MXNet sync", 500), 14, 0},
		{"C9 TensorFlow, softmax", of("softmax", "TensorFlow async", 500) / of("softmax", "TensorFlow sync", 500), 1.32, 2},
		{"C9 TensorFlow, one", of("mlp1", "TensorFlow async", 500) / of("mlp1", "TensorFlow sync", 500), 1.15, 2},
		{"C9 TensorFlow, two", of("mlp2", "TensorFlow async", 500) / of("mlp2", "TensorFlow sync", 500), 1.45, 2},
		{"C9 MXNet, softmax", of("softmax", "MXNet async", 500) / of("softmax", "MXNet sync", 500), 1.17, 2},
		{"C9 MXNet, one", of("mlp1", "MXNet async", 500) / of("mlp1", "MXNet sync", 500), 1.05, 2},
		{"C9 MXNet, two", of("mlp2", "MXNet async", 500) / of("mlp2", "MXNet sync", 500), 1.15, 2},
		{"C10 softmax sync", of("softmax", "MXNet sync", 500) / of("softmax", "TensorFlow sync", 500), 1.95, 2},
		{"C10 softmax async", of("softmax", "MXNet async", 500) / of("softmax", "TensorFlow async", 500), 1.73, 2},
		{"C10 one sync", of("mlp1", "MXNet sync", 500) / of("mlp1", "TensorFlow sync", 500), 1.04, 2},
		{"C10 two sync", of("mlp2", "MXNet sync", 500) / of("mlp2", "TensorFlow sync", 500), 1.05, 2},
		{"C10 one async", of("mlp1", "MXNet async", 500) / of("mlp1", "TensorFlow async", 500), 0.95, 2},
		{"C10 two async", of("mlp2", "MXNet async", 500) / of("mlp2", "TensorFlow async", 500), 0.83, 2},
	} {
		if step := math.Pow(10, -float64(c.digits)); !(math.Abs(c.got-c.want) <= 0.51*step) {
			t.Errorf("%s: %.4f, published as %v", c.name, c.got, c.want)
		}
	}
	// C3 and C4: time a sample is a + b/batch, which is of all workers or of each; their texts have these figures.
	line := func(system string) (a, b, share float64) { // a and b in ms
		t100, t500 := 1000/of("logistic", system, 100), 1000/of("logistic", system, 500)
		b = (t100 - t500) / (1.0/100 - 1.0/500)
		a = t100 - b/100
		return a, b, a / t100
	}
	a, b, share := line(tf)
	if !(math.Abs(a-2.2) <= 0.05) || !(math.Abs(b-28) <= 0.5) || !(math.Abs(share-0.89) <= 0.005) {
		t.Errorf("C3: a %.3f ms, b %.2f ms, %.3f of the cost; want 2.2, 28, 0.89", a, b, share)
	}
	_, step, _ := line(mx)
	if step *= 1000; !(math.Abs(step-2) <= 0.05) || !(math.Abs(3*step-6) <= 0.15) {
		t.Errorf("C4: %.3f µs a step, %.3f of three workers' batches; want 2 and 6", step, 3*step)
	}
	for id, want := range map[string]string{
		"C3": fmt.Sprintf(": %.1f ms a sample of all workers together; %.0f ms a step if that batch is all three workers', %.0f if it is each one's", a, b, 3*b),
		"C4": fmt.Sprintf(" implies %.0f µs a step if that batch is all three workers', %.0f if it is each one's", step, 3*step),
	} {
		i := slices.IndexFunc(rules, func(x rule) bool { return x.id == id })
		if !strings.Contains(rules[i].published, want) {
			t.Errorf("%s has %q, which does not say %q", id, rules[i].published, want)
		}
	}
}

// TestClaims: a claim is decided by its comparisons alone, and says why it is not.
func TestClaims(t *testing.T) {
	row := func(name string, crowded bool, seconds ...float64) *Row {
		return &Row{System: name, Ranked: true, Crowded: crowded, Good: len(seconds), Target: spread(seconds), Rate: spread(inverse(seconds))}
	}
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	for _, c := range []struct {
		asp, bsp []float64
		crowded  bool
		want     string
	}{{quick, slow, false, holds}, {slow, quick, false, holdsNot}, {quick, quick, false, undecided}, {quick, slow, true, undecided}} {
		r := &Report{Cores: 8, Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{row("server-asp", c.crowded, c.asp...), row("server-bsp", c.crowded, c.bsp...)}}}}
		r.judge()
		for _, x := range r.Claims {
			switch {
			case x.ID == "C9" && x.Verdict != c.want:
				t.Errorf("C9 is %s (%s), want %s", x.Verdict, x.Why, c.want)
			case x.ID == "C7" && x.Verdict != holdsNot, x.ID == "C2" && x.Verdict != undecided, x.Why == "":
				t.Errorf("%s is %s: %q", x.ID, x.Verdict, x.Why)
			}
		}
		if len(r.Claims) != 24 {
			t.Errorf("%d claims", len(r.Claims))
		}
	}
}

// TestClaimsOfUnranked: what must be so in all tables is not known to hold where one of them has a row that may not be ranked; a table in which
// nothing is judged takes no verdict away.
func TestClaimsOfUnranked(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	row := func(name string, seconds []float64) *Row {
		return &Row{System: name, Ranked: true, Good: 7, Target: spread(seconds), Rate: spread(inverse(seconds)), Samples: spread(seconds)}
	}
	failed := func(name string) *Row { return &Row{System: name, Good: 7, Why: "not reached"} }
	of := func(id string, tables ...*Table) Claim {
		r := &Report{Cores: 8, Tables: tables}
		r.judge()
		return r.Claims[slices.IndexFunc(r.Claims, func(c Claim) bool { return c.ID == id })]
	}
	table := func(mbit int, rows ...*Row) *Table {
		return &Table{Task: "mlp2", Workers: 3, Batch: 100, Link: Link{Mbit: mbit}, Rows: rows}
	}
	half := table(750, row("allreduce-topk", quick), row("allreduce", slow))
	if c := of("C24", half); c.Verdict != undecided || !strings.Contains(c.Why, "only a part") {
		t.Errorf("where nothing says what staleness does C24 is %s: %s", c.Verdict, c.Why)
	}
	stale := table(0, row("server-bsp", quick), row("server-asp", slow)) // by samples, at any link
	crowded := row("server-asp", slow)
	crowded.Crowded = true
	if c := of("C24", half, table(0, row("server-bsp", quick), crowded)); c.Verdict != undecided || !strings.Contains(c.Why, "of the rest: oversubscribed") {
		t.Errorf("where the cores do not suffice for that C24 is %s: %s", c.Verdict, c.Why)
	}
	if c := of("C24", half, stale); c.Verdict != holds || !strings.Contains(c.Why, "server-bsp against server-asp, samples to") {
		t.Errorf("C24 is %s: %s", c.Verdict, c.Why)
	}
	if c := of("C24", half, table(0, row("server-bsp", slow), row("server-asp", quick))); c.Verdict != holdsNot {
		t.Errorf("where stale gradients need fewer samples C24 is %s: %s", c.Verdict, c.Why)
	}
	fast := table(750, append(half.Rows, stale.Rows...)...)
	if c := of("C24", fast, table(1000, failed("allreduce-topk"), row("allreduce", slow))); c.Verdict != undecided || !strings.Contains(c.Why, "allreduce-topk: not reached") {
		t.Errorf("with a table in which its row does not reach the target C24 is %s: %s", c.Verdict, c.Why)
	}
	if c := of("C24", fast, table(0, failed("allreduce-topk"), row("allreduce", slow))); c.Verdict != holds {
		t.Errorf("with one that is not shaped C24 is %s: %s", c.Verdict, c.Why)
	}
	if c := of("C24", table(1000, failed("allreduce-topk"), row("allreduce", slow)), table(750, row("allreduce-topk", slow), row("allreduce", quick))); c.Verdict != holdsNot {
		t.Errorf("where it is slower C24 is %s: %s", c.Verdict, c.Why)
	}
}

// TestClaimsBySpeed: what is said of speed is judged by samples a second, a difference in either direction; and the fastest of all is compared
// with all.
func TestClaimsBySpeed(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	row := func(name string, seconds, rates []float64) *Row {
		return &Row{System: name, Ranked: true, Good: 7, Target: spread(seconds), Rate: spread(rates)}
	}
	r := &Report{Cores: 8, Tables: []*Table{{Task: "logistic", Workers: 3, Batch: 100, Rows: []*Row{
		row("server-asp", quick, quick), row("server-bsp", slow, slow), // sooner, with fewer samples a second
		row("server-ssp1", quick, quick), row("server-ssp3", slow, quick), row("server-ssp10", slow, slow),
		row("server-ssp3-clock10", slow, slow), row("local", quick, quick),
	}}}}
	r.judge()
	for _, x := range r.Claims {
		want, any := map[string]string{"C1": holdsNot, "C9": holdsNot, "C13": holds}[x.ID]
		if any && x.Verdict != want {
			t.Errorf("%s is %s (%s), want %s", x.ID, x.Verdict, x.Why, want)
		}
	}
}

// TestClaimsReason: a claim whose rows are here says what keeps them from a verdict, and not that they are wanted.
func TestClaimsReason(t *testing.T) {
	seconds := spread([]float64{1, 2, 3, 4})
	r := &Report{Cores: 2, Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{
		{System: "mxnet-sync", Ranked: true, Crowded: true, Target: seconds}, {System: "tensorflow-sync", Ranked: true, Crowded: true, Target: seconds},
	}}}}
	r.judge()
	for _, x := range r.Claims {
		if x.ID == "C10" && (x.Verdict != undecided || !strings.HasPrefix(x.Why, "oversubscribed")) {
			t.Errorf("C10 is %s: %s", x.Verdict, x.Why)
		}
	}
}

// TestNamesOfRows: whatever row of another system or of ours the report looks for, there is one.
func TestNamesOfRows(t *testing.T) {
	known := map[string]bool{"": true, others: true}
	for i := range strategies {
		known[strategies[i].name] = true
	}
	peers, err := Peers(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range peers {
		known[x.Name()] = true
	}
	check := func(where string, names ...string) {
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s: there is no row %q", where, name)
			}
		}
	}
	for _, w := range twins {
		check("the gap", w.peer, w.row, w.shipped)
	}
	for _, p := range slices.Concat(table1, table3) {
		check("the paper's tables", p.peer, p.our)
	}
	for _, x := range rules {
		check(x.id, x.fits)
		check(x.id, x.waits)
		for _, p := range x.pairs {
			check(x.id, p.ahead, p.behind)
		}
	}
}

// TestDiffFamilies: a row that is ten times as fast is found, however many tables there are, unless it is crowded; and other data is no
// counterpart.
func TestDiffFamilies(t *testing.T) {
	bookkeeping(t)
	report := func(factor float64, checksum string) *Report {
		r := &Report{}
		for k := range 60 {
			x := &Row{System: "local", Good: 7}
			y := &Row{System: "allreduce", Good: 7}
			for i := range 7 {
				x.Rate.Values = append(x.Rate.Values, factor*float64(100+i))
				y.Rate.Values = append(y.Rate.Values, float64(100+i))
			}
			z := *x
			z.System, z.Crowded = "server-bsp", true
			r.Tables = append(r.Tables, &Table{Task: fmt.Sprint("task", k), Workers: 2, Batch: 100, Checksum: checksum, Rows: []*Row{x, y, &z}})
		}
		return r
	}
	for _, x := range Diff(report(1, "a"), report(10, "a")).Rows {
		if want := map[string]Outcome{"local": Faster, "allreduce": NoDifference, "server-bsp": undecided}[x.System]; x.Verdict.Outcome != want {
			t.Fatalf("%s, %s: %v (p %g), want %v", x.Table, x.System, x.Verdict.Outcome, x.Verdict.P, want)
		}
	}
	for _, x := range Diff(report(1, "a"), report(1, "b")).Rows {
		if x.Only == "" {
			t.Fatalf("%s, %s: compared with other data", x.Table, x.System)
		}
	}
}

// TestDiffOfVersions: that a system is of another version is said before its rows are compared.
func TestDiffOfVersions(t *testing.T) {
	of := func(torch, version string) *Report {
		return &Report{Facts: map[string]Facts{"local": {"trivium": version}, "allreduce": {"trivium": version}, "pytorch-ddp": {"torch": torch, "python": "3.11.7"}}}
	}
	a, b := of("2.0.1", "v1.0.0"), of("2.15.0", "v1.1.0")
	b.Facts["horovod"] = Facts{"torch": "2.0.1"} // which the first has not
	a.Control, b.Control = "cubic", "bbr"
	want := []string{"congestion control of TCP: cubic against bbr", "pytorch-ddp, torch: 2.0.1 against 2.15.0", "trivium: v1.0.0 against v1.1.0"}
	if d := Diff(a, b); !slices.Equal(d.Setup, want) {
		t.Errorf("%q, want %q", d.Setup, want)
	}
}

// TestBestOfAllTables: a user's own comparison has one best row, of all its tables, and an oversubscribed one carries no verdict.
func TestBestOfAllTables(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	table := func(workers int, crowded bool, a, b []float64) *Table {
		x := &Table{Task: "job", Own: true, Workers: workers, Rows: []*Row{
			{System: "local", Workers: 1, Ranked: true, Good: 7, Target: spread(a), cell: "local"},
			{System: "allreduce", Workers: workers, Crowded: crowded, Ranked: true, Good: 7, Target: spread(b), cell: fmt.Sprint("allreduce", workers)},
		}}
		x.rank()
		return x
	}
	p := &Plan{Systems: systems(t, Host{}, "local", "allreduce"), Tasks: []Task{{Name: "job"}}}
	if x := best([]*Table{table(2, false, slow, quick), table(4, false, slow, slow)}, p); x.System != "allreduce" || x.Verdict.Outcome != Faster || !strings.Contains(x.Text, "--workers 2") {
		t.Errorf("%+v", x)
	}
	if x := best([]*Table{table(4, true, slow, quick)}, p); x.Verdict.Outcome != undecided || !strings.Contains(x.Text, "oversubscribed") {
		t.Errorf("%+v", x)
	}
	// The next may be in another table, and be the same system with other workers.
	near := []float64{2, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6}
	x := best([]*Table{table(2, false, slow, quick), table(4, false, slow, near)}, p)
	if want := "best: allreduce with 2 workers reaches"; !strings.HasPrefix(x.Text, want) || x.Next != "allreduce" || !strings.Contains(x.Text, "1.77 times as fast as the next, allreduce with 4 workers (") {
		t.Errorf("%s: %q\nwant %s … 1.77 times as fast as the next, allreduce with 4 workers", x.Next, x.Text, want)
	}
	// A link is no choice: rows on another are not beside the best, which says on which it is.
	shaped := table(2, false, slow, near)
	shaped.Link = Link{Mbit: 1000, Apart: true}
	if x := best([]*Table{table(2, false, slow, quick), shaped}, p); x.Next != "local" || !strings.Contains(x.Text, "(loopback), 2.54 times as fast as the next, local (") {
		t.Errorf("%s: %q", x.Next, x.Text)
	}
}

// TestThreatsOfSharedTrials: a trial that several tables show is flagged once.
func TestThreatsOfSharedTrials(t *testing.T) {
	row := func(system, cell string, flags ...string) *Row {
		return &Row{System: system, cell: cell, Trials: []Repeat{{Repeat: 1, Result: Result{Flags: flags}}}}
	}
	local := row("local", "mlp1-b100-w1-local", "other programs took 20 % of the cores")
	r := &Report{Tables: []*Table{
		{Rows: []*Row{local, row("allreduce", "mlp1-b100-w2-allreduce")}}, {Rows: []*Row{local, row("allreduce", "mlp1-b100-w3-allreduce")}},
	}}
	r.threats()
	if want := "1 of 3 trials are flagged: other programs took more than 5 % of the cores."; !slices.Contains(r.Threats, want) {
		t.Errorf("%q is not among %q", want, r.Threats)
	}
}

// TestClaimsOfAbsent: a system that is not here takes no claim's reason away.
func TestClaimsOfAbsent(t *testing.T) {
	seconds := spread([]float64{1, 2, 3, 4})
	here := func(name string) *Row {
		return &Row{System: name, Ranked: true, Crowded: true, Good: 4, Target: seconds, Rate: seconds}
	}
	gone := func(name string) *Row { return &Row{System: name, Error: "not installed"} }
	r := &Report{Cores: 2, Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{
		here("server-asp"), here("server-bsp"), gone("mxnet-sync"), gone("mxnet-async"), gone("tensorflow-sync"), gone("tensorflow-async"),
	}}}}
	r.judge()
	want := map[string]string{"C9": "oversubscribed", "C10": "it compares two other systems that must both be here"}
	for _, x := range r.Claims {
		if text := want[x.ID]; x.Verdict != undecided && text != "" || !strings.HasPrefix(x.Why, text) {
			t.Errorf("%s is %s: %q, want %q", x.ID, x.Verdict, x.Why, text)
		}
	}
}

// TestRegimes: rows with more busy threads than cores stand in a table of their own, with places of their own.
func TestRegimes(t *testing.T) {
	row := func(name string, crowded bool, seconds float64) *Row {
		return &Row{System: name, Crowded: crowded, Ranked: true, Good: 3, Reached: 3, Target: spread([]float64{seconds}), Rate: spread([]float64{1 / seconds})}
	}
	table := &Table{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{row("local", false, 4), row("server-bsp", true, 2), row("allreduce", true, 1), row("local-cores", false, 3)}}
	table.rank()
	r := &Report{Cores: 2, Repeats: 3, Tables: []*Table{table}}
	var got []string
	for _, b := range r.speed() {
		if x := b.(report.Table); strings.HasPrefix(x.Name, "speed-") {
			for _, line := range x.Rows {
				got = append(got, fmt.Sprint(x.Name, " ", line.Cells[0].Spans[0].Text, " ", line.Cells[2].Rank))
			}
		}
	}
	name := "speed-mlp1-b100-w3"
	want := []string{name + " local 2", name + " local-cores 1", name + "-oversubscribed server-bsp 2", name + "-oversubscribed allreduce 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestSharedMemoryIsExtra: a row whose processes share memory is shown, and takes no place of those that talk TCP; in a user's own job it does.
func TestSharedMemoryIsExtra(t *testing.T) {
	for _, own := range []bool{false, true} {
		task := digits()
		task.Own = own
		p := small(t, inMemory(), task, "allreduce", "allreduce-shm")
		p.Links = []Link{{}}
		table := newReport(&p, &record{}).table(&p.groups()[0], &p)
		for repeat := 1; repeat <= good; repeat++ {
			for i := range table.Rows {
				table.add(i, repeat, Result{
					SamplesPerSec: 10, Reached: true, SecondsToTarget: float64(2 - i), Proof: proven, Curve: []Point{{Update: 1, Seconds: 1, Value: 0.9}},
				})
			}
		}
		want := "allreduce"
		if own {
			want = "allreduce-shm"
		}
		if best, _ := table.first(); best == nil || best.System != want {
			t.Errorf("own %v: the best row is %+v, want %s", own, best, want)
		}
		if x := table.Rows[1]; (x.Why == extra) == own {
			t.Errorf("own %v: not ranked: %q", own, x.Why)
		}
	}
}

// TestClaimsWithAnException: of C10, which excepts asynchronous networks, the published figures themselves would hold: there TensorFlow was
// ahead, and a part of the claim is not the claim. And it speaks of Table 3 alone: on logistic regression MXNet was 48 times as fast.
func TestClaimsWithAnException(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	table := func(task string, mxnetAsync, tensorflowAsync []float64) *Table {
		x := &Table{Task: task, Workers: 3, Batch: 100}
		for name, seconds := range map[string][]float64{"mxnet-sync": quick, "tensorflow-sync": slow, "mxnet-async": mxnetAsync, "tensorflow-async": tensorflowAsync} {
			x.Rows = append(x.Rows, &Row{System: name, Ranked: true, Good: 7, Target: spread(seconds)})
		}
		return x
	}
	for _, c := range []struct {
		want   string
		tables []*Table
	}{
		{holds, []*Table{table("softmax", quick, slow), table("mlp1", slow, quick), table("mlp2-10k", slow, quick)}},
		{holdsNot, []*Table{table("softmax", quick, slow), table("mlp1", quick, slow)}},
		{holdsNot, []*Table{table("softmax-10k", slow, quick)}},
		{undecided, []*Table{table("logistic", quick, slow)}},
		{undecided, []*Table{table("softmax", quick, slow)}}, // the exception was not looked at
	} {
		r := &Report{Cores: 8, Tables: c.tables}
		r.judge()
		for _, x := range r.Claims {
			if x.ID == "C10" && x.Verdict != c.want {
				t.Errorf("C10 is %s (%s), want %s", x.Verdict, x.Why, c.want)
			}
		}
	}
}

// TestOften: that allreduce often beats parameter servers holds where it is ahead in more than half of the places, of several models at several
// link rates: one place in which it is behind refutes nothing, and one in which it is ahead proves nothing.
func TestOften(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	row := func(name string, seconds []float64) *Row {
		return &Row{System: name, Ranked: true, Good: 7, Target: spread(seconds)}
	}
	place := func(model string, mbit int, how string) *Table {
		x := &Table{Task: model, Model: model, Workers: 3, Batch: 100, Link: Link{Mbit: mbit}}
		a, b := row("allreduce", quick), row("server-bsp", slow)
		switch how {
		case "behind":
			a, b = row("allreduce", slow), row("server-bsp", quick)
		case "even":
			b = row("server-bsp", quick)
		case "unranked":
			b = &Row{System: "server-bsp", Good: 7, Why: "not reached"}
		}
		x.Rows = []*Row{a, b}
		return x
	}
	for _, c := range []struct {
		how  string // in logistic at 750 Mbit/s and 1 Gbit/s, then mlp2 at them
		want string
		why  string
	}{
		{"ahead ahead ahead ahead", holds, "ahead in 4 of 4, behind in 0"},
		{"ahead behind ahead ahead", holds, "ahead in 3 of 4, behind in 1"},
		{"ahead behind behind ahead", holdsNot, "ahead in 2 of 4, behind in 2"},
		{"ahead even ahead even", undecided, "ahead in 2 of 4, behind in 0"},
		{"ahead unranked unranked ahead", undecided, "ahead in 2 of 4, behind in 0"},
		{"ahead ahead", undecided, "this is 1 model at 2 rates"},
	} {
		r := &Report{Cores: 8}
		for i, how := range strings.Fields(c.how) {
			r.Tables = append(r.Tables, place([]string{"logistic", "mlp2"}[i/2], []int{750, 1000}[i%2], how))
		}
		r.judge()
		got := r.Claims[slices.IndexFunc(r.Claims, func(c Claim) bool { return c.ID == "C23" })]
		if got.Verdict != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: C23 is %q (%s), want %q (%s)", c.how, got.Verdict, got.Why, c.want, c.why)
		}
	} // At a link that was measured to be faster than it should be nothing is judged.
	r := &Report{Cores: 8, LinkSpeeds: []LinkSpeed{{Link: Link{Mbit: 750}, Sitting: 1, Mbit: 20_000}, {Link: Link{Mbit: 1000}, Sitting: 1, Mbit: 700}}}
	for _, model := range []string{"logistic", "mlp2"} {
		for _, mbit := range []int{750, 1000} {
			x := place(model, mbit, "ahead")
			x.Rows[0].Trials = []Repeat{{Result: Result{Sitting: 1}}}
			r.Tables = append(r.Tables, x)
		}
	}
	r.judge()
	if got := r.Claims[slices.IndexFunc(r.Claims, func(c Claim) bool { return c.ID == "C23" })]; got.Verdict != undecided || !strings.Contains(got.Why, "this is 2 models at 1 rate") {
		t.Errorf("where a link is not shaped C23 is %q (%s)", got.Verdict, got.Why)
	}
}
