package app

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// TestBinaryIsHashedOnce: each worker that is a thread asks what it is built from.
func TestBinaryIsHashedOnce(t *testing.T) {
	if b, err := thisBuild(); err != nil || len(b.Binary) != 64 {
		t.Fatalf("%+v, %v", b, err)
	}
	if n := testing.AllocsPerRun(1, func() { _, _ = thisBuild() }); n != 0 {
		t.Errorf("asked again, what this is built from takes %v allocations: the binary is read again", n)
	}
}

func TestVersion(t *testing.T) {
	got := runIn(t, t.TempDir(), "version", "--json")
	var b build
	if err := json.Unmarshal([]byte(got.out), &b); err != nil || got.code != Done {
		t.Fatalf("exits with %d: %q, %v", got.code, got.out, err)
	}
	if len(b.Binary) != 64 || b.Kernels == "" || !strings.HasPrefix(b.Go, "go") {
		t.Errorf("got %+v", b)
	}
}

// TestInit: the file trains as it is, is not overwritten, and its mistakes are found.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	got := runIn(t, dir, "init", "mlp:8", "--data", "digits")
	if got.code != Done || !strings.Contains(got.out, "train -f job.yaml") {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got := runIn(t, dir, "init", "softmax"); got.code != Misused || !strings.Contains(got.err, "job.yaml is there already") {
		t.Errorf("a second time: exits with %d: %s", got.code, got.err)
	}
	if got := runIn(t, dir, "init", "softmaks"); got.code != Misused || !strings.Contains(got.err, "softmax") {
		t.Errorf("unknown model: exits with %d: %s", got.code, got.err)
	}
	if got := runIn(t, dir, "init", "mlp:0", "--to", "none.yaml"); got.code != Misused || !strings.Contains(got.err, `model "mlp:0": "0" is not the size of a hidden layer`) {
		t.Errorf("impossible arguments: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got := runIn(t, dir, "init", "logistic", "--to", "-"); got.code != Done { // although what there is without a source has 10 classes
		t.Errorf("a model for other data: exits with %d: %s", got.code, got.err)
	}
	got = runIn(t, dir, "train", "-f", "job.yaml", "--rows", "300", "--epochs", "1", "--name", "x")
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	r, err := findRun(filepath.Join(dir, "runs"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if f := texts(r.fields()); f["model"] != "mlp:8" || f["epochs"] != "1" || f["data.rows"] != "300" || f["batch"] != "100" {
		t.Errorf("the job is %v", f)
	}
}

// TestHelpOfTrained: how a table is read is not among the flags of verbs that have a trained model's transform.
func TestHelpOfTrained(t *testing.T) {
	for _, verb := range []string{"eval", "apply"} {
		got := runIn(t, t.TempDir(), verb, "--help")
		if got.code != Done || !strings.Contains(got.out, "--format") || strings.Contains(got.out, "--label") || strings.Contains(got.out, "--class") {
			t.Errorf("%s: exits with %d: %s", verb, got.code, got.out)
		}
	}
}

// TestChangedData: rows that are taken for new may be ones that were trained on, once the file is another.
func TestChangedData(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(200))
	if got := runIn(t, dir, strings.Fields("train logistic --data people.csv --categorical city --missing mean --epochs 1")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	const want = "people.csv has changed since training"
	for _, verb := range []string{"eval", "apply"} {
		if got := runIn(t, dir, verb, "last"); got.code != Done || got.err != "" {
			t.Errorf("%s of what it was trained on: exits with %d: %s", verb, got.code, got.err)
		}
	}
	write(t, dir, "people.csv", people(100))
	for _, verb := range []string{"eval", "apply"} {
		if got := runIn(t, dir, verb, "last"); got.code != Done || !strings.Contains(got.err, want) {
			t.Errorf("%s: exits with %d: %s\nwant %s", verb, got.code, got.err, want)
		}
		if got := runIn(t, dir, verb, "last", "--data", "people.csv"); got.code != Done || got.err != "" {
			t.Errorf("%s of what is named: exits with %d: %s", verb, got.code, got.err)
		}
	}
}

func TestExport(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(200))
	if got := runIn(t, dir, strings.Fields("train logistic --data people.csv --categorical city --drop id --hash 16 --missing mean --scale minmax --epochs 2")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for _, name := range []string{"m.onnx", "m.safetensors"} {
		if got := runIn(t, dir, "export", "last", "--to", name); got.code != Done {
			t.Errorf("%s: exits with %d: %s", name, got.code, got.err)
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		// Variables have the names of the layout, inputs those of the columns.
		for _, want := range map[string][]string{"m.onnx": {"age", "city", "scores", "class", "FNV-1a"}, "m.safetensors": {`"w"`, `"b"`}}[name] {
			if !strings.Contains(string(content), want) {
				t.Errorf("%s: no %q in it", name, want)
			}
		}
	}
	if got := runIn(t, dir, "export", "last", "--to", "m.pickle"); got.code != Misused || !strings.Contains(got.err, "onnx, safetensors") {
		t.Errorf("unknown format: exits with %d: %s", got.code, got.err)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		words, want string
		code        int
	}{
		{"runs", "Runs: what training leaves behind", Done},
		{"runs diff", "Usage: trivium runs diff <a> <b>", Done}, // a topic's name, and a verb
		{"bench net", "Usage: trivium bench net", Done},
		{"models data", "one topic or verb at a time", Misused},
		{"modles", `did you mean "models"?`, Misused},
	} {
		got := runIn(t, t.TempDir(), append([]string{"help"}, strings.Fields(c.words)...)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("help %s: exits with %d: %s%s\nwant %s", c.words, got.code, got.out, got.err, c.want)
		}
	}
}

// TestRowsToMeasure: rows that are named are those that are measured, wherever they lie; nothing is left for training, nor wanted.
func TestRowsToMeasure(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(200))
	train := "train mlp:4 --data people.csv --categorical city --drop id --epochs 1 --class-weight balanced --metrics auc,f1,confusion"
	if got := runIn(t, dir, strings.Fields(train)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for _, c := range []struct {
		flags string
		want  string // the sets that are measured, with their rows
	}{
		{"", "test: 40 rows\n"},
		{"--test 5:10", "test: 5 rows\n"},
		{"--test 0.1", "test: 20 rows\n"},
		{"--valid 0:100 --test 100:", "valid: 100 rows\ntest: 100 rows\n"},
		{"--data people.csv", "data: 200 rows\n"},
		{"--data people.csv --test 5:10", "data: 5 rows\n"},
		{"--data people.csv --test 0.1", "data: 20 rows\n"},
		{"--data people.csv --valid 5:10 --test 50:90", "valid: 5 rows\ntest: 40 rows\n"},
		{"--data people.csv --train 0:30 --test 50:90", "train: 30 rows\ntest: 40 rows\n"},
	} {
		got := runIn(t, dir, append(strings.Fields("eval last"), strings.Fields(c.flags)...)...)
		if sets := got.out[:strings.LastIndex(" rows\n"+got.out, " rows\n")]; got.code != Done || sets != c.want {
			t.Errorf("%s: exits with %d: %s%s\nwant %s", c.flags, got.code, got.out, got.err, c.want)
		}
		if !strings.Contains(got.out, "classes: 0 no, 1 yes\n") {
			t.Errorf("%s: the matrix does not say what its classes are:\n%s", c.flags, got.out)
		}
	}
	for args, want := range map[string]string{
		"eval last --data people.csv --rows 5":             "rows: it is for generated data",
		"eval last --rows 5":                               "rows: it is for generated data",
		"apply last --data digits":                         "the model was made for",
		"apply last --data people.csv --to new.parquet":    "--as",
		"apply last --data people.csv --to x.csv --as txt": "want csv or jsonl",
	} {
		got := runIn(t, dir, strings.Fields(args)...)
		if got.code != Misused || !strings.Contains(got.err, want) || strings.Contains(got.err, "categorical") {
			t.Errorf("%s: exits with %d: %s\nwant %s", args, got.code, got.err, want)
		}
	}
	write(t, dir, "new.csv", "age,city,label\n20,Oslo,\n60,Rome,perhaps\n")
	if got := runIn(t, dir, "apply", "last", "--data", "new.csv"); got.code != Done || strings.Count(got.out, "\n") != 3 {
		t.Errorf("labels that are not there yet: exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestNoRowsToMeasure: what is measured on no rows is no number, and said to be none.
func TestNoRowsToMeasure(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", "label,a\n0,1\n1,2\n0,3\n1,4\n0,\n")
	if got := runIn(t, dir, strings.Fields("train logistic --data a.csv --missing drop --epochs 1 --name x")...); got.code != Done {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got := runIn(t, dir, "eval", "x"); got.code != Misused || !strings.Contains(got.err, "there are no rows in test") || got.out != "" {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestMeasuredAlike: rows are measured alike in every split, by train and by eval: class weights are for training.
func TestMeasuredAlike(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(200))
	train := "train logistic --data people.csv --categorical city --drop id --epochs 2 --class-weight no=1,yes=9 --name x --train 0:150"
	got := runIn(t, dir, append(strings.Fields(train), "--stop-metric", "train.accuracy", "--patience", "99")...)
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	r, err := findRun(filepath.Join(dir, "runs"), "x")
	if err != nil {
		t.Fatal(err)
	}
	measured := func(split string) (m map[string]any) {
		got := runIn(t, dir, "eval", "x", "--json", "--"+split, "0:150")
		if err := json.Unmarshal([]byte(got.out), &m); err != nil {
			t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
		}
		return m
	}
	asTrain, asTest := measured("train"), measured("test")
	if asTrain["train.accuracy"] != r.Result.Metrics["train.accuracy"] || asTrain["train.accuracy"] != asTest["test.accuracy"] || asTrain["train.loss"] != asTest["test.loss"] {
		t.Errorf("the run says %v, eval of the same rows as train %v, as test %v", r.Result.Metrics, asTrain, asTest)
	}
}

// TestDigitsOfPredictions: a prediction has the digits that tell it from others, in both formats: prices may differ in the eighth.
func TestDigitsOfPredictions(t *testing.T) {
	outputs := trivium.Outputs{Task: trivium.Regression, Width: 1}
	for as, want := range map[string]string{
		"csv":   "row,prediction\n0,1.2345679e+07\n1,1.2345682e+07\n2,0.1\n",
		"jsonl": `{"prediction":12345679,"row":0}` + "\n" + `{"prediction":12345682,"row":1}` + "\n" + `{"prediction":0.10000000149011612,"row":2}` + "\n",
	} {
		var out strings.Builder
		p := &predictionWriter{w: &out, csv: as == "csv", outputs: outputs}
		if err := errors.Join(p.write(&trivium.Batch{Rows: 3}, []float32{12345679, 12345682, 0.1}), p.flush()); err != nil || out.String() != want {
			t.Errorf("%v: %s\nwant %s", err, out.String(), want)
		}
	}
}

// TestSmallProbabilities: of two classes the less likely one has its digits too, where 1 less the other's has lost them.
func TestSmallProbabilities(t *testing.T) {
	var out strings.Builder
	p := &predictionWriter{w: &out, csv: true, outputs: trivium.Outputs{Task: trivium.Binary, Width: 1}}
	if err := errors.Join(p.write(&trivium.Batch{Rows: 2}, []float32{40, -40}), p.flush()); err != nil {
		t.Fatal(err)
	}
	if want := "row,class,p.0,p.1\n0,1,4.248354e-18,1\n1,0,1,4.248354e-18\n"; out.String() != want {
		t.Errorf("%s\nwant %s", out.String(), want)
	}
}

// TestOutputThatCannotBeWritten: where a file cannot be, the error says so, and nothing is left beside it.
func TestOutputThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train logistic --data logistic --rows 50 --columns 4 --epochs 1")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"apply last", "export last --format onnx", "runs report last", "init softmax --force"} {
		for to, want := range map[string]string{"folder": "folder is a folder", "nowhere/x.csv": "nowhere/x.csv"} {
			got := runIn(t, dir, append(strings.Fields(verb), "--to", to)...)
			if got.code != Misused || !strings.Contains(got.err, want) || strings.Contains(got.err, "partial") {
				t.Errorf("%s --to %s: exits with %d: %s", verb, to, got.code, got.err)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.partial*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestOutputOfTwo: who writes to a file that another process writes to as well leaves one of the two outputs, whole.
func TestOutputOfTwo(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.csv")
	err := writeTo(io.Discard, name, func(w io.Writer) error {
		if _, err := io.WriteString(w, strings.Repeat("first\n", 50_000)); err != nil {
			return err
		}
		return writeTo(io.Discard, name, func(w io.Writer) error {
			_, err := io.WriteString(w, "second\n")
			return err
		})
	})
	got, e := os.ReadFile(name)
	if err != nil || e != nil || string(got) != strings.Repeat("first\n", 50_000) {
		t.Errorf("%v, %v, and the file has %d bytes", err, e, len(got))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestOutputToALink: a link stays one, and what it leads to is written.
func TestOutputToALink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "v1.onnx", "old")
	file, link := filepath.Join(dir, "v1.onnx"), filepath.Join(dir, "model.onnx")
	if err := os.Symlink("v1.onnx", link); err != nil {
		t.Fatal(err)
	}
	err := writeTo(io.Discard, link, func(w io.Writer) error {
		_, err := io.WriteString(w, "new")
		return err
	})
	got, e := os.ReadFile(file)
	if to, _ := os.Readlink(link); err != nil || e != nil || string(got) != "new" || to != "v1.onnx" {
		t.Errorf("%v, %v: the file has %q, and the link leads to %q", err, e, got, to)
	}
}

// TestTrainedMistakes: what a verb is told of a trained model, and cannot be.
func TestTrainedMistakes(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train logistic --data logistic --rows 50 --columns 4 --epochs 1")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for command, want := range map[string]string{
		"eval last --threads=-1":               "--threads: want 1 or more, found -1",
		"eval last --threads=4097":             "--threads: want at most 4096, found 4097",
		"apply last --threads=-1":              "--threads: want 1 or more, found -1",
		"export last --to x.onnx --threads=-1": "--threads: want 1 or more, found -1",
		"rerun last --threads=-1":              "--threads: want 1 or more, found -1",
		"eval last --checkpoint nope":          `no checkpoint is called "nope"; there are step-000000000001`,
	} {
		if got := runIn(t, dir, strings.Fields(command)...); got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s: exits with %d: %s\nwant %s", command, got.code, got.err, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(90))
	got := runIn(t, dir, "data", "people.csv", "--categorical", "city")
	for _, want := range []string{"90 rows", "age", "city", "text", "labels: 2 classes: no ", "no mistakes found"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in:\n%s", want, got.out)
		}
	}
	for command, want := range map[string]string{
		"--scale big": "data.scale", "--missing no": "data.missing", "--categorical name": `no column "name"`,
	} {
		got := runIn(t, dir, append([]string{"data", "people.csv"}, strings.Fields(command)...)...)
		if got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s: exits with %d: %s", command, got.code, got.err)
		}
	}
	write(t, dir, "holes.csv", "a,b,label\n1,2,x\n,,y\n3,,\n4,5,y\n")
	if got := runIn(t, dir, "data", "holes.csv", "--missing", "drop"); !strings.Contains(got.out, "2 classes: x 50.0 %, y 50.0 %\n") {
		t.Errorf("no shares of the rows that stay in:\n%s", got.out)
	}
	for flags, want := range map[string]string{
		"":               "missing: 4 cells in 2 of 4 rows: a 1, b 2, label 1; training stops at one, unless --missing says mean, zero, or drop to leave these rows out; but a row without label or weight stops training, unless it is left out by drop\nno other mistakes found\n",
		"--missing zero": "--missing zero makes each 0; but a row without label or weight stops training, unless it is left out by drop\n",
		"--missing drop": "label 1; --missing drop leaves these rows out\nno other mistakes found\n",
	} {
		got := runIn(t, dir, append([]string{"data", "holes.csv"}, strings.Fields(flags)...)...)
		if got.code != Done || !strings.Contains(got.out, want) {
			t.Errorf("%s: exits with %d: %s%s\nwant %s", flags, got.code, got.out, got.err, want)
		}
	}
	for flags, code := range map[string]int{"": Misused, " --missing mean": Done} { // NaN is no mistake where training takes it for an empty cell
		write(t, dir, "nan.csv", "a,label\n1,0\nNaN,1\n2,0\n3,1\n4,1\n")
		if got := runIn(t, dir, "data", "nan.csv"); got.code != Done || !strings.Contains(got.out, "missing: 1 cell in 1 of 5 rows: a 1; ") {
			t.Errorf("NaN: exits with %d:\n%s%s", got.code, got.out, got.err)
		}
		if got := runIn(t, dir, strings.Fields("train logistic --epochs 1 --data nan.csv"+flags)...); got.code != code {
			t.Errorf("NaN, trained with%s: exits with %d, want %d: %s", flags, got.code, code, got.err)
		}
	}
	write(t, dir, "broken.csv", "a,label\n1,0\nx,1\nNaN,1\n2\n")
	got = runIn(t, dir, "data", "broken.csv")
	if got.code != Misused || strings.Count(got.out, "mistake: ") != 2 || !strings.Contains(got.err, "2 mistakes") {
		t.Errorf("exits with %d:\n%s%s", got.code, got.out, got.err)
	}
	for flags, want := range map[string]string{ // what is no number stops training under any --missing
		"":               "missing: 1 cell in 1 of 4 rows: a 1; training stops at one, unless --missing says mean, zero, or drop to leave these rows out\n",
		"--missing drop": "missing: 1 cell in 1 of 4 rows: a 1; --missing drop leaves these rows out\n",
	} {
		want += "mistaken: 2 cells in 2 of 4 rows: a 1, label 1; training stops at one, whatever --missing says\n"
		got := runIn(t, dir, append([]string{"data", "broken.csv"}, strings.Fields(flags)...)...)
		if !strings.HasSuffix(got.out, "\n"+want) {
			t.Errorf("%s:\n%swant at its end\n%s", flags, got.out, want)
		}
	}
	write(t, dir, "dash.csv", "a,label\n1,0\n-,1\n")
	if got := runIn(t, dir, "data", "dash.csv", "--missing", "mean"); strings.Contains(got.out, "missing: ") || !strings.Contains(got.out, "\nmistaken: 1 cell in 1 of 2 rows: a 1; ") {
		t.Errorf("where no cell is missing:\n%s", got.out)
	}
	write(t, dir, "city.csv", "a,city,label\n,Oslo,0\n1,,1\n2,Rome,0\n")
	if got, want := runIn(t, dir, "data", "city.csv", "--missing", "mean"), "; --missing mean makes each the mean of its column, or in a column of text none of its categories\n"; !strings.Contains(got.out, want) {
		t.Errorf("no %q in\n%s", want, got.out)
	}
}

// TestExportReady: a model of rows that a source made as numbers is exported as it is: there is no transform before it.
func TestExportReady(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	for _, train := range []string{"train logistic --data logistic --rows 100 --epochs 1", "train softmax --data points --epochs 1"} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(train)...); got.code != Done {
			t.Fatalf("%s: exits with %d: %s", train, got.code, got.err)
		}
		if got := runWith(t.Context(), t, dir, options, "export", "last", "--to", "m.onnx"); got.code != Done {
			t.Errorf("%s: export exits with %d: %s", train, got.code, got.err)
		}
	}
	write(t, dir, "people.csv", people(20))
	got := runWith(t.Context(), t, dir, options, "eval", "last", "--data", "people.csv")
	if want := "it is a table, and the model was trained on rows of a generator, or of a source of a program's own"; got.code != Misused || !strings.Contains(got.err, want) {
		t.Errorf("eval exits with %d: %s", got.code, got.err)
	}
}

// A silent model makes no predictions.
type silent struct{ trivium.Model }

// TestExportSilent: the parameters of a model that makes no predictions leave by their names as those of any other; what is made of
// predictions is refused.
func TestExportSilent(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}, Models: nn.Models{
		"silent": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax("", s, cpu)
			return silent{m}, err
		},
	}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train silent --data points --epochs 1 --name mine")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if got := runWith(t.Context(), t, dir, options, "export", "mine", "--to", "m.safetensors"); got.code != Done {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "m.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := checkpoint.ReadSafetensors(content)
	if err != nil || len(tensors) != 2 || tensors[0].Name != "w1" || len(tensors[0].Float32) != 6 || tensors[1].Name != "b1" {
		t.Errorf("found %+v, %v", tensors, err)
	}
	for command, want := range map[string]string{
		"eval mine": `model "silent" makes no predictions`, "apply mine": `model "silent" makes no predictions`,
		"export mine --to m.onnx": "write it as safetensors",
	} {
		got := runWith(t.Context(), t, dir, options, strings.Fields(command)...)
		if got.code != Misused || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("%s: exits with %d: %s%s, want %s", command, got.code, got.out, got.err, want)
		}
	}
}
