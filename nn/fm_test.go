package nn

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor"
)

// TestFMCuts: the parts of the columns are all of them, and have about as many entries, also where half of the entries are of one column.
func TestFMCuts(t *testing.T) {
	const columns, entries, parts = 1 << 20, 10_000, 4
	for name, column := range map[string]func(u float64) int32{
		"even":    func(u float64) int32 { return int32(u * columns) },
		"crowded": func(u float64) int32 { return int32(u * u * u * u * columns) },
		"heavy":   func(u float64) int32 { return int32(max(0, u-0.5) * columns) },
		"one":     func(float64) int32 { return columns - 1 },
	} {
		cpu := tensor.NewCPU(parts, false)
		m := fm{cpu: cpu}
		m.call.w = make([]float32, columns)
		all := make([]int32, entries)
		for e := range all {
			all[e] = column(float64(draw.Unit(1, 2, uint64(e)))/2 + 0.5)
		}
		m.cut(all)
		cpu.Close()
		cuts := m.call.cuts
		if len(cuts) != parts+1 || cuts[0] != 0 || cuts[parts] != columns || !slices.IsSorted(cuts) {
			t.Errorf("%s: cut at %v of %d columns", name, cuts, columns)
			continue
		}
		if name == "heavy" || name == "one" {
			continue
		}
		for i := range parts {
			n := 0
			for _, c := range all {
				if cuts[i] <= int(c) && int(c) < cuts[i+1] {
					n++
				}
			}
			if n < entries/parts*8/10 || n > entries/parts*12/10 {
				t.Errorf("%s: part %d has %d of %d entries", name, i, n, entries)
			}
		}
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
	if got := sum.Sum32(); got != 0x68b4aead {
		t.Errorf("the sum of scores and gradient is %#x, want 0x68b4aead", got)
	}
}
