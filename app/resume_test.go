package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
)

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

// TestResumeShips: a run whose rows were sent to the workers goes on so: the file may be nowhere else.
func TestResumeShips(t *testing.T) {
	there := &training{dir: "runs/a", out: "runs", topology: "average", workers: 2, ship: true}
	here := *there
	here.processes = true
	s := newSession(nil, nil, Options{})
	for want, x := range map[string]*training{
		"resume with: trivium train --resume runs/a --topology average --workers 2 --ship-data":             there, // --on follows
		"resume with: trivium train --resume runs/a --topology average --workers 2 --processes --ship-data": &here,
	} {
		if got := x.goOnWith(s); got != want {
			t.Errorf("%s, want %s", got, want)
		}
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
		{"no manifest", whole, nil, "holds none"},
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

// TestResumeRepeated: the flags of a run may be given again where it goes on, as they say what it does; others are refused, with what it does.
func TestResumeRepeated(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(90))
	flags := " --data people.csv --categorical city --drop id --rate 0.01 --set beta1=0.8 --workers 2 --batch 10"
	if got := runIn(t, dir, strings.Fields("train mlp:4 --epochs 1 --name a"+flags)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if got := runIn(t, dir, strings.Fields("train mlp:4 --epochs 2 --name b --resume a"+flags)...); got.code != Done || !strings.Contains(got.out, "4 on") {
		t.Errorf("the same flags: exits with %d: %s%s", got.code, got.out, got.err)
	}
	for change, want := range map[string][]string{
		"--drop city": {"data.drop stays id;"}, "--batch 20": {"batch stays 20;"}, "--workers 4 --batch 10": {"batch stays 20;"},
		"--set beta1=0.9": {"optimizer.params.beta1 stays 0.8;"}, "--scale standard --data other.csv": {"data.scale stays as it was;", "data.source stays people.csv;"},
		"--rate NaN": {"job: optimizer.rate: want", "adam: rate: want"},
	} {
		args := append(strings.Fields("train --epochs 2 --resume a --workers 2"), strings.Fields(change)...)
		got := runIn(t, dir, args...)
		if got.code != Misused || strings.Count(got.err, "\n") != len(want) {
			t.Errorf("%s: exits with %d: %s", change, got.code, got.err)
		}
		for _, w := range want {
			if !strings.Contains(got.err, w) {
				t.Errorf("%s: no %q in %s", change, w, got.err)
			}
		}
	}
}

// TestResumeByOne: the topology does not come with the checkpoint, and where one worker goes on with what several began, that is said.
func TestResumeByOne(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(90))
	if got := runIn(t, dir, strings.Fields("train mlp:4 --epochs 1 --name a --data people.csv --drop id --categorical city --topology average --workers 2")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	const note = "resumed by one worker; the run had average of 2 workers: to go on so, give --topology average --workers 2\n"
	for _, c := range []struct {
		flags string
		said  bool
	}{
		{"--epochs 2 --name b --resume a", true},
		{"--epochs 3 --resume b", false},
		{"--epochs 2 --resume a --topology average --workers 2", false},
		{"--epochs 2 --resume a --topology local", false},
	} {
		got := runIn(t, dir, strings.Fields("train "+c.flags)...)
		if got.code != Done || strings.Contains(got.out, note) != c.said {
			t.Errorf("%s: exits with %d, and is to say that one worker goes on: %v: %s%s", c.flags, got.code, c.said, got.out, got.err)
		}
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

// TestInterruptedLast: a run that is interrupted while its last evaluation is made goes on by the command that it prints, which makes that.
func TestInterruptedLast(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	options := Options{Sources: data.Sources{"points": points(-1, nil)}, Metrics: metric.Metrics{
		"halting": func(o trivium.Outputs) (trivium.Metric, error) {
			return metric.Mean("halting", o, true, func(*trivium.Labels, int, []float32) (float64, error) {
				cancel()
				return 1, nil
			}), nil
		},
	}}
	got := runWith(ctx, t, dir, options, strings.Fields("train softmax --data points --batch 30 --epochs 1 --metrics halting --name x")...)
	resume := regexp.MustCompile(`resume with: trivium (.*)`).FindStringSubmatch(got.err)
	if got.code != Interrupted || resume == nil {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	got = runWith(t.Context(), t, dir, options, append(strings.Fields(resume[1]), "--name", "y")...)
	if got.code != Done || !strings.Contains(got.out, "finished  test.halting 1") {
		t.Fatalf("%s: exits with %d: %s%s", resume[1], got.code, got.out, got.err)
	}
	a, b := params(t, filepath.Join(dir, "runs", "x")), params(t, filepath.Join(dir, "runs", "y"))
	if a.Progress.Step != b.Progress.Step || !slices.Equal(a.Params.Flat, b.Params.Flat) {
		t.Errorf("after update %d another model than after %d", b.Progress.Step, a.Progress.Step)
	}
	if got = runWith(t.Context(), t, dir, options, "train", "--resume", "y"); got.code != Misused || !strings.Contains(got.err, "y is finished after") {
		t.Errorf("a finished run exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestResumeEarlier: where the newest checkpoint is damaged, the error names the one before it and the flag that takes it.
func TestResumeEarlier(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train softmax --data points --batch 80 --epochs 2 --checkpoint-every 10 --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	file := filepath.Join(dir, "runs", "a", checkpointsDir, "step-000000000020", "params.safetensors")
	p, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p[len(p)-1] ^= 1
	write(t, filepath.Dir(file), filepath.Base(file), string(p))
	for _, verb := range []string{"train --epochs 3 --resume a", "eval a"} {
		got := runWith(t.Context(), t, dir, options, strings.Fields(verb)...)
		flag := regexp.MustCompile(`the one before it, step-000000000010, is whole: take it by (--checkpoint step-000000000010)\n`).FindStringSubmatch(got.err)
		if got.code != Misused || flag == nil {
			t.Fatalf("%s: exits with %d: %s", verb, got.code, got.err)
		}
		if got := runWith(t.Context(), t, dir, options, strings.Fields(verb+" "+flag[1])...); got.code != Done {
			t.Errorf("%s %s: exits with %d: %s", verb, flag[1], got.code, got.err)
		}
	}
	got := runWith(t.Context(), t, dir, options, strings.Fields("train softmax --data points --checkpoint step-000000000010")...)
	if want := "--checkpoint: it is one of the run that --resume names"; got.code != Misused || !strings.Contains(got.err, want) {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
}

// TestStopSaysWhereTheBestIs: where the best model is older than the run, which went on from another, it is that one's; and an early stop on what
// never had a value knows of no best.
func TestStopSaysWhereTheBestIs(t *testing.T) {
	dir := t.TempDir()
	command := "train softmax --rows 400 --epochs 1 --stop-metric test.loss --patience 1 --min-delta 1000 --name a" // the first stays the best
	if got := runIn(t, dir, strings.Fields(command)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	got := runIn(t, dir, strings.Fields("train --resume a --epochs 4")...)
	if want := "the best was after update 4: that model is among the checkpoints of the run that this one went on from, or of one before it\n"; got.code != Done || !strings.Contains(got.out, want) {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, dir, "a.csv", "label,x\n"+strings.Repeat("no,1\nyes,2\n", 20)+strings.Repeat("no,1\n", 10))
	got = runIn(t, dir, strings.Fields("train logistic --data a.csv --train 0:40 --valid 40: --stop-metric valid.auc --patience 3")...)
	if want := "valid.auc had no value in any of 3 evaluations"; got.code != Done || !strings.Contains(got.out, want) {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestResumeWithFile: a run goes on under the job file that it began with; where that says something else by now, the key is named, with its line.
func TestResumeWithFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(90))
	job := "model: mlp:4\ndata:\n  source: people.csv\n  categorical: [city]\n  drop: [id]\nbatch: 10\nepochs: 1\noptimizer:\n  name: adam\n  rate: 0\n  params: {beta1: 0.8}\n"
	write(t, dir, "job.yaml", job)
	if got := runIn(t, dir, strings.Fields("train -f job.yaml --seed 7 --set beta2=0.9 --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for i, args := range []string{"-f job.yaml --epochs 2", "mlp:4 -f job.yaml --seed 7 --epochs 2", "-f more.yaml", "mlp:4 -f others.yaml --epochs 2"} {
		write(t, dir, "more.yaml", strings.Replace(job, "epochs: 1", "epochs: 2", 1))
		write(t, dir, "others.yaml", strings.Replace(job, "mlp:4", "softmax", 1)) // which the command's goes before
		got := runIn(t, dir, strings.Fields(fmt.Sprintf("train %s --resume a --name b%d", args, i))...)
		if got.code != Done || !strings.Contains(got.out, "from update 8 on") {
			t.Errorf("%s: exits with %d: %s%s", args, got.code, got.out, got.err)
		}
	}
	if a, b := params(t, filepath.Join(dir, "runs", "b0")), params(t, filepath.Join(dir, "runs", "b2")); !slices.Equal(a.Params.Flat, b.Params.Flat) || a.Job.Seed != 7 {
		t.Errorf("the file's epochs and the flag's make two models, or the seed is %d", a.Job.Seed)
	}
	for change, want := range map[[2]string][]string{
		{"mlp:4", "mlp:5"}:                 {"other.yaml: line 1: --resume: model stays mlp:4; only epochs, steps and the early stop can be changed"},
		{"batch: 10", "batch: 20"}:         {"other.yaml: line 6: --resume: batch stays 10;"},
		{"drop: [id]", "drop: [id, city]"}: {"other.yaml: line 5: --resume: data.drop stays id;"},
		{"beta1: 0.8", "beta1: 0.9"}:       {"other.yaml: line 11: --resume: optimizer.params.beta1 stays 0.8;"},
		{"batch: 10", "seed: 8"}:           {"other.yaml: line 6: --resume: seed stays 7;"},
		{"batch: 10", "batch: -3"}:         {"other.yaml: line 6: batch: want at least 1 row"},
		{"batch: 10", "bach: 10"}:          {`other.yaml: line 6: unknown key "bach"`},
		{"epochs: 1", "epochs: 1"}:         {"--resume: a is finished after 8 updates: to go on, give it more, such as --epochs 2"},
	} {
		write(t, dir, "other.yaml", strings.Replace(job, change[0], change[1], 1))
		epochs := " --epochs 2"
		if change[0] == "epochs: 1" {
			epochs = ""
		}
		got := runIn(t, dir, strings.Fields("train -f other.yaml --resume a"+epochs)...)
		if got.code != Misused || strings.Count(got.err, "\n") != len(want) || !strings.Contains(got.err, want[0]) {
			t.Errorf("%s: exits with %d: %s\nwant %s", change[1], got.code, got.err, want)
		}
	}
}

// TestResumeStandIn: generated data that stands in for a set which is not there does so where the run goes on.
func TestResumeStandIn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\ndata:\n  source: mnist\n  rows: 200\nepochs: 1\n")
	if got := runIn(t, dir, strings.Fields("train -f job.yaml --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for i, flags := range []string{"-f job.yaml", "--data mnist"} {
		if got := runIn(t, dir, strings.Fields(fmt.Sprintf("train %s --epochs 2 --resume a --name b%d", flags, i))...); got.code != Done {
			t.Errorf("%s: exits with %d: %s", flags, got.code, got.err)
		}
	}
}

// TestNoEpochs: a job of no updates leaves the initial model, wherever it lives, as others do: it is measured, applied and gone on from, to the bits
// of a run that was not cut in two.
func TestNoEpochs(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	run := func(command string) outcome { return runWith(t.Context(), t, dir, options, strings.Fields(command)...) }
	for i, topology := range []string{"", " --optimizer lbfgs --batch full", " --workers 2 --topology allreduce", " --workers 2 --topology server --consistency bsp", " --workers 2 --topology server --consistency asp", " --workers 2 --topology average"} {
		a, b, c := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("c%d", i)
		job := "train softmax --data points --steps 0 --exact" + topology
		if strings.Contains(topology, "asp") || strings.Contains(topology, "average") || strings.Contains(topology, "lbfgs") {
			job = strings.Replace(job, " --exact", "", 1)
		}
		if got := run(job + " --epochs 0 --name " + a); got.code != Done {
			t.Errorf("%s: exits with %d: %s%s", topology, got.code, got.out, got.err)
			continue
		}
		for _, verb := range []string{"eval " + a, "apply " + a, "export " + a + " --to m.onnx", "rerun " + a} {
			if got := run(verb); got.code != Done {
				t.Errorf("%s: %s: exits with %d: %s%s", topology, verb, got.code, got.out, got.err)
			}
		}
		if got := run("train --resume " + a + " --epochs 1 --name " + b + topology); got.code != Done {
			t.Errorf("%s: going on exits with %d: %s%s", topology, got.code, got.out, got.err)
			continue
		}
		if !strings.Contains(job, "exact") {
			continue
		}
		if got := run(job + " --epochs 1 --name " + c); got.code != Done {
			t.Errorf("%s: at once exits with %d: %s%s", topology, got.code, got.out, got.err)
		}
		if x, y := params(t, filepath.Join(dir, "runs", b)), params(t, filepath.Join(dir, "runs", c)); !slices.Equal(x.Params.Flat, y.Params.Flat) {
			t.Errorf("%s: a run from the initial model is another than one from the start", topology)
		}
	}
}
