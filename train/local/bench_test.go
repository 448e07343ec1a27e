package local_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// noise is rows like images of digits, in ten classes that mean nothing: what a step costs does not depend on it.
func noise(rows int) *data.Splits {
	r := rand.New(rand.NewPCG(1, 1))
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{28, 28, 1}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 10},
	}
	b := trivium.Batch{
		Rows: rows, Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{28, 28, 1}}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: 10},
	}
	for range rows {
		for range 784 {
			b.Inputs[0].Values = append(b.Inputs[0].Values, max(0, r.Float32()-0.8))
		}
		b.Labels.Class = append(b.Labels.Class, r.Int32N(10))
	}
	return &data.Splits{Train: data.Memory(schema, b)}
}

// BenchmarkTrain is whole training steps of the models of the evaluation, shuffled rows, SGD, with observation off and on. The
// observed ones must be within 2 %: run both in turn, and compare the least times.
func BenchmarkTrain(b *testing.B) {
	splits := noise(10000)
	for _, model := range []string{"softmax", "mlp:100", "mlp:128,32"} {
		for _, batch := range []int{100, 500} {
			for _, observed := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%d/observed=%v", model, batch, observed), func(b *testing.B) {
					cpu := tensor.NewCPU(0, false)
					defer cpu.Close()
					env := train.Env{CPU: cpu, Splits: splits}
					if observed {
						env.Observe = observe.NewHub(observe.Options{})
						ctx, cancel := context.WithCancel(context.Background())
						done := make(chan struct{})
						go func() { defer close(done); _ = env.Observe.Run(ctx) }()
						defer func() { cancel(); <-done }()
					}
					job := &trivium.Job{
						Version: trivium.JobVersion, Model: model, Batch: batch, Epochs: 2, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
					}
					for b.Loop() {
						if _, err := local.New(env, local.Options{}).Train(context.Background(), job); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.N)*20000/b.Elapsed().Seconds(), "samples/s")
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)*float64(batch)/20000, "µs/update")
				})
			}
		}
	}
}
