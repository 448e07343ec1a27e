package data

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// foreign is a data set of a program's own, whose rows nobody looks at before they are read.
type foreign struct{ Dataset }

// TestClassWeightsOfOwnRows: a program's own source may name some classes and not others, and what it reads may contradict its schema: class
// weights of the one are those of a file, and of the other an error with the row.
func TestClassWeightsOfOwnRows(t *testing.T) {
	open := func(rows func(Dataset) Dataset, weights string, classes ...int32) (*Splits, error) {
		schema := trivium.Schema{
			Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}},
			Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 3, Names: []string{"low"}},
		}
		b := trivium.Batch{
			Rows: len(classes), Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: make([]float32, len(classes))}},
			Labels: trivium.Labels{Kind: trivium.Class, Width: 3, Class: classes},
		}
		own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) {
			return &Splits{Train: rows(Memory(schema, b)), Checksum: "mine"}, nil
		}}
		return Open(t.Context(), trivium.Data{Source: "mine", Train: ":", ClassWeight: weights}, Options{Sources: own})
	}
	resident := func(ds Dataset) Dataset { return ds }
	unseen := func(ds Dataset) Dataset { return foreign{ds} }
	for weights, want := range map[string]string{"balanced": "[0.6666667 0.6666667 1.3333334 1.3333334]", "low=2,2=3": "[2 2 1 3]"} {
		for _, rows := range []func(Dataset) Dataset{resident, unseen} {
			s, err := open(rows, weights, 0, 0, 1, 2)
			if err != nil {
				t.Fatalf("%s: %v", weights, err)
			}
			var b trivium.Batch
			if err := s.Train.Read(t.Context(), &b, 0, 4); err != nil || fmt.Sprint(b.Weights) != want {
				t.Errorf("%s: weights %v (%v), want %s", weights, b.Weights, err, want)
			}
		}
	}
	const want = "row 3: class 3 is outside 0 to 2"
	if _, err := open(unseen, "balanced", 0, 1, 2, 3); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("balanced: %v, want %s", err, want)
	}
	s, err := open(unseen, "low=2", 0, 1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	var b trivium.Batch
	if err := s.Train.Read(t.Context(), &b, 1, 4); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("as read: %v, want %s", err, want)
	}
}

// TestSourceWithoutAFunction: it is an error of the job's source.
func TestSourceWithoutAFunction(t *testing.T) {
	_, err := Open(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: Sources{"mine": nil}})
	if e, ok := errors.AsType[*Error](err); !ok || e.Field != "source" || !strings.Contains(err.Error(), "has no function that reads it") {
		t.Error(err)
	}
}
