package server_test

import (
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

// BenchmarkStep is rows a second of three workers and a server, all in this process, on the memory network.
func BenchmarkStep(b *testing.B) {
	splits, err := data.Open(b.Context(), trivium.Data{Source: "digits", Rows: 6000}, data.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer splits.Close()
	for _, model := range []string{"softmax", "mlp:128,32"} {
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.ASP}} {
			for name, network := range map[string]transport.Network{"memory": transport.NewMemory(), "unix": transport.Unix{Dir: b.TempDir()}} {
				b.Run(model+"/"+o.Mode.String()+"/"+name, func(b *testing.B) {
					j := &trivium.Job{
						Version: trivium.JobVersion, Model: model, Data: trivium.Data{Source: "digits", Rows: 6000}, Batch: 300, Steps: int64(b.N),
						EvalEvery: 1 << 40, Seed: 1, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
					}
					c := &crew{env: train.Env{Splits: splits}, workers: 3, servers: 1, o: o, network: network}
					if _, err := c.Train(b.Context(), j); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(300*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
				})
			}
		}
	}
}
