package data

import (
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestSumOfBatch: each part of a batch counts, and where in memory its rows lie does not.
func TestSumOfBatch(t *testing.T) {
	batch := func() *trivium.Batch {
		return &trivium.Batch{
			Rows:    2,
			Inputs:  []trivium.Input{{Name: "x", Form: trivium.CSR, Shape: []int{9}, Ptr: []int64{0, 1, 3}, Index: []int32{4, 0, 8}, Values: []float32{1, 2, 3}}},
			Labels:  trivium.Labels{Kind: trivium.MultiHot, Width: 5, Ptr: []int64{0, 2, 3}, Index: []int32{1, 4, 2}},
			Weights: []float32{1, 2},
		}
	}
	whole := sum(0).batch(batch())
	for name, change := range map[string]func(b *trivium.Batch){
		"rows":       func(b *trivium.Batch) { b.Inputs[0].Ptr[1]++ },
		"columns":    func(b *trivium.Batch) { b.Inputs[0].Index[2]-- },
		"values":     func(b *trivium.Batch) { b.Inputs[0].Values[2]++ },
		"label rows": func(b *trivium.Batch) { b.Labels.Ptr[1]-- },
		"labels":     func(b *trivium.Batch) { b.Labels.Index[2]++ },
		"weights":    func(b *trivium.Batch) { b.Weights[1]++ },
	} {
		b := batch()
		if change(b); sum(0).batch(b) == whole {
			t.Errorf("%s: other ones have the same sum", name)
		}
	}
	for name, of := range map[string]func(last int) trivium.Labels{
		"classes": func(last int) trivium.Labels {
			return trivium.Labels{Kind: trivium.Class, Width: 3, Class: []int32{0, int32(last)}}
		},
		"reals": func(last int) trivium.Labels {
			return trivium.Labels{Kind: trivium.Real, Real: []float32{0, float32(last)}}
		},
	} {
		if b, c := (trivium.Batch{Rows: 2, Labels: of(1)}), (trivium.Batch{Rows: 2, Labels: of(2)}); sum(0).batch(&b) == sum(0).batch(&c) {
			t.Errorf("%s: other ones have the same sum", name)
		}
	}
	later := batch()
	in, y := &later.Inputs[0], &later.Labels
	in.Ptr, in.Index, in.Values = []int64{2, 3, 5}, slices.Concat([]int32{7, 7}, in.Index), slices.Concat([]float32{5, 5}, in.Values)
	y.Ptr, y.Index = []int64{1, 3, 4}, slices.Concat([]int32{3}, y.Index)
	if got := sum(0).batch(later); got != whole {
		t.Errorf("rows that lie further back have the sum %08x, want %08x", uint32(got), uint32(whole))
	}
}
