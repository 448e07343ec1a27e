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
