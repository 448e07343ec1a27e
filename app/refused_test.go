package app

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestNumbersTooLargeToSearch: columns that L-BFGS cannot search with are a mistake in the data, for one process and for more, and no internal error.
func TestNumbersTooLargeToSearch(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", "label,x\n"+strings.Repeat("no,1e22\nyes,-3e22\nno,2e22\n", 20))
	for _, flags := range []string{"", " --workers 2", " --workers 2 --processes"} {
		got := runIn(t, dir, strings.Fields("train logistic --data a.csv --optimizer lbfgs --batch full"+flags)...)
		if got.code != Misused || !strings.Contains(got.err, "columns of numbers that large") {
			t.Errorf("%s: exits with %d: %s%s", flags, got.code, got.out, got.err)
		}
	}
}

// TestParameters: --set gives several numbers, at once or one by one; what it does not read is answered by how it is written.
func TestParameters(t *testing.T) {
	dir := t.TempDir()
	small := "train softmax --rows 100 --epochs 1 --optimizer adam "
	if got := runIn(t, dir, strings.Fields(small+"--set beta1=0.8;beta2=0.9 --set epsilon=1e-3 --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	r, err := findRun(dir+"/runs", "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"beta1": "0.8", "beta2": "0.9", "epsilon": "0.001"} {
		if got := texts(r.fields())["optimizer.params."+name]; got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	for _, wrong := range []string{"beta1", "beta1=x", "beta1=0.9,beta2=0.99", "", ";"} {
		got := runIn(t, dir, append(strings.Fields(small), "--set", wrong)...)
		if got.code != Misused || !strings.Contains(got.err, "--set: want names with numbers, such as beta1=0.9;beta2=0.99; found ") {
			t.Errorf("%q: exits with %d: %s", wrong, got.code, got.err)
		}
	}
}

// TestNoNameToWriteTo: a file without a name, as a script's variable that is not set makes it, is refused, and nothing is printed in its place.
func TestNoNameToWriteTo(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train softmax --rows 100 --epochs 1 --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for _, command := range []string{"apply a", "export a --format onnx", "init softmax", "runs report a"} {
		got := runIn(t, dir, append(strings.Fields(command), "--to", "")...)
		if got.code != Misused || got.out != "" || !strings.Contains(got.err, "--to: want the name of a file, or - for standard output; found none") {
			t.Errorf("%s: exits with %d: %s%s", command, got.code, got.out, got.err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("something stays behind: %v, %v", left, err)
	}
}

// TestNoFolder: a folder of runs without a name is refused by each verb that reads from it or writes to it, and nothing is written.
func TestNoFolder(t *testing.T) {
	dir := t.TempDir()
	for _, command := range []string{
		"train softmax --rows 100 --epochs 1", "eval last", "apply last", "export last --to x.onnx", "rerun last", "runs list", "runs", "runs show last",
		"runs delete last", "fetch 1 --on 127.0.0.1:1", "compare --estimate",
	} {
		for _, flag := range [][]string{{"--out", ""}, {"--out="}} {
			got := runIn(t, dir, append(strings.Fields(command), flag...)...)
			if got.code != Misused || got.out != "" || !strings.HasSuffix(got.err, ": --out: want the name of a folder, or . for the one at hand; found none\n") {
				t.Errorf("%s %q: exits with %d: %s%s", command, flag, got.code, got.out, got.err)
			}
		}
	}
	for _, command := range []string{"up --listen 127.0.0.1:0", "compare --estimate"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // if it begins after all
		got := runWith(ctx, t, dir, Options{}, append(strings.Fields(command), "--dir", "")...)
		cancel()
		if got.code != Misused || got.out != "" || !strings.HasSuffix(got.err, ": --dir: want the name of a folder, or . for the one at hand; found none\n") {
			t.Errorf("%s: exits with %d: %s%s", command, got.code, got.out, got.err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("something stays behind: %v, %v", left, err)
	}
	if got := runIn(t, dir, strings.Fields("train softmax --rows 100 --epochs 1 --name a --out .")...); got.code != Done {
		t.Errorf("the folder at hand: exits with %d: %s", got.code, got.err)
	}
	if got := runIn(t, dir, "runs", "--out", "."); got.code != Done || !strings.Contains(got.out, "\na ") {
		t.Errorf("the folder at hand: exits with %d: %s%s", got.code, got.out, got.err)
	}
}
