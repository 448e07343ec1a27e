package nn

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor"
)

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
