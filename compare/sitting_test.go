package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe/report"
)

// TestCase1Parameters: the tasks' models have as many parameters as the evaluation says, and as many bytes are saved of them.
func TestCase1Parameters(t *testing.T) {
	want := map[string]int{"logistic": 10_001, "softmax": 7_850, "mlp1": 79_510, "mlp2": 104_938, "cnn": 431_080}
	for _, task := range Tasks(Sources{}) {
		task.Job.Data.Rows = 20 // the columns are what counts
		e, err := openEvaluator(t.Context(), task, inMemory())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "init")
		if err := e.writeInit(path); err != nil {
			t.Fatal(err)
		}
		p, err := e.read(path)
		if err != nil || len(p.Flat) != want[task.Name] {
			t.Errorf("%s: %d parameters, want %d (%v)", task.Name, len(p.Flat), want[task.Name], err)
		}
		bytes := 0
		for _, x := range tensorsOf(t, path) {
			bytes += 4 * len(x.Float32)
			if x.DType != "F32" {
				t.Errorf("%s: %s is saved as %s", task.Name, x.Name, x.DType)
			}
		}
		if bytes != 4*want[task.Name] {
			t.Errorf("%s: %d bytes are saved, want %d", task.Name, bytes, 4*want[task.Name])
		}
		e.close()
	}
}

// TestSittings: a comparison that is interrupted and goes on another day says from how many sittings its trials come; a system that is not
// the same then is refused, and a program that was built anew is told where the trials of the other one are.
func TestSittings(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local", "allreduce")
	p.Dir = filepath.Join(filepath.Dir(p.Dir), "20260101-paper")
	first := time.Date(2026, 1, 1, 9, 30, 0, 0, time.UTC)
	p.now = func() time.Time { return first }
	ctx, cancel := context.WithCancel(t.Context())
	p.Watch.Trialed = func(Trialed, Table) { cancel() }
	if _, err := Run(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	p.Watch.Trialed = nil

	rebuilt, note := p, ""
	rebuilt.Host.Build, rebuilt.Dir = "another", filepath.Join(filepath.Dir(p.Dir), "20260102-paper")
	rebuilt.Watch.Note = func(s string) { note += s + "\n" }
	if _, err := Foresee(t.Context(), rebuilt); err != nil || !strings.Contains(note, p.Dir+" holds 1 trials of the same comparison by another build") {
		t.Errorf("another build says %q: %v", note, err)
	}

	p.now = func() time.Time { return first.Add(26 * time.Hour) }
	other := p
	other.Systems = []System{changed{p.Systems[0]}, p.Systems[1]}
	if _, err := Run(t.Context(), other); err == nil || !strings.Contains(err.Error(), "local is another (go ") || !strings.Contains(err.Error(), "trivium test then, 2.0 now") {
		t.Errorf("with a system that has changed: %v", err)
	}

	r := run(t, p)
	if len(r.Sittings) != 2 || !strings.Contains(strings.Join(r.Threats, "\n"), "The trials come from 2 sittings (begun 2026-01-01 09:30, 2026-01-02 11:30 UTC)") {
		t.Errorf("sittings %v, threats %q", r.Sittings, r.Threats)
	}
	if a, b := r.Tables[0].Rows[0].Trials[0].Result.Sitting, r.Tables[0].Rows[1].Trials[0].Result.Sitting; a != 1 || b != 2 {
		t.Errorf("the trials are of sittings %d and %d, want 1 and 2", a, b)
	}
	again, err := Rebuild(p.Dir)
	if err != nil || strings.Join(again.Threats, "\n") != strings.Join(r.Threats, "\n") {
		t.Errorf("rebuilt: threats %q, want %q (%v)", again.Threats, r.Threats, err)
	}
}

// TestTakesMore: a comparison takes further systems and repeats, which are measured in a sitting of their own, and what it has stays as it
// is; an estimate of that changes nothing, and until it is done the comparison is not finished.
func TestTakesMore(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local")
	p.Dir, p.Repeats = filepath.Join(filepath.Dir(p.Dir), "paper"), 2
	run(t, p)
	plan := func() string {
		text, err := os.ReadFile(filepath.Join(p.Dir, planFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	narrow := plan()
	more := p
	more.Systems, more.Repeats, more.Command = systems(t, p.Host, "allreduce", "local"), 3, "compare more"
	if f, err := Foresee(t.Context(), more); err != nil || f.Trials != 4 {
		t.Errorf("%d trials are foreseen, want 4: %v", f.Trials, err)
	}
	if _, err := ReadReport(p.Dir); err != nil || plan() != narrow {
		t.Errorf("an estimate left another plan: %v\n%s", err, plan())
	}
	ctx, cancel := context.WithCancel(t.Context())
	more.Watch.Trialed = func(Trialed, Table) { cancel() }
	if _, err := Run(ctx, more); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	more.Watch.Trialed = nil
	if _, err := ReadReport(p.Dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("with trials to do it is read: %v", err)
	}
	if dir := FindUnfinished(filepath.Dir(p.Dir), more); dir != p.Dir {
		t.Errorf("unfinished is %q, want %s", dir, p.Dir)
	}
	r := run(t, more)
	var got []string
	for _, x := range r.Tables[0].Rows {
		for _, one := range x.Trials {
			got = append(got, fmt.Sprint(x.System, " ", one.Repeat, " ", one.Result.Sitting))
		}
	}
	if want := []string{"allreduce 1 2", "allreduce 2 3", "allreduce 3 3", "local 1 1", "local 2 1", "local 3 3"}; !slices.Equal(got, want) {
		t.Errorf("rows, repeats and sittings are %q, want %q", got, want)
	}
	if !strings.Contains(strings.Join(r.Threats, "\n"), "Not interleaved with the rest: allreduce.") || r.Command != more.Command || r.Repeats != 3 {
		t.Errorf("%s with %d repeats has the threats %q", r.Command, r.Repeats, r.Threats)
	}
	if again, err := Rebuild(p.Dir); err != nil || again.Tables[0].row("allreduce").Good != 3 || again.Command != more.Command {
		t.Errorf("rebuilt: %+v, %v", again, err)
	}
}

// A missing system was here when the comparison began.
type missing struct{ System }

// Detect implements System.
func (missing) Detect(context.Context) (Facts, error) {
	return nil, &AbsentError{"local", "its program", "install it"}
}

// TestResumeWithoutSystem: a system that is taken away in the middle is a row that says so, with the trials that it has.
func TestResumeWithoutSystem(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local", "allreduce")
	ctx, cancel := context.WithCancel(t.Context())
	p.Watch.Trialed = func(Trialed, Table) { cancel() }
	if _, err := Run(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	p.Watch.Trialed = nil
	p.Systems[0] = missing{p.Systems[0]}
	rows := run(t, p).Tables[0].Rows
	if x := rows[0]; len(x.Trials) != 1 || x.Ranked {
		t.Errorf("local has %d trials, ranked: %v", len(x.Trials), x.Ranked)
	}
	if x := rows[1]; x.Good != p.Repeats {
		t.Errorf("allreduce has %d good trials: %s", x.Good, x.Error)
	}
}

// TestLate: a row whose repeats were measured in a sitting after the others' next ones is not interleaved with them, and a page of fewer
// repeats than planned says so.
func TestLate(t *testing.T) {
	row := func(name string, sittings ...int) *Row {
		x := &Row{System: name}
		for i, s := range sittings {
			x.Trials = append(x.Trials, Repeat{Repeat: i + 1, Result: Result{Sitting: s}})
		}
		return x
	}
	r := &Report{Repeats: 3, Tables: []*Table{
		{Rows: []*Row{row("local", 1, 1, 2), row("allreduce", 1, 2, 2), row("absent")}}, // interrupted in the middle of a repeat
		{Rows: []*Row{row("local", 1, 1, 2), row("mxnet-sync", 2, 2)}},
	}}
	if got := r.late(); !slices.Equal(got, []string{"mxnet-sync"}) {
		t.Errorf("not interleaved: %q", got)
	}
	once := &Report{Repeats: 1, Tables: []*Table{{Rows: []*Row{row("local", 1), row("mxnet-sync", 2)}}}}
	if got := once.late(); !slices.Equal(got, []string{"mxnet-sync"}) {
		t.Errorf("of one repeat are not interleaved: %q", got)
	}
	if got := once.repeats(once.Tables...); got != "1 repeat" {
		t.Errorf("one is called %q", got)
	}
	if one, all := r.repeats(r.Tables[0]), r.repeats(r.Tables...); one != "3 repeats" || all != "2 to 3 (of 3 planned) repeats" {
		t.Errorf("%q, %q", one, all)
	}
	r.threats()
	if said := strings.Join(r.Threats, "\n"); !strings.Contains(said, "Not interleaved with the rest: mxnet-sync.") || !strings.Contains(said, "Too few for verdicts after correction: 2 to 3 (of 3 planned) repeats.") {
		t.Errorf("threats %q", said)
	}
}

// A changed system says another version than the one that it is.
type changed struct{ System }

func (c changed) Detect(context.Context) (Facts, error) { return Facts{"trivium": "2.0"}, nil }

// TestTimeLimit: a row too slow for the target within the time limit is cut there, says so, and its later repeats measure its speed alone.
func TestTimeLimit(t *testing.T) {
	task := digits()
	task.Job.Optimizer.Rate = 1e-30
	task.Cap = 3
	p := small(t, inMemory(), task)
	// An update of the fake one takes 40 s by its own clock, so that a busy machine's seconds do not count.
	p.Systems, p.Repeats, p.Limit = fakePeers(t, "slow"), 2, 10*time.Minute
	x := run(t, p).Tables[0].Rows[0]
	if len(x.Trials) != 2 || x.Good != 2 || !strings.HasPrefix(x.Why, "not reached within the time limit of a trial") || x.Ranked {
		t.Fatalf("%+v", x)
	}
	one, two := x.Trials[0].Result, x.Trials[1].Result
	if !one.Cut || one.Updates < 5 || one.Updates > 13 || one.SamplesPerSec != 1.5 || one.Proof != proven { // 60 rows in 40 s
		t.Errorf("repeat 1: %+v", one)
	}
	if two.Cut || two.Updates != 2 || two.SamplesPerSec != 1.5 || two.Proof != proven {
		t.Errorf("repeat 2: %+v", two)
	}
}

func tensorsOf(t *testing.T, path string) []checkpoint.Tensor {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := checkpoint.ReadSafetensors(raw)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestGapSteps: the way from another system to the best row says what of it a smaller batch does, and does not call that the topology.
func TestGapSteps(t *testing.T) {
	row := func(name string, effective int, seconds float64) *Row {
		return &Row{System: name, Mode: Sync, Effective: effective, Good: 3, Reached: 3, Ranked: true, Target: spread([]float64{seconds, seconds, seconds})}
	}
	table := &Table{Task: "softmax", Batch: 100, Workers: 3, Rows: []*Row{row("local", 100, 1), row("server-bsp", 300, 4), row("allreduce", 300, 2), row("mxnet-sync", 300, 8)}}
	table.rank()
	best, _ := table.first()
	for peer, want := range map[string][]string{
		"mxnet-sync": {"as run here", "our twin", "best at this batch", "best here"},
	} {
		i := slices.IndexFunc(twins, func(w twin) bool { return w.peer == peer })
		var got []string
		for _, s := range table.waterfallChart(table.row(peer), twins[i], best).Steps {
			got = append(got, s.Label)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: steps %q, want %q", peer, got, want)
		}
		text := fmt.Sprint(table.waterfall(table.row(peer), twins[i], best).(report.Figure).Caption)
		for _, want := range []string{"2 × in the implementation", "2 × in the topology", "2 × by local with a batch of 100 in place of 300", "8 × in all"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", peer, text, want)
			}
		}
	}
}

// TestGapOfUnranked: where other systems reached the target and may not be ranked, as with too few repeats, that is what the report says.
func TestGapOfUnranked(t *testing.T) {
	x := &Row{System: "pytorch-ddp", Good: 1, Reached: 1, Why: "1 of 1 repeats ended well, and 3 are wanted"}
	r := &Report{Tables: []*Table{{Task: "softmax", Batch: 100, Workers: 2, Rows: []*Row{x}}}, Absent: map[string]string{"spark": "not installed"}}
	text := fmt.Sprint(r.gap())
	for _, want := range []string{"Nothing is drawn: no row of another system may be ranked here.", "pytorch-ddp on softmax", x.Why} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
}

// TestGapOfAnotherAlgorithm: what a row that approximates gains at the same batch has a step and a factor of its own, which says so; and where
// the twin is the best row, nothing comes after it.
func TestGapOfAnotherAlgorithm(t *testing.T) {
	row := func(name, approx string, seconds float64) *Row {
		return &Row{System: name, Mode: Sync, Approx: approx, Effective: 300, Good: 3, Reached: 3, Ranked: true, Target: spread([]float64{seconds, seconds, seconds})}
	}
	for _, c := range []struct {
		peer, want string
		steps      []string
	}{
		{"mxnet-sync", "2 × in the implementation, 2 × in the topology, 4 × by allreduce-topk, which is another algorithm, 16 × in all.", []string{"mxnet-sync", "implementation: server-bsp", "topology: allreduce", "another algorithm: allreduce-topk"}},
		{"mxnet-async", "16 × in the implementation, 16 × in all.", []string{"mxnet-async", "implementation: server-asp-whole"}},
	} {
		table := &Table{Task: "softmax", Batch: 100, Workers: 3, Rows: []*Row{row("server-bsp", "", 8), row("allreduce", "", 4), row("allreduce-topk", "a codec", 1), row(c.peer, "", 16)}}
		if c.peer == "mxnet-async" {
			table.Rows = append(table.Rows, row(wholeRow, "", 1))
			table.Rows[2].Ranked = false
		}
		table.rank()
		best, _ := table.first()
		w := twins[slices.IndexFunc(twins, func(w twin) bool { return w.peer == c.peer })]
		var notes []string
		for _, s := range table.waterfallChart(table.row(c.peer), w, best).Steps {
			notes = append(notes, s.Note)
		}
		if !slices.Equal(notes, c.steps) {
			t.Errorf("%s: steps %q, want %q", c.peer, notes, c.steps)
		}
		if text := fmt.Sprint(table.waterfall(table.row(c.peer), w, best).(report.Figure).Caption); !strings.Contains(text, c.want) {
			t.Errorf("%s: %q does not say %q", c.peer, text, c.want)
		}
	}
}

// TestUntouchedDefaults: a row of another system is called tuned beside the one that it ships, and no report without that one leaves it unsaid.
func TestUntouchedDefaults(t *testing.T) {
	row := func(name string, seconds float64) *Row {
		return &Row{System: name, Mode: Sync, Peer: true, Effective: 300, Good: 3, Reached: 3, Ranked: true, Trials: []Repeat{{Repeat: 1}}, Target: spread([]float64{seconds})}
	}
	for _, c := range []struct {
		rows  []*Row
		label string
		said  string
	}{
		{[]*Row{row("mxnet-sync", 8), row("pytorch-ddp", 9), row("pytorch-ddp-default", 10)}, "as run here", "Untouched defaults were not measured: mxnet-sync."},
		{[]*Row{row("mxnet-sync", 8), row("mxnet-sync-default", 16)}, "as shipped", ""},
	} {
		table := &Table{Task: "softmax", Batch: 100, Workers: 3, Rows: c.rows}
		table.rank()
		best, _ := table.first()
		w := twins[slices.IndexFunc(twins, func(w twin) bool { return w.peer == "mxnet-sync" })]
		if got := table.waterfallChart(c.rows[0], w, best).Steps[0].Label; got != c.label {
			t.Errorf("the first step is %q, want %q", got, c.label)
		}
		r := &Report{Tables: []*Table{table}}
		r.threats()
		if said := strings.Join(r.Threats, "\n"); !strings.Contains(said, c.said) || strings.Contains(said, "Untouched") != (c.said != "") {
			t.Errorf("%q does not say %q", said, c.said)
		}
	}
}

// TestGapFallsOnly: no step after our twin is slower than it, and a row that reads stale parameters is no other topology of one that does not.
func TestGapFallsOnly(t *testing.T) {
	row := func(name string, mode Mode, effective int, seconds float64) *Row {
		return &Row{System: name, Mode: mode, Effective: effective, Peer: name == "mxnet-async" || name == "pytorch-ddp", Good: 3, Reached: 3, Ranked: true, Target: spread([]float64{seconds, seconds, seconds})}
	}
	approx := func(x *Row) *Row {
		x.Approx, x.Peer = perSample, strings.HasPrefix(x.System, "pmls")
		return x
	}
	for _, c := range []struct {
		rows  []*Row
		want  string
		steps []string
	}{
		{
			[]*Row{row("mxnet-async", Async, 300, 16), row(wholeRow, Async, 300, 2), row("server-ssp3", Stale(3), 300, 4), row("local", Sync, 100, 1)},
			"8 × in the implementation, 2 × by local with a batch of 100 in place of 300, which is another algorithm, 16 × in all.",
			[]string{"mxnet-async", "implementation: " + wholeRow, "batch 100, not 300: local"},
		},
		{
			[]*Row{row("mxnet-async", Async, 300, 16), row(wholeRow, Async, 300, 8), row("server-asp", Async, 300, 4)}, // whose steps are not as long
			"2 × in the implementation, 2 × by server-asp, which is another algorithm, 4 × in all.",
			[]string{"mxnet-async", "implementation: " + wholeRow, "another algorithm: server-asp"},
		},
		{
			[]*Row{row("pytorch-ddp", Sync, 300, 12), row("allreduce", Sync, 300, 4), row("server-asp", Async, 300, 3), row("server-ssp10", Stale(10), 300, 3.5)},
			"3 × in the implementation, 1.33 × by server-asp, which is another algorithm, 4 × in all.",
			[]string{"pytorch-ddp", "implementation: allreduce", "another algorithm: server-asp"},
		},
		{
			[]*Row{row("pytorch-ddp", Sync, 300, 1), row("allreduce", Sync, 300, 4)},
			"0.25 × in the implementation, 4 × in the topology, 1 × in all.",
			[]string{"pytorch-ddp", "implementation: allreduce", "topology: pytorch-ddp"},
		},
		{ // a system that approximates, and is itself the fastest
			[]*Row{approx(row("pmls-ssp3-clock10", Stale(3), 3, 1)), approx(row("server-ssp3-clock10", Stale(3), 3, 2))},
			": 0.5 × in the implementation, 1 × in all.",
			[]string{"pmls-ssp3-clock10", "implementation: server-ssp3-clock10"},
		},
	} {
		table := &Table{Task: "softmax", Batch: 100, Workers: 3, Rows: c.rows}
		table.rank()
		best, _ := table.first()
		w := twins[slices.IndexFunc(twins, func(w twin) bool { return w.peer == c.rows[0].System })]
		var notes []string
		for _, s := range table.waterfallChart(c.rows[0], w, best).Steps {
			notes = append(notes, s.Note)
		}
		if !slices.Equal(notes, c.steps) {
			t.Errorf("%s: steps %q, want %q", w.peer, notes, c.steps)
		}
		if text := fmt.Sprint(table.waterfall(c.rows[0], w, best).(report.Figure).Caption); !strings.Contains(text, c.want) {
			t.Errorf("%s: %q does not say %q", w.peer, text, c.want)
		}
	}
}

// TestNoPattern: a folder may have a name that is a pattern of another: what is finished in it stays, is found, and goes on.
func TestNoPattern(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local", "allreduce")
	p.Dir = filepath.Join(t.TempDir(), "runs [a]", "20260101-paper")
	ctx, cancel := context.WithCancel(t.Context())
	p.Watch.Trialed = func(Trialed, Table) { cancel() }
	if _, err := Run(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	p.Watch.Trialed = nil
	if done, err := os.ReadDir(filepath.Join(p.Dir, trialsDir)); err != nil || len(done) != 1 {
		t.Fatalf("%d trials are there, want 1: %v", len(done), err)
	}
	if dir := FindUnfinished(filepath.Dir(p.Dir), p); dir != p.Dir {
		t.Errorf("unfinished is %q, want %s", dir, p.Dir)
	}
	other := p
	other.Systems = []System{changed{p.Systems[0]}, p.Systems[1]}
	if _, err := Run(t.Context(), other); err == nil || !strings.Contains(err.Error(), "local is another") {
		t.Errorf("with a system that has changed: %v", err)
	}
	if rows := run(t, p).Tables[0].Rows; rows[0].Trials[0].Result.Sitting != 1 || rows[1].Trials[0].Result.Sitting != 2 {
		t.Errorf("rows %+v and %+v", rows[0], rows[1])
	}
}

// TestEstimateOfMore: what an estimate reads is put away again where the comparison is finished; one that is not goes on with it.
func TestEstimateOfMore(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local")
	run(t, p)
	drawn := filepath.Join(p.Dir, dataDir, generatedSource)
	more := p
	more.Repeats = 2
	more.Watch.Status = func(Status) { // as where digits are drawn
		if err := os.MkdirAll(drawn, 0o755); err != nil {
			t.Error(err)
		}
	}
	if f, err := Foresee(t.Context(), more); err != nil || f.Trials != 1 {
		t.Fatalf("%v: %v", f, err)
	}
	if _, err := os.Stat(drawn); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it leaves %s: %v", drawn, err)
	}
	if err := os.Remove(filepath.Join(p.Dir, reportFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Foresee(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(drawn); err != nil {
		t.Errorf("what goes on has no data: %v", err)
	}
}
