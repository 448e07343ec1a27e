package nn

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor"
)

// TestColumnsCountFromTheBatch: where a batch lies in a data set, which may have more entries than an int32 counts, is in no entry.
func TestColumnsCountFromTheBatch(t *testing.T) {
	x := trivium.Input{Form: trivium.CSR, Shape: []int{4}, Index: []int32{0, 1, 2, 3, 0, 3}, Values: make([]float32, 6), Ptr: []int64{3, 4, 6}}
	ci := newColumnIndex(4)
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

// TestSameBitsFM: scores and gradients do not depend on whether the processor rounds a product before it is added (arm64 does not,
// unless told to). CI runs it on both.
func TestSameBitsFM(t *testing.T) {
	cpu := tensor.NewCPU(1, true)
	defer cpu.Close()
	const rows, entries, columns, factors = 40, 5, 12, 3
	s := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{columns}}}, Labels: trivium.LabelSpec{Kind: trivium.Real, Width: 1}}
	m, err := FM("3", s, cpu)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(m.Layout())
	m.Init(7, p)
	for i := range p.Flat {
		p.Flat[i] += draw.Unit(1, 2, uint64(i))
	}
	x := trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{columns}, Ptr: []int64{0}}
	y := trivium.Labels{Kind: trivium.Real, Width: 1}
	for r := range rows {
		for e := range entries {
			x.Index = append(x.Index, int32(2*e+r%2))
			x.Values = append(x.Values, draw.Unit(3, 4, uint64(r*entries+e)))
		}
		x.Ptr = append(x.Ptr, int64(len(x.Index)))
		y.Real = append(y.Real, draw.Unit(5, 6, uint64(r)))
	}
	b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{x}, Labels: y}
	scores := make([]float32, rows)
	if err := m.(trivium.Predictor).Predict(t.Context(), p, b, scores); err != nil {
		t.Fatal(err)
	}
	g := trivium.NewGradient(m.Layout())
	if _, _, err := m.Grad(t.Context(), p, b, g, nil); err != nil {
		t.Fatal(err)
	}
	sum := crc32.NewIEEE()
	for _, v := range [][]float32{scores, g.Flat} {
		if err := binary.Write(sum, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum.Sum32(); got != 0x7799507b {
		t.Errorf("the sum of scores and gradient is %#x, want 0x7799507b", got)
	}
}
