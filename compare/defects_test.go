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

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// TestNamedTwice: what is named twice would count each of its trials twice, as if there were twice the repeats.
func TestNamedTwice(t *testing.T) {
	for want, change := range map[string]func(p *Plan){
		"task softmax":  func(p *Plan) { p.Tasks = append(p.Tasks, p.Tasks[0]) },
		"system local":  func(p *Plan) { p.Systems = append(p.Systems, p.Systems[0]) },
		"workers 3":     func(p *Plan) { p.Workers = []int{3, 2, 3} },
		"batch full":    func(p *Plan) { p.Batches = []Batch{trivium.FullBatch, 20, trivium.FullBatch} },
		"link 1 Gbit/s": func(p *Plan) { p.Links = []Link{{Mbit: 1000}, {Mbit: 1000}} },
		"link loopback": func(p *Plan) { p.Links = []Link{{}, {}} },
	} {
		p := small(t, inMemory(), digits(), "local")
		change(&p)
		_, err := Run(t.Context(), p)
		if mistake := new(PlanError); !errors.As(err, &mistake) || err.Error() != "compare: "+want+" is named twice" {
			t.Errorf("%s: it ends with %v", want, err)
		}
	}
}

// TestInterruptAtTheEnd: an interrupt after the last trial, while the report is made, leaves no finished comparison: the same command goes on.
func TestInterruptAtTheEnd(t *testing.T) {
	p := small(t, inMemory(), digits(), "local")
	ctx, cancel := context.WithCancel(t.Context())
	p.Watch.Trialed = func(Trialed, Table) { cancel() }
	if _, err := Run(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if _, err := ReadReport(p.Dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("its report: %v, want that it is not finished", err)
	}
	p.Watch.Trialed = nil
	if r := run(t, p); len(r.Tables[0].Rows[0].Trials) != 1 {
		t.Error("the trial is not there")
	}
}

// TestResumeRefusesOtherData: a data file that was changed between two sittings is other data, though it has the same name.
func TestResumeRefusesOtherData(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local")
	p.Repeats = 2
	version := "one"
	p.Host.Sources["file"] = func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
		s, err := p.Host.Sources["digits"](ctx, trivium.Data{Source: "digits", Rows: 800})
		if err != nil {
			return nil, err
		}
		s.Checksum = version
		return s, nil
	}
	p.Tasks[0].Job.Data.Source, p.Tasks[0].Job.Data.Rows = "file", 0
	ctx, cancel := context.WithCancel(t.Context())
	p.Watch.Trialed = func(Trialed, Table) { cancel() }
	if _, err := Run(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	p.Watch.Trialed, version = nil, "two"
	_, err := Run(t.Context(), p)
	if mixed := new(MixedError); !errors.As(err, &mixed) || !strings.Contains(err.Error(), "the data of softmax has the checksum two, and had one") {
		t.Errorf("with other data it ends with %v", err)
	}
	version = "one"
	run(t, p)
}

// TestFailedRepeats: a row of which some repeats failed says how many its figures are of.
func TestFailedRepeats(t *testing.T) {
	table := &Table{Task: "mlp1", Workers: 3, Batch: 500, Rows: []*Row{{System: "mxnet-sync", Mode: Sync}, {System: "allreduce", Mode: Sync}}}
	for repeat := 1; repeat <= 7; repeat++ {
		result := Result{SamplesPerSec: 10, SecondsToTarget: 1, Reached: true, Curve: []Point{{Update: 1, Loss: 0.5, Value: 0.9}}}
		table.add(1, repeat, result)
		if repeat > 3 {
			result = Result{Error: "it hangs"}
		}
		table.add(0, repeat, result)
	}
	table.Rows[0].cell = "mlp1-b500-w3-mxnet-sync"
	r := &Report{Repeats: 7, Tables: []*Table{table, table}} // a row that two tables show
	var text strings.Builder
	if err := r.Text(&text); err != nil || strings.Count(text.String(), "failed: ") != 1 || !strings.Contains(text.String(), "\nfailed: mlp1-b500-w3-mxnet-sync, 4 of 7 repeats: it hangs\n") {
		t.Errorf("%v, and in words:\n%s", err, text.String())
	}
	r.Tables = r.Tables[:1]
	if !table.Rows[0].Ranked {
		t.Fatalf("not ranked: %s", table.Rows[0].Why)
	}
	for name, text := range map[string]string{"speed": fmt.Sprint(r.speed()), "the paper's": fmt.Sprint(r.paperTables())} {
		if n := strings.Count(text, "3 of 7 repeats ended well"); n != 1 {
			t.Errorf("%s: said %d times in %s", name, n, text)
		}
	}
}

// TestLinesOfCheck: the documentation says how long the program is that checks the losses.
func TestLinesOfCheck(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "compare.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("`compare/check.py`, %d lines of NumPy", strings.Count(checkProgram, "\n")); !strings.Contains(string(text), want) {
		t.Errorf("docs/compare.md does not say %s", want)
	}
}

// TestClaimOfPMLS: that PMLS's way is the fastest is not refuted by PMLS's way with other clocks, nor by PMLS.
func TestClaimOfPMLS(t *testing.T) {
	quick, slow := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}, []float64{3, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6}
	row := func(name, approx string, seconds []float64) *Row {
		return &Row{System: name, Approx: approx, Ranked: true, Good: 7, Target: spread(seconds), Rate: spread(inverse(seconds))}
	}
	third := []float64{9, 9.1, 9.2, 9.3, 9.4, 9.5, 9.6}
	r := &Report{Cores: 8, Tables: []*Table{{Task: "logistic", Workers: 3, Batch: 100, Rows: []*Row{
		row("server-ssp3-clock100", perSample, quick), row("pmls-ssp3-clock10", perSample, quick),
		row("server-ssp3-clock10", perSample, slow), row("allreduce", "", third),
	}}}}
	r.judge()
	for _, x := range r.Claims {
		if x.ID == "C1" && x.Verdict != holds {
			t.Errorf("C1 %s: %s", x.Verdict, x.Why)
		}
	}
}

// TestThreatOfTheHypervisor: what the hypervisor takes is no part of the cores that other programs may have.
func TestThreatOfTheHypervisor(t *testing.T) {
	flags := []string{"the hypervisor took 3.1 % of the time", "other programs took 20 % of the cores"}
	r := &Report{Tables: []*Table{{Rows: []*Row{{System: "local", Trials: []Repeat{{Repeat: 1, Result: Result{Flags: flags}}}}}}}}
	r.threats()
	for _, want := range []string{
		"1 of 1 trials are flagged: the hypervisor took more than 2 % of the time.",
		"1 of 1 trials are flagged: other programs took more than 5 % of the cores.",
	} {
		if !slices.Contains(r.Threats, want) {
			t.Errorf("%q is not among %q", want, r.Threats)
		}
	}
}

// TestCheckOfLocalOnALink: the parameters that local saved are found where its trial is, also in a table of a shaped link, and are checked once.
func TestCheckOfLocalOnALink(t *testing.T) {
	p := small(t, inMemory(), digits(), "local")
	p.Workers = []int{2, 3}
	r := run(t, p)
	p.defaults() // as Run's has them
	once, why := r.checkList(t.Context(), &p)
	if why != "" || len(once) == 0 {
		t.Fatalf("%d losses: %s", len(once), why)
	}
	paths := map[string]bool{}
	for _, x := range once {
		if paths[x.path] {
			t.Fatalf("%s is checked twice", x.path)
		}
		paths[x.path] = true
	}
	p.Links = []Link{{Mbit: 750, Apart: true}}
	for _, x := range r.Tables {
		x.Link = p.Links[0]
	}
	shaped, why := r.checkList(t.Context(), &p)
	if why != "" || len(shaped) != len(once) {
		t.Errorf("%d losses are checked in tables of a link, want %d: %s", len(shaped), len(once), why)
	}
}

// TestPeerClockThatStands: a peer that says no time has gone to a snapshot is refused: a report cannot divide by it.
func TestPeerClockThatStands(t *testing.T) {
	task := digits()
	task.Job.Optimizer.Rate, task.Cap = 1e-30, 1
	p := small(t, inMemory(), task)
	p.Systems = fakePeers(t, "stands")
	x := run(t, p).Tables[0].Rows[0]
	if !strings.Contains(x.Error, "saved parameters after 0 s") {
		t.Errorf("error %q, good %d", x.Error, x.Good)
	}
}

// TestTooManyRepeats: an exact test of so many values would take all memory, and its number of ways no float64 holds.
func TestTooManyRepeats(t *testing.T) {
	p := small(t, inMemory(), digits(), "local")
	p.defaults()
	p.Repeats = 101
	if err := p.validate(); err == nil || !strings.Contains(err.Error(), "repeats: want 1 to 100, found 101") {
		t.Errorf("%v", err)
	}
	p.Repeats = 100
	if err := p.validate(); err != nil {
		t.Error(err)
	}
}

// TestCutBeforeTheFirstPlace: a row that the time limit left no way to its first place did not reach the target: it is not one that saves
// no parameters, and no best value is made up for it.
func TestCutBeforeTheFirstPlace(t *testing.T) {
	p := &Table{Target: Target{"train", "loss", 0.3, false}, Cap: 25, Rows: []*Row{{System: "server-asp", Mode: Async}}}
	for repeat := range 3 {
		p.add(0, repeat+1, Result{SamplesPerSec: 10, Updates: 3, Cut: true})
	}
	x := p.Rows[0]
	if x.Why != "not reached within the time limit of a trial (best unknown)" || x.Ranked {
		t.Errorf("not ranked: %q", x.Why)
	}
	var text strings.Builder
	if err := p.Text(&text); err != nil || strings.Contains(text.String(), "best 0") || !strings.Contains(text.String(), "best unknown") {
		t.Errorf("%v\n%s", err, text.String())
	}
	p.add(0, 4, Result{SamplesPerSec: 10, Updates: 9, Cut: true, Best: 0.5, Curve: []Point{{Update: 8, Value: 0.5}}})
	if x.Best != 0.5 || !strings.Contains(x.Why, "(best 0.5)") {
		t.Errorf("best %v: %q", x.Best, x.Why)
	}
	blind := &Row{System: "spark-mllib", Mode: Async}
	p.Rows = []*Row{blind}
	p.add(0, 1, Result{SamplesPerSec: 10, Updates: 3})
	if blind.Why != unseen {
		t.Errorf("of a row that saves nothing: %q", blind.Why)
	}
}

// TestDamaged: a file of a comparison that is not as it was written is named, with what is wrong and what mends it.
func TestDamaged(t *testing.T) {
	p := small(t, inMemory(), digits(), "local")
	run(t, p)
	read := func(dir string) error { _, err := ReadReport(dir); return err }
	rebuild := func(dir string) error { _, err := Rebuild(dir); return err }
	goOn := func(dir string) error { // to one repeat more: nothing is measured before
		q := p
		q.Dir, q.Repeats = dir, 2
		q.Watch.Trialed = func(x Trialed, _ Table) { t.Errorf("%v was measured", x) }
		_, err := Run(t.Context(), q)
		if _, ok := errors.AsType[*PlanError](err); !ok {
			t.Errorf("%v is no PlanError", err)
		}
		if err := read(dir); err != nil {
			t.Errorf("the report of what is there: %v", err)
		}
		return err
	}
	trial := filepath.Join(trialsDir, Cell{Task: "softmax", Batch: 20, Workers: 1, System: "local"}.ID()+"-r1")
	for _, c := range []struct {
		file, old, by string // by: in place of old, or where that is empty of all
		open          func(dir string) error
		want          string
	}{
		{reportFile, "", "{", read, reportFile + ": unexpected end of JSON input; the command that made it makes it anew"},
		{reportFile, "", `{"format":1,"tables":[null]}`, read, reportFile + " has a table or a row that is null; the command"},
		{reportFile, "", `{"format":1,"tables":[{"rows":[null]}]}`, read, reportFile + " has a table or a row that is null; the command"},
		{filepath.Join(trial, resultFile), "", "{", rebuild, resultFile + ": unexpected end of JSON input; remove its folder to run it again"},
		{filepath.Join(trial, curveFile), "", "{", rebuild, curveFile + ": unexpected end of JSON input; remove its folder to run it again"},
		{reportFile, "", `{"format":1}`, read, reportFile + " has no table; the command"},
		{filepath.Join(trial, resultFile), "", "null", rebuild, resultFile + ": it is no result of repeat 1 of softmax-b20-w1-local; remove its folder"},
		{filepath.Join(trial, resultFile), "", "{", goOn, resultFile + ": unexpected end of JSON input; remove its folder to run it again"},
		{referenceFile, "", "{", goOn, referenceFile + ": unexpected end of JSON input; remove the file to have it looked up again"},
		{planFile, `"repeats": 1`, `"repeats": 1000000000`, rebuild, planFile + " is not as it was written: compare: repeats: want 1 to 100, found 1000000000"},
		{planFile, `"quick": true`, `"full": true, "links": []`, rebuild, planFile + " is not as it was written: compare: there is no link"},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(p.Dir)); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, c.file)
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), c.old) {
			t.Fatalf("%s has no %q: %v", c.file, c.old, err)
		}
		by := c.by
		if c.old != "" {
			by = strings.Replace(string(text), c.old, c.by, 1)
		}
		if err := os.WriteFile(name, []byte(by), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.open(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v; want %s", c.file, c.by, err, c.want)
		}
	}
	// A plan that cannot be read is not called a folder without a comparison.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, planFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := read(dir); err == nil || !strings.Contains(err.Error(), planFile+": unexpected end of JSON input") {
		t.Errorf("%v", err)
	}
}

// TestNoPredictor: a model that makes no predictions, or not of such labels, and a metric that its outputs have not, are mistakes of who
// asks, and named before anything runs.
func TestNoPredictor(t *testing.T) {
	h := inMemory()
	h.Models = nn.Standard()
	h.Models["mute"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := nn.Softmax(args, s, cpu)
		return struct{ trivium.Model }{m}, err
	}
	for _, c := range []struct{ model, target, want string }{
		{"mute", "test.accuracy >= 0.7", "model mute, target test.accuracy >= 0.7: the model makes no predictions (it is no trivium.Predictor), so nothing but its loss is known: give a target such as 'test.loss <= 0.3'"},
		{"linear", "test.loss <= 1", `model "linear": takes one real label a row`},
		{"softmax", "test.rmse <= 1", "model softmax, target test.rmse <= 1: metric: rmse does not fit"},
	} {
		p := small(t, h, digits(), "local")
		target, err := ParseTarget(c.target)
		if err != nil {
			t.Fatal(err)
		}
		p.Tasks[0].Own, p.Tasks[0].Job.Model, p.Tasks[0].Target = true, c.model, target
		_, err = Run(t.Context(), p)
		if mistake := new(PlanError); !errors.As(err, &mistake) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v; want a PlanError with %s", c.model, c.target, err, c.want)
		}
	}
}

// TestTargetThatCannotBe: a target that is met where the metric is bad, and one that it never meets, are refused before anything is measured.
func TestTargetThatCannotBe(t *testing.T) {
	for target, want := range map[string]string{"test.loss >= 0.1": "lower", "test.accuracy <= 0.9": "higher", "test.accuracy >= 97": "at best 1", "test.loss <= 0.1": ""} {
		if _, err := ParseTarget(target); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
	}
}

// TestTaskWithoutData: a task of a set that is not here is no unknown name: what is missing is said, and where it was looked for.
func TestTaskWithoutData(t *testing.T) {
	t.Chdir(t.TempDir())
	missing := func(where string) string {
		return "mlp1-10k wants a folder with MNIST's test images alone (t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or as .gz), and there is none: looked in " + where
	}
	whole := t.TempDir()
	for _, name := range []string{"train-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz"} {
		if err := os.WriteFile(filepath.Join(whole, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ dir, name, want string }{
		{"", "mlp1-10k", missing("mnist10k, data/mnist10k, shared/data/mnist10k, ../shared/data/mnist10k, ../data/mnist10k")},
		{whole, "mlp1-10k", missing(whole)},
		{"", "mlp3-10k", `no task is called "mlp3-10k"; there are cnn, logistic, mlp1, mlp2, softmax`},
		{"", "logistic-10k", `no task is called "logistic-10k"`},
	} {
		s, err := FindSources(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := PickTasks(s, []string{"logistic", c.name}); len(list) != 1 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q: %d tasks, %v; want %s", c.name, c.dir, len(list), err, c.want)
		}
	}
}

// TestTidyWithoutFiles: parameters that a system says it saved, and did not, are its failure, and end no comparison.
func TestTidyWithoutFiles(t *testing.T) {
	dir := t.TempDir()
	keep := []Event{{Kind: Snapshot, Update: 1, Path: filepath.Join(dir, "one")}, {Kind: Snapshot, Update: 2, Path: filepath.Join(dir, "two")}}
	for repeat := 1; repeat <= 2; repeat++ {
		if err := tidy(dir, keep, repeat, []int64{2}); err != nil {
			t.Errorf("repeat %d: %v", repeat, err)
		}
	}
}

// TestGeneratedIsSaid: the page of a user's own job says where its rows are drawn, as they are where the file of a well-known set is not there.
func TestGeneratedIsSaid(t *testing.T) {
	for source, want := range map[string]bool{"adult": true, "/data/adult.csv": false} {
		r := &Report{Tables: []*Table{{Task: "fm", Data: source, Own: true}, {Task: "fm", Data: source, Own: true, Workers: 2}}}
		r.threats()
		if n := strings.Count(strings.Join(r.Threats, " "), "The data of fm is generated (adult)"); n != map[bool]int{true: 1}[want] {
			t.Errorf("%s: said %d times: %q", source, n, r.Threats)
		}
	}
}
