package app

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestConfusionMatrix: eval names a matrix as other figures, prints it in place of its number, and with --json has it cell by cell.
func TestConfusionMatrix(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.csv", people(200))
	train := "train mlp:4 --data people.csv --categorical city --drop id --epochs 2 --name x"
	if got := runIn(t, dir, strings.Fields(train)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	var measured struct {
		Accuracy float64     `json:"test.accuracy"`
		Value    float64     `json:"test.confusion"`
		Matrix   [][]float64 `json:"test.confusion.matrix"`
		Classes  []string    `json:"classes"`
	}
	got := runIn(t, dir, strings.Fields("eval x --metrics accuracy,confusion --json")...)
	if err := json.Unmarshal([]byte(got.out), &measured); err != nil || got.code != Done {
		t.Fatalf("exits with %d: %s%s (%v)", got.code, got.out, got.err, err)
	}
	m := measured.Matrix
	if len(m) != 2 || len(m[0]) != 2 || m[0][0]+m[0][1]+m[1][0]+m[1][1] != 40 || (m[0][0]+m[1][1])/40 != measured.Accuracy || measured.Value != measured.Accuracy {
		t.Errorf("the matrix of 40 rows is %v, accuracy and value are %v and %v", m, measured.Accuracy, measured.Value)
	}
	if !slices.Equal(measured.Classes, []string{"no", "yes"}) {
		t.Errorf("its classes are %q", measured.Classes)
	}
	for flags, split := range map[string]string{"": "test", " --data people.csv": "data"} {
		got := runIn(t, dir, strings.Fields("eval x --metrics confusion"+flags)...)
		if n := strings.Count(got.out, split+".confusion"); got.code != Done || n != 1 || !strings.Contains(got.out, ": a row a label, a column a prediction\nlabel \\ predicted") {
			t.Errorf("%s: exits with %d, and says %s.confusion %d times: %s%s", flags, got.code, split, n, got.out, got.err)
		}
	}
	got = runIn(t, dir, strings.Fields("eval x --metrics accuracy --json")...)
	if got.code != Done || strings.Contains(got.out, "matrix") || strings.Contains(got.out, "classes") {
		t.Errorf("without it: exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestSaidAlready: what the model says of its rows cannot be said otherwise of those that it is used on, and is not passed over; only a generator
// makes rows of as many columns as it is asked for.
func TestSaidAlready(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.libsvm", strings.Repeat("1 1:1 3:2\n0 2:1\n", 10))
	for _, train := range []string{"train logistic --data a.libsvm --epochs 1 --name sparse", "train logistic --data logistic --rows 20 --columns 30 --epochs 1 --name made"} {
		if got := runIn(t, dir, strings.Fields(train)...); got.code != Done {
			t.Fatalf("%s: exits with %d: %s", train, got.code, got.err)
		}
	}
	for _, verb := range []string{"eval", "apply"} {
		for _, flag := range []string{"--columns 3", "--columns 200", "--classes 2", "--scale none", "--class-weight 1=2"} {
			got := runIn(t, dir, strings.Fields(verb+" sparse --data a.libsvm "+flag)...)
			if name, _, _ := strings.Cut(flag, " "); got.code != Misused || !strings.Contains(got.err, name+": the transform that was fitted in training says that already") {
				t.Errorf("%s %s: exits with %d: %s%s", verb, flag, got.code, got.out, got.err)
			}
		}
		if got := runIn(t, dir, strings.Fields(verb+" made --data logistic --rows 10 --columns 30")...); got.code != Done {
			t.Errorf("%s: exits with %d: %s", verb, got.code, got.err)
		}
	}
}

// TestMargins: the scores of a support vector machine make no probabilities: apply writes them as they are, and log-loss is refused, before
// anything is trained and of what was.
func TestMargins(t *testing.T) {
	dir := t.TempDir()
	train := "train svm --data adult --rows 300 --epochs 1 --name margins"
	for _, flags := range []string{" --metrics logloss", " --stop-metric test.logloss --patience 2"} {
		if got := runIn(t, dir, strings.Fields(train+flags)...); got.code != Misused || !strings.Contains(got.err, "are margins, which make none; accuracy or auc would do") {
			t.Errorf("%s: exits with %d: %s", flags, got.code, got.err)
		}
	}
	if got := runIn(t, dir, strings.Fields(train)...); got.code != Done { // the name is free
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if got := runIn(t, dir, strings.Fields("eval margins --metrics logloss")...); got.code != Misused || !strings.Contains(got.err, "are margins") {
		t.Errorf("eval exits with %d: %s", got.code, got.err)
	}
	got := runIn(t, dir, strings.Fields("apply margins --data adult --rows 20")...)
	if got.code != Done || !strings.HasPrefix(got.out, "row,class,score\n") {
		t.Errorf("apply exits with %d: %s%s", got.code, got.out, got.err)
	}
}
