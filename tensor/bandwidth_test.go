package tensor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// BenchmarkBandwidth compares kernels with Triad beyond all caches, on one thread and on all: bytes read and written per second, each
// the median of rounds in which all take turns. The metrics are ratios to Triad, of which the target is 0.85 on all threads.
func BenchmarkBandwidth(b *testing.B) {
	const n = 16 << 20 // elements: 64 MiB a slice
	r := rand.New(rand.NewPCG(14, 14))
	slice := func() []float32 {
		x := Aligned[float32](n)
		for i := range x {
			x[i] = float32(r.Uint32()>>8)/(1<<24) - 0.5
		}
		return x
	}
	u, p, g, s1, s2 := slice(), slice(), slice(), slice(), slice()
	kernel.Abs(kernel.Best(), s2, s2)
	labels, tens, loss := make([]int32, n/1000), make([]int32, n/10), make([]float32, n/10)
	for i := range labels {
		labels[i] = int32(r.IntN(1000))
	}
	for i := range tens {
		tens[i] = int32(r.IntN(10))
	}
	h, l2 := kernel.Regular{LR: 1e-3}, kernel.Regular{LR: 1e-3, L2: 1e-4}
	adam := kernel.AdamParams{Regular: h, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 10}
	adamW := adam
	adamW.Regular = kernel.Regular{LR: 1e-3, Decay: 1e-2}
	parts := make([]float32, n/kernel.BlockLen)
	entropy := func(labels []int32, cols int) func(isa kernel.ISA, i, j int) {
		return func(isa kernel.ISA, i, j int) {
			i, j = i/cols, j/cols
			kernel.SoftmaxCrossEntropy(isa, loss[i:j], u[i*cols:j*cols], p[i*cols:], labels[i:j], nil, cols)
		}
	}
	kernels := []struct {
		name  string
		bytes float64 // of all slices, per element
		f     func(isa kernel.ISA, i, j int)
	}{
		{"Triad", 12, func(isa kernel.ISA, i, j int) { kernel.Triad(isa, u[i:j], p[i:j], 0.5, g[i:j]) }},
		{"Add", 12, func(isa kernel.ISA, i, j int) { kernel.Add(isa, u[i:j], p[i:j], g[i:j]) }},
		{"AddInto", 12, func(isa kernel.ISA, i, j int) { kernel.AddInto(isa, u[i:j], g[i:j]) }},
		{"ReLU", 8, func(isa kernel.ISA, i, j int) { kernel.ReLU(isa, u[i:j], p[i:j]) }},
		{"Exp", 8, func(isa kernel.ISA, i, j int) { kernel.Exp(isa, u[i:j], p[i:j]) }},
		{"Read", 4, func(isa kernel.ISA, i, j int) { kernel.ReadSum(isa, p[i:j]) }}, // the most that Sum can reach
		{"Sum", 4, func(isa kernel.ISA, i, j int) {
			kernel.SumBlocks(isa, parts[i/kernel.BlockLen:j/kernel.BlockLen], p[i:j])
		}},
		{"SoftmaxCrossEntropy1000", 8.008, entropy(labels, 1000)}, // with labels and losses,
		{"SoftmaxCrossEntropy10", 8.8, entropy(tens, 10)},
		{"SGD", 8, func(isa kernel.ISA, i, j int) { kernel.SGD(isa, u[i:j], p[i:j], g[i:j], kernel.SGDParams{Regular: h}) }},
		{"SGD-L2", 12, func(isa kernel.ISA, i, j int) { kernel.SGD(isa, u[i:j], p[i:j], g[i:j], kernel.SGDParams{Regular: l2}) }},
		{"Momentum", 16, func(isa kernel.ISA, i, j int) {
			kernel.Momentum(isa, u[i:j], p[i:j], g[i:j], s1[i:j], kernel.MomentumParams{Regular: h, Momentum: 0.9})
		}},
		{"Adam", 24, func(isa kernel.ISA, i, j int) { kernel.Adam(isa, u[i:j], p[i:j], g[i:j], s1[i:j], s2[i:j], adam) }},
		{"AdamW", 28, func(isa kernel.ISA, i, j int) { kernel.Adam(isa, u[i:j], p[i:j], g[i:j], s1[i:j], s2[i:j], adamW) }},
	}
	for _, isa := range kernel.Available()[1:] {
		for _, threads := range []int{1, 0} {
			cpu := &CPU{ISA: isa, Pool: NewPool(threads)}
			rates := make([][]float64, len(kernels))
			b.Run(fmt.Sprintf("%v/threads=%d", isa, cpu.Pool.Threads()), func(b *testing.B) {
				for b.Loop() {
					for i, k := range kernels {
						start := time.Now()
						cpu.Split(n, kernel.BlockLen, func(from, to, _ int) { k.f(isa, from, to) })
						rates[i] = append(rates[i], n*k.bytes/time.Since(start).Seconds())
					}
				}
				for i, k := range kernels {
					slices.Sort(rates[i])
					b.ReportMetric(rates[i][len(rates[i])/2]/rates[0][len(rates[0])/2], k.name)
				}
				b.ReportMetric(rates[0][len(rates[0])/2]/1e9, "Triad-GB/s")
			})
			cpu.Close()
		}
	}
}
