package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// A command's outcome.
type outcome struct {
	code     int
	out, err string
}

// runIn runs a command of the standard program as if in folder dir.
func runIn(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	return runWith(t.Context(), t, dir, Options{}, args...)
}

func runWith(ctx context.Context, t *testing.T, dir string, o Options, args ...string) outcome {
	t.Helper()
	t.Chdir(dir)
	var out, problems bytes.Buffer
	code := Run(ctx, args, &out, &problems, o)
	return outcome{code, out.String(), problems.String()}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// idxImages is an IDX file of n images of 2 × 2 pixels, idxLabels one of their labels.
func idxImages(n int) string {
	head := binary.BigEndian.AppendUint32(nil, 2051)
	for _, d := range []int{n, 2, 2} {
		head = binary.BigEndian.AppendUint32(head, uint32(d))
	}
	return string(head) + strings.Repeat("\x00\x40\x80\xff", n)
}

func idxLabels(n int, label func(i int) byte) string {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 2049), uint32(n))
	for i := range n {
		head = append(head, label(i))
	}
	return string(head)
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// TestBadInput: each mistake in data, job or command is a sentence that names file, line or field, the exit code is 2, and nothing is
// left behind.
func TestBadInput(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: commands, one after the other, that read and refuse")
	}
	parity := func(i int) byte { return byte(i % 2) }
	mnist := func(images, labels string) map[string]string {
		return map[string]string{"train-images-idx3-ubyte": images, "train-labels-idx1-ubyte": labels}
	}
	good := idxImages(20)
	csv := "age,city,label\n30,Oslo,0\n40,Rome,1\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		args  string
		want  []string // each in the error
	}{
		{"truncated IDX", mnist(good[:50], idxLabels(20, parity)), "train softmax --data .", []string{"train-images-idx3-ubyte", "offset"}},
		{
			"truncated gzip",
			map[string]string{"train-images-idx3-ubyte.gz": gzipped(good)[:30], "train-labels-idx1-ubyte.gz": gzipped(idxLabels(20, parity))},
			"train softmax --data .",
			[]string{"train-images-idx3-ubyte.gz"},
		},
		{"mislabelled IDX", mnist(idxLabels(20, parity), good), "train softmax --data .", []string{"train-", "2051", "2049"}},
		{"IDX with too few labels", mnist(good, idxLabels(19, parity)), "train softmax --data .", []string{"20", "19"}},
		{"ragged CSV", map[string]string{"a.csv": csv + "50,Bonn\n"}, "train logistic --data a.csv --categorical city", []string{"a.csv", "line 4"}},
		{"text in a number column", map[string]string{"a.csv": csv}, "train logistic --data a.csv", []string{"a.csv", "line 2", "city", "Oslo", "categorical"}},
		{"libsvm index 0", map[string]string{"a.libsvm": "1 1:1\n0 0:1\n"}, "train logistic --data a.libsvm", []string{"a.libsvm", "line 2", "0"}},
		{"libsvm out of order", map[string]string{"a.libsvm": "1 1:1\n0 1:1\n1 3:1 2:1\n"}, "train logistic --data a.libsvm", []string{"a.libsvm", "line 3", "2"}},
		{"libsvm beyond the width", map[string]string{"a.libsvm": "1 1:1\n0 7:1\n"}, "train logistic --data a.libsvm --columns 5", []string{"a.libsvm", "line 2", "7", "5"}},
		{"NaN", map[string]string{"a.csv": "x,label\n1,0\nNaN,1\n"}, "train logistic --data a.csv", []string{"a.csv", "line 3"}},
		{"infinity", map[string]string{"a.libsvm": "1 1:1\n0 2:inf\n"}, "train logistic --data a.libsvm", []string{"a.libsvm", "line 2"}},
		{"label outside the classes", map[string]string{"a.libsvm": "0 1:1\n1 2:1\n5 2:1\n"}, "train softmax --data a.libsvm --classes 3", []string{"a.libsvm", "line 3", "5"}},
		{"empty file", map[string]string{"a.csv": ""}, "train logistic --data a.csv", []string{"a.csv", "empty"}},
		{"one class", map[string]string{"a.csv": "label,x\na,1\na,2\na,3\na,4\na,5\n"}, "train softmax --data a.csv", []string{"2 or more classes", "only 1 class"}},
		{
			"labels of the wrong column",
			map[string]string{"a.csv": "x,target\n1.5,0\n2.5,1\n3.5,0\n4.5,1\n5.5,0\n"},
			"train logistic --data a.csv",
			[]string{"takes labels of 2 classes, the data has real labels", `column "x" is the label; --label names another`},
		},
		{
			"labels of the wrong column, found by workers",
			map[string]string{"a.csv": "x,target\n1.5,0\n2.5,1\n3.5,0\n4.5,1\n5.5,0\n"},
			"train softmax --data a.csv --workers 2 --topology allreduce",
			[]string{"takes labels of classes, the data has real labels", `column "x" is the label; --label names another`},
		},
		{"no such file", nil, "train logistic --data nowhere.csv", []string{"nowhere.csv"}},
		{"no such column", map[string]string{"a.csv": csv}, "train logistic --data a.csv --label labl --categorical city", []string{"labl", "label"}},
		{"unknown model", nil, "train sofmax", []string{`"sofmax"`, `did you mean "softmax"?`}},
		{"model with bad arguments", nil, "train mlp:x --data digits --rows 300", []string{"mlp", "x"}},
		{"unknown flag", nil, "train softmax --epoch 3", []string{"--epoch", "--epochs"}},
		{"unknown verb", nil, "trian softmax", []string{"trian", "train"}},
		{"unknown verb below another", nil, "compare sho x", []string{`unexpected argument sho, did you mean "show"? (trivium compare`}},
		{"unknown verb two below another", nil, "compare peers instal pytorch", []string{`instal, did you mean "install"?`}},
		{"no verb below another", nil, "compare elsewhere", []string{"trivium: unexpected argument elsewhere (trivium compare"}},
		{"unknown optimizer", nil, "train softmax --optimizer adan --data digits --rows 300", []string{"adan", "adam"}},
		{"unknown schedule", nil, "train softmax --schedule cosin:10 --data digits --rows 300", []string{"cosin"}},
		{"unknown metric", nil, "train softmax --metrics acuracy --data digits --rows 300", []string{"acuracy", "accuracy"}},
		{"unknown topology", nil, "train softmax --topology ring", []string{"ring", "local"}},
		{"batch 0", nil, "train softmax --batch 0", []string{"--batch", "0"}},
		{"two mistakes", nil, "train softmax --epochs=-1 --scale big", []string{"epochs", "scale"}},
		{
			"unknown key",
			map[string]string{"job.yaml": "model: softmax\nepocs: 3\nbatch: 0\n"},
			"train -f job.yaml",
			[]string{"job.yaml: line 2", `did you mean "epochs"?`, "job.yaml: line 3: batch"},
		},
		{"batch that is no whole number", map[string]string{"job.yaml": "model: softmax\nbatch: 1.5\nseed: x\n"}, "train -f job.yaml", []string{
			"trivium: job.yaml: line 2: batch: want a whole number, found 1.5\ntrivium: job.yaml: line 3: seed: found the text `x`, want a whole number of 0 or more\n",
		}},
		{"early stop without a metric", nil, "train softmax --patience 3", []string{"stop.metric", "--stop-metric"}},
		{"token without a cluster", nil, "train softmax --token @t", []string{"--token", "--on"}},
		{"token of a bench without a cluster", nil, "bench net --token @t", []string{"--on"}},
		{"broken YAML", map[string]string{"job.yaml": "model: [softmax\n"}, "train -f job.yaml", []string{"job.yaml", "line"}},
		{"tabs", map[string]string{"job.yaml": "model: softmax\ndata:\n\trows: 9\n"}, "train -f job.yaml", []string{"job.yaml: line 3", "tab (indent with spaces)"}},
		{"two jobs", map[string]string{"job.yaml": "model: softmax\ndata: {rows: 90}\n---\nmodel: linear\n"}, "train -f job.yaml", []string{"job.yaml", "second document"}},
		{"JSON array", map[string]string{"a.json": `[{"label": 1, "a": 2}]`}, "train logistic --data a.json", []string{"a.json: line 1", "it is a JSON array; want an object a line, as jq -c '.[]' writes them"}},
		{"no job file", nil, "train -f nowhere.yaml", []string{"nowhere.yaml"}},
		{"mistyped model", map[string]string{"job.yaml": "modle: softmax\n"}, "train -f job.yaml", []string{"job.yaml: line 1", `did you mean "model"?`}},
		{"job file without a model", map[string]string{"job.yaml": "batch: 3\n"}, "train -f job.yaml", []string{"no model"}},
		{"no model", nil, "train", []string{"no model"}},
		{"no run", nil, "eval last", []string{"no run"}},
		{"no run to resume", nil, "train --resume last", []string{"no run"}},
		{"unknown topic", nil, "help modls", []string{"models"}},
		{"broken filter", nil, "runs model=", []string{"filter"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				write(t, dir, name, content)
			}
			got := runIn(t, dir, strings.Fields(c.args)...)
			if got.code != Misused {
				t.Errorf("exits with %d, want %d", got.code, Misused)
			}
			for _, w := range c.want {
				if !strings.Contains(got.err, w) {
					t.Errorf("the error has no %q:\n%s", w, got.err)
				}
			}
			if n := strings.Count(got.err, "\n"); n > 1 && strings.Contains(got.err, "no model is named") {
				t.Errorf("asks for a model where something else is wrong with the file:\n%s", got.err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if _, ours := c.files[e.Name()]; !ours {
					t.Errorf("left behind: %s", e.Name())
				}
			}
		})
	}
}

// people is a small table with a number, a category and a label that follows from them.
func people(rows int) string {
	var b strings.Builder
	b.WriteString("age,city,id,label\n")
	cities := []string{"Oslo", "Rome", "Lima"}
	for i := range rows {
		age, city := 20+i*7%50, cities[i*5%3]
		label := "no"
		if age > 45 != (city == "Rome") {
			label = "yes"
		}
		fmt.Fprintf(&b, "%d,%s,%d,%s\n", age, city, i, label)
	}
	return b.String()
}

// TestOddNames: what a file calls its columns and classes tears no line of output, however long it is.
func TestOddNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", "\"la\nbel\","+strings.Repeat("n", 500)+"\n"+strings.Repeat("\"a\tb\",1\nc,2\n", 3))
	got := runIn(t, dir, "data", "a.csv")
	for _, want := range []string{`"la\nbel"`, strings.Repeat("n", 60) + "… ", `"a\tb" 50.0 %`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the description has no %s:\n%s", want, got.out)
		}
	}
	if strings.Contains(got.out, strings.Repeat("n", 61)) {
		t.Errorf("a name fills lines:\n%s", got.out)
	}
	if got, want := legend(trivium.LabelSpec{Names: []string{"a\nb", "c"}}), "classes: 0 \"a\\nb\", 1 c\n"; got != want {
		t.Errorf("the legend of a confusion matrix is %q, want %q", got, want)
	}
}

// TestUnknownCategoriesAreSaid: eval and apply say that rows have categories which the model learnt nothing of.
func TestUnknownCategoriesAreSaid(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", people(100))
	write(t, dir, "b.csv", strings.ReplaceAll(people(100), "Oslo", "OSLO"))
	if got := runIn(t, dir, "train", "logistic", "--data", "a.csv", "--label", "label", "--categorical", "city", "--drop", "id", "--epochs", "1"); got.code != Done {
		t.Fatal(got.err)
	}
	for _, verb := range []string{"eval", "apply"} {
		if got := runIn(t, dir, verb, "last", "--data", "a.csv"); got.code != Done || got.err != "" {
			t.Errorf("%s exits with %d: %s", verb, got.code, got.err)
		}
		want := "trivium: note: b.csv: column \"city\" has categories that no training row had, in 34 of 100 rows, first in line 2: they count as none\n"
		if got := runIn(t, dir, verb, "last", "--data", "b.csv"); got.code != Done || got.err != want {
			t.Errorf("%s exits with %d and says %q, want %q", verb, got.code, got.err, want)
		}
	}
}

// TestNoRoomToUnpack: where a compressed file cannot be unpacked for want of room, it is not the file that is to be mended.
func TestNoRoomToUnpack(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing in it runs at once")
	}
	dir := t.TempDir()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 70 {
		if _, err := z.Write(bytes.Repeat([]byte("1,0\n"), 1<<18)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.csv.gz", b.String())
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	for _, verb := range []string{"train logistic --data a.csv.gz", "data a.csv.gz"} {
		if got := runIn(t, dir, strings.Fields(verb)...); got.code != Failed || !strings.Contains(got.err, "none") {
			t.Errorf("%s: exits with %d: %s", verb, got.code, got.err)
		}
	}
}

// TestDescribeFolder: a mistake in a folder's test file is one of the folder's, and counts for the exit code.
func TestDescribeFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "train.csv", "a,label\n1,0\n2,1\n")
	write(t, dir, "test.csv", "a,label\n1,0\nx,1\n")
	got := runIn(t, dir, "data", ".")
	if got.code != Misused || !strings.Contains(got.out, `mistake: data: test.csv: line 3, column "a": want a number, as in training, found "x"`) || strings.Contains(got.out, "no mistakes") {
		t.Errorf("exits with %d:\n%s%s", got.code, got.out, got.err)
	}
}
