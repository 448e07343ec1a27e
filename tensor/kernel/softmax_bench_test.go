package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkSoftmaxCrossEntropy is in second-level cache: what computing takes, without memory.
func BenchmarkSoftmaxCrossEntropy(b *testing.B) {
	r := rand.New(rand.NewPCG(15, 15))
	for _, isa := range Available()[1:] {
		for _, cols := range []int{2, 10, 16, 100, 1000} {
			rows := 32000 / cols / 16 * 16
			x, dx, loss, labels := plain[float32](r, rows*cols), make([]float32, rows*cols), make([]float32, rows), make([]int32, rows)
			for i := range labels {
				labels[i] = int32(r.IntN(cols))
			}
			b.Run(fmt.Sprintf("%d/%v", cols, isa), func(b *testing.B) {
				best := time.Hour // holds on a busy machine
				for b.Loop() {
					start := time.Now()
					SoftmaxCrossEntropy(isa, loss, dx, x, labels, nil, cols)
					best = min(best, time.Since(start))
				}
				b.ReportMetric(float64(best.Nanoseconds())/float64(rows*cols), "best-ns/element")
			})
		}
	}
}
