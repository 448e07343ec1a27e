package server_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestWorkerState: where the optimizer is the workers', a checkpoint has the state of all: the mean of their vectors, so that any number
// of workers goes on from it, and local does. Two workers whose rows are the same have the same state, and so has local.
func TestWorkerState(t *testing.T) {
	for _, mode := range []ps.Mode{ps.BSP, ps.SSP, ps.ASP} {
		if testing.Short() && mode != ps.SSP {
			continue
		}
		j := job()
		j.Batch, j.Epochs, j.Optimizer = 320, 4, trivium.OptimizerSpec{Name: "momentum", Rate: 0.05}
		whole := alone(t, train.Env{Blob: blob.Dir(t.TempDir()), Checkpoints: train.Checkpoints{Every: 7, Keep: 100}}, j)
		store := blob.Dir(t.TempDir())
		o := server.Options{Mode: mode, OptimizerAt: server.AtWorker}
		c := &crew{env: train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 7, Keep: 100}}, workers: 3, servers: 2, o: o}
		if _, err := c.paced(t, j); err != nil {
			t.Fatal(err)
		}
		names, err := checkpoint.List(t.Context(), store)
		if err != nil || len(names) < 2 {
			t.Fatalf("%s: %q, %v", mode, names, err)
		}
		for _, name := range names {
			got, err := checkpoint.Load(t.Context(), store, name)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s: %v", mode, name, got.Optimizer.Names)
			if mode != ps.BSP {
				continue
			}
			// Momentum is linear: the mean of the workers' velocities is the velocity of local, at that update.
			half := *j
			half.Steps = got.Progress.Step
			sure := blob.Dir(t.TempDir())
			alone(t, train.Env{Blob: sure}, &half)
			want, _, err := checkpoint.Latest(t.Context(), sure)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range want.Optimizer.Slots[0] {
				if y := got.Optimizer.Slots[0][i]; !(math.Abs(float64(x-y)) <= 1e-3) {
					t.Fatalf("%s: %s: velocity %d is %v, local has %v", mode, name, i, y, x)
				}
			}
		}
		saved, err := checkpoint.Load(t.Context(), store, names[0])
		if err != nil {
			t.Fatal(err)
		}
		for workers := range 4 {
			var r trivium.Result
			if workers == 0 {
				r = alone(t, train.Env{Resume: saved}, j)
			} else {
				again := &crew{env: train.Env{Resume: saved}, workers: workers, servers: 1, o: o}
				if r, err = again.paced(t, j); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := r.Metrics["test.loss"], whole.Metrics["test.loss"]; !(math.Abs(a/b-1) < 0.05) {
				t.Errorf("%s: resumed by %d workers: test loss %v, uninterrupted %v", mode, workers, a, b)
			}
		}
	}
}

// TestCompress: what a codec drops is sent later, is in checkpoints, and goes on with another number of workers.
func TestCompress(t *testing.T) {
	for _, at := range []server.Place{server.AtServer, server.AtWorker} {
		for _, codec := range []string{"f16", "int8", "topk:0.05"} {
			if testing.Short() && (codec != "topk:0.05" || at != server.AtWorker) {
				continue
			}
			j := job()
			j.Batch, j.Epochs, j.Optimizer = 160, 10, trivium.OptimizerSpec{Name: "sgd", Rate: 0.1}
			want := alone(t, train.Env{}, j)
			store := blob.Dir(t.TempDir())
			half := *j
			half.Epochs = 5
			o := server.Options{Mode: ps.SSP, Staleness: 1, OptimizerAt: at, Compress: codec}
			c := &crew{env: train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 15, Keep: 100}}, workers: 3, servers: 2, o: o}
			if _, err := c.paced(t, &half); err != nil {
				t.Fatal(err)
			}
			saved, _, err := checkpoint.Latest(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			if at == server.AtServer {
				n := len(saved.Optimizer.Names)
				if n == 0 || saved.Optimizer.Names[n-1] != "residual" {
					t.Fatalf("%s: the checkpoint has %q", codec, saved.Optimizer.Names)
				}
				any := false
				for _, x := range saved.Optimizer.Slots[n-1] {
					any = any || x != 0
				}
				if !any {
					t.Errorf("%s: nothing was dropped", codec)
				}
			}
			again := &crew{env: train.Env{Resume: saved}, workers: 2, servers: 1, o: o}
			got, err := again.paced(t, j)
			if err != nil {
				t.Fatal(err)
			}
			a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]
			t.Logf("%s, optimizer at the %s: test loss %.4f, local %.4f", codec, at, a, b)
			if !(a < 1.05*b) {
				t.Errorf("%s, optimizer at the %s: test loss %v, local reaches %v", codec, at, a, b)
			}
		}
	}
	j := job()
	j.Exact = true
	if err := (server.Options{Mode: ps.BSP, Compress: "f16"}).Check(j, nil, 2); err == nil || !contains(err, "exact") {
		t.Error(err)
	}
	if err := (server.Options{Compress: "zip"}).Check(job(), nil, 2); err == nil || !contains(err, "zip") {
		t.Error(err)
	}
	for codec, want := range map[string]string{"auto": "say bf16", "auto:topk:0.01": "say topk:0.01", "auto:zip": "zip"} {
		if err := (server.Options{Compress: codec}).Check(job(), nil, 2); err == nil || !contains(err, want) {
			t.Errorf("%s: %v, want %q", codec, err, want)
		}
	}
}

// TestStateOfFewRows: of a batch below the number of workers, the mean is that of the vectors of workers that have rows.
func TestStateOfFewRows(t *testing.T) {
	j := job()
	j.Batch, j.Steps, j.Optimizer = 2, 10, trivium.OptimizerSpec{Name: "momentum", Rate: 0.05}
	store, sure := blob.Dir(t.TempDir()), blob.Dir(t.TempDir())
	alone(t, train.Env{Blob: sure}, j)
	c := &crew{env: train.Env{Blob: store}, workers: 4, servers: 1, o: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}}
	if _, err := c.paced(t, j); err != nil {
		t.Fatal(err)
	}
	got, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := checkpoint.Latest(t.Context(), sure)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range want.Optimizer.Slots[0] {
		if y := got.Optimizer.Slots[0][i]; !(math.Abs(float64(x-y)) <= 1e-3) {
			t.Fatalf("velocity %d is %v, local has %v", i, y, x)
		}
	}
}
