package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe/rundir"
)

// TestDeleteNoRun: what is no run is neither listed nor deleted, though it holds a run.json.
func TestDeleteNoRun(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "runs", "other")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, other, "run.json", "{}")
	write(t, other, "thesis.txt", "years")
	for _, name := range []string{"other", filepath.Join("runs", "other"), "last"} {
		if got := runIn(t, dir, "runs", "delete", name); got.code != Misused {
			t.Errorf("%s: exits with %d: %s%s", name, got.code, got.out, got.err)
		}
	}
	if got := runIn(t, dir, "runs"); got.code != Done || got.out != "no runs in runs\n" || got.err != "" {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if text, err := os.ReadFile(filepath.Join(other, "thesis.txt")); string(text) != "years" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestNamesThatPrint: a run's name may have spaces and any letters, and nothing that breaks a line or moves a terminal's cursor.
func TestNamesThatPrint(t *testing.T) {
	dir := t.TempDir()
	for name, code := range map[string]int{"große läufe": Done, "two\nlines": Misused, "\x1b[2J": Misused, "a\tb": Misused} {
		got := runIn(t, dir, "train", "softmax", "--rows", "300", "--epochs", "1", "--name", name)
		if got.code != code || code == Misused && !strings.Contains(got.err, "--name: want a name that can be printed") {
			t.Errorf("%q: exits with %d: %s", name, got.code, got.err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "runs")); err != nil || len(left) != 1 {
		t.Errorf("%d runs, want one: %v", len(left), err)
	}
}

// TestShowSoFar: of a run without a result show says how far it came, by the measurements that it left.
func TestShowSoFar(t *testing.T) {
	dir := t.TempDir()
	got := runIn(t, dir, strings.Fields("train softmax --rows 300 --batch 10 --epochs 2 --name x")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	done := runIn(t, dir, "runs", "show", "x")
	if err := os.Remove(filepath.Join(dir, "runs", "x", "result.json")); err != nil {
		t.Fatal(err)
	}
	got = runIn(t, dir, "runs", "show", "x")
	_, measured, found := strings.Cut(got.out, "\nso far 60 updates, ")
	if !found || !strings.Contains(measured, " samples/s  test.accuracy ") || !strings.Contains(got.out, "unfinished") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if list := runIn(t, dir, "runs").out; !strings.Contains(list, " unfinished ") || !strings.Contains(list, "  test.accuracy ") {
		t.Errorf("in the list it is\n%s", list)
	}
	const phases = "where the time of 60 updates went"
	if _, want, _ := strings.Cut(done.out, phases); want == "" || !strings.HasSuffix(measured, phases+want) {
		t.Errorf("%s\nends otherwise than\n%s", got.out, want)
	}
}

// TestNumbersAsGiven: a run's numbers are shown, and compared by filters, as the job has them.
func TestNumbersAsGiven(t *testing.T) {
	dir := t.TempDir()
	got := runIn(t, dir, strings.Fields("train softmax --rows 300 --epochs 1 --steps 1000000 --rate 0.00001 --seed 9007199254740993 --name x")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	got = runIn(t, dir, "runs", "show", "x", "--json")
	for _, want := range []string{`"steps":1000000,`, `"optimizer.rate":0.00001,`, `"seed":9007199254740993,`, `"updates":3,`, `"data.rows":300,`, `"model":"softmax"`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %s in %s", want, got.out)
		}
	}
	if got := runIn(t, dir, "runs", "steps>=1e6 and optimizer.rate=1e-5"); !strings.Contains(got.out, "x ") {
		t.Errorf("the filter finds %s%s", got.out, got.err)
	}
}

// TestListsInParts: a list may be given in parts.
func TestListsInParts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "t.csv", "label,id,name,x\n"+strings.Repeat("0,1,2,3\n1,3,2,1\n", 20))
	got := runIn(t, dir, strings.Fields("train logistic --data t.csv --drop id --drop name --optimizer adam --set beta1=0.8 --set beta2=0.9 --epochs 1 --name x")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	job := params(t, filepath.Join(dir, "runs", "x")).Job
	if !slices.Equal(job.Data.Drop, []string{"id", "name"}) || job.Optimizer.Params["beta1"] != 0.8 || job.Optimizer.Params["beta2"] != 0.9 {
		t.Errorf("drops %v, with %v", job.Data.Drop, job.Optimizer.Params)
	}
	write(t, dir, "hole.csv", "x\n1\n\"\"\n")
	for _, c := range []struct{ flags, says string }{
		{"apply x --data hole.csv", "train with --missing"},
		{"apply x --data hole.csv --missing zero", "--missing: the transform"},
		{"help train --nonsense", "nonsense"},
	} {
		if got := runIn(t, dir, strings.Fields(c.flags)...); got.code != Misused || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: exits with %d: %s%s", c.flags, got.code, got.out, got.err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "one"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "one"), "t.csv", "x\n"+strings.Repeat("1\n", 50))
	if got := runIn(t, dir, "apply", "x", "--data", "one"); got.code != Done || strings.Count(got.out, "\n") != 51 {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestDiffIsNarrow: what differs is told by the names that show has, and a long value does not make every line as long.
func TestDiffIsNarrow(t *testing.T) {
	var out bytes.Buffer
	long, job := strings.Repeat("ü", 40), strings.Repeat("98ea", 8)
	list := []rundir.Difference{{Key: "error", A: long}, {Key: "job", A: job, B: job + "2"}, {Key: "option.mode", A: "ssp", B: "bsp"}, {Key: "workers", B: "3"}}
	if err := printDifferences(&session{out: &out}, "a", "other", list); err != nil {
		t.Fatal(err)
	}
	want := "FIELD        a    other\noption.mode  ssp  bsp\nworkers      -    3\n\nerror\n  a: " + long + "\n  other: -\n\njob\n  a: " + job + "\n  other: " + job + "2\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

// TestMetricsOfRunsAreWhole: a metric of result.json is found by its own digits, and two that differ in the last are told apart.
func TestMetricsOfRunsAreWhole(t *testing.T) {
	dir := t.TempDir()
	for name, loss := range map[string]float64{"a": 0.2699610295891762, "b": 0.2699610295891763} {
		r := run{rundir.Entry{Dir: filepath.Join(dir, name), Result: &rundir.Result{Metrics: map[string]float64{"test.loss": loss}}}}
		for text, want := range map[string]bool{
			"test.loss=0.2699610295891762": name == "a", "test.loss<=0.2699610295891762": name == "a", "test.loss>0.2699610295891762": name == "b",
		} {
			f, err := parseFilter(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.holds(texts(r.fields())); got != want {
				t.Errorf("%s of %s: %v, want %v", text, r.outcome()["test.loss"], got, want)
			}
		}
	}
}

// TestNoSuchRun: of many runs those are named that came last.
func TestNoSuchRun(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		run := filepath.Join(dir, "runs", fmt.Sprintf("n%02d", i))
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, run, "run.json", fmt.Sprintf(`{"version":1,"start":"2026-01-%02dT00:00:00Z"}`, 28-i))
	}
	got := runIn(t, dir, "runs", "show", "nothing")
	if want := "the newest of 20 are n07, n06, n05, n04, n03, n02, n01, n00\n"; got.code != Misused || !strings.HasSuffix(got.err, want) {
		t.Errorf("exits with %d: %s\nwant %s", got.code, got.err, want)
	}
}

// TestNumbersInJSON: a number that JSON does not have is a text in it, and whole otherwise.
func TestNumbersInJSON(t *testing.T) {
	r := run{rundir.Entry{Result: &rundir.Result{Metrics: map[string]float64{"a": math.NaN(), "b": math.Inf(-1), "c": 1e-7}}}}
	text, err := json.Marshal(r.outcome())
	if err != nil {
		t.Fatal(err)
	}
	if want := `"a":"NaN","b":"-Inf","c":1e-07,`; !strings.Contains(string(text), want) {
		t.Errorf("%s, want %s", text, want)
	}
}

// TestShowWaits: a line says whom the workers of a run have waited for, longest first, and no more than three of them by their ranks.
func TestShowWaits(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		by   []time.Duration
		want string
	}{
		{nil, ""},
		{[]time.Duration{0, 0}, ""},
		{[]time.Duration{150 * ms, 50 * ms, 1400 * ms}, "\nwaited for worker 2: 1.400 s of 1.600 s, for worker 0: 0.150 s, for worker 1: 0.050 s\n"},
		{[]time.Duration{0, 20 * ms, 0, 10 * ms, 30 * ms, 5 * ms}, "\nwaited for worker 4: 0.030 s of 0.065 s, for worker 1: 0.020 s, for worker 3: 0.010 s, for 1 other: 0.005 s\n"},
		{[]time.Duration{ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms}, "\nwaited for worker 4: 0.005 s of 0.015 s, for worker 3: 0.004 s, for worker 2: 0.003 s, for 2 others: 0.003 s\n"},
	} {
		var out strings.Builder
		(&session{out: &out}).showWaits(c.by)
		if out.String() != c.want {
			t.Errorf("%v: %q, want %q", c.by, out.String(), c.want)
		}
	}
}

// TestWaits: a run with servers ends in whom its workers have waited for, and has that in its files; one without says nothing.
func TestWaits(t *testing.T) {
	dir := t.TempDir()
	for topology, waits := range map[string]bool{"server --consistency bsp --slow worker=2,factor=3,unit=5ms": true, "allreduce": false} {
		command := "train softmax --data digits --rows 300 --epochs 1 --batch 10 --workers 3 --name x --topology " + topology
		if got := runIn(t, dir, strings.Fields(command)...); got.code != Done {
			t.Fatalf("%s: exits with %d: %s", topology, got.code, got.err)
		}
		got := runIn(t, dir, "runs", "show", "x")
		if i := strings.LastIndex(got.out, "\nwaited for worker "); (i >= 0) != waits || waits && !strings.Contains(got.out[i:], "for worker 2: ") {
			t.Errorf("%s: want waits: %v:\n%s%s", topology, waits, got.out, got.err)
		}
		found := runIn(t, dir, "runs", "option.mode=bsp and option.slow ~ factor")
		if strings.Contains(found.out, "softmax") != waits {
			t.Errorf("%s: looked for by its options: %s%s", topology, found.out, found.err)
		}
		if result, err := os.ReadFile(filepath.Join(dir, "runs", "x", "result.json")); err != nil || strings.Contains(string(result), "waited_nanoseconds") != waits {
			t.Errorf("%s: want waits: %v, %v:\n%s", topology, waits, err, result)
		}
		if got := runIn(t, dir, "runs", "delete", "x"); got.code != Done {
			t.Fatal(got.err)
		}
	}
}

func TestRunsVerbs(t *testing.T) {
	dir := t.TempDir()
	for i, model := range []string{"softmax", "mlp:8"} {
		if got := runIn(t, dir, "train", model, "--rows", "300", "--data", "digits", "--epochs", "1", "--name", fmt.Sprintf("run%d", i)); got.code != Done {
			t.Fatalf("exits with %d: %s", got.code, got.err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "runs", "broken"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "runs", "broken"), "run.json", "{")
	if err := os.Mkdir(filepath.Join(dir, "runs", "newer"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "runs", "newer"), "run.json", `{"version":2,"name":["n"]}`)
	write(t, dir, "a.csv", "a,label\n1,0\n2,1\n")
	for _, c := range []struct {
		command string
		code    int
		want    []string
		not     string
	}{
		{"runs", Done, []string{"run0", "run1", "softmax", "mlp:8", "finished"}, ""},
		{"runs list model=softmax and test.accuracy>0", Done, []string{"run0"}, "run1"},
		{"runs model~mlp", Done, []string{"run1"}, "run0"},
		{"runs test.accuracy>1", Done, []string{"none of 4 runs"}, "run1"},
		{"runs modle=softmax", Misused, []string{`did you mean "model"?`}, ""},
		{"runs show run0", Done, []string{"optimizer.name", "adam", "compute"}, ""},
		{"runs diff run0 run1", Done, []string{"\nmodel ", "softmax", "mlp:8"}, "optimizer.name"},
		{"runs show run", Misused, []string{"2 runs", "run"}, ""},
		{"runs shwo run0", Misused, []string{"or did you mean: runs show"}, ""},
		{"runs show rum0", Misused, []string{`did you mean "run0"?`}, ""},
		{"runs report run0 run1 --to -", Done, []string{"<!DOCTYPE html>", "softmax", "mlp:8", "<svg"}, "<script"},
		{"runs report run0 --to page.html", Done, []string{"wrote page.html"}, ""},
		{"runs report run7", Misused, []string{"run7"}, ""},
		{"runs delete run0 run7", Misused, []string{"run7"}, ""},
		{"runs delete run0 run0", Done, []string{"deleted"}, ""},
		{"runs", Done, []string{"run1", "unreadable"}, "run0"},
		{"runs status=unreadable", Done, []string{"broken", "unreadable"}, "run1"},
		{"runs show last", Done, []string{"run1"}, ""},
		{"runs show broken", Misused, []string{"runs/broken/run.json", "runs delete runs/broken removes it"}, ""},
		{"eval newer", Misused, []string{"runs/newer/run.json has version 2, this program reads version 1; the program that wrote it reads it\n"}, ""},
		{"runs delete newer", Done, []string{"deleted"}, ""},
		{"export run1 --to x", Misused, []string{"x does not say the format: give --format onnx or safetensors"}, ""},
		{"eval run1 --data a.csv", Misused, []string{"a.csv: it is a table, and the model was trained on array rows"}, ""},
		{"runs delete broken", Done, []string{"deleted runs/broken"}, ""},
		{"runs", Done, []string{"run1"}, "broken"},
		{"runs --out page.html", Misused, []string{"page.html", "not a directory"}, ""},
		{"runs show last --out page.html", Misused, []string{"page.html", "not a directory"}, ""},
		{"train softmax --rows 300 --epochs 1 --name last", Misused, []string{"--name", "last", "newest"}, ""},
		{"train softmax --rows 300 --epochs 1 --rate 0", Done, []string{"adam at rate 0.001"}, ""},
		{"train softmax --rows 300 --epochs 1 --workers 2 --compress topk:9 --name pair", Done, nil, ""},
		{"runs show pair", Done, []string{"workers  ", "option.compress", "topk:9"}, "servers"},
		{"runs workers=2", Done, []string{"pair"}, "run1"},
		{"runs delete pair", Done, []string{"deleted"}, ""},
	} {
		got := runIn(t, dir, strings.Fields(c.command)...)
		if got.code != c.code {
			t.Errorf("%s: exits with %d: %s", c.command, got.code, got.err)
		}
		for _, w := range c.want {
			if !strings.Contains(got.out+got.err, w) {
				t.Errorf("%s: no %q in:\n%s%s", c.command, w, got.out, got.err)
			}
		}
		if c.not != "" && strings.Contains(got.out, c.not) {
			t.Errorf("%s: %q in:\n%s", c.command, c.not, got.out)
		}
	}
	if got := runIn(t, dir, "runs", "delete", ""); got.code != Misused || !strings.Contains(got.err, "want the name of a run in runs, found none") {
		t.Errorf("no name, of one run: exits with %d: %s%s", got.code, got.out, got.err)
	}
}
