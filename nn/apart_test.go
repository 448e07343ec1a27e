package nn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// TestRowsApart: a linear model has the same bits from rows that lie apart as from the same rows one after the other.
func TestRowsApart(t *testing.T) {
	for _, threads := range []int{1, 3} {
		cpu := tensor.NewCPU(threads, false)
		defer cpu.Close()
		splits, err := data.Open(t.Context(), trivium.Data{Source: "logistic", Rows: 300, Columns: 900}, data.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer splits.Close()
		m, err := nn.Logistic("", splits.Train.Schema(), cpu)
		if err != nil {
			t.Fatal(err)
		}
		if !m.(trivium.RowReader).ReadsRows() {
			t.Fatal("it reads no rows")
		}
		var outputs [2][]string // what both walks come to, batch by batch
		for k, apart := range []bool{false, true} {
			p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
			own := trivium.NewParams(m.Layout())
			for b, err := range data.Batches(t.Context(), splits.Train, data.BatchOptions{Batch: 37, Shuffle: true, Seed: 3, Apart: apart}) {
				if err != nil {
					t.Fatal(err)
				}
				if (b.Inputs[0].Rows != nil) != apart {
					t.Fatalf("of %d rows %d lie apart", b.Rows, len(b.Inputs[0].Rows))
				}
				loss, weight, err := m.Grad(t.Context(), p, *b, g, nil)
				if err != nil {
					t.Fatal(err)
				}
				scores := make([]float32, b.Rows)
				if err := m.(trivium.Predictor).Predict(t.Context(), p, *b, scores); err != nil {
					t.Fatal(err)
				}
				down, _, err := m.(descender).Descend(own, *b, 0.01)
				if err != nil {
					t.Fatal(err)
				}
				outputs[k] = append(outputs[k], fmt.Sprint(loss, weight, down, g.Flat, scores, own.Flat))
				for i, x := range g.Flat {
					p.Flat[i] -= 0.01 * x
				}
			}
		}
		if len(outputs[0]) != 9 || !slices.Equal(outputs[0], outputs[1]) {
			t.Errorf("%d threads: rows apart come to something else", threads)
		}
	}
}

// TestRowsApartRefused: who wants rows one after the other says so, and so does a linear model of rows that do not fit it.
func TestRowsApartRefused(t *testing.T) {
	cpu := tensor.NewCPU(1, false)
	defer cpu.Close()
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{2}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2}}
	rows := func(rows ...[]float32) trivium.Batch {
		return trivium.Batch{
			Rows: 2, Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{2}, Rows: rows}},
			Labels: trivium.Labels{Kind: trivium.Class, Width: 2, Class: []int32{0, 1}},
		}
	}
	for _, c := range []struct {
		model string
		b     trivium.Batch
		want  string
	}{
		{"softmax", rows([]float32{1, 2}, []float32{3, 4}), "want rows one after the other, found rows apart"},
		{"mlp:3", rows([]float32{1, 2}, []float32{3, 4}), "want rows one after the other, found rows apart"},
		{"logistic", rows([]float32{1, 2}), "want 2 rows, found 1"},
		{"logistic", rows([]float32{1, 2}, []float32{3}), "row 1: want 2 values of [2], found 1"},
	} {
		m, err := nn.Standard().Build(c.model, schema, cpu)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = m.Grad(t.Context(), trivium.NewParams(m.Layout()), c.b, trivium.NewGradient(m.Layout()), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.model, err, c.want)
		}
	}
}
