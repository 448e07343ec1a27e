//go:build unix

package allreduce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train/allreduce"
)

// BenchmarkProcesses: samples/s of processes of one thread each, over unix sockets and shared memory, and over TCP on loopback.
func BenchmarkProcesses(b *testing.B) {
	for _, model := range []string{"softmax", "mlp:100", "mlp:128,32"} {
		for _, batch := range []int{100, 500} {
			for _, link := range []string{"unix", "tcp"} {
				for _, n := range []int{1, 2, 3} {
					b.Run(fmt.Sprintf("%s/batch=%d/link=%s/processes=%d", model, batch, link, n), func(b *testing.B) {
						job := &trivium.Job{
							Version: trivium.JobVersion, Model: model, Data: trivium.Data{Source: "digits", Rows: 10_000, Train: "0:10000", Order: "index"},
							Batch: n * batch, Epochs: 1 << 20, Steps: int64(200_000 / batch), Seed: 1, EvalEvery: 1 << 40,
							Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
						}
						for b.Loop() {
							d, tapes := driverOver(b, job, n, allreduce.Options{}, link == "tcp")
							if _, err := d.Train(b.Context()); err != nil {
								b.Fatal(err)
							}
							s := read(b, tapes[0])
							b.ReportMetric(float64(job.Steps)*float64(job.Batch)/time.Duration(s.took).Seconds(), "samples/s")
							b.ReportMetric(float64(s.took)/float64(job.Steps)/1e3, "µs/update")
							b.ReportMetric(float64(s.cpu)/float64(job.Steps)/1e3, "µs-cpu/update")
						}
					})
				}
			}
		}
	}
}
