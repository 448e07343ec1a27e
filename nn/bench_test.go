package nn_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

func benchBatch(rows, cols, classes int) (trivium.Schema, trivium.Batch) {
	s := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{cols}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: classes},
	}
	x := tensor.Aligned[float32](rows * cols)
	for i := range x {
		x[i] = draw.Unit(42, 0, uint64(i))
	}
	class := make([]int32, rows)
	for i := range class {
		class[i] = int32(draw.Below(42, 1, uint64(i), uint64(classes)))
	}
	return s, trivium.Batch{
		Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{cols}, Values: x}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: classes, Class: class},
	}
}

// BenchmarkGrad is one gradient of the evaluation's digit tasks, on all cores, over batches that follow one another in memory.
func BenchmarkGrad(b *testing.B) {
	cpu := tensor.NewCPU(0, false)
	defer cpu.Close()
	schema, all := benchBatch(10_000, 784, 10)
	for _, model := range []string{"softmax", "mlp:100", "mlp:128,32"} {
		for _, rows := range []int{100, 500} {
			b.Run(fmt.Sprintf("%s/%d", model, rows), func(b *testing.B) {
				m, err := nn.Standard().Build(model, schema, cpu)
				if err != nil {
					b.Fatal(err)
				}
				p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
				m.Init(42, p)
				var batch trivium.Batch
				b.ReportAllocs()
				at := 0
				for b.Loop() {
					all.SliceInto(&batch, at, at+rows)
					if at += rows; at+rows > all.Rows {
						at = 0
					}
					if _, _, err := m.Grad(context.Background(), p, batch, g, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
			})
		}
	}
}

// sparseBatch is rows of 39 entries of a million columns, as many as a well-known table of advertisements has, popular by a power law: the n-th
// most popular column is a prime multiple of n away from the first.
func sparseBatch(rows int) (trivium.Schema, trivium.Batch) {
	const columns, entries = 1_000_003, 39
	s := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{columns}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2},
	}
	x := trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{columns}, Ptr: make([]int64, 1, rows+1)}
	y := trivium.Labels{Kind: trivium.Class, Width: 2}
	for r := range rows {
		for e := range entries {
			u := (float64(draw.Unit(42, 2, uint64(r*entries+e))) + 1) / 2
			x.Index = append(x.Index, int32(uint64(math.Pow(columns, u))*2_654_435_761%columns))
			x.Values = append(x.Values, draw.Unit(42, 3, uint64(r*entries+e)))
		}
		x.Ptr = append(x.Ptr, int64(len(x.Index)))
		y.Class = append(y.Class, int32(draw.Below(42, 4, uint64(r), 2)))
	}
	return s, trivium.Batch{Rows: rows, Inputs: []trivium.Input{x}, Labels: y}
}

// BenchmarkSparseGrad is one gradient of a million columns of which each batch has a few thousand, on one core and on all.
func BenchmarkSparseGrad(b *testing.B) {
	schema, all := sparseBatch(10_000)
	for _, model := range []string{"logistic", "fm:8", "fm:16", "mlp:16"} {
		for _, threads := range []int{1, 0} {
			for _, rows := range []int{100, 1000} {
				b.Run(fmt.Sprintf("%s/threads=%d/rows=%d", model, threads, rows), func(b *testing.B) {
					cpu := tensor.NewCPU(threads, false)
					defer cpu.Close()
					m, err := nn.Standard().Build(model, schema, cpu)
					if err != nil {
						b.Fatal(err)
					}
					p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
					m.Init(42, p)
					var batch trivium.Batch
					at := 0
					for b.Loop() {
						all.SliceInto(&batch, at, at+rows)
						if at += rows; at+rows > all.Rows {
							at = 0
						}
						if _, _, err := m.Grad(context.Background(), p, batch, g, nil); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
				})
			}
		}
	}
}

// BenchmarkLogisticReadBound is logistic regression on 10,000 × 10,000 against the fastest loop that only reads the same array with
// the same threads, in turn in one run: the ratio is the share of the time-to-read bound that a step reaches, medians over passes.
func BenchmarkLogisticReadBound(b *testing.B) {
	const rows, cols = 10_000, 10_000
	cpu := tensor.NewCPU(0, false)
	defer cpu.Close()
	schema, all := benchBatch(rows, cols, 2)
	x := all.Inputs[0].Values
	read := func() time.Duration {
		start := time.Now()
		const tiles = 200
		cpu.Pool.Run(tiles, func(i, _ int) {
			kernel.ReadSum(cpu.ISA, x[i*len(x)/tiles:(i+1)*len(x)/tiles])
		})
		return time.Since(start)
	}
	for _, size := range []int{100, 500, rows} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m, err := nn.Standard().Build("logistic", schema, cpu)
			if err != nil {
				b.Fatal(err)
			}
			p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
			var batch trivium.Batch
			var reads, steps []float64
			for b.Loop() {
				reads = append(reads, read().Seconds())
				start := time.Now()
				for at := 0; at < rows; at += size {
					all.SliceInto(&batch, at, at+size)
					if _, _, err := m.Grad(context.Background(), p, batch, g, nil); err != nil {
						b.Fatal(err)
					}
				}
				steps = append(steps, time.Since(start).Seconds())
			}
			slices.Sort(reads)
			slices.Sort(steps)
			r, s := reads[len(reads)/2], steps[len(steps)/2]
			b.ReportMetric(r/s, "of-read-bound")
			b.ReportMetric(4*rows*cols/r/math.Pow(2, 30), "read-GiB/s")
			b.ReportMetric(rows/s, "samples/s")
		})
	}
}

// BenchmarkLogisticShuffled is an epoch of wide dense rows in random order: those of a batch lie apart, or are copied next to one another first,
// side by side.
func BenchmarkLogisticShuffled(b *testing.B) {
	const rows, cols = 10_000, 10_000
	cpu := tensor.NewCPU(0, false)
	defer cpu.Close()
	schema, all := benchBatch(rows, cols, 2)
	ds := data.Memory(schema, all)
	m, err := nn.Standard().Build("logistic", schema, cpu)
	if err != nil {
		b.Fatal(err)
	}
	p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
	for _, size := range []int{100, 500, 2000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var took [2][]float64
			for b.Loop() {
				for k, apart := range []bool{false, true} {
					start := time.Now()
					for batch, err := range data.Batches(b.Context(), ds, data.BatchOptions{Batch: size, Shuffle: true, Seed: uint64(b.N), Run: cpu.Pool.Run, Apart: apart}) {
						if err == nil {
							_, _, err = m.Grad(b.Context(), p, *batch, g, nil)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					took[k] = append(took[k], time.Since(start).Seconds())
				}
			}
			for k := range took {
				slices.Sort(took[k])
			}
			copied, apart := took[0][len(took[0])/2], took[1][len(took[1])/2]
			b.ReportMetric(rows/apart, "samples/s")
			b.ReportMetric(copied/apart, "of-copied")
		})
	}
}
