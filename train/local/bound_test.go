package local_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// A paced model says when each of its gradients begins. It makes no predictions, so that training it is its updates and nothing else.
type paced struct {
	trivium.Model
	begins func()
}

func (m paced) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	m.begins()
	return m.Model.Grad(ctx, p, b, g, ready)
}

// pacedModels are the standard ones, which call begins.
func pacedModels(begins func()) nn.Models {
	models := nn.Models{}
	for name, build := range nn.Standard() {
		models[name] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := build(args, s, cpu)
			return paced{m, begins}, err
		}
	}
	return models
}

// BenchmarkProductsBound is whole updates of the evaluation's perceptrons (rows in index order, SGD, observation off) against the bound
// that their matrix products give, at the rate of a product of 1024³ on the same cores. The two take turns in one run: of-bound is the
// ratio of the medians.
func BenchmarkProductsBound(b *testing.B) {
	splits := noise(10_000)
	cpu := tensor.NewCPU(0, false)
	defer cpu.Close()
	const side = 1024
	x, y, z := tensor.New(tensor.F32, side, side), tensor.New(tensor.F32, side, side), tensor.New(tensor.F32, side, side)
	for _, t := range []*tensor.Tensor{x, y} {
		for i, v := 0, tensor.Flat[float32](t); i < len(v); i++ {
			v[i] = float32(i%13) / 13
		}
	}
	for _, widths := range [][]int{{784, 100, 10}, {784, 128, 32, 10}} {
		name := fmt.Sprintf("mlp:%d", widths[1])
		if len(widths) == 4 {
			name += fmt.Sprintf(",%d", widths[2])
		}
		flops := 0. // of a row: forward, the weights' gradient, and but for the first layer the input's
		for i := range widths[1:] {
			products := 3
			if i == 0 {
				products = 2
			}
			flops += float64(2 * products * widths[i] * widths[i+1])
		}
		for _, batch := range []int{100, 500} {
			b.Run(fmt.Sprintf("%s/%d", name, batch), func(b *testing.B) {
				var rates, updates []float64
				warm, timed := int64(50), int64(100_000/batch) // some 100 ms
				var update int64
				var began, ended time.Time
				env := train.Env{CPU: cpu, Splits: splits, Models: pacedModels(func() {
					switch update++; update {
					case warm + 1:
						began = time.Now()
					case warm + timed + 1:
						ended = time.Now()
					}
				})}
				job := &trivium.Job{
					Version: trivium.JobVersion, Model: name, Batch: batch, Steps: warm + timed + 1, Data: trivium.Data{Order: "index"},
					Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
				}
				for b.Loop() {
					for range 5 {
						start := time.Now()
						if err := cpu.MatMulTo(z, x, y, false, false, tensor.Epilogue{}); err != nil {
							b.Fatal(err)
						}
						rates = append(rates, 2*side*side*side/time.Since(start).Seconds())
					}
					update = 0
					if _, err := local.New(env, local.Options{}).Train(context.Background(), job); err != nil {
						b.Fatal(err)
					}
					updates = append(updates, ended.Sub(began).Seconds()/float64(timed))
				}
				slices.Sort(rates)
				slices.Sort(updates)
				rate, took := rates[len(rates)/2], updates[len(updates)/2]
				b.ReportMetric(flops*float64(batch)/rate/took, "of-bound")
				b.ReportMetric(rate/1e9, "GFLOP/s-1024³")
				b.ReportMetric(float64(batch)/took, "samples/s")
				b.ReportMetric(1e6*updates[0], "µs/update-least")
				b.ReportMetric(1e6*took, "µs/update")
			})
		}
	}
}
