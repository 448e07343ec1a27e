package app

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/traintest"
)

// ownOptions are those of a program with an optimizer and a metric of its own: "ball" is momentum, "misses" counts what accuracy does not.
func ownOptions() Options {
	return Options{Optimizers: traintest.Optimizers(), Metrics: traintest.Metrics()}
}

// TestOwn: a program's own optimizer and metric go wherever a job does: to threads and processes of every topology, to checkpoints and on from
// them, to eval and rerun. The bits are those of the momentum that ships.
func TestOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dozens of processes: left out of -short, under which the tests of train/server and the kit run an own optimizer")
	}
	dir := t.TempDir()
	run := func(o Options, want int, command string) outcome {
		t.Helper()
		got := runWith(t.Context(), t, dir, o, strings.Fields(command)...)
		if got.code != want {
			t.Fatalf("%s: exits with %d, want %d: %s%s", command, got.code, want, got.out, got.err)
		}
		return got
	}
	flat := func(name string) []float32 { return params(t, filepath.Join(dir, "runs", name)).Params.Flat }
	data := " softmax --data digits --rows 1200 --train 0:900 --valid 900:1050 --test 1050: --rate 0.02 --exact --shards 6 --epochs 3 "
	own := data + "--optimizer ball --metrics misses "
	run(Options{}, Done, "train"+data+"--optimizer momentum --batch 120 --name ships")
	if got := run(ownOptions(), Done, "train"+own+"--batch 120 --name local"); !strings.Contains(got.out, "test.misses") || !strings.Contains(got.out, "ball at rate 0.02") {
		t.Errorf("%s", got.out)
	}
	for name, how := range map[string]string{
		"allreduce": "--workers 2", "allreduce-processes": "--workers 3 --batch 40 --processes", "sharded": "--workers 2 --processes --shard-optimizer",
		"server": "--workers 2 --topology server --servers 2 --consistency bsp", "server-processes": "--workers 2 --topology server --processes --servers 2 --consistency bsp",
	} {
		if !strings.Contains(how, "--batch") {
			how += " --batch 60"
		}
		run(ownOptions(), Done, "train"+own+how+" --name "+name)
		if !slices.Equal(flat(name), flat("ships")) {
			t.Errorf("%s has another model than the optimizer that ships", name)
		}
	}
	loose := strings.ReplaceAll(own, "--exact --shards 6", "")
	for _, mode := range []string{"bsp", "ssp:2", "essp:1", "asp"} {
		for _, on := range []string{"server", "worker"} {
			got := run(ownOptions(), Done, "train"+loose+"--workers 2 --batch 60 --topology server --processes --consistency "+mode+" --optimizer-on "+on)
			if !strings.Contains(got.out, "finished  test.loss") || !strings.Contains(got.out, "test.misses") {
				t.Errorf("%s, at the %s: %s", mode, on, got.out)
			}
		}
	}
	run(ownOptions(), Done, "train"+loose+"--workers 2 --batch 60 --topology average --processes")

	run(ownOptions(), Done, "train"+own+"--batch 120 --steps 9 --name begun")
	run(ownOptions(), Done, "train --resume begun --steps 16 --workers 2 --processes --name middle")
	run(ownOptions(), Done, "train --resume middle --steps 24 --workers 2 --topology server --consistency bsp --processes --name ended")
	if !slices.Equal(flat("ended"), flat("ships")) {
		t.Error("what three topologies trained is another model than one's")
	}
	if got := run(ownOptions(), Done, "rerun server-processes"); !strings.Contains(got.out, "the same bits") {
		t.Errorf("%s", got.out)
	}
	accuracy, misses := run(ownOptions(), Done, "eval ships --metrics accuracy,misses"), run(ownOptions(), Done, "eval local")
	line := regexp.MustCompile(`(?m)^valid.misses \S+$`).FindString(misses.out)
	if line == "" || !strings.Contains(accuracy.out, line) {
		t.Errorf("valid.misses is other than that of the same model: %s%s", accuracy.out, misses.out)
	}
	got := run(ownOptions(), Done, "train"+own+"--batch 120 --epochs 40 --stop-metric valid.misses --patience 2 --workers 2 --processes")
	if !strings.Contains(got.out, "valid.misses made no progress in 2 evaluations") {
		t.Errorf("%s", got.out)
	}

	for command, want := range map[string]string{ // by a program without them
		"eval local":           `no metric is called "misses"; there are accuracy`,
		"rerun local":          `no optimizer is called "ball"; there are adagrad`,
		"train --resume local": `no optimizer is called "ball"; there are adagrad`,
		"train -f ball.yaml":   `no optimizer is called "ball"; there are adagrad`,
		"train -f misses.yaml": `no metric is called "misses"; there are accuracy`,
		"compare -f ball.yaml --target 'test.accuracy>=1' --systems local": `no optimizer is called "ball"; there are adagrad`,
	} {
		write(t, dir, "ball.yaml", "model: softmax\ndata: {source: digits, rows: 300}\noptimizer: {name: ball}\n")
		write(t, dir, "misses.yaml", "model: softmax\ndata: {source: digits, rows: 300}\nmetrics: [misses]\n")
		words := strings.Fields(command)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		if got := runWith(t.Context(), t, dir, Options{}, words...); got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s: exits with %d: %s%s, want %q", command, got.code, got.out, got.err, want)
		}
	}
	for command, want := range map[string]string{
		"train softmax --optimizer bal":                                 `did you mean "ball"?`,
		"train softmax --optimizer adm":                                 `did you mean "adam"?`,
		"train softmax --rows 300 --metrics mises":                      `did you mean "misses"?`,
		"train softmax --rows 300 --optimizer ball --schedule cosine:9": `optimizer "ball": it takes no schedule`,
		"train logistic --rows 300 --data logistic --metrics misses":    `metric: misses: it counts classes`,
		"eval local --metrics misess":                                   `did you mean "misses"?`,
	} {
		if got := runWith(t.Context(), t, dir, ownOptions(), strings.Fields(command)...); got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s: exits with %d: %s%s, want %q", command, got.code, got.out, got.err, want)
		}
	}
}

// TestOwnModelAndUnfitData: data that a program's own model cannot be fed is refused before training, and no run directory is left.
func TestOwnModelAndUnfitData(t *testing.T) {
	dir := t.TempDir()
	build := func(_ string, _ trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		logits := graph.MatMul(b.Input("x", graph.F32, batch, graph.N(5)), b.Variable("w", graph.F32, []int{5, 2}, graph.Zeros()).Read())
		loss := graph.SoftmaxCrossEntropy(logits, b.Input("label", graph.I32, batch))
		return nn.FromGraph(cpu, nn.NetSpec{Loss: loss, Scores: logits, Task: trivium.MultiClass})
	}
	options := Options{Models: nn.Models{"mine": build}, Sources: data.Sources{"points": points(-1, nil)}}
	for _, workers := range []string{"1", "2"} {
		got := runWith(t.Context(), t, dir, options, "train", "mine", "--data", "points", "--epochs", "1", "--workers", workers)
		if got.code != Misused || !strings.Contains(got.err, `model "mine": nn: input "x": the net wants 5 values a row, and the data has 3`) {
			t.Errorf("%s workers: exits with %d: %s%s", workers, got.code, got.out, got.err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "runs")); err == nil {
			t.Errorf("%s workers: left %v", workers, left)
		}
	}
}

// TestOwnModelIsExported: a net of a program's own is exported as those that ship are, with the parameters that it was trained to.
func TestOwnModelIsExported(t *testing.T) {
	dir := t.TempDir()
	build := func(_ string, _ trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		w1, b1 := b.Variable("w1", graph.F32, []int{3, 4}, graph.GlorotUniform()), b.Variable("b1", graph.F32, []int{4}, graph.Constant(0.5))
		w2 := b.Variable("w2", graph.F32, []int{4, 2}, graph.GlorotUniform())
		logits := graph.MatMul(graph.Dense(b.Input("x", graph.F32, batch, graph.N(3)), w1.Read(), b1.Read(), graph.WithReLU), w2.Read())
		loss := graph.SoftmaxCrossEntropy(logits, b.Input("label", graph.I32, batch))
		return nn.FromGraph(cpu, nn.NetSpec{Loss: loss, Scores: logits, Task: trivium.MultiClass})
	}
	options := Options{Models: nn.Models{"mine": build}, Sources: data.Sources{"points": points(-1, nil)}}
	for _, command := range []string{"train mine --data points --epochs 1 --name run", "export run --to mine.onnx"} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(command)...); got.code != Done {
			t.Fatalf("%s: exits with %d: %s%s", command, got.code, got.out, got.err)
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "mine.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	saved := params(t, filepath.Join(dir, "runs", "run")).Params
	for i := range saved.Layout.Tensors() {
		var raw []byte
		for _, x := range saved.Tensor(i) {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		if !bytes.Contains(content, raw) {
			t.Errorf("the file does not hold %q as it was saved", saved.Layout.Spec(i).Name)
		}
	}
	for _, want := range []string{"w1", "b1", "w2", "batch", "scores", "class", "trivium.classes"} {
		if !bytes.Contains(content, []byte(want)) {
			t.Errorf("no %q in the file", want)
		}
	}
}

// TestOwnModelThatCannotBeDrawn: whose scores wait for an effect leaves as safetensors, which is said.
func TestOwnModelThatCannotBeDrawn(t *testing.T) {
	dir := t.TempDir()
	build := func(_ string, _ trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		w, seen := b.Variable("w", graph.F32, []int{3, 2}, graph.Zeros()), b.Variable("seen", graph.F32, []int{1}, graph.Zeros())
		x, counted := b.Input("x", graph.F32, batch, graph.N(3)), seen.AssignAdd(graph.ConstOf(b, []float32{1}, 1))
		var logits graph.Value
		b.With(graph.Scope{Control: []graph.Value{counted}}, func() { logits = graph.MatMul(x, w.Read()) })
		loss := graph.SoftmaxCrossEntropy(logits, b.Input("label", graph.I32, batch))
		return nn.FromGraph(cpu, nn.NetSpec{Loss: loss, Scores: logits, Task: trivium.MultiClass})
	}
	options := Options{Models: nn.Models{"mine": build}, Sources: data.Sources{"points": points(-1, nil)}}
	for _, command := range []string{"train mine --data points --epochs 1 --name run", "export run --to m.safetensors"} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(command)...); got.code != Done {
			t.Fatalf("%s: exits with %d: %s%s", command, got.code, got.out, got.err)
		}
	}
	got := runWith(t.Context(), t, dir, options, strings.Fields("export run --to m.onnx")...)
	if got.code != Misused || !strings.Contains(got.err, "depend on its effect") || !strings.Contains(got.err, "leave as safetensors") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestOwnIsNamed: help and job files say what a program has of its own, and a run begins with the optimizer's rate only where there is one.
func TestOwnIsNamed(t *testing.T) {
	dir := t.TempDir()
	for command, want := range map[string]string{
		"help optimizers": "This program's own optimizers: ball\n", "help metrics": "This program's own metrics: misses\n", "train --help": "ftrl, lbfgs or ball.",
		"train softmax --rows 300 --epochs 1 --optimizer ball": ", ball\n", "init --to -": "# sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw, ftrl, lbfgs or ball (",
	} {
		if got := runWith(t.Context(), t, dir, ownOptions(), strings.Fields(command)...); got.code != Done || !strings.Contains(got.out, want) {
			t.Errorf("%s: exits with %d: %s%s, want %q", command, got.code, got.out, got.err, want)
		}
	}
}

// TestCompareOwnOptimizer: rows train with the program's own optimizer, to a target by its own metric.
func TestCompareOwnOptimizer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out of -short")
	}
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\nbatch: 60\nepochs: 8\ndata: {source: digits, rows: 1200, train: \"0:1000\", valid: \"1000:\"}\noptimizer: {name: ball, rate: 0.02}\n")
	got := runWith(t.Context(), t, dir, ownOptions(), "compare", "-f", "job.yaml", "--target", "valid.misses <= 0.3", "--systems", "local,allreduce,server-bsp", "--repeats", "1",
		"--seconds", "0.05", "--warm-up", "0.02")
	if got.code != Done || strings.Count(got.out, "yes (") != 3 || strings.Contains(got.out, "failed") {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "comparisons")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestOwnModelOfItsData: a program's own model, also under the name of one that ships, is built for the data of its job alone.
func TestOwnModelOfItsData(t *testing.T) {
	own := nn.Standard()
	own["mlp"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		if len(s.Inputs[0].Shape) != 3 {
			t.Errorf("it is built for %v", s.Inputs[0].Shape)
		}
		return nn.Softmax("", s, cpu)
	}
	if got := runWith(t.Context(), t, t.TempDir(), Options{Models: own}, "train", "mlp:any", "--rows", "50", "--epochs", "1"); got.code != Done {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}
