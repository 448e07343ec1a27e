package nn

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
)

// TestColumnsCountFromTheBatch: where a batch lies in a data set, which may have more entries than an int32 counts, is in no entry.
func TestColumnsCountFromTheBatch(t *testing.T) {
	x := trivium.Input{Form: trivium.CSR, Shape: []int{4}, Index: []int32{0, 1, 2, 3, 0, 3}, Values: make([]float32, 6), Ptr: []int64{3, 4, 6}}
	ci := columnIndex{place: make([]int32, 4)}
	ci.build(&x, 2)
	if want := []columnEntry{{1, 1}, {0, 0}, {1, 2}}; !slices.Equal(ci.entries, want) || !slices.Equal(ci.ids, []int32{0, 3}) {
		t.Errorf("columns %v of entries %v, want %v", ci.ids, ci.entries, want)
	}
}

// TestFMRefusesTooManyEntries: of its own entries a batch may have as many as an int32 counts.
func TestFMRefusesTooManyEntries(t *testing.T) {
	cpu := tensor.NewCPU(1, true)
	defer cpu.Close()
	s := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{4}}}, Labels: trivium.LabelSpec{Kind: trivium.Real, Width: 1}}
	m, err := FM("2", s, cpu)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(m.Layout())
	b := trivium.Batch{
		Rows: 1, Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: []float32{1}},
		Inputs: []trivium.Input{{Name: "x", Form: trivium.CSR, Shape: []int{4}, Ptr: []int64{5, 5 + 1<<31}}},
	}
	if _, _, err := m.Grad(context.Background(), p, b, trivium.NewGradient(m.Layout()), nil); err == nil || !strings.Contains(err.Error(), "2147483648 entries in one batch") {
		t.Error(err)
	}
}
