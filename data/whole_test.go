package data

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestWhole: where nothing is trained, all rows of a source are Test, unless it or the description says which are for what.
func TestWhole(t *testing.T) {
	const csv = "label,a\n0,1\n1,2\n0,3\n1,4\n0,5\n"
	pair := map[string][]byte{"x.npy": npyFile("<f4", "5, 2", float32s(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)), "y.npy": npyFile("|u1", "5,", []byte{0, 1, 0, 1, 0})}
	images := map[string][]byte{
		"t10k-images-idx3-ubyte": idxFile(2051, []uint32{5, 1, 1}, make([]byte, 5)),
		"t10k-labels-idx1-ubyte": idxFile(2049, []uint32{5}, []byte{0, 1, 0, 1, 0}),
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		d     trivium.Data
		want  string // rows of train, valid and test; -1: there are none
	}{
		{"arrays beside their labels", pair, trivium.Data{}, "-1 -1 5"},
		{"a file beside one of another kind", map[string][]byte{"a.csv": []byte(csv), "README.md": []byte("read me")}, trivium.Data{}, "-1 -1 5"},
		{"the same, by its format", map[string][]byte{"a.csv": []byte(csv), "README.md": []byte("read me")}, trivium.Data{Format: "csv"}, "-1 -1 5"},
		{"a pair that is called test", images, trivium.Data{}, "-1 -1 5"},
		{"splits of its own", map[string][]byte{"train.csv": []byte(csv), "test.csv": []byte(csv[:16])}, trivium.Data{}, "5 -1 2"},
		{"rows that are named", map[string][]byte{"a.csv": []byte(csv)}, trivium.Data{Valid: "0:2"}, "3 2 -1"},
		{"rows in the middle", map[string][]byte{"a.csv": []byte(csv)}, trivium.Data{Test: "1:2"}, "-1 -1 1"},
	} {
		dir := t.TempDir()
		for name, contents := range c.files {
			write(t, dir, name, contents)
		}
		c.d.Source = dir
		fitted := c.d
		fitted.Train, fitted.Valid, fitted.Test = ":", "", ""
		s := open(t, c.d, Options{Transform: open(t, fitted, Options{}).Transform, Whole: true})
		if got := splitRows(s); got != c.want {
			t.Errorf("%s: rows %s, want %s", c.name, got, c.want)
		}
		if len(s.Notes) > 0 {
			t.Errorf("%s: %q", c.name, s.Notes)
		}
	}
	own := Sources{"own": func(context.Context, trivium.Data) (*Splits, error) {
		schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}}}
		return &Splits{Train: Memory(schema, trivium.Batch{Rows: 5, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: make([]float32, 5)}}})}, nil
	}}
	if got := splitRows(open(t, trivium.Data{Source: "own"}, Options{Sources: own, Whole: true})); got != "-1 -1 5" {
		t.Errorf("a program's own rows: %s", got)
	}
	if got := splitRows(open(t, trivium.Data{Source: "digits", Rows: 5}, Options{Whole: true})); !strings.HasPrefix(got, "5 -1 ") || strings.HasSuffix(got, "-1") {
		t.Errorf("a generator: %s, want its own splits", got)
	}
}

// splitRows are how many rows the splits have; -1: there is no such split.
func splitRows(s *Splits) string {
	var n []int64
	for _, ds := range []Dataset{s.Train, s.Valid, s.Test} {
		if ds == nil {
			n = append(n, -1)
		} else {
			n = append(n, ds.Rows())
		}
	}
	return strings.Trim(fmt.Sprint(n), "[]")
}

// TestLabelNotThere: columns that have numbers for names are those of the training file, in a file without the label's as well, wherever that
// stood, and in one that has labels in a file beside it.
func TestLabelNotThere(t *testing.T) {
	matrix := map[string][]byte{"4": float32s(0, 5, 6, 9, 1, 7, 8, 9), "3": float32s(5, 6, 9, 7, 8, 9)}
	for label, text := range map[string][2]string{
		"0":  {"0,5,6,9\n1,7,8,9\n", "5,6,9\n7,8,9\n"},
		"1":  {"5,0,6,9\n7,1,8,9\n", "5,6,9\n7,8,9\n"},
		"-1": {"5,6,9,0\n7,8,9,1\n", "5,6,9\n7,8,9\n"},
	} {
		last := map[string]string{"0": "3", "1": "3", "-1": "2"}[label]
		d := trivium.Data{Label: label, Drop: []string{last}, Train: ":"} // without the last column, the others are there in either file
		d.Source = write(t, t.TempDir(), "a.csv", []byte(text[0]))
		tr := open(t, d, Options{}).Transform
		for _, budget := range []int64{0, 8} {
			bare := trivium.Data{Source: write(t, t.TempDir(), "b.csv", []byte(text[1])), Test: ":"}
			s := open(t, bare, Options{Transform: tr, Unlabelled: true, Budget: budget})
			if got := fmt.Sprint(read(t, s.Test).Inputs[0].Values); got != "[5 6 7 8]" {
				t.Errorf("label %s, budget %d: rows %s", label, budget, got)
			}
			if len(s.Cautions) != 1 || !strings.Contains(s.Cautions[0], "b.csv has 3 columns, one less than in training: column ") {
				t.Errorf("label %s: %q", label, s.Cautions)
			}
		}
		whole := open(t, trivium.Data{Source: d.Source, Test: ":"}, Options{Transform: tr, Unlabelled: true})
		if got := fmt.Sprint(read(t, whole.Test).Inputs[0].Values); got != "[5 6 7 8]" || len(whole.Cautions) > 0 {
			t.Errorf("label %s: with it, rows %s, %q", label, got, whole.Cautions)
		}
	}
	tr := open(t, trivium.Data{Source: write(t, t.TempDir(), "a.npy", npyFile("<f4", "2, 4", matrix["4"])), Label: "0", Train: ":"}, Options{}).Transform
	for name, c := range map[string]struct {
		files  map[string][]byte
		labels string
	}{
		"without labels":     {map[string][]byte{"x.npy": npyFile("<f4", "2, 3", matrix["3"])}, "none []"},
		"beside labels":      {map[string][]byte{"x.npy": npyFile("<f4", "2, 3", matrix["3"]), "y.npy": npyFile("|u1", "2,", []byte{1, 0})}, "class [1 0]"},
		"labels in the file": {map[string][]byte{"x.npy": npyFile("<f4", "2, 4", matrix["4"])}, "class [0 1]"},
	} {
		dir := t.TempDir()
		for file, contents := range c.files {
			write(t, dir, file, contents)
		}
		for _, budget := range []int64{0, 8} {
			for _, unlabelled := range []bool{true, false} {
				b := read(t, open(t, trivium.Data{Source: dir}, Options{Transform: tr, Unlabelled: unlabelled, Whole: true, Budget: budget}).Test)
				labels := c.labels
				if unlabelled {
					labels = "none []"
				}
				if got := fmt.Sprint(b.Labels.Kind, b.Labels.Class); got != labels || fmt.Sprint(b.Inputs[0].Values) != "[5 6 9 7 8 9]" {
					t.Errorf("%s, budget %d: labels %s, want %s; rows %v", name, budget, got, labels, b.Inputs[0].Values)
				}
			}
		}
	}
}

// TestDroppedRowsAreSaid: who gets fewer predictions than there are rows learns why.
func TestDroppedRowsAreSaid(t *testing.T) {
	path := write(t, t.TempDir(), "a.csv", []byte("label,a\n0,1\n1,\n0,3\n1,4\n"))
	d := trivium.Data{Source: path, Train: ":", Missing: "drop"}
	tr := open(t, d, Options{}).Transform
	s := open(t, trivium.Data{Source: path, Test: ":"}, Options{Transform: tr, Unlabelled: true})
	if want := path + ": 1 of 4 rows lack values and are left out (--missing drop)"; strings.Join(s.Cautions, "\n") != want || s.Test.Rows() != 3 {
		t.Errorf("%q, %d rows, want %q", s.Cautions, s.Test.Rows(), want)
	}
}

// TestWeightsNotThere: that rows weigh alike since their file has no column of weights is said, but to who applies a model.
func TestWeightsNotThere(t *testing.T) {
	dir := t.TempDir()
	d := trivium.Data{Source: write(t, dir, "a.csv", []byte("label,a,w\n0,1,2\n1,3,0.5\n0,3,1\n1,4,2\n")), Train: ":", Weight: "w"}
	tr := open(t, d, Options{}).Transform
	path := write(t, dir, "b.csv", []byte("label,a\n0,1\n1,3\n"))
	for unlabelled, want := range map[bool]string{true: "", false: path + ` has no column "w", the weights: all its rows weigh 1`} {
		s := open(t, trivium.Data{Source: path, Test: ":"}, Options{Transform: tr, Unlabelled: unlabelled})
		if got := strings.Join(s.Cautions, "\n"); got != want {
			t.Errorf("unlabelled %v: %q, want %q", unlabelled, got, want)
		}
	}
	d.Test = path
	if s := open(t, d, Options{}); !strings.Contains(strings.Join(s.Notes, "\n"), "b.csv has no column \"w\"") {
		t.Errorf("a file of test rows: %q", s.Notes)
	}
	if s := open(t, trivium.Data{Source: d.Source, Test: ":"}, Options{Transform: tr}); len(s.Cautions) > 0 {
		t.Errorf("with weights: %q", s.Cautions)
	}
}
