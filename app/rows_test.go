package app

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// npyRows is an NPY file of n rows of the columns' values.
func npyRows(n int, columns ...func(i int) float32) string {
	head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", n, len(columns))
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	p := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head)))
	p = append(p, head...)
	for i := range n {
		for _, column := range columns {
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(column(i)))
		}
	}
	return string(p)
}

// TestRowsToPredict: who names a file, or a folder that holds one, gets a prediction for each of its rows, whether labels are there, beside the
// rows or among them, or not.
func TestRowsToPredict(t *testing.T) {
	dir := t.TempDir()
	label, a, b := func(i int) float32 { return float32(i % 2) }, func(i int) float32 { return float32(i%2) - 0.5 }, func(i int) float32 { return float32(i) }
	for name, contents := range map[string]string{
		"inside/all.npy": npyRows(50, label, a, b), "beside/x.npy": npyRows(50, a, b), "beside/y.npy": npyRows(50, label), "bare/x.npy": npyRows(50, a, b),
		"csv/all.csv": "label,a,b\n" + strings.Repeat("0,-0.5,1\n1,0.5,2\n", 25), "csv/README.md": "what this is",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, contents)
	}
	for trained, sources := range map[string][]string{
		"inside": {"inside", "beside", "bare", "bare/x.npy", "inside/all.npy"},
		"beside": {"beside", "bare", "bare/x.npy", "beside/x.npy"},
		"csv":    {"csv", "csv/all.csv"},
	} {
		if got := runIn(t, dir, "train", "logistic", "--data", trained, "--epochs", "1", "--name", trained); got.code != Done {
			t.Fatalf("%s: exits with %d: %s", trained, got.code, got.err)
		}
		for _, source := range sources {
			got := runIn(t, dir, "apply", trained, "--data", source)
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			if got.code != Done || len(lines) != 51 || !strings.HasPrefix(lines[1], "0,") || !strings.HasPrefix(lines[50], "49,") {
				t.Errorf("a model of %s applied to %s: exits with %d, %d lines: %s", trained, source, got.code, len(lines), got.err)
			}
			got = runIn(t, dir, "eval", trained, "--data", source)
			switch bare := strings.HasPrefix(source, "bare"); {
			case bare && (got.code != Misused || !strings.Contains(got.err, "has no labels to measure against")):
				t.Errorf("a model of %s measured on %s: exits with %d: %s%s", trained, source, got.code, got.out, got.err)
			case !bare && (got.code != Done || !strings.HasPrefix(got.out, "data: 50 rows\n")):
				t.Errorf("a model of %s measured on %s: exits with %d: %s%s", trained, source, got.code, got.out, got.err)
			}
		}
	}
}

// TestNamedSplits: of what the job says of splits nothing else is measured or predicted where a flag names rows.
func TestNamedSplits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(200))
	train := "train mlp:4 --data people.csv --categorical city --drop id --epochs 1 --name x --train 0:100 --valid 100:150 --test 150:"
	if got := runIn(t, dir, strings.Fields(train)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for flags, want := range map[string]string{
		"":                               "valid: 50 rows\ntest: 50 rows\n",
		"--train 0:7":                    "train: 7 rows\n",
		"--valid 0:7":                    "valid: 7 rows\n",
		"--test 5:10":                    "test: 5 rows\n",
		"--test 0.1":                     "test: 20 rows\n",
		"--valid 0:7 --test 9:12":        "valid: 7 rows\ntest: 3 rows\n",
		"--data people.csv --valid 0:7":  "data: 7 rows\n",
		"--data people.csv --test :":     "data: 200 rows\n",
		"--train=":                       "valid: 50 rows\ntest: 50 rows\n",
		"--data people.csv --test= ":     "data: 200 rows\n",
		"--test people.csv --valid 0:10": "valid: 10 rows\ntest: 200 rows\n",
	} {
		got := runIn(t, dir, append([]string{"eval", "x"}, strings.Fields(flags)...)...)
		if sets := got.out[:strings.LastIndex(" rows\n"+got.out, " rows\n")]; got.code != Done || sets != want {
			t.Errorf("%s: exits with %d: %s%s\nwant %s", flags, got.code, got.out, got.err, want)
		}
	}
	for flags, want := range map[string]int{"": 50, "--train 0:7": 7, "--valid 0:7": 7, "--test :": 200} {
		got := runIn(t, dir, append([]string{"apply", "x"}, strings.Fields(flags)...)...)
		if rows := strings.Count(got.out, "\n") - 1; got.code != Done || rows != want {
			t.Errorf("apply %s: exits with %d, %d rows, want %d: %s", flags, got.code, rows, want, got.err)
		}
	}
	got := runIn(t, dir, strings.Fields("apply x --valid 0:7 --test 9:12")...)
	if got.code != Misused || !strings.Contains(got.err, "--valid and --test are both given") {
		t.Errorf("predictions of two splits: exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, dir, "more.csv", people(40))
	train = "train mlp:4 --train people.csv --test more.csv --categorical city --drop id --epochs 1 --name y"
	if got := runIn(t, dir, strings.Fields(train)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if got := runIn(t, dir, strings.Fields("eval y --test 5:10")...); got.code != Done || !strings.HasPrefix(got.out, "test: 5 rows\n") {
		t.Errorf("rows of the training file: exits with %d: %s%s", got.code, got.out, got.err)
	}
}
