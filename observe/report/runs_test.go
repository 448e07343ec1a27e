package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/rundir"
)

// To look at real runs: go test ./observe/report -run TestRuns$ -runs DIR,DIR -page page.html
var runDirs = flag.String("runs", "", "run directories that TestRuns makes a page of")

// write leaves a run directory as a training of two workers would, and opens it.
func write(t *testing.T, head rundir.Head, end *rundir.Result, change func(step int, s *observe.Step)) *rundir.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), head.Name)
	head.Start = time.Date(2026, 11, 21, 18, 9, 16, 0, time.UTC)
	w, err := rundir.Create(dir, head)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for rank := range 2 {
		source := observe.Source{Run: head.Name, Strategy: head.Strategy, Role: observe.Worker, Rank: rank}
		set := observe.NewSet(source)
		for i := range 2000 {
			var s observe.Step
			s.Step, s.Start, s.Every, s.Samples = int64(i), time.Duration(i)*10*time.Millisecond, 1, 100
			s.Phases[observe.Compute], s.Phases[observe.WaitStale] = 7*time.Millisecond, time.Duration(rank+1)*time.Millisecond
			s.Loss = 2.3*math.Exp(-float64(i)/500) + 0.05
			s.StalenessMax = uint16(i % 4)
			if change != nil {
				change(i, &s)
			}
			must(w.Step(source, s))
			set.Add(observe.Steps, 1)
			set.Add(observe.Samples, 100)
			set.Add(observe.WallTime, uint64(s.Wall()))
			set.Add(observe.PhaseTime(observe.Compute), uint64(s.Phases[observe.Compute]))
			set.Add(observe.PhaseTime(observe.WaitStale), uint64(s.Phases[observe.WaitStale]))
			set.Observe(observe.StepTime, uint64(s.Wall()))
			if head.Strategy == "server" {
				set.Add(observe.CacheHits, 5)
				set.Add(observe.CacheMisses, 3)
				set.Add(observe.TornRounds, 1)
				set.Add(observe.Refused, 2)
				set.PutWaited([][]time.Duration{{0, 3100 * time.Millisecond}, {900 * time.Millisecond}}[rank])
			}
			if i%100 == 99 {
				set.Put(observe.CPUUse, 0.8+0.1*math.Sin(float64(i)))
				set.Put(observe.ResidentBytes, 60e6+float64(i)*1e4)
				set.Add(observe.CPUUser, 800_000_000)
				set.Add(observe.BytesOut, 40_000_000)
				must(set.Evaluate("test.accuracy", 0.9-0.5*math.Exp(-float64(i)/400), int64(i)+1))
				must(w.Frame(set.Frame(time.Duration(i) * 10 * time.Millisecond)))
			}
		}
	}
	must(w.Event(observe.Event{Time: head.Start.Add(3 * time.Second), Level: observe.Warn, Kind: "straggler", Step: 300, Text: "worker 1 is <slow> & late"}))
	if end != nil {
		must(w.Finish(*end))
	} else {
		must(w.Close())
	}
	r, err := rundir.Open(dir)
	must(err)
	return r
}

var finished = rundir.Result{
	Reason: "finished", Steps: 2000, Epochs: 4, Samples: 400_000, Seconds: 20, SamplesPerSec: 20_000,
	Metrics: map[string]float64{"test.accuracy": 0.8966, "test.loss": 0.3044, "train.loss": math.Inf(1)},
}

func serverHead(name string) rundir.Head {
	return rundir.Head{
		Name: name, Strategy: "server", Workers: 2, Servers: 1, Threads: 1, Model: "mlp:100", Command: []string{"/somewhere/trivium", "train", "mlp:100", "--data", "a b.csv"},
		Configuration: json.RawMessage(`{"version":1,"batch":200,"optimizer":{"name":"adam","rate":0.001}}`), Host: json.RawMessage(`{"cores":2,"memory_bytes":25276510208}`),
		Versions: map[string]string{"trivium": "0.4"}, Seeds: map[string]uint64{"job": 42},
	}
}

func pageOf(t *testing.T, runs ...*rundir.Run) string {
	t.Helper()
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		p, err := report.Runs(runs, report.Options{})
		if err == nil {
			err = p.WriteHTML(w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same runs came out as different bytes")
	}
	checkHTML(t, a.Bytes())
	return a.String()
}

func TestRuns(t *testing.T) {
	if *runDirs != "" {
		var runs []*rundir.Run
		for _, dir := range strings.Split(*runDirs, ",") {
			r, err := rundir.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		if err := os.WriteFile(*pageFile, []byte(pageOf(t, runs...)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	end := finished
	end.Waited = []time.Duration{1900 * time.Millisecond, 6100 * time.Millisecond, 0}
	page := pageOf(t, write(t, serverHead("one"), &end, nil))
	for _, want := range []string{
		"mlp:100 under server, 2 workers, 1 server", "finished after 2,000 updates in 20 s, at 20k samples a second, with test.accuracy at 0.8966.",
		"computed for 82.4\u00a0% of their time", "not finite", "worker 1 is &lt;slow&gt; &amp; late", "trivium train mlp:100 --data &#39;a b.csv&#39;",
		"Oversubscribed: 3 busy threads on 2 cores", "23.5 GiB", "the stalest read of a step", "test.accuracy by update", "resident memory at most",
		"Reads of tables", "16,000", "Servers had 4,000 rounds of workers that were lost", "8,000 messages could not be read", "62.5\u00a0%",
		"Whom workers waited for", "76.2\u00a0%", "23.8\u00a0%",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(page, "/somewhere") {
		t.Error("the page tells where the program lay")
	}
}

// TestMetricsHaveFourDigits: as in the terminal, whatever their size; in the table, the text, the tile, the charts and their data.
func TestMetricsHaveFourDigits(t *testing.T) {
	end := finished
	end.Metrics = map[string]float64{"test.loss": 1.5384e-5, "train.loss": 542783278.976}
	page := pageOf(t, write(t, serverHead("one"), &end, nil), short(t, 1, 542783278.976, 1.5384e-5))
	for _, want := range []string{
		"with test.loss at 1.538e−5", ">5.428e8<", "Lines of test.loss against Updates: allreduce from 5.428e8 to 1.538e−5.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if page := pageOf(t, write(t, serverHead("one"), &end, nil)); !strings.Contains(page, `class="value">1.538e−5<`) {
		t.Error("the tile of the metric has other digits")
	}
}

// evaluated leaves and opens the directory of a run whose job asks for metrics, and that evaluated each of names times times.
func evaluated(t *testing.T, asked string, times int, names ...string) *rundir.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "evaluated")
	w, err := rundir.Create(dir, rundir.Head{Strategy: "local", Workers: 1, Model: "mlp", Configuration: json.RawMessage(`{"metrics":[` + asked + `]}`)})
	if err != nil {
		t.Fatal(err)
	}
	set := observe.NewSet(observe.Source{Role: observe.Worker})
	end := rundir.Result{Metrics: map[string]float64{}}
	for i := range times {
		for k, name := range names {
			end.Metrics[name] = float64(i) + float64(k)/100
			err = errors.Join(err, set.Evaluate(name, end.Metrics[name], int64(i)))
		}
		err = errors.Join(err, w.Frame(set.Frame(time.Duration(i)*time.Second)))
	}
	if err = errors.Join(err, w.Finish(end)); err != nil {
		t.Fatal(err)
	}
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMetricsAreAllThere: the result has every metric, the numbers too; of more than there is room for, those that were asked for have charts,
// and the caption names the others.
func TestMetricsAreAllThere(t *testing.T) {
	var names []string
	for c := 'a'; c <= 'n'; c++ {
		names = append(names, "test.metric-"+string(c))
	}
	page := pageOf(t, evaluated(t, `"metric-n","metric-b"`, 3, names...))
	for _, want := range []string{`<th scope="row" class="short">test.metric-g</th>`, ">2.06<", " In the numbers alone: test.metric-l, test.metric-m.<", ">test.metric-m<"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	chart := func(name string) int { return strings.Index(page, ">"+name+" by update<") }
	if n, b, a := chart("test.metric-n"), chart("test.metric-b"), chart("test.metric-a"); n < 0 || b < n || a < b {
		t.Errorf("charts are not in the order that they were asked for in: %d, %d, %d", n, b, a)
	}
}

// TestEvaluationsAreThinned: of very many a page has as many of each metric, the last among them, and says what it left out.
func TestEvaluationsAreThinned(t *testing.T) {
	page := pageOf(t, evaluated(t, "", 500, "test.accuracy", "test.loss", "valid.loss"))
	for _, name := range []string{"test.accuracy", "test.loss", "valid.loss"} {
		if n := strings.Count(page, ">"+name+"</td>"); n != 125 {
			t.Errorf("%d rows are of %s", n, name)
		}
	}
	for _, want := range []string{">499<", "every 4th row is here. Left out: 1,125 evaluations, which the folder series of the run directory has."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if page := pageOf(t, evaluated(t, "", 200, "test.accuracy", "test.loss")); strings.Contains(page, "Left out") {
		t.Error("a page leaves evaluations out for which it has room")
	}
}

// TestRunOfMachines: the page of a cluster's run says on how many machines it was, and knows nothing of their cores.
func TestRunOfMachines(t *testing.T) {
	head := serverHead("far")
	head.Machines = 2
	page := pageOf(t, write(t, head, &finished, nil))
	if strings.Contains(page, "Oversubscribed") || !strings.Contains(page, "<dt>machines</dt><dd>2</dd>") {
		t.Errorf("the page says nothing of the machines, or of cores that are the coordinator's: %v", strings.Contains(page, "machines"))
	}
}

func TestRunsSideBySide(t *testing.T) {
	other := serverHead("two")
	other.Strategy, other.Servers = "allreduce", 0
	page := pageOf(t, write(t, serverHead("one"), &finished, nil), write(t, other, &finished, nil))
	for _, want := range []string{"2 runs side by side", "One run each", "What differs from the first run", "Loss of the steps against samples", "allreduce: worker 1", "<li>One run is one sample."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if page := pageOf(t, write(t, serverHead("one"), &finished, nil), short(t, 2, 1)); !strings.Contains(page, "Not counted: allreduce.") {
		t.Error("the page does not say whose bytes were not counted")
	}
	if _, err := report.Runs(nil, report.Options{}); err == nil {
		t.Error("a page of no run")
	}
}

// A run that has not finished, whose files are damaged, or whose loss went away, has its page too, which says so.
func TestRunsUnfinished(t *testing.T) {
	r := write(t, serverHead("cut"), nil, func(i int, s *observe.Step) {
		if i >= 1000 {
			s.Loss = math.NaN()
		}
	})
	file := filepath.Join(r.Dir, "steps", "worker-1.bin")
	bytes, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes[:len(bytes)-7], 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err = rundir.Open(r.Dir); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, r)
	for _, want := range []string{"has not finished", "unfinished", "steps/worker-1.bin", "The run wrote no result", "77.5\u00a0%", "22.5\u00a0%"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	empty := t.TempDir()
	w, err := rundir.Create(filepath.Join(empty, "run"), rundir.Head{Name: "empty", Strategy: "local", Model: "softmax"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err = rundir.Open(filepath.Join(empty, "run")); err != nil {
		t.Fatal(err)
	}
	if page := pageOf(t, r); !strings.Contains(page, "No worker left a record") {
		t.Error("a run without records has a page that does not say so")
	}
}

// short leaves and opens the directory of a run of so many workers, each of which had a step of each of these losses.
func short(t *testing.T, workers int, losses ...float64) *rundir.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "short")
	w, err := rundir.Create(dir, rundir.Head{Strategy: "allreduce", Workers: workers, Model: "softmax"})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range workers {
		set := observe.NewSet(observe.Source{Strategy: "allreduce", Role: observe.Worker, Rank: rank})
		for i, loss := range losses {
			s := observe.Step{Step: int64(i + 1), Start: time.Duration(i) * time.Second, Loss: loss}
			s.Phases[observe.Compute] = time.Second
			set.Add(observe.Steps, 1)
			set.Add(observe.WallTime, uint64(time.Second))
			set.Add(observe.PhaseTime(observe.Compute), uint64(time.Second))
			set.Observe(observe.StepTime, uint64(time.Second))
			set.Put(observe.ResidentBytes, 1e6)
			err := errors.Join(set.Evaluate("test.loss", loss, s.Step), w.Step(set.Source(), s), w.Frame(set.Frame(s.Start)))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, level := range []observe.Level{observe.Info, observe.Warn, observe.Error} {
		if err := w.Event(observe.Event{Level: level, Kind: "kind", Step: -1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRunsOfAnySize: one update is not "1 updates", what there is no room for is said, and values that no chart can show leave a page.
func TestRunsOfAnySize(t *testing.T) {
	page := pageOf(t, short(t, 20, 3))
	for _, want := range []string{
		"or did not live to say so, after 1 update in 1 s", "3 events; warnings and errors: 2", "beyond the first 16 of a run: 4 workers.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if page := pageOf(t, short(t, 14, 3, 2, 1)); !strings.Contains(page, "Lines are those of the first 12 in the table.") {
		t.Error("the page does not say that two processes have no line")
	}
	pageOf(t, short(t, 1, 1e305, 2e305, math.MaxFloat64))
	pageOf(t, short(t, 2, 3), short(t, 2, math.MaxFloat64))
}
