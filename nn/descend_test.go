package nn_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

type descender interface {
	Descend(p trivium.Params, b trivium.Batch, rate float32) (lossSum, weightSum float64, err error)
}

// TestDescend: a step a row is what the gradient of that row says, dense and sparse, with weights.
func TestDescend(t *testing.T) {
	for _, source := range []trivium.Data{{Source: "logistic", Rows: 60, Columns: 700}, {Source: "adult", Rows: 60}} {
		splits, err := data.Open(t.Context(), source, data.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer splits.Close()
		cpu := tensor.NewCPU(1, false)
		defer cpu.Close()
		m, err := nn.Logistic("", splits.Train.Schema(), cpu)
		if err != nil {
			t.Fatal(err)
		}
		l := m.Layout()
		flat := func() trivium.Params { return trivium.Params{Layout: l, Flat: make([]float32, l.Len())} }
		p, q, g := flat(), flat(), trivium.Gradient{Layout: l, Flat: make([]float32, l.Len()), Rows: make([][]int32, l.Tensors())}
		const rate = 0.03
		for b, err := range data.Batches(t.Context(), splits.Train, data.BatchOptions{Batch: 20}) {
			if err != nil {
				t.Fatal(err)
			}
			b.Weights = make([]float32, b.Rows)
			for i := range b.Weights {
				b.Weights[i] = float32(i % 3)
			}
			var want, weights float64
			for r := range b.Rows {
				one := b.Slice(r, r+1)
				loss, weight, err := m.Grad(t.Context(), q, one, g, nil)
				if err != nil {
					t.Fatal(err)
				}
				want, weights = want+loss, weights+weight
				if weight == 0 {
					continue
				}
				for i, x := range g.Flat {
					q.Flat[i] -= rate * x / float32(weight)
				}
			}
			got, weight, err := m.(descender).Descend(p, *b, rate)
			if err != nil || weight != weights || !(math.Abs(got-want) <= 1e-4*want) {
				t.Fatalf("%s: loss %v of weight %v, want %v of %v (%v)", source.Source, got, weight, want, weights, err)
			}
		}
		for i := range p.Flat {
			if d := math.Abs(float64(p.Flat[i] - q.Flat[i])); d > 1e-5 {
				t.Fatalf("%s: cell %d is %v, want %v", source.Source, i, p.Flat[i], q.Flat[i])
			}
		}
	}
}

// BenchmarkDescend is rows a second of one thread, beside a pass over the same rows by one kernel.
func BenchmarkDescend(b *testing.B) {
	splits, err := data.Open(b.Context(), trivium.Data{Source: "logistic", Rows: 5000}, data.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer splits.Close()
	cpu := tensor.NewCPU(1, false)
	defer cpu.Close()
	m, err := nn.Logistic("", splits.Train.Schema(), cpu)
	if err != nil {
		b.Fatal(err)
	}
	p := trivium.Params{Layout: m.Layout(), Flat: make([]float32, m.Layout().Len())}
	for rows, err := range data.Batches(b.Context(), splits.Train, data.BatchOptions{}) {
		if err != nil {
			b.Fatal(err)
		}
		b.Run("steps", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := m.(descender).Descend(p, *rows, 0.001); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows.Rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
		b.Run("read", func(b *testing.B) {
			for b.Loop() {
				kernel.Sum(cpu.ISA, rows.Inputs[0].Values)
			}
			b.ReportMetric(float64(rows.Rows*b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(4*float64(len(rows.Inputs[0].Values)*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}
