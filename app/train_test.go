package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
)

// A trap is a source of two classes whose data set calls spring before read number after.
type trap struct {
	data.Dataset
	reads  *atomic.Int64
	after  int64
	spring func()
}

func (t trap) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	if t.reads.Add(1) == t.after {
		t.spring()
	}
	return t.Dataset.Read(ctx, dst, from, to)
}

// points is a source of 1,000 points in 3 dimensions, in two classes.
func points(after int64, spring func()) data.Source {
	return namedPoints(after, spring, "no", "yes")
}

func namedPoints(after int64, spring func(), names ...string) data.Source {
	return func(context.Context, trivium.Data) (*data.Splits, error) {
		b := trivium.Batch{Rows: 1000, Inputs: []trivium.Input{{Name: "x", Shape: []int{3}}}, Labels: trivium.Labels{Kind: trivium.Class, Width: 2}}
		for i := range b.Rows {
			x := []float32{float32(i%7) - 3, float32(i%11) - 5, float32(i%13) - 6}
			class := int32(0)
			if x[0]+x[1]-x[2] > 0 {
				class = 1
			}
			b.Inputs[0].Values, b.Labels.Class = append(b.Inputs[0].Values, x...), append(b.Labels.Class, class)
		}
		s := trivium.Schema{
			Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{3}}},
			Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2, Names: names},
		}
		return &data.Splits{Train: trap{data.Memory(s, b), new(atomic.Int64), after, spring}, Checksum: "points"}, nil
	}
}

func params(t *testing.T, runDir string) *checkpoint.Checkpoint {
	t.Helper()
	c, _, err := loadCheckpoint(t.Context(), filepath.Join(runDir, checkpointsDir), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDivergence(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	got := runWith(t.Context(), t, dir, options,
		strings.Fields("train mlp:8 --data points --optimizer sgd --rate 1e18 --schedule warmup:1000 --name x --checkpoint-every 1 --batch 10")...)
	if got.code != Diverged {
		t.Fatalf("exits with %d, want %d: %s%s", got.code, Diverged, got.out, got.err)
	}
	m := regexp.MustCompile(`diverged at update (\d+).*tensor "(\w+)".*the last good checkpoint is (\S+)`).FindStringSubmatch(got.err)
	if m == nil {
		t.Fatalf("names no update, tensor and checkpoint: %s", got.err)
	}
	c, _, err := loadCheckpoint(t.Context(), filepath.Join(dir, filepath.Dir(m[3])), filepath.Base(m[3]))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range c.Params.Flat {
		if x-x != 0 {
			t.Fatalf("parameter %d of the last good checkpoint is %v", i, x)
		}
	}
	if r := runIn(t, dir, "runs", "show", "x"); !strings.Contains(r.out, "diverged") {
		t.Errorf("the run does not say that it diverged:\n%s", r.out)
	}
}

// TestNameTakenMeanwhile: of two runs that begin at once under one name, the later is refused before it trains, and leaves nothing.
func TestNameTakenMeanwhile(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", t.TempDir())
		made := points(-1, nil)
		options := Options{Sources: data.Sources{"points": func(ctx context.Context, d trivium.Data) (*data.Splits, error) { // after the flags were read
			if err := os.MkdirAll(filepath.Join(dir, "runs", "same"), 0o755); err != nil {
				return nil, err
			}
			write(t, filepath.Join(dir, "runs", "same"), "run.json", "{}")
			return made(ctx, d)
		}}}
		got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:8 --data points --epochs 1 --name same --workers "+workers)...)
		if got.code != Misused || !strings.Contains(got.err, "same is not empty: choose another name") || strings.Contains(got.out, "finished") {
			t.Errorf("%s workers: exits with %d: %s%s", workers, got.code, got.out, got.err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "runs", "same")); err != nil || len(left) != 1 {
			t.Errorf("%s workers: left %v, %v", workers, left, err)
		}
	}
}

// TestNameThatIsTaken: a folder with something in it becomes no run directory, and loses nothing, whatever else is wrong.
func TestNameThatIsTaken(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "runs", "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "runs", "mine"), "thesis.txt", "years")
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	const train = "train mlp:8 --data points --epochs 1 "
	if got := runWith(t.Context(), t, dir, options, strings.Fields(train+"--name first -q")...); got.code != Done || got.out != "" {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	for _, c := range []struct{ flags, says string }{
		{"--name mine --optimizer adan", "runs/mine is not empty"},
		{"--name first", "runs/first is not empty"},
		{"--name .", "the name of a folder"},
		{"--name ..", "the name of a folder"},
		{"--name a/b", "the name of a folder"},
		{"--out . --name runs", "runs is not empty"},
		{"--resume first --name mine", "runs/mine is not empty"},
		{"--resume first --topology allredcue", "no topology is called"},
		{"--resume first --workers=-3", "want 1 or more"},
		{"--topology server --servers 0", "--servers: want 1 or more, found 0"},
		{"--workers 0", "--workers: want 1 or more, found 0"},
		{"--workers -1", "--workers: want 1 or more, found -1"},
		{"--topology server --servers 257", "--servers: want 1 to 256, found 257"},
		{"--name fresh --rate -0.5", "optimizer.rate: want a number of 0 or more, found -0.5"},
		{"--workers 257", "--workers: want at most 256, found 257"},
		{"--topology server --workers 200 --servers 100", "want 0 to 56 servers beside 200 workers, found 100"},
		{"--resume first", "first is finished after 8 updates: to go on, give it more, such as --epochs 2"},
		{"--resume first --steps 8 --epochs 3", "such as --steps 16"},
		{"--name fresh --optimizer adan", "adan"},
	} {
		flags := strings.Fields(train + c.flags)
		if strings.Contains(c.flags, "--resume") {
			flags = strings.Fields("train " + c.flags)
		}
		if got := runWith(t.Context(), t, dir, options, flags...); got.code != Misused || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: exits with %d: %s%s", c.flags, got.code, got.out, got.err)
		}
	}
	if p, err := os.ReadFile(filepath.Join(dir, "runs", "mine", "thesis.txt")); string(p) != "years" {
		t.Errorf("%q, %v", p, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "runs")); len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRowsOfAStandIn: where a set is not on this machine, as many rows are generated as were asked for.
func TestRowsOfAStandIn(t *testing.T) {
	got := runIn(t, t.TempDir(), strings.Fields("train softmax --data shared/mnist10k --rows 300 --epochs 1")...)
	if got.code != Done || !strings.Contains(got.out, "--data digits --rows 300") || !strings.Contains(got.out, "softmax on 300 rows") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestTable: the transform that was fitted in training is part of the model.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(400))
	write(t, dir, "new.csv", "nick,label,id,city,age\nx,yes,7,Oslo,60\ny,no,8,Rome,60\nz,no,9,Cork,20\n") // other order, a column more, a city more
	got := runIn(t, dir, strings.Fields("train mlp:16 --data people.csv --categorical city --drop id --scale standard --rate 0.02 --epochs 30 --seed 3")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	got = runIn(t, dir, "eval", "last", "--data", "new.csv", "--json")
	var o map[string]any
	if err := json.Unmarshal([]byte(got.out), &o); err != nil || got.code != Done || o["data.accuracy"] != 1.0 {
		t.Errorf("exits with %d: %s%s (%v)", got.code, got.out, got.err, err)
	}
	got = runIn(t, dir, "apply", "last", "--data", "new.csv", "--to", "out.jsonl")
	if got.code != Done {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
	lines, err := os.ReadFile(filepath.Join(dir, "out.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"yes", "no", "no"} {
		var p struct {
			Row   int
			Class string
			No    float64 `json:"p.no"`
			Yes   float64 `json:"p.yes"`
		}
		line := strings.Split(string(lines), "\n")[i]
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Row != i || p.Class != want || p.No+p.Yes < 0.9999 || p.No+p.Yes > 1.0001 {
			t.Errorf("row %d: %s (%v), want %s", i, line, err, want)
		}
	}
	for _, flag := range []string{"--columns", "--classes"} {
		if got := runIn(t, dir, "eval", "last", "--data", "new.csv", flag, "7"); got.code != Misused || !strings.Contains(got.err, strings.TrimPrefix(flag, "--")+":") {
			t.Errorf("%s: exits with %d: %s%s", flag, got.code, got.out, got.err)
		}
	}
	write(t, dir, "new.csv", "city,age\nOslo,60\n") // no label
	if got := runIn(t, dir, "apply", "last", "--data", "new.csv"); got.code != Done || !strings.Contains(got.out, "\n0,yes,") {
		t.Errorf("without labels: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got := runIn(t, dir, "eval", "last", "--data", "new.csv"); got.code != Misused || !strings.Contains(got.err, "label") {
		t.Errorf("without labels there is nothing to measure: exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, dir, "new.csv", "age,city\n33,Rome\n44,Oslo\n55,Lima\n")
	got = runIn(t, dir, "apply", "last", "--data", "new.csv")
	if rows := strings.Split(strings.TrimSpace(got.out), "\n"); len(rows) != 4 || rows[0] != "row,class,p.no,p.yes" {
		t.Errorf("as CSV:\n%s%s", got.out, got.err)
	}
}

// TestColumnsOfTheRun: the width that was declared of the rows trained on is not asked of another source: the transform has it.
func TestColumnsOfTheRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.libsvm", strings.Repeat("+1 1:1 5:1\n-1 2:1 7:1\n", 20))
	write(t, dir, "b.csv", "label,a\n0,1\n1,2\n")
	for _, c := range []struct {
		command, want string
		code          int
	}{
		{"train logistic --data a.libsvm --columns 123 --epochs 1", "finished", Done},
		{"eval last --data adult --rows 100", "train: 100 rows", Done},
		{"eval last --data b.csv", "it is a table, and the model was trained on sparse rows", Misused},
		{"eval last --data b.csv --columns 123", "it declares the width of libsvm rows", Misused},
	} {
		if got := runIn(t, dir, strings.Fields(c.command)...); got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s: exits with %d: %s%s, want %s", c.command, got.code, got.out, got.err, c.want)
		}
	}
}

// TestOwnSourceWithoutNames: a source need not name its classes.
func TestOwnSourceWithoutNames(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": namedPoints(-1, nil)}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train logistic --data points --epochs 2")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	got := runWith(t.Context(), t, dir, options, "apply", "last")
	if got.code != Done || !strings.HasPrefix(got.out, "row,class,p.0,p.1\n800,") {
		t.Errorf("exits with %d: %.80s%s", got.code, got.out, got.err)
	}
}

// TestJSON: with --json every line of output is an object, the last one the result.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	got := runIn(t, dir, strings.Fields("train softmax --rows 300 --epochs 2 --json --data digits")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	var last map[string]any
	for line := range strings.Lines(got.out) {
		last = nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if last["event"] != "result" || last["reason"] != "finished" || last["updates"] != 6.0 {
		t.Errorf("the last line is %v", last)
	}
	if got := runIn(t, dir, "train", "softmax", "--rows", "300", "--epochs", "1", "--quiet", "--data", "digits"); got.out != "" || got.err != "" {
		t.Errorf("--quiet says %q %q", got.out, got.err)
	}
}

// TestEndedAtACluster: of a job's run the coordinator's paths are not told, being another machine's: who gave it has fetched it, and is told of its own.
func TestEndedAtACluster(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train softmax --rows 100 --epochs 1 --name a")...); got.code != Done {
		t.Fatal(got.err)
	}
	s := &session{models: nn.Standard(), command: "trivium"}
	on := onFlags{On: "10.0.0.1:7070", Token: "secret"}
	broken, diverged := errors.New("broken"), &trivium.DivergedError{Step: 7}
	at := &training{topology: alone, out: "cluster/jobs/job-1/runs", dir: "cluster/jobs/job-1/runs/a", kept: "cluster/jobs/job-1/runs/a/checkpoints", saved: "step-1"}
	at.assemble = func(context.Context) (*team, error) { return nil, broken }
	for _, err := range []error{broken, diverged} {
		if got := at.verdict(s, trivium.Result{Reason: trivium.Failed}, err); !errors.Is(got, err) || strings.Contains(got.Error(), "cluster/jobs") {
			t.Errorf("the coordinator says %v", got)
		}
	}
	for code, want := range map[int]string{
		Misused:  "broken",
		Failed:   "broken; resume with: trivium train --resume runs/a --on 10.0.0.1:7070 --token TOKEN",
		Lost:     "broken; resume with: trivium train --resume runs/a --on 10.0.0.1:7070 --token TOKEN",
		Diverged: "broken; the last good checkpoint is runs/a/checkpoints/step-000000000001",
	} {
		for _, runs := range [][]string{{"runs/a"}, {"runs/a", "runs/b"}} { // begun again, it was lost before a checkpoint
			there := &training{topology: alone, out: "runs"}
			if got := there.fromThere(t.Context(), s, code, broken, runs, on); got.Error() != want {
				t.Errorf("a job of the runs %q that ends with %d: %v, want %s", runs, code, got, want)
			}
		}
	}
}

// TestShippedClassWeights: what classes weigh in training is no part of what is measured, wherever the rows come from.
func TestShippedClassWeights(t *testing.T) {
	dir := t.TempDir()
	var rows strings.Builder
	rows.WriteString("label,a\n")
	for i := range 200 {
		fmt.Fprintf(&rows, "%d,%d\n", min(1, i%5), i%7)
	}
	write(t, dir, "a.csv", rows.String())
	measured := map[string]string{}
	for _, ship := range []string{"--ship-data", "--ship-data=false"} {
		got := runIn(t, dir, strings.Fields("train logistic --data a.csv --class-weight 0=9 --topology allreduce --workers 2 --epochs 2 --exact --stop-metric train.accuracy --patience 9 "+ship)...)
		if got.code != Done {
			t.Fatalf("%s: exits with %d: %s", ship, got.code, got.err)
		}
		measured[ship] = regexp.MustCompile(`(?m)^finished.* train.accuracy [0-9.]+`).FindString(got.out)
	}
	if measured["--ship-data"] != measured["--ship-data=false"] || measured["--ship-data"] == "" {
		t.Errorf("rows that are sent or not give %q", measured)
	}
}

// TestWorseThanTheMean: a model of real labels that knows less of them than their mean is not left without a word, and with what is advised it
// learns.
func TestWorseThanTheMean(t *testing.T) {
	dir := t.TempDir()
	var prices strings.Builder
	prices.WriteString("area,rooms,price\n")
	for i := range 500 {
		area, rooms := 300+i*37%3700, 1+i%7
		fmt.Fprintf(&prices, "%d,%d,%d\n", area, rooms, 1500*area+10_000*rooms+i*7919%5000)
	}
	write(t, dir, "a.csv", prices.String())
	const command = "train linear --data a.csv --label price"
	for flags, want := range map[string]string{
		"":                              "columns of like size (--scale standard), another --rate, more --epochs, --optimizer lbfgs\n",
		" --optimizer lbfgs --epochs 1": "columns of like size (--scale standard), more --epochs\n",
		" --scale standard --rate 1e-6 --epochs 1": "what may help: another --rate, more --epochs, --optimizer lbfgs\n",
	} {
		got := runIn(t, dir, strings.Fields(command+flags)...)
		if got.code != Done || !strings.Contains(got.out, "test.r2 is below 0: always predicting the mean") || !strings.Contains(got.out, want) {
			t.Errorf("%s: exits with %d, without the hint:\n%s%s", flags, got.code, got.out, got.err)
		}
	}
	got := runIn(t, dir, strings.Fields(command+" --scale standard --optimizer lbfgs")...)
	if got.code != Done || strings.Contains(got.out, "below 0") {
		t.Errorf("as advised, exits with %d:\n%s%s", got.code, got.out, got.err)
	}
	got = runIn(t, dir, strings.Fields(command+" --scale standard --optimizer lbfgs --json")...)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	var result map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil {
		t.Fatal(err)
	}
	if r2, ok := result["test.r2"].(float64); !ok || r2 < 0.999 {
		t.Errorf("as advised, test.r2 is %v", result["test.r2"])
	}
	write(t, dir, "a.libsvm", strings.Repeat("1e6 1:600\n3e6 1:2000\n5e6 1:3000\n", 100)) // it is no table, and would refuse to be scaled
	got = runIn(t, dir, strings.Fields("train linear --data a.libsvm --epochs 1")...)
	if got.code != Done || !strings.Contains(got.out, "what may help: another --rate, more --epochs, --optimizer lbfgs\n") {
		t.Errorf("sparse rows: exits with %d, without the hint:\n%s%s", got.code, got.out, got.err)
	}
}

// TestNothingToTrainOn: a source of test rows alone can be measured on, and training refuses it.
func TestNothingToTrainOn(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil), "fresh": func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
		s, err := points(-1, nil)(ctx, d)
		return &data.Splits{Test: s.Train}, err
	}}}
	for _, c := range []struct {
		command, want string
		code          int
	}{
		{"train softmax --data fresh", `the source "fresh" has no rows to train on`, Misused},
		{"train softmax --data fresh --train 0:80", `the source "fresh" has no training rows, of which others could be cut: train 0:80`, Misused},
		{"train softmax --data points --epochs 1 --name x", "finished", Done},
		{"eval x --data fresh", "data: 1,000 rows", Done},
	} {
		got := runWith(t.Context(), t, dir, options, strings.Fields(c.command)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s: exits with %d: %s%s, want %s", c.command, got.code, got.out, got.err, c.want)
		}
	}
}

// TestQuietTarget: what went well is not printed by those who asked for what went wrong alone; a target that the last update meets, which
// is evaluated because it is the last, is why the run ended.
func TestQuietTarget(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	train := "train softmax --data points --batch 30 --epochs 0 --steps 40 --eval-every 30 --stop-metric test.loss --target <=1000 --quiet --name "
	for _, c := range []struct{ name, flags string }{{"early", ""}, {"end", " --steps 20"}} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(train+c.name+c.flags)...); got.code != Done || got.out != "" || got.err != "" {
			t.Errorf("%s: exits with %d: %q %q", c.name, got.code, got.out, got.err)
		}
		if r, err := findRun(filepath.Join(dir, "runs"), c.name); err != nil || r.Result == nil || r.Result.Reason != string(trivium.TargetMet) {
			t.Errorf("%s: %v, result %+v", c.name, err, r.Result)
		}
	}
}
