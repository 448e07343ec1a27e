//go:build unix

package server_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// BenchmarkPMLS is logistic regression as PMLS ran it: 10,000 × 10,000, a row a step on a copy of the worker's own, SSP(3), three worker
// processes, with the shards at the first of them, as PMLS has it; at so many rounds an epoch. Beside it stands what one core reads from memory in
// the same moment, and the target in proportion to that (400,000, 350,000 and 230,000 rows a second at 14 GB/s).
func BenchmarkPMLS(b *testing.B) {
	for clocks, target := range map[int]float64{1: 400_000, 10: 350_000, 100: 230_000} {
		b.Run(fmt.Sprintf("clocks=%d", clocks), func(b *testing.B) {
			var rates, reads, parts, together, ofCores []float64
			for b.Loop() {
				read, all := readGigabytes(1), readGigabytes(runtime.NumCPU())
				j := &trivium.Job{
					Version: trivium.JobVersion, Model: "logistic", Data: trivium.Data{Source: "logistic", Order: "index"}, Batch: 3, Epochs: 40,
					EvalEvery: 1 << 40, Seed: 1, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.001},
				}
				d := driver(b, j, server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker, Clocks: clocks, Servers: 1})
				d.Servers = 0
				var last train.Progress
				d.Watch.Progress = func(p train.Progress) { last = p }
				if _, err := d.Train(b.Context()); err != nil {
					b.Fatal(err)
				}
				read, all = (read+readGigabytes(1))/2, (all+readGigabytes(runtime.NumCPU()))/2
				rates, reads = append(rates, last.SamplesPerSec()), append(reads, read)
				parts = append(parts, last.SamplesPerSec()/(target*read/14))
				together, ofCores = append(together, all), append(ofCores, last.SamplesPerSec()/(target*all/30))
			}
			b.ReportMetric(median.Of(rates), "rows/s")
			b.ReportMetric(slices.Max(rates), "best_rows/s")
			b.ReportMetric(median.Of(reads), "read_GB/s")
			b.ReportMetric(median.Of(parts), "of_target")
			b.ReportMetric(median.Of(together), "cores_GB/s")
			b.ReportMetric(median.Of(ofCores), "of_cores")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// readGigabytes is what so many cores read from memory together, in GB/s: the mean of some passes, of each over more than a cache holds, since
// training too has the machine as it is.
func readGigabytes(cores int) float64 {
	const passes, cells = 10, 64 << 20
	xs := make([][]float32, cores)
	for i := range xs {
		xs[i] = tensor.Aligned[float32](cells / cores)
		kernel.Fill(kernel.Best(), xs[i], 1)
	}
	var wait sync.WaitGroup
	start := time.Now()
	for _, x := range xs {
		wait.Go(func() {
			for range passes {
				kernel.Sum(kernel.Best(), x)
			}
		})
	}
	wait.Wait()
	return passes * 4 * cells / time.Since(start).Seconds() / 1e9
}
