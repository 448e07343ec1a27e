package data

import (
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestBatchesSpan: a reader that is several parts gets the rows of these parts, one after the other, and one that is none gets empty
// batches, as many as the others.
func TestBatchesSpan(t *testing.T) {
	splits, err := Open(t.Context(), trivium.Data{Source: "digits", Rows: 90, Train: "0:90"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer splits.Close()
	rows := func(o BatchOptions) (ids [][]int64) {
		t.Helper()
		o.Batch, o.Shuffle, o.Seed, o.IDs = 40, true, 7, true
		for b, err := range Batches(t.Context(), splits.Train, o) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, slices.Clone(b.IDs))
		}
		return ids
	}
	var parts [][][]int64
	for k := range 16 {
		parts = append(parts, rows(BatchOptions{Part: k, Parts: 16}))
	}
	for from := range 16 {
		for span := 1; from+span <= 16; span++ {
			for update, got := range rows(BatchOptions{Part: from, Parts: 16, Span: span}) {
				var want []int64
				for k := from; k < from+span; k++ {
					want = append(want, parts[k][update]...)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("parts %d to %d, update %d: rows %v, want %v", from, from+span, update, got, want)
				}
			}
		}
	}
	if none := rows(BatchOptions{Parts: 16, Span: -1}); len(none) != 3 || len(none[0])+len(none[1])+len(none[2]) != 0 {
		t.Errorf("no part: %v", none)
	}
	for _, err := range Batches(t.Context(), splits.Train, BatchOptions{Part: 3, Parts: 4, Span: 2}) {
		if err == nil {
			t.Error("five parts of four")
		}
	}
}
