package allreduce_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
)

// A still model's gradient depends on the rows alone, and not on the parameters: whatever order it arrives in, SGD comes to the same.
type still struct{ layout *trivium.Layout }

func (m *still) Layout() *trivium.Layout         { return m.layout }
func (m *still) Init(_ uint64, p trivium.Params) { clear(p.Flat) }
func (m *still) weigh(tensor, cell int) (w float32) {
	return float32(1+cell%5) * float32(1-2*((cell+tensor)%2))
}

// Grad implements trivium.Model.
func (m *still) Grad(_ context.Context, _ trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	g.Zero()
	cols := b.Inputs[0].RowLen()
	for t := m.layout.Tensors() - 1; t >= 0; t-- {
		x := g.Tensor(t)
		for i := range b.Rows {
			row := b.Inputs[0].Values[i*cols : (i+1)*cols]
			for k := range x {
				x[k] += row[(7*k+t)%cols] * m.weigh(t, k)
			}
		}
		if ready != nil {
			ready(t)
		}
	}
	return float64(b.Rows), float64(b.Rows), nil
}

// TestNothingIsLost: a job that goes on again and again, each time with other workers on other hosts, another codec or none, local SGD, gradients in
// pieces, another learning rate, and that ends after its updates or is interrupted, has the parameters of one process that went through it by itself, but
// for what is in the checkpoint's residual. A seed that fails is enough to see it again.
func TestNothingIsLost(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { nothingIsLost(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func nothingIsLost(t *testing.T, random *rand.Rand) {
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	shapes := []int{1 + random.IntN(5), 1 + random.IntN(3000), 1 + random.IntN(300), 40_000 + random.IntN(80_000), 20_000} // several buckets
	shapes = shapes[:[]int{1, 3, 3, 5}[random.IntN(4)]]
	var specs []trivium.Spec
	for i, n := range shapes {
		specs = append(specs, trivium.Spec{Name: fmt.Sprint("t", i), Shape: []int{n}})
	}
	models := nn.Models{"still": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
		l, err := trivium.NewLayout(specs...)
		return &still{l}, err
	}}
	batch := 1 + random.IntN(12)
	job := &trivium.Job{
		Version: trivium.JobVersion, Model: "still", Data: trivium.Data{Source: "digits", Rows: 8 * int64(batch)}, Batch: batch, Last: trivium.LastDrop,
		Epochs: 100, Seed: random.Uint64(), Optimizer: trivium.OptimizerSpec{Name: "sgd"},
	}
	var alone, several *checkpoint.Checkpoint
	var story string
	var n int
	var hosts [][]int
	for range 1 + random.IntN(4) {
		job.Steps += 1 + random.Int64N(6)
		job.Optimizer.Rate = math.Ldexp(1, -random.IntN(4))
		if n == 0 || random.IntN(2) == 0 { // else each worker goes on with what it kept
			n = 1 + random.IntN(5)
			hosts = someHosts(random, n)
		}
		o := allreduce.Options{Accumulate: random.IntN(4), ShardOptimizer: random.IntN(3) == 0, Compress: one("none", "f16", "bf16", "int8", "int8:16", "1bit",
			"1bit:l2", "topk:0.05", "topk:0.5", "topk:3", "randomk:0.1", "randomk:2", "qsgd:7", "powersgd:1", "powersgd:2")}
		if residualOf(several) == nil && random.IntN(4) == 0 { // it sends none, so that what there is would be lost
			o = allreduce.Options{Every: 2 + random.Int64N(4), Accumulate: o.Accumulate}
		}
		env := train.Env{Models: models, Resume: several, Hosts: hosts}
		last := job.Steps
		if random.IntN(2) == 0 { // an interrupt after it, or soon
			last += 20
		}
		story += fmt.Sprintf("%d on %v to update %d by rate %v, %+v; ", n, env.Hosts, job.Steps, job.Optimizer.Rate, o)
		several = goOn(t, &crew{env: env, n: n, o: o}, job, last, story)
		job.Steps = several.Progress.Step
		alone = goOn(t, &crew{env: train.Env{Models: models, Resume: alone}, n: 1}, job, job.Steps, story)
		residual := residualOf(several)
		for k, want := range alone.Params.Flat {
			got, within := float64(several.Params.Flat[k]), 1e-4*(1+math.Abs(float64(want)))
			if residual != nil {
				got -= job.Optimizer.Rate * float64(residual[k]) / float64(batch)
				within += 1e-5 * math.Abs(float64(residual[k]))
			}
			if !(math.Abs(got-float64(want)) <= within) {
				t.Fatalf("%s: cell %d of %d is %v, with what is kept %v, want %v", story, k, len(alone.Params.Flat), several.Params.Flat[k], got, want)
			}
		}
	}
}

// someHosts lays n ranks out on up to n hosts.
func someHosts(random *rand.Rand, n int) [][]int {
	hosts := make([][]int, 1+random.IntN(n))
	for rank := range n {
		h := rank
		if h >= len(hosts) {
			h = random.IntN(len(hosts))
		}
		hosts[h] = append(hosts[h], rank)
	}
	return hosts
}

// residualOf is what codecs had dropped when c was made; nil: nothing.
func residualOf(c *checkpoint.Checkpoint) []float32 {
	if c == nil {
		return nil
	}
	if n := len(c.Optimizer.Names); n > 0 && c.Optimizer.Names[n-1] == "residual" {
		return c.Optimizer.Slots[n-1]
	}
	return nil
}

// goOn trains up to update last of job, or, where that is beyond it, until an interrupt that comes when job's updates are done.
func goOn(t *testing.T, c *crew, job *trivium.Job, last int64, story string) *checkpoint.Checkpoint {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	store := blob.Dir(t.TempDir())
	c.env.Blob = store
	part := *job
	part.Steps = last
	if last > job.Steps {
		c.env.Between.After = func(_ context.Context, step int64, _ func(context.Context) (trivium.Params, error)) error {
			if step == job.Steps {
				interrupt()
			}
			return nil
		}
	}
	if _, err := c.Train(ctx, &part); err != nil {
		t.Fatalf("%s: %v", story, err)
	}
	for rank, r := range c.results {
		for k, v := range r.Params.Flat {
			if math.Float32bits(v) != math.Float32bits(c.results[0].Params.Flat[k]) {
				t.Fatalf("%s: cell %d is %v at rank %d, and %v at rank 0", story, k, v, rank, c.results[0].Params.Flat[k])
			}
		}
	}
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}
