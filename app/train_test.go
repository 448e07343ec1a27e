package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
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

// TestInterruptAndResume: a run that is interrupted in the middle of an epoch and goes on by the command that it prints ends in the
// bits of one that was left alone.
func TestInterruptAndResume(t *testing.T) {
	for _, extra := range [][]string{nil, {"--exact"}, {"--optimizer", "adam", "--checkpoint-every", "7"}} {
		t.Run(strings.Join(extra, " "), func(t *testing.T) {
			dir := t.TempDir()
			command := append([]string{"train", "mlp:8", "--data", "points", "--batch", "30", "--epochs", "12", "--name"}, "whole")
			options := Options{Sources: data.Sources{"points": points(-1, nil)}}
			if got := runWith(t.Context(), t, dir, options, append(command, extra...)...); got.code != Done {
				t.Fatalf("exits with %d: %s", got.code, got.err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			broken := Options{Sources: data.Sources{"points": points(10, cancel)}}
			command[len(command)-1] = "broken"
			got := runWith(ctx, t, dir, broken, append(command, extra...)...)
			if got.code != Interrupted {
				t.Fatalf("exits with %d, want %d: %s%s", got.code, Interrupted, got.out, got.err)
			}
			resume := regexp.MustCompile(`resume with: trivium (.*)`).FindStringSubmatch(got.err)
			if resume == nil {
				t.Fatalf("does not say how to resume: %s", got.err)
			}
			halfway := params(t, filepath.Join(dir, "runs", "broken")).Progress
			if halfway.Step == 0 || halfway.Step >= 288 {
				t.Errorf("interrupted at update %d of 288: the test wants the middle", halfway.Step)
			}
			got = runWith(t.Context(), t, dir, options, append(strings.Fields(resume[1]), "--name", "resumed")...)
			if got.code != Done {
				t.Fatalf("%s: exits with %d: %s", resume[1], got.code, got.err)
			}
			want, have := params(t, filepath.Join(dir, "runs", "whole")), params(t, filepath.Join(dir, "runs", "resumed"))
			if want.Progress.Step != have.Progress.Step || !slices.Equal(want.Params.Flat, have.Params.Flat) {
				t.Errorf("update %d against %d, and the parameters differ", have.Progress.Step, want.Progress.Step)
			}
		})
	}
}

// TestCommandsToType: a command that is printed for a user to repeat is one that a shell takes, whatever its paths are called.
func TestCommandsToType(t *testing.T) {
	for want, words := range map[string][]string{
		"trivium train --resume runs/a-1":     {"trivium", "train", "--resume", "runs/a-1"},
		`'my programs/trivium' 'it'\''s' ''`:  {"my programs/trivium", "it's", ""},
		"train --target '>= 0.9' --set 'a;b'": {"train", "--target", ">= 0.9", "--set", "a;b"},
	} {
		if got := shellWords(words); got != want {
			t.Errorf("%q is written %s, want %s", words, got, want)
		}
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	broken := Options{Sources: data.Sources{"points": points(10, cancel)}}
	got := runWith(ctx, t, dir, broken, "train", "mlp:8", "--data", "points", "--batch", "30", "--epochs", "12", "--out", "my runs", "--name", "a")
	if want := "resume with: trivium train --resume 'my runs/a' --out 'my runs'\n"; !strings.HasSuffix(got.err, want) {
		t.Errorf("exits with %d: %s, want %s", got.code, got.err, want)
	}
	if got := runIn(t, dir, "init", "--to", "my job.yaml"); !strings.HasSuffix(got.out, "trivium train -f 'my job.yaml'\n") {
		t.Errorf("init says %s%s", got.out, got.err)
	}
}

// TestInterruptedEarly: nothing is promised of a run that has saved nothing.
func TestInterruptedEarly(t *testing.T) {
	for _, c := range []struct{ how, when string }{
		{"", "before"},
		{"--topology average --workers 2", "before"},
		{"", "open"},
		{"--topology average --workers 2", "open"},
		{"--topology allreduce --workers 2", "open"},
		{"--topology server --workers 2", "open"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.when == "before" {
			cancel()
		}
		open := points(-1, nil)
		options := Options{Sources: data.Sources{"points": func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
			cancel()
			return open(ctx, d)
		}}}
		got := runWith(ctx, t, t.TempDir(), options, strings.Fields("train mlp:8 --data points --batch 30 --epochs 12 "+c.how)...)
		if got.code != Interrupted || !strings.Contains(got.err, "trivium: interrupted") || strings.Contains(got.err, "resume") {
			t.Errorf("%s, %s: exits with %d: %s", c.how, c.when, got.code, got.err)
		}
	}
}

func TestRerun(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:8 --data points --epochs 3 --name first")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	got := runWith(t.Context(), t, dir, options, "rerun", "first", "--threads", "1")
	if got.code != Done || !strings.Contains(got.out, "the same bits: 50 parameters after") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}

	// Other kernels are named, and other bits are found.
	first := filepath.Join(dir, "runs", "first")
	head, err := os.ReadFile(filepath.Join(first, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, first, "run.json", regexp.MustCompile(`"kernels": ?"[^"]*"`).ReplaceAllString(string(head), `"kernels": "abacus"`))
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Done || !strings.Contains(got.out, "although the kernels was abacus, is ") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, first, "run.json", regexp.MustCompile(`"seed": ?42`).ReplaceAllString(string(head), `"seed": 43`))
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Failed || !strings.Contains(got.err, "of 50 parameters differ, first in tensor") {
		t.Errorf("another seed: exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, first, "run.json", strings.Replace(string(head), `"data_checksum": "points"`, `"data_checksum": "lines"`, 1))
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Failed || !strings.Contains(got.err, "its checksum is points, the run had lines") {
		t.Errorf("other data: exits with %d: %s%s", got.code, got.out, got.err)
	}
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

// TestRunDirectoryThatCannotBeWritten: training goes on and says so.
func TestRunDirectoryThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "")
	t.Setenv("TMPDIR", dir)
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	got := runWith(t.Context(), t, dir, options, strings.Fields("train logistic --data points --epochs 2 --out file/runs")...)
	if got.code != Done {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
	for _, want := range []string{"the run directory cannot be written: ", "training goes on", "the model goes to " + dir, "finished  "} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in:\n%s", want, got.out)
		}
	}
}

// TestCheckpointThatCannotBeWritten: exit code 1, and the one before stays.
func TestCheckpointThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join("runs", "x", checkpointsDir)
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	hindered := Options{Sources: data.Sources{"points": points(1, func() {
		if err := os.MkdirAll(filepath.Join(dir, blocked), 0o755); err != nil {
			t.Error(err)
		}
		write(t, filepath.Join(dir, blocked), "step-000000000020", "in the way")
	})}}
	got := runWith(t.Context(), t, dir, hindered, strings.Fields("train mlp:8 --data points --epochs 3 --name x --checkpoint-every 10")...)
	if got.code != Failed || !strings.Contains(got.err, "step-000000000020") {
		t.Errorf("exits with %d, want %d: %s", got.code, Failed, got.err)
	}
	if got := runWith(t.Context(), t, dir, options, "eval", "x", "--checkpoint", "step-000000000010"); got.code != Done {
		t.Errorf("the checkpoint before it: exits with %d: %s", got.code, got.err)
	}
	resume := regexp.MustCompile(`resume with: trivium (.*)`).FindStringSubmatch(got.err)
	if resume == nil {
		t.Fatalf("does not say how to resume: %s", got.err)
	}
	if err := os.Remove(filepath.Join(dir, blocked, "step-000000000020")); err != nil {
		t.Fatal(err)
	}
	if got := runWith(t.Context(), t, dir, options, append(strings.Fields(resume[1]), "--name", "y")...); got.code != Done || !strings.Contains(got.out, "from update 10 on") {
		t.Errorf("%s: exits with %d: %s%s", resume[1], got.code, got.out, got.err)
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
		{"--topology server --servers 0", "--servers: want 1 to 256, found 0"},
		{"--workers 0", "--workers: want 1 or more, found 0"},
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

// TestRowsOfAStandIn: where a set is not on this machine, as many rows are generated as were asked for.
func TestRowsOfAStandIn(t *testing.T) {
	got := runIn(t, t.TempDir(), strings.Fields("train softmax --data shared/mnist10k --rows 300 --epochs 1")...)
	if got.code != Done || !strings.Contains(got.out, "--data digits --rows 300") || !strings.Contains(got.out, "softmax on 300 rows") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestDamagedCheckpoints: half-written, bit-flipped, or of another model, a checkpoint is refused by name, with exit code 2.
func TestDamagedCheckpoints(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:8 --data points --epochs 1 --name x")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	folders, err := filepath.Glob(filepath.Join(dir, "runs", "x", checkpointsDir, "*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%v, %v", folders, err)
	}
	file := filepath.Join(folders[0], "params.safetensors")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(folders[0], "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)-5] ^= 4
	for _, c := range []struct {
		name             string
		params, manifest []byte
		want             string
	}{
		{"cut short", whole[:len(whole)-8], manifest, "params.safetensors"},
		{"a bit flipped", flipped, manifest, "params.safetensors"},
		{"manifest cut short", whole, manifest[:len(manifest)/2], "manifest.json"},
		{"manifest changed", whole, []byte(strings.Replace(string(manifest), "mlp:8", "mlp:9", 1)), "manifest.json"},
		{"no manifest", whole, nil, "none is there"},
	} {
		write(t, folders[0], "params.safetensors", string(c.params))
		write(t, folders[0], "manifest.json", string(c.manifest))
		if c.manifest == nil {
			os.Remove(filepath.Join(folders[0], "manifest.json"))
		}
		for _, command := range []string{"eval x", "apply x --to out.csv", "export x --to out.safetensors", "train --resume x --epochs 3"} {
			got := runWith(t.Context(), t, dir, options, strings.Fields(command)...)
			if got.code != Misused || !strings.Contains(got.err, c.want) {
				t.Errorf("%s: %s: exits with %d: %s", c.name, command, got.code, got.err)
			}
		}
	}
	write(t, folders[0], "params.safetensors", string(whole))
	write(t, folders[0], "manifest.json", string(manifest))
	if got := runWith(t.Context(), t, dir, options, "train", "mlp:9", "--resume", "x"); got.code != Misused || !strings.Contains(got.err, "mlp:9") {
		t.Errorf("another model: exits with %d: %s", got.code, got.err)
	}
	if got := runWith(t.Context(), t, dir, options, "train", "--resume", "x", "--rate", "3"); got.code != Misused || !strings.Contains(got.err, "optimizer.rate") {
		t.Errorf("another rate: exits with %d: %s", got.code, got.err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil || len(entries) != 1 || len(runs) != 1 {
		t.Errorf("left behind: %v, %v", entries, runs)
	}
}

// TestResumeBehind: a run that was interrupted or killed cannot go on to where it has been, and is not called finished.
func TestResumeBehind(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	if got := runWith(ctx, t, dir, Options{Sources: data.Sources{"points": points(10, cancel)}}, strings.Fields("train softmax --data points --batch 30 --name x")...); got.code != Interrupted {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	for _, how := range []string{"interrupted", "killed"} {
		got := runWith(t.Context(), t, dir, options, strings.Fields("train --resume x --steps 1")...)
		if got.code != Misused || !strings.Contains(got.err, "--resume: x has a checkpoint after ") || !strings.Contains(got.err, "to go on, give it more, such as --steps ") {
			t.Errorf("%s: exits with %d: %s%s", how, got.code, got.out, got.err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "runs", "x", "result.json")); err != nil {
			t.Fatal(err)
		}
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
		{"runs test.accuracy>1", Done, []string{"none of 3 runs"}, "run1"},
		{"runs modle=softmax", Misused, []string{`did you mean "model"?`}, ""},
		{"runs show run0", Done, []string{"optimizer.name", "adam", "compute"}, ""},
		{"runs diff run0 run1", Done, []string{"configuration.model", "softmax", "mlp:8"}, "optimizer.name"},
		{"runs show run", Misused, []string{"2 runs", "run"}, ""},
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

// tabled is a model that is trained on tables.
type tabled struct{ trivium.Model }

func (tabled) Tables() []ps.Spec                                      { return nil }
func (tabled) Round(context.Context, *ps.Worker, trivium.Batch) error { return nil }

// A model that has no gradients names the topology it wants, and nothing is written. Under that, no optimizer is named that it has no use for.
func TestTabled(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}, Models: nn.Models{
		"tabled": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax("", s, cpu)
			return tabled{m}, err
		},
	}}
	train := func(topology ...string) outcome {
		return runWith(t.Context(), t, dir, options, append([]string{"train", "tabled", "--data", "points", "--batch", "10", "--epochs", "1"}, topology...)...)
	}
	for _, topology := range [][]string{nil, {"--topology", "allreduce", "--workers", "2"}, {"--topology", "average", "--workers", "2"}} {
		got := train(topology...)
		if got.code != Misused || !strings.Contains(got.err, "tabled is trained on tables and has no gradients: give --topology server") {
			t.Errorf("%v: exits with %d: %s%s", topology, got.code, got.out, got.err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: there is %v in the directory: %v", topology, left, err)
		}
	}
	got := train("--topology", "server", "--workers", "2")
	if want := "tabled on 800 rows, batch 20, server of 2 workers\n"; !strings.Contains(got.out, want) {
		t.Errorf("exits with %d: %s%s, want %s", got.code, got.out, got.err, want)
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
