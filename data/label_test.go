package data

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

func TestWeights(t *testing.T) {
	lines := []string{"label,x,w", "0,1,2", "0,2,1", "0,3,1", "1,4,0.5", "1,5,1"}
	for _, c := range []struct {
		d    trivium.Data
		want string
	}{
		{trivium.Data{Drop: []string{"w"}}, "[]"},
		{trivium.Data{Weight: "w"}, "[2 1 1 0.5]"},
		{trivium.Data{Drop: []string{"w"}, ClassWeight: "1=3"}, "[1 1 1 3]"},
		{trivium.Data{Drop: []string{"w"}, ClassWeight: "balanced"}, "[0.6666667 0.6666667 0.6666667 2]"},
		{trivium.Data{Weight: "w", ClassWeight: "0=2,1=4"}, "[4 2 2 2]"},
	} {
		c.d.Train, c.d.Test = "0:4", "4:5"
		for _, budget := range []int64{0, 16} {
			s := table(t, c.d, Options{Budget: budget}, lines...)
			var got []float32
			for b, err := range Batches(context.Background(), s.Train, BatchOptions{Batch: 2}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b.Weights...)
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%+v, budget %d: weights %v, want %s", c.d, budget, got, c.want)
			}
			if test := read(t, s.Test); c.d.Weight == "" && test.Weights != nil {
				t.Errorf("class weights reach the test rows: %v", test.Weights)
			}
		}
	}
}

func TestLabels(t *testing.T) {
	for _, c := range []struct {
		labels string
		d      trivium.Data
		mode   LabelMode
		want   string
	}{
		{"-1 1 -1", trivium.Data{}, 0, "class [-1 1] [0 1 0]"},
		{"0 1 1", trivium.Data{}, 0, "class [0 1] [0 1 1]"},
		{"0.0 1.0 1", trivium.Data{}, 0, "class [0 1] [0 1 1]"},
		{"1 2 3", trivium.Data{}, 0, "class [1 2 3] [0 1 2]"},
		{"0 3 1", trivium.Data{}, 0, "class [0 1 2 3] [0 3 1]"},
		{"0 3 1", trivium.Data{Classes: 5}, 0, "class [0 1 2 3 4] [0 3 1]"},
		{"-1 1 1", trivium.Data{Classes: 2}, 0, "class [-1 1] [0 1 1]"},
		{"1 2 2", trivium.Data{Classes: 2}, 0, "class [1 2] [0 1 1]"},
		{"-0 1 1", trivium.Data{Classes: 2}, 0, "class [0 1] [0 1 1]"},
		{"-1 0 1 -0", trivium.Data{}, 0, "class [-1 0 1] [0 1 2 1]"},
		{"0.5 1 2", trivium.Data{}, 0, "real [] [0.5 1 2]"},
		{"0 1 1", trivium.Data{}, LabelsReal, "real [] [0 1 1]"},
		{"0.5 1 2", trivium.Data{}, LabelsClass, "class [0.5 1 2] [0 1 2]"},
		{"1234567 1000000 1234567", trivium.Data{}, 0, "class [1000000 1234567] [1 0 1]"},
		{"16777217 16777216 16777217", trivium.Data{Categorical: []string{"label"}}, 0, "class [16777216 16777217] [1 0 1]"},
		{"no yes no", trivium.Data{}, 0, "class [no yes] [0 1 0]"},
		{"1 2 2", trivium.Data{Categorical: []string{"label"}}, 0, "class [1 2] [0 1 1]"},
	} {
		lines := []string{"label,x"}
		for i, l := range strings.Fields(c.labels) {
			lines = append(lines, fmt.Sprintf("%s,%d", l, i))
		}
		c.d.Train = ":"
		s := table(t, c.d, Options{Labels: c.mode}, lines...)
		b := read(t, s.Train)
		got := fmt.Sprint(b.Labels.Kind, " ", s.Schema().Labels.Names, " ", b.Labels.Class)
		if b.Labels.Kind == trivium.Real {
			got = fmt.Sprint(b.Labels.Kind, " ", s.Schema().Labels.Names, " ", b.Labels.Real)
		}
		if got != c.want {
			t.Errorf("labels %s, %+v: %s, want %s", c.labels, c.d, got, c.want)
		}
	}
}

// TestNothingToMeasureOn: that rows to measure on have no labels is said before anything is trained. Who only predicts may have such.
func TestNothingToMeasureOn(t *testing.T) {
	for _, c := range []struct{ format, train, test, want string }{
		{"csv", "a,label\n1,0\n2,1\n3,0\n4,1\n", "a,b\n3,1\n4,2\n", `test: its rows have no column "label", which is the label`},
		{"libsvm", "0 1:1\n1 2:1\n0 1:2\n1 2:2\n", "1:3\n2:3\n", "test: its rows have no labels"},
	} {
		dir := t.TempDir()
		write(t, dir, "train."+c.format, []byte(c.train))
		write(t, dir, "test."+c.format, []byte(c.test))
		_, err := Open(t.Context(), trivium.Data{Source: dir}, Options{})
		if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.format, err, c.want)
		}
		s := open(t, trivium.Data{Source: dir, Test: "0.5"}, Options{})
		if s.Train.Rows() != 2 || s.Test.Rows() != 2 {
			t.Errorf("%s: half of the training file: %d and %d rows", c.format, s.Train.Rows(), s.Test.Rows())
		}
		if s = open(t, trivium.Data{Source: dir}, Options{Unlabelled: true}); s.Test.Rows() != 2 {
			t.Errorf("%s: to be predicted: %d rows", c.format, s.Test.Rows())
		}
	}
}

// TestWeightByNumber: a column of weights that the job names by its number has them in every later file, and in those of other splits.
func TestWeightByNumber(t *testing.T) {
	lines := []string{"label,a,w", "0,1,2", "1,2,3"}
	for _, weight := range []string{"2", "-1"} {
		test := write(t, t.TempDir(), "test.csv", []byte(strings.Join(lines, "\n")))
		s := table(t, trivium.Data{Weight: weight, Train: ":", Test: test}, Options{}, lines...)
		again := table(t, trivium.Data{Weight: weight, Train: ":"}, Options{Transform: s.Transform}, lines...)
		for name, ds := range map[string]Dataset{"the training rows": s.Train, "a file of test rows": s.Test, "the same rows again": again.Train} {
			if got := fmt.Sprint(read(t, ds).Weights); got != "[2 3]" {
				t.Errorf("weight %s: %s weigh %s, want [2 3]", weight, name, got)
			}
		}
	}
}

// TestClassWeightsWithoutNames: classes that a source does not name are named by their numbers, also where they are weighed.
func TestClassWeightsWithoutNames(t *testing.T) {
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 3},
	}
	own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) {
		return &Splits{Train: Memory(schema, trivium.Batch{
			Rows: 4, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: []float32{1, 2, 3, 4}}},
			Labels: trivium.Labels{Kind: trivium.Class, Width: 3, Class: []int32{0, 1, 2, 0}},
		})}, nil
	}}
	for text, want := range map[string]string{"2=5": "[1 1 5 1]", "balanced": "[0.6666667 1.3333334 1.3333334 0.6666667]"} {
		s := open(t, trivium.Data{Source: "mine", Train: ":", ClassWeight: text}, Options{Sources: own})
		if got := fmt.Sprint(read(t, s.Train).Weights); got != want {
			t.Errorf("%s: the rows weigh %s, want %s", text, got, want)
		}
	}
}

// TestChecksumOfManyLabels: which classes a row has is part of the data, not only how many.
func TestChecksumOfManyLabels(t *testing.T) {
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}},
		Labels: trivium.LabelSpec{Kind: trivium.MultiHot, Width: 4},
	}
	sum := func(classes ...int32) string {
		rows := Memory(schema, trivium.Batch{
			Rows: 3, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: []float32{1, 2, 3}}},
			Labels: trivium.Labels{Kind: trivium.MultiHot, Width: 4, Index: classes, Ptr: []int64{0, 1, 1, 3}},
		})
		text, err := checksum(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if a, b := sum(0, 1, 2), sum(3, 1, 2); a == b {
		t.Errorf("rows of other classes have the checksum %s too", a)
	}
	if a, b := sum(0, 1, 2), sum(0, 1, 2); a != b {
		t.Errorf("the same rows have the checksums %s and %s", a, b)
	}
}
