package data

import (
	"context"
	"slices"
	"testing"
	"unsafe"

	"github.com/trivium-ml/trivium"
)

// TestApart: with Apart the rows are the same, in the same order, and long ones that are resident stay where they are.
func TestApart(t *testing.T) {
	const rows = 1000
	wide := func(n int) *memory {
		b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{n}}}, Labels: trivium.Labels{Kind: trivium.NoLabel}}
		for i := range rows * n {
			b.Inputs[0].Values = append(b.Inputs[0].Values, float32(i))
		}
		return newMemory(trivium.Schema{}, b)
	}
	long := wide(apartFrom)
	for name, c := range map[string]struct {
		ds    Dataset
		o     BatchOptions
		stays bool
	}{
		"long":     {long, BatchOptions{Batch: 30, Shuffle: true, Seed: 5}, true},
		"of parts": {long, BatchOptions{Batch: 30, Shuffle: true, Seed: 5, Part: 1, Parts: 3}, true},
		"ahead":    {long, BatchOptions{Batch: 30, Shuffle: true, Seed: 5, Prefetch: 2}, true},
		"in order": {long, BatchOptions{Batch: 30}, false}, // they are one after the other
		"streamed": {streamed{long}, BatchOptions{Batch: 30, Shuffle: true, Seed: 5}, false},
		"short":    {wide(apartFrom - 1), BatchOptions{Batch: 30, Shuffle: true, Seed: 5}, false},
	} {
		var want [][]float32
		for b, err := range Batches(context.Background(), c.ds, c.o) {
			if err != nil {
				t.Fatal(err)
			}
			n := b.Inputs[0].RowLen()
			for r := range b.Rows {
				want = append(want, slices.Clone(b.Inputs[0].Values[r*n:(r+1)*n]))
			}
		}
		c.o.Apart = true
		at := 0
		for b, err := range Batches(context.Background(), c.ds, c.o) {
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
			in := &b.Inputs[0]
			if (in.Rows != nil) != c.stays {
				t.Fatalf("%s: %d of %d rows lie apart", name, len(in.Rows), b.Rows)
			}
			n := in.RowLen()
			for r := range b.Rows {
				row := in.Rows
				if !c.stays {
					row = [][]float32{in.Values[r*n : (r+1)*n]}
				} else {
					row = row[r:]
				}
				if !slices.Equal(row[0], want[at]) {
					t.Fatalf("%s: row %d of the epoch is another", name, at)
				}
				if place := int(want[at][0]); c.stays && unsafe.SliceData(row[0]) != &long.all.Inputs[0].Values[place] {
					t.Fatalf("%s: row %d of the epoch was copied", name, at)
				}
				at++
			}
		}
		if at != len(want) || at == 0 {
			t.Errorf("%s: %d rows, want %d", name, at, len(want))
		}
	}
	var w Walk // whose memory serves both
	for _, apart := range []bool{true, false, true} {
		if err := w.Begin(t.Context(), long, BatchOptions{Batch: 30, Shuffle: true, Seed: 5, Apart: apart}); err != nil {
			t.Fatal(err)
		}
		b, err := w.Next(t.Context())
		if err == nil {
			err = b.Validate()
		}
		half := b.Slice(15, 30)
		if err != nil || half.Validate() != nil || (half.Inputs[0].Rows != nil) != apart {
			t.Errorf("apart %v, after another walk: %v, %v", apart, err, half.Validate())
		}
		w.End()
	}
}
