package tensor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// BenchmarkMatMulCores is a product of 512×512×512 on one thread and on all, in turns: how many times as fast all are, as the ratio of
// the medians and of the fastest rounds. On two cores the target is 1.8.
func BenchmarkMatMulCores(b *testing.B) {
	const n = 512
	r := rand.New(rand.NewPCG(16, 16))
	x, y, z := New(F32, n, n), New(F32, n, n), New(F32, n, n)
	for _, t := range []*Tensor{x, y} {
		for i := range Flat[float32](t) {
			Flat[float32](t)[i] = float32(r.NormFloat64())
		}
	}
	for _, isa := range kernel.Available() {
		if isa < kernel.AVX2 { // slow, and no target
			continue
		}
		one, all := &CPU{ISA: isa, Pool: NewPool(1)}, &CPU{ISA: isa, Pool: NewPool(0)}
		b.Run(fmt.Sprintf("%v/threads=%d", isa, all.Pool.Threads()), func(b *testing.B) {
			var times [2][]float64
			var start time.Time
			for b.Loop() {
				for i, c := range []*CPU{one, all} {
					for range 2 { // the first wakes threads that parked meanwhile
						start = time.Now()
						if err := c.MatMulTo(z, x, y, false, false, Epilogue{}); err != nil {
							b.Fatal(err)
						}
					}
					times[i] = append(times[i], time.Since(start).Seconds())
				}
			}
			for i := range times {
				slices.Sort(times[i])
			}
			mid := len(times[0]) / 2
			b.ReportMetric(times[0][mid]/times[1][mid], "median")
			b.ReportMetric(times[0][0]/times[1][0], "fastest")
			b.ReportMetric(2*n*n*n/times[0][mid]/1e9, "GFLOP/s-on-one")
		})
		one.Close()
		all.Close()
	}
}
