package trivium_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

func exampleBatch() trivium.Batch {
	return trivium.Batch{
		Rows: 3,
		Inputs: []trivium.Input{
			{Name: "x", Shape: []int{2}, Values: []float32{1, 2, 3, 4, 5, 6}},
			{Name: "s", Form: trivium.CSR, Shape: []int{9}, Index: []int32{0, 8, 4, 5}, Values: []float32{1, 2, 3, 4}, Ptr: []int64{0, 2, 2, 4}},
			{Name: "r", Form: trivium.Ragged, Index: []int32{7, 7, 1}, Ptr: []int64{0, 1, 3, 3}},
		},
		Labels:  trivium.Labels{Kind: trivium.Class, Width: 2, Class: []int32{0, 1, 1}},
		Weights: []float32{1, 0.5, 2},
		IDs:     []int64{10, 11, 12},
	}
}

func TestSliceIsAView(t *testing.T) {
	b := exampleBatch()
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	s := b.Slice(1, 3)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if &s.Inputs[0].Values[0] != &b.Inputs[0].Values[2] {
		t.Error("the dense input was copied")
	}
	if got := s.Inputs[1].Ptr; !slices.Equal(got, []int64{2, 2, 4}) {
		t.Errorf("offsets of the sparse input are %v, want 2 2 4: a view of the same values", got)
	}
	if s.WeightSum() != 2.5 || s.IDs[0] != 11 || s.Labels.Class[1] != 1 || s.Input("r").Ptr[0] != 1 || s.Input("q") != nil {
		t.Errorf("the slice is %+v", s)
	}
	apart := exampleBatch()
	apart.Inputs[0].Values, apart.Inputs[0].Rows = nil, [][]float32{{1, 2}, {3, 4}, {5, 6}}
	if err := apart.Validate(); err != nil {
		t.Error(err)
	}
	if s := apart.Slice(1, 2); s.Validate() != nil || &s.Inputs[0].Rows[0][0] != &apart.Inputs[0].Rows[1][0] {
		t.Errorf("of rows that lie apart the slice is %+v", s.Inputs[0])
	}
	var dst trivium.Batch
	b.SliceInto(&dst, 0, 1)
	if n := testing.AllocsPerRun(10, func() { b.SliceInto(&dst, 1, 2) }); n != 0 {
		t.Errorf("SliceInto allocates %v times", n)
	}
}

func TestLabelsSlice(t *testing.T) {
	b := trivium.Batch{Rows: 2, Labels: trivium.Labels{Kind: trivium.Real, Width: 2, Real: []float32{1, 2, 3, 4}}}
	if got := b.Slice(1, 2); !slices.Equal(got.Labels.Real, []float32{3, 4}) {
		t.Errorf("real labels %v, want 3 4", got.Labels.Real)
	}
	b.Labels = trivium.Labels{Kind: trivium.MultiHot, Width: 5, Index: []int32{0, 3, 4}, Ptr: []int64{0, 2, 3}}
	if got := b.Slice(1, 2); !slices.Equal(got.Labels.Ptr, []int64{2, 3}) || got.Validate() != nil {
		t.Errorf("multi-hot offsets %v, want 2 3; %v", got.Labels.Ptr, got.Validate())
	}
	if got := b.WeightSum(); got != 2 {
		t.Errorf("weight sum of 2 rows without weights is %v", got)
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		change func(b *trivium.Batch)
		want   string
	}{
		{func(b *trivium.Batch) { b.Rows = -1 }, "-1 rows"},
		{func(b *trivium.Batch) { b.Inputs[0].Values = b.Inputs[0].Values[:5] }, `input "x": 3 rows of shape [2] want 6 values, found 5`},
		{func(b *trivium.Batch) { b.Inputs[0].Rows = [][]float32{{1, 2}, {3, 4}, {5, 6}} }, `input "x": it has rows, and values too`},
		{func(b *trivium.Batch) { b.Inputs[0].Values, b.Inputs[0].Rows = nil, [][]float32{{1, 2}, {3, 4}} }, `input "x": 2 rows, want 3`},
		{func(b *trivium.Batch) { b.Inputs[0].Values, b.Inputs[0].Rows = nil, [][]float32{{1, 2}, {3}, {5, 6}} }, `input "x": row 1 of shape [2] wants 2 values, found 1`},
		{func(b *trivium.Batch) { b.Inputs[1].Index = []int32{8, 0, 4, 5} }, `input "s": row 0: index 0 follows 8`},
		{func(b *trivium.Batch) { b.Inputs[1].Index = []int32{0, 9, 4, 5} }, "row 0: index 9 is outside 0 to 8"},
		{func(b *trivium.Batch) { b.Inputs[1].Index = b.Inputs[1].Index[:3] }, "3 columns for 4 values"},
		{func(b *trivium.Batch) { b.Inputs[1].Ptr = []int64{0, 2, 1, 4} }, "row 1 ends at 1, before its start at 2"},
		{func(b *trivium.Batch) { b.Inputs[2].Ptr = []int64{0, 1, 3, 9} }, "are outside the 3 entries"},
		{func(b *trivium.Batch) { b.Inputs[2].Ptr = nil }, "0 offsets for 3 rows, want 4"},
		{func(b *trivium.Batch) { b.Inputs[2].Values = []float32{1, 2} }, `input "r": 3 elements of shape [] want 3 values, found 2`},
		{func(b *trivium.Batch) { b.Inputs[0].Form = 9 }, "unknown form(9)"},
		{func(b *trivium.Batch) { b.Labels.Class = []int32{0, 2, 1} }, "labels: row 1: class 2 is outside 0 to 1"},
		{func(b *trivium.Batch) { b.Labels.Kind = trivium.Real }, "0 real labels for 3 rows"},
		{func(b *trivium.Batch) { b.Weights = b.Weights[:1] }, "1 weights for 3 rows"},
		{func(b *trivium.Batch) { b.IDs = b.IDs[:2] }, "2 ids for 3 rows"},
	} {
		b := exampleBatch()
		c.change(&b)
		if err := b.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func ExampleBatch_Slice() {
	b := exampleBatch()
	second := b.Slice(1, 2)
	fmt.Println(second.Rows, second.Input("x").Values, second.Labels.Class, second.WeightSum())
	// Output: 1 [3 4] [1] 0.5
}
