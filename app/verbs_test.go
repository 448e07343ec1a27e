package app

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
	got = runIn(t, dir, "train", "-f", "job.yaml", "--rows", "300", "--epochs", "1", "--name", "x")
	if got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	r, err := findRun(filepath.Join(dir, "runs"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if f := r.fields(); f["model"] != "mlp:8" || f["epochs"] != "1" || f["data.rows"] != "300" || f["batch"] != "100" {
		t.Errorf("the job is %v", f)
	}
}

// TestCompletion runs the script in bash, where there is one.
func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash on this machine to complete in")
	}
	dir := t.TempDir()
	script := runIn(t, dir, "completion", "bash").out
	for words, want := range map[string]string{
		"trivium tr":                    "train",
		"trivium train sof":             "softmax",
		"trivium train softmax --epo":   "--epochs",
		"trivium runs s":                "show",
		"trivium runs show --js":        "--json",
		"trivium help exit":             "exit-codes",
		"trivium completion f":          "fish",
		"trivium eval last --checkpoin": "--checkpoint",
	} {
		n := len(strings.Fields(words))
		test := script + "\nCOMP_WORDS=(" + words + ")\nCOMP_CWORD=$((" + string(rune('0'+n)) + "-1))\n_trivium\necho \"${COMPREPLY[*]}\"\n"
		out, err := exec.Command(bash, "-c", test).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q completes to %q (%v), want %q", words, got, err, want)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		if got := runIn(t, dir, "completion", shell); got.code != Done || !strings.Contains(got.out, "train") {
			t.Errorf("%s: exits with %d: %s", shell, got.code, got.err)
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

func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(90))
	got := runIn(t, dir, "data", "people.csv", "--categorical", "city")
	for _, want := range []string{"90 rows", "age", "city", "text", "labels: 2 classes: no ", "no mistakes found"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in:\n%s", want, got.out)
		}
	}
	write(t, dir, "broken.csv", "a,label\n1,0\nx,1\nNaN,1\n2\n")
	got = runIn(t, dir, "data", "broken.csv")
	if got.code != Misused || strings.Count(got.out, "mistake: ") != 3 || !strings.Contains(got.err, "3 mistakes") {
		t.Errorf("exits with %d:\n%s%s", got.code, got.out, got.err)
	}
}
