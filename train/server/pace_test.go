package server

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
)

// steps returns a server's optimizer for n workers, whose cells begin as p, as the tables do: with a gradient for p it gives the update.
func steps(t *testing.T, job *trivium.Job, l *trivium.Layout, p []float32, n int) func(g, u []float32) {
	t.Helper()
	k, err := newKeeper(job, nil, true, n)
	if err != nil {
		t.Fatal(err)
	}
	return filled(k, l, p, nil, 0).step
}

// TestPace: a server that takes n steps an update forgets the squares of gradients after as many updates as one optimizer does, and a
// schedule is as far. Workers without rows take no step. Here gradients become a tenth at once: how fast the steps grow again says how long their squares are remembered.
func TestPace(t *testing.T) {
	const n, rounds = 4, 600
	l, err := trivium.NewLayout(trivium.Spec{Name: "x", Shape: []int{8}, Rate: 1, Decay: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		trivium.OptimizerSpec
		batch, steps int // an update
	}{
		{trivium.OptimizerSpec{Name: "adam", Rate: 0.01, Params: map[string]float64{"beta2": 0.99}}, trivium.FullBatch, n},
		{trivium.OptimizerSpec{Name: "adam", Rate: 0.01, Params: map[string]float64{"beta2": 0.99}}, 2, 2},
		{trivium.OptimizerSpec{Name: "adam", Rate: 0.01}, 1, 1},
		{trivium.OptimizerSpec{Name: "adamw", Rate: 0.01, Decay: 0.01, Schedule: "warmup:50+cosine:600"}, 100, n},
		{trivium.OptimizerSpec{Name: "rmsprop", Rate: 0.01}, trivium.FullBatch, n},
		{trivium.OptimizerSpec{Name: "momentum", Rate: 0.01}, 3, 3},
	} {
		job := &trivium.Job{Optimizer: c.OptimizerSpec, Batch: c.batch}
		alone, together := make([]float32, l.Len()), make([]float32, l.Len())
		one, all := steps(t, job, l, alone, 1), steps(t, job, l, together, n)
		g, u := make([]float32, l.Len()), make([]float32, l.Len())
		for round := range rounds {
			size := float32(1)
			if round >= rounds/2 {
				size = 0.1
			}
			var a, b float64
			for i := range g {
				g[i] = size
			}
			one(g, u)
			for i, x := range u {
				a, alone[i] = a+float64(x), alone[i]+x
			}
			for range c.steps {
				for i := range g {
					g[i] = size
				}
				all(g, u)
				for i, x := range u {
					b, together[i] = b+float64(x), together[i]+x
				}
			}
			settling := round%(rounds/2) < 70 // Adam's mean of gradients is n times as short
			if c.Name == "rmsprop" {
				settling = round < 30 // the first squares are small, and of another part of an update
			}
			if !settling && !(math.Abs(b/a-1) <= 0.06) {
				t.Fatalf("%s, %d rows: in update %d the workers' steps move %v, one optimizer's %v", c.Name, c.batch, round+1, b, a)
			}
		}
	}
}

// TestStale: Adam on servers under SSP ends where one optimizer in one thread does whose gradients are as old: of three workers that read
// every fourth round, the steps as their gradients arrive, against whole updates' gradients at parameters that are read as seldom. At this
// rate gradients that are always three updates old are too old for Adam in one thread too.
func TestStale(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: trains six models to the end")
	}
	const workers, period = 3, 4
	for _, seed := range []uint64{1, 9} {
		job := &trivium.Job{
			Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 2000, Train: "0:1600", Test: "1600:"},
			Batch: 120, Epochs: 40, Seed: seed, Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
		}
		stale := func(workers, period int) float64 {
			run, err := train.Open(t.Context(), train.Env{}, job, "stale")
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			now := run.Params
			seen := trivium.Params{Layout: now.Layout, Flat: make([]float32, len(now.Flat))}
			g, u := train.NewGradient(now.Layout), make([]float32, len(now.Flat))
			step := steps(t, job, now.Layout, now.Flat, workers)
			var rows trivium.Batch
			for update, b := range run.Updates(t.Context()) {
				if (update-1)%int64(period) == 0 {
					copy(seen.Flat, now.Flat)
				}
				var loss, weight float64
				for w := range workers {
					b.SliceInto(&rows, w*b.Rows/workers, (w+1)*b.Rows/workers)
					x, y, err := run.Sum(seen, &rows, g)
					if err != nil {
						t.Fatal(err)
					}
					loss, weight = loss+x, weight+y
					kernel.Scale(kernel.Best(), g.Flat, g.Flat, float32(1/y))
					step(g.Flat, u)
					kernel.Add(kernel.Best(), now.Flat, now.Flat, u)
				}
				run.Pass()
				run.Finish(b.Rows, loss, weight)
			}
			r, err := run.Result(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return r.Metrics["test.loss"]
		}
		local, want, got := stale(1, 1), stale(1, period), stale(workers, period)
		t.Logf("seed %d: test loss %.4f, in one thread %.4f, without staleness %.4f", seed, got, want, local)
		if !(math.Abs(got/want-1) < 0.04) || !(math.Abs(got/local-1) < 0.04) {
			t.Errorf("seed %d: test loss %v, in one thread %v, without staleness %v", seed, got, want, local)
		}
	}
}
