package app

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

func TestJobFile(t *testing.T) {
	job := trivium.Job{Epochs: 7}
	g := given{}
	_, err := decodeJob("job.yaml", "trivium", []byte(`
model: mlp:100
batch: full
data: {source: a.csv, hash: 2^20, drop: [id]}
optimizer:
  name: sgd
  params: {momentum: 0.9}
`), &job, g)
	if err != nil {
		t.Fatal(err)
	}
	want := trivium.Job{Model: "mlp:100", Batch: trivium.FullBatch, Epochs: 7}
	want.Data = trivium.Data{Source: "a.csv", Hash: 1 << 20, Drop: []string{"id"}}
	want.Optimizer = trivium.OptimizerSpec{Name: "sgd", Params: map[string]float64{"momentum": 0.9}}
	if !reflect.DeepEqual(job, want) {
		t.Errorf("got  %+v\nwant %+v", job, want)
	}
	if !g["data.hash"] || !g["optimizer.name"] || g["optimizer.rate"] || g["epochs"] {
		t.Errorf("given: %v", g)
	}
}

// TestJobFileMistakes: all of them at once, each with its line.
func TestJobFileMistakes(t *testing.T) {
	var job trivium.Job
	f, err := decodeJob("job.yaml", "trivium", []byte(`model: softmax
epocs: 3
batch: many
data:
  sourse: x
  rows: 1.5
seed: -1
seed: 2
stop: now
data2: 1
`), &job, given{})
	if err == nil {
		t.Fatal("want mistakes")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		`job.yaml: line 2: unknown key "epocs"; did you mean "epochs"?`,
		`job.yaml: line 3: batch: found the text`,
		`job.yaml: line 5: unknown key "data.sourse"; did you mean "source"?`,
		`job.yaml: line 6: data.rows: want a whole number, found 1.5`,
		`job.yaml: line 7: seed: found the number ` + "`-1`, want a whole number of 0 or more",
		`job.yaml: line 8: "seed" is there already, on line 7`,
		`job.yaml: line 9: stop: found the text`,
		`job.yaml: line 10: unknown key "data2"; did you mean "data"?`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %d mistakes, want %d:\n%s", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
	at := f.at(each((&trivium.Job{Version: 1, Model: "m", Batch: 1, Epochs: -1, Data: trivium.Data{Format: "x"}}).Validate())[0])
	if !strings.HasPrefix(at.Error(), "job: epochs: ") { // the file has no such key: the mistake is not on one of its lines
		t.Errorf("got %v", at)
	}
}

// TestJobFileLines: what Job.Validate finds is said with the line too.
func TestJobFileLines(t *testing.T) {
	job := trivium.Job{Version: 1, Batch: 1}
	f, err := decodeJob("job.yaml", "trivium", []byte("model: softmax\ndata:\n  scale: big\nbatch: 0\n"), &job, given{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range each(job.Validate()) {
		got = append(got, f.at(e).Error())
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"job.yaml: line 3: data.scale: want one of", "job.yaml: line 4: batch: want at least 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in:\n%s", want, text)
		}
	}
}

// TestJobFilePowers: a power that is too large is said to be that.
func TestJobFilePowers(t *testing.T) {
	_, err := decodeJob("job.yaml", "trivium", []byte("model: softmax\ndata:\n  hash: 2^40\n"), new(trivium.Job), given{})
	if want := "job.yaml: line 3: data.hash: want a whole number, as a power one of at most 2147483647, such as 2^20; found 2^40"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestJobFileOfAProgram: a user's own program is called by its name.
func TestJobFileOfAProgram(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "# nothing\n")
	got := runWith(t.Context(), t, dir, Options{Name: "./digits"}, "train", "-f", "job.yaml")
	if got.code != Misused || !strings.Contains(got.err, `"./digits init" writes one`) {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
}

// TestFlagsOverAFile: a mistake in a flag is on no line of the file that it overrides.
func TestFlagsOverAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\nepochs: 3\nshards: -1\noptimizer:\n  rate: 0.1\n")
	got := runIn(t, dir, strings.Fields("train -f job.yaml --epochs=-1 --rate=-2")...)
	const want = "trivium: job: epochs: want 0 or more, found -1\ntrivium: job: optimizer.rate: want a number of 0 or more, found -2\n" +
		"trivium: job.yaml: line 3: shards: want 1 to 65536, found -1\n"
	if got.code != Misused || got.err != want {
		t.Errorf("exits with %d: %s\nwant %s", got.code, got.err, want)
	}
}

// TestJobFileAliases: what an alias stands for is read, and its mistakes are found, as if it stood there.
func TestJobFileAliases(t *testing.T) {
	job, g := trivium.Job{}, given{}
	if _, err := decodeJob("job.yaml", "trivium", []byte("batch: &n 2^4\nepochs: *n\n"), &job, g); err != nil || job.Epochs != 16 || !g["epochs"] {
		t.Errorf("epochs %d, %v", job.Epochs, err)
	}
	_, err := decodeJob("job.yaml", "trivium", []byte("optimizer: &o {name: adam, rate: 0.1}\nstop: *o\n"), &job, given{})
	if want := `job.yaml: line 1: unknown key "stop.name"`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for _, text := range []string{"optimizer: &o {params: *o}\n", "stop: &s {metric: *s}\n", "data: &d {drop: [*d]}\n"} {
		if _, err := decodeJob("job.yaml", "trivium", []byte(text), &job, given{}); err == nil {
			t.Errorf("%s contains itself", text)
		}
	}
}

// TestJobFileBlanks: a key without a value is a mistake, and not 0: with no epochs a job would train for ever. One that others stand below
// may have none of them.
func TestJobFileBlanks(t *testing.T) {
	_, err := decodeJob("job.yaml", "trivium", []byte("model: softmax\nepochs:\nseed: ~\ndata:\n  #source: x\noptimizer:\n  rate:\n"), new(trivium.Job), given{})
	const want = "job.yaml: line 2: epochs: it has no value; without the key the default holds\n" +
		"job.yaml: line 3: seed: it has no value; without the key the default holds\n" +
		"job.yaml: line 7: optimizer.rate: it has no value; without the key the default holds"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestJobTemplate: the file that init writes holds every key of a job, and is valid as it is and with every key in use.
func TestJobTemplate(t *testing.T) {
	var keys func(prefix string, typ reflect.Type) []string
	keys = func(prefix string, typ reflect.Type) (out []string) {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
			out = append(out, prefix+name)
			if typ.Field(i).Type.Kind() == reflect.Struct {
				out = append(out, keys(prefix+name+".", typ.Field(i).Type)...)
			}
		}
		return out
	}
	text := strings.NewReplacer("MODEL", "softmax", "SOURCE", `""`, "BATCH", "100", "EPOCHS", "3", "OPTIMIZER", "adam", "RATE", "0.1",
		"SEED", "42").Replace(jobTemplate)
	plain := given{}
	var job trivium.Job
	if _, err := decodeJob("job.yaml", "trivium", []byte(text), &job, plain); err != nil {
		t.Fatal(err)
	}
	var full strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(line, " ")
		if strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "# ") {
			line = line[:len(line)-len(trimmed)] + trimmed[1:]
		}
		full.WriteString(line)
	}
	everything := given{}
	if _, err := decodeJob("job.yaml", "trivium", []byte(full.String()), &job, everything); err != nil {
		t.Fatalf("%v in\n%s", err, &full)
	}
	for _, k := range keys("", reflect.TypeFor[trivium.Job]()) {
		if !everything[k] {
			t.Errorf("the template has no %s", k)
		}
	}
	if err := job.Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzJobFile(f *testing.F) {
	f.Add([]byte("model: softmax\nbatch: full\ndata: {hash: 2^20}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var job trivium.Job
		_, _ = decodeJob("job.yaml", "trivium", text, &job, given{}) // no panic is all
	})
}

func TestCount(t *testing.T) {
	for text, want := range map[string]int{"1000": 1000, "2^20": 1 << 20, "1e6": 1_000_000, "1_000": 1000, "0": 0} {
		if got, err := parseCount(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "1.5", "2^", "2^99", "NaN", "x", "1e300"} {
		if got, err := parseCount(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}

// TestNoDecay: adamw with a decay of 0 would train with its default, as where nothing is said, and is refused instead.
func TestNoDecay(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\noptimizer:\n  name: adamw\n  decay: 0\nepochs: -1\n") // the other mistake: nothing is trained in any case
	const words = "optimizer.decay: adamw without decay is adam"
	for _, c := range []struct {
		args, want string
	}{
		{"train -f job.yaml", "job.yaml: line 4: " + words},
		{"train softmax --optimizer adamw --decay 0 --epochs=-1", words},
		{"train -f job.yaml --decay 0.1", ""},
		{"train -f job.yaml --optimizer adam", ""},
		{"train softmax --optimizer adamw --epochs=-1", ""},
	} {
		got := runIn(t, dir, strings.Fields(c.args)...)
		if got.code != Misused || !strings.Contains(got.err, "epochs") || c.want == "" && strings.Contains(got.err, words) || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: exits with %d and %q, want %q", c.args, got.code, got.err, c.want)
		}
	}
}

// TestJobFileParts: mistakes in the optimizer and the early stop, which Job.Validate leaves to others, are found with the rest and have
// their field's line, or their section's where they name none, unless a flag may be what is wrong.
func TestJobFileParts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\nbatch: 0\noptimizer:\n  name: admm\nstop:\n  metric: auc\n  target: \"0.9\"\n")
	for _, c := range []struct {
		flags string
		want  []string
	}{
		{"", []string{
			"job.yaml: line 2: batch: want at least 1", `job.yaml: line 4: optim: no optimizer is called "admm"`,
			`job.yaml: line 6: stop.metric: want split.metric, such as valid.loss or test.accuracy; found "auc"`,
			`job.yaml: line 7: stop.target: want a comparison such as ">= 0.9", found "0.9"`,
		}},
		{"--batch 10 --optimizer amm", []string{`trivium: optim: no optimizer is called "amm"`, "job.yaml: line 6: stop.metric: "}},
		{"--batch 10 --stop-metric loss", []string{`trivium: train: stop.metric: want split.metric, such as valid.loss or test.accuracy; found "loss"`}},
	} {
		got := runIn(t, dir, strings.Fields("train -f job.yaml "+c.flags)...)
		if got.code != Misused {
			t.Errorf("%q exits with %d: %s", c.flags, got.code, got.err)
		}
		for _, want := range c.want {
			if !strings.Contains(got.err, want) {
				t.Errorf("%q: want %q in:\n%s", c.flags, want, got.err)
			}
		}
	}
	if runs, err := os.ReadDir(filepath.Join(dir, "runs")); err == nil {
		t.Errorf("there are runs: %v", runs)
	}
}

// TestJobFileNames: names that no metric has are found with all other mistakes, before there are data and a model to fit, and so is what is wrong with
// the schedule of an optimizer that there is not. A metric of the program's own has a name as good as any.
func TestJobFileNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\nbatch: 0\noptimizer: {name: sgdd, schedule: \"cosin:3\"}\nmetrics: [acc, misses]\nstop:\n  metric: valid.miss\n  patience: 1\n")
	const listed, watched = `metric: no metric is called "acc"; did you mean "accuracy"?`, `metric: no metric is called "miss"; did you mean "misses"?`
	for _, c := range []struct{ flags, want string }{
		{"", `trivium: job.yaml: line 2: batch: want at least 1 row, or full; found 0
trivium: job.yaml: line 3: optim: no optimizer is called "sgdd"; did you mean "sgd"?
trivium: job.yaml: line 3: optim: schedule "cosin:3": no schedule is called "cosin"; did you mean "cosine"?
trivium: job.yaml: line 4: ` + listed + "\ntrivium: job.yaml: line 6: " + watched + "\n"},
		{"--batch 10 --optimizer sgd --schedule constant --metrics misses --stop-metric valid.miss", "trivium: " + watched + "\n"},
		{"--batch 10 --optimizer sgd --schedule constant --stop-metric valid.loss", "trivium: job.yaml: line 4: " + listed + "\n"},
	} {
		got := runWith(t.Context(), t, dir, ownOptions(), strings.Fields("train -f job.yaml --data nowhere "+c.flags)...)
		if got.code != Misused || got.err != c.want {
			t.Errorf("%q exits with %d:\n%swant\n%s", c.flags, got.code, got.err, c.want)
		}
	}
	if got := runWith(t.Context(), t, dir, ownOptions(), strings.Fields("train softmax --rows 100 --epochs 1 --name first -q")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	write(t, dir, "stop.yaml", "stop:\n  metric: valid.miss\n  target: \"0.9\"\n")
	got := runWith(t.Context(), t, dir, ownOptions(), "train", "--resume", "first", "--epochs", "2", "-f", "stop.yaml")
	want := `trivium: stop.yaml: line 3: stop.target: want a comparison such as ">= 0.9", found "0.9"` + "\ntrivium: stop.yaml: line 2: " + watched + "\n"
	if got.code != Misused || got.err != want {
		t.Errorf("resumed: exits with %d:\n%swant\n%s", got.code, got.err, want)
	}
}

// TestJobFileAllAtOnce: each mistake is on the line of its own key, none hides another, what follows from one is not said beside it, and what of the data
// can be seen without them is found with the rest.
func TestJobFileAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", "label,x\nno,1\nyes,2\nno,3\nyes,4\n")
	for _, c := range []struct{ text, want string }{
		{"model: mlp:0\ndata:\n  class_weight: yes=-1\noptimizer:\n  name: adma\n  rate: -1\n  schedule: cosin:3\n", `job.yaml: line 1: model: mlp:0: "0" is not the size of a hidden layer: want a whole number from 1 to 16777216
job.yaml: line 3: data: class_weight: class "yes": want a weight of 0 or more, found "-1"
job.yaml: line 5: optim: no optimizer is called "adma"; did you mean "adam"?
job.yaml: line 6: optimizer.rate: want a number of 0 or more, found -1
job.yaml: line 7: optim: schedule "cosin:3": no schedule is called "cosin"; did you mean "cosine"?
`},
		{"model: softmax\noptimizer:\n  name: adam\n  params:\n    beta1: 2\n    rho: 1\n  schedule: step:0.5\n", `job.yaml: line 5: optim: adam: beta1: want a number from 0 to below 1, found 2
job.yaml: line 6: optim: adam has no parameter "rho"; there are beta1, beta2, epsilon
job.yaml: line 7: optim: schedule "step:0.5": step wants a whole number of updates and a factor from 0 to 1, such as step:100,0.1
`},
		{"model: softmax\nstop:\n  metric: valid.acc\n  patience: x\n", "job.yaml: line 3: metric: no metric is called \"acc\"; did you mean \"accuracy\"?\n" +
			"job.yaml: line 4: stop.patience: found the text `x`, want a whole number\n"},
		{"model: softmax\noptimizer:\n  name: [adam]\n  params: {beta1: 0.5}\nstop:\n  metric: [a]\n  patience: 3\n", `job.yaml: line 3: optimizer.name: found a list, want a text
job.yaml: line 6: stop.metric: found a list, want a text
`},
		{"model: softmax\ndata:\n  source: a.csv\n  label: labl\n  drop: [y]\n  weight: z\n", `job.yaml: line 4: data: a.csv: label: there is no column "labl"; the columns are label, x
job.yaml: line 5: data: a.csv: drop: there is no column "y"; the columns are label, x
job.yaml: line 6: data: a.csv: weight: there is no column "z"; the columns are label, x
`},
	} {
		write(t, dir, "job.yaml", c.text)
		got := runIn(t, dir, "train", "-f", "job.yaml")
		if want := "trivium: " + strings.ReplaceAll(strings.TrimSuffix(c.want, "\n"), "\n", "\ntrivium: ") + "\n"; got.code != Misused || got.err != want {
			t.Errorf("exits with %d:\n%swant\n%s", got.code, got.err, want)
		}
	}
}

// TestShardsWithoutExact: what is of exact mode alone is not passed over without it.
func TestShardsWithoutExact(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\nshards: 8\n")
	for command, want := range map[string]string{
		"train softmax --rows 100 --shards 8": "job: shards: it is of exact mode",
		"train -f job.yaml --rows 100":        "job.yaml: line 2: shards: it is of exact mode",
	} {
		if got := runIn(t, dir, strings.Fields(command)...); got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s exits with %d: %s", command, got.code, got.err)
		}
		if got := runIn(t, dir, strings.Fields(command+" --exact --epochs 1")...); got.code != Done {
			t.Errorf("%s in exact mode exits with %d: %s", command, got.code, got.err)
		}
	}
}
