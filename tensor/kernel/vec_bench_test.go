package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkBandwidth compares kernels with Triad, beyond all caches: bytes read and written per second, each the best of several
// rounds that take turns. The metric is the ratio; the target is 0.85.
func BenchmarkBandwidth(b *testing.B) {
	const n = 16 << 20 // 64 MiB each
	r := rand.New(rand.NewPCG(14, 14))
	slice := func() []float32 {
		x := make([]float32, n+16)
		x = x[misaligned(x):][:n]
		for i := range x {
			x[i] = float32(r.Uint32()>>8)/(1<<24) - 0.5
		}
		return x
	}
	u, p, g, s1, s2 := slice(), slice(), slice(), slice(), slice()
	Abs(Best(), s2, s2)
	labels, loss := make([]int32, n/10), make([]float32, n/10)
	h := Regular{LR: 1e-3}
	reg := Regular{LR: 1e-3, L2: 1e-4}
	var sink float32
	type one struct {
		name  string
		bytes int // per element
		f     func(isa ISA)
	}
	kernels := []one{
		{"Triad", 12, func(isa ISA) { Triad(isa, u, p, 0.5, g) }},
		{"Add", 12, func(isa ISA) { Add(isa, u, p, g) }},
		{"AddInto", 12, func(isa ISA) { AddInto(isa, p, g) }},
		{"ReLU", 8, func(isa ISA) { ReLU(isa, u, p) }},
		{"Sum", 4, func(isa ISA) { sink += Sum(isa, p) }},
		{"SoftmaxCrossEntropy1000", 8, func(isa ISA) { SoftmaxCrossEntropy(isa, loss, u, p, labels[:n/1000], nil, 1000) }},
		{"SoftmaxCrossEntropy10", 8, func(isa ISA) { SoftmaxCrossEntropy(isa, loss, u, p, labels, nil, 10) }},
		{"SGD", 8, func(isa ISA) { SGD(isa, u, p, g, SGDParams{h}) }},
		{"SGD+L2", 12, func(isa ISA) { SGD(isa, u, p, g, SGDParams{reg}) }},
		{"Momentum", 16, func(isa ISA) { Momentum(isa, u, p, g, s1, MomentumParams{h, 0.9}) }},
		{"Adam", 24, func(isa ISA) { Adam(isa, u, p, g, s1, s2, AdamParams{h, 0.9, 0.999, 1e-8, 10}) }},
		{"AdamW", 28, func(isa ISA) { Adam(isa, u, p, g, s1, s2, AdamParams{reg, 0.9, 0.999, 1e-8, 10}) }},
	}
	for _, isa := range Available()[1:] {
		best := make([]float64, len(kernels))
		b.Run(isa.String(), func(b *testing.B) {
			for b.Loop() {
				for i, k := range kernels {
					start := time.Now()
					k.f(isa)
					best[i] = max(best[i], float64(n*k.bytes)/time.Since(start).Seconds())
				}
			}
			for i, k := range kernels {
				b.ReportMetric(best[i]/best[0], k.name)
			}
			b.ReportMetric(best[0]/1e9, "Triad-GB/s")
		})
	}
	_ = sink
}

// BenchmarkSmall is what one call costs in first-level cache.
func BenchmarkSmall(b *testing.B) {
	r := rand.New(rand.NewPCG(15, 15))
	isa := Best()
	for _, n := range []int{10, 100, 1000} {
		x, y, z := plain[float32](r, n), plain[float32](r, n), plain[float32](r, n)
		for _, k := range []struct {
			name string
			f    func()
		}{
			{"Add", func() { Add(isa, z, x, y) }},
			{"Sum", func() { Sum(isa, x) }},
			{"Exp", func() { Exp(isa, z, x) }},
			{"Adam", func() { Adam(isa, z, x, x, y, y, AdamParams{Regular{LR: 1}, 0.9, 0.99, 1, 10}) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", k.name, n), func(b *testing.B) {
				for b.Loop() {
					k.f()
				}
			})
		}
	}
	x, dx, loss, labels := plain[float32](r, 1000), make([]float32, 1000), make([]float32, 100), make([]int32, 100)
	b.Run("SoftmaxCrossEntropy/100x10", func(b *testing.B) {
		for b.Loop() {
			SoftmaxCrossEntropy(isa, loss, dx, x, labels, nil, 10)
		}
	})
	b.Run("ColSums/100x10", func(b *testing.B) {
		for b.Loop() {
			ColSums(isa, loss[:10], x, 100, 10)
		}
	})
	s := Pool2D{H: 28, W: 28, C: 32, KH: 2, KW: 2, SH: 2, SW: 2, OH: 14, OW: 14}
	img, y, arg := plain[float32](r, 28*28*32), make([]float32, 14*14*32), make([]int32, 14*14*32)
	b.Run("MaxPool/28x28x32", func(b *testing.B) {
		for b.Loop() {
			MaxPool(isa, y, arg, img, 1, s)
		}
	})
	b.Run("MaxPoolGrad/28x28x32", func(b *testing.B) {
		for b.Loop() {
			MaxPoolGrad(isa, img, y, arg, 1, s)
		}
	})
	x, y = plain[float32](r, 1000), make([]float32, 1000)
	b.Run("Dropout/1000", func(b *testing.B) {
		for b.Loop() {
			Dropout(isa, y, x, 0.5, 1, 0)
		}
	})
}
