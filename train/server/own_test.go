package server_test

import (
	"context"
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestOwnOptimizer: momentum of a program's own trains as the one that ships, in every mode, and to the bit where a run repeats.
func TestOwnOptimizer(t *testing.T) {
	env := train.Env{Optimizers: traintest.Optimizers(), Metrics: traintest.Metrics()}
	j := small(job())
	j.Optimizer = trivium.OptimizerSpec{Name: "momentum", Rate: 0.02}
	apart := 0.03 // of twelve runs with the optimizer that ships, ssp's losses were 0.8 % apart, and on a quarter of the rows 4.1 %
	if testing.Short() {
		apart = 0.1
	}
	own := *j
	own.Optimizer.Name, own.Metrics = "ball", []string{"misses"}
	own.Stop = trivium.EarlyStop{Metric: "test.misses", Target: "< 0"} // never, but all agree on it
	for _, at := range []server.Place{server.AtServer, server.AtWorker} {
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ESSP, Staleness: 1}, {Mode: ps.ASP}} {
			o.OptimizerAt = at
			if stale := o.Mode == ps.SSP || o.Mode == ps.ESSP; testing.Short() && stale != (at == server.AtWorker) {
				continue // all in the full run
			}
			want := paced(t, o, j)
			got, err := (&crew{env: env, workers: 3, servers: 2, o: o}).paced(t, &own)
			if err != nil {
				t.Fatalf("%s, at the %s: %v", o.Mode, at, err)
			}
			a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]
			if got.Steps != want.Steps || !(math.Abs(a/b-1) < apart) || o.Mode == ps.BSP && a != b {
				t.Errorf("%s, at the %s: test loss %v after %d updates, want %v after %d", o.Mode, at, a, got.Steps, b, want.Steps)
			}
			if x, y := got.Metrics["test.misses"], 1-want.Metrics["test.accuracy"]; !(math.Abs(x-y) < apart) {
				t.Errorf("%s, at the %s: %v misses, want %v", o.Mode, at, x, y)
			}
		}
	}
}

// TestOwnResumes: the state of an optimizer of a program's own goes on anywhere, that of row-sparse tensors too.
func TestOwnResumes(t *testing.T) {
	for _, model := range []string{"softmax", "fm:4"} {
		j := small(job())
		if model == "fm:4" {
			j.Model, j.Data = model, trivium.Data{Source: "wide", Rows: 600, Train: "0:480", Test: "480:"}
		}
		j.Exact, j.Epochs = true, 2
		j.Optimizer = trivium.OptimizerSpec{Name: "momentum", Rate: 0.02}
		whole := alone(t, train.Env{}, j)
		j.Optimizer.Name = "ball"
		half := *j
		half.Steps = whole.Steps/2 + 1
		begin := map[string]func(env train.Env) trivium.Strategy{
			"local": func(env train.Env) trivium.Strategy {
				env.Splits = shared(t.Context(), env, j)
				return local.New(env, local.Options{})
			},
			"allreduce": func(env train.Env) trivium.Strategy {
				env.Splits = shared(t.Context(), env, j)
				return allreduce.New(env, allreduce.Options{})
			},
			"server": func(env train.Env) trivium.Strategy {
				return &crew{env: env, workers: 3, servers: 2, o: server.Options{Mode: ps.BSP}}
			},
		}
		for first, a := range begin {
			for second, b := range begin {
				if testing.Short() && (model == "softmax" || first != "server" || second == "allreduce") {
					continue // all in the full run
				}
				store := blob.Dir(t.TempDir())
				env := train.Env{Optimizers: traintest.Optimizers(), Blob: store}
				if _, err := a(env).Train(t.Context(), &half); err != nil {
					t.Fatalf("%s: %v", first, err)
				}
				c, _, err := checkpoint.Latest(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				got, err := b(train.Env{Optimizers: traintest.Optimizers(), Resume: c}).Train(t.Context(), j)
				if err != nil {
					t.Fatalf("%s, then %s: %v", first, second, err)
				}
				traintest.Same(t, model+": "+first+", then "+second, got, whole)
			}
		}
	}
}

// A wide optimizer has much state, or looks at all cells: its update is the gradient over the norm of it all.
type wide struct {
	slots int
	all   bool
}

func (w wide) Slots() int        { return w.slots }
func (w wide) Elementwise() bool { return !w.all }
func (w wide) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, _ [][]float32) {
	norm := float32(10)
	if w.all {
		norm *= float32(math.Sqrt(float64(kernel.SumSquares(kernel.Go, g))))
	}
	for i, x := range g {
		u[i] = -x / norm
	}
}

// TestOwnClips: an optimizer of a program's own may look at all cells of the gradient. Its clipping is its own business: a worker does not clip
// for it.
func TestOwnClips(t *testing.T) {
	mine := optim.Optimizers{}
	for name, o := range map[string]wide{"whole": {0, true}, "cells": {0, false}, "eight": {8, false}} {
		mine[name] = func(trivium.OptimizerSpec, kernel.ISA) (trivium.Optimizer, error) { return o, nil }
	}
	for _, name := range []string{"whole", "cells", "eight"} {
		j := small(job())
		j.Optimizer = trivium.OptimizerSpec{Name: name, ClipNorm: 1e-6}
		want := alone(t, train.Env{Optimizers: mine}, j)
		got, err := (&crew{env: train.Env{Optimizers: mine}, workers: 1, servers: 2, o: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]; !(math.Abs(a/b-1) < 1e-4) || !(b < 2.2) {
			t.Errorf("%s: test loss %v, local has %v", name, a, b)
		}
	}
	for name, want := range map[string]string{
		"whole": "server: optimizer whole looks at more than one cell of the gradient", "eight": "server: optimizer eight has 8 state vectors, and servers keep 7",
	} {
		j := job()
		j.Optimizer = trivium.OptimizerSpec{Name: name}
		if err := (server.Options{}).Check(j, mine, 2); err == nil || !contains(err, want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if err := (server.Options{OptimizerAt: server.AtWorker}).Check(j, mine, 2); err != nil {
			t.Error(err)
		}
		_, err := server.New(train.Env{Optimizers: mine}, server.Options{}).Train(t.Context(), j)
		if err == nil || !contains(err, want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestOwnSeven: as much state as a server keeps of a rule.
func TestOwnSeven(t *testing.T) {
	mine := optim.Optimizers{"seven": func(trivium.OptimizerSpec, kernel.ISA) (trivium.Optimizer, error) { return wide{7, false}, nil }}
	j := small(job())
	j.Optimizer = trivium.OptimizerSpec{Name: "seven"}
	store := blob.Dir(t.TempDir())
	if r, err := (&crew{env: train.Env{Optimizers: mine, Blob: store}, workers: 2, servers: 1, o: server.Options{Mode: ps.SSP}}).paced(t, j); err != nil || r.Reason != trivium.Finished {
		t.Fatalf("%s, %v", r.Reason, err)
	}
	c, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil || len(c.Optimizer.Slots) != 7 || c.Optimizer.Names[6] != "slot6" {
		t.Fatalf("%+v, %v", c, err)
	}
}

// A steep model is another whose gradient is 1e22 times as large: float32 does not hold the square of it.
type steep struct {
	trivium.Model
	trivium.Predictor
}

func (m steep) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	lossSum, weightSum, err = m.Model.Grad(ctx, p, b, g, nil)
	kernel.Scale(kernel.Best(), g.Flat, g.Flat, 1e22)
	for i := range g.Layout.Tensors() {
		if ready != nil {
			ready(i)
		}
	}
	return lossSum, weightSum, err
}

// TestClipsWhatExploded: workers clip a gradient of any norm, as local does.
func TestClipsWhatExploded(t *testing.T) {
	models := nn.Models{"steep": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := nn.Softmax(args, s, cpu)
		if err != nil {
			return nil, err
		}
		return steep{m, m.(trivium.Predictor)}, nil
	}}
	j := small(job())
	j.Model, j.Epochs = "steep", 2
	j.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 0.1, ClipNorm: 1}
	want := alone(t, train.Env{Models: models}, j)
	got, err := (&crew{env: train.Env{Models: models}, workers: 1, servers: 1, o: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}}).Train(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]; !(math.Abs(a/b-1) < 1e-4) || !(b < 2.2) {
		t.Errorf("test loss %v, local has %v", a, b)
	}
}
