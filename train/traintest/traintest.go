// Package traintest proves that a strategy learns what local learns, to the bit in exact mode, and behaves as every strategy must:
// it resumes, stops early, is interrupted, diverges and fails as local does.
//
//	func TestStrategy(t *testing.T) {
//		traintest.Run(t, func(env train.Env) trivium.Strategy { return local.New(env, local.Options{}) })
//	}
package traintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// Job returns a job on the toy data that learns in a moment.
func Job() *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "toy", Data: trivium.Data{Source: "toy"}, Batch: 20, Epochs: 4, Seed: 3,
		Optimizer: trivium.OptimizerSpec{Name: "momentum", Rate: 0.1},
	}
}

// Env returns an environment that knows the toy model and data, and an optimizer and a metric of a program's own, with so many threads. It ends with the test.
func Env(t testing.TB, threads int, exact bool) train.Env {
	cpu := tensor.NewCPU(threads, exact)
	t.Cleanup(cpu.Close)
	return train.Env{CPU: cpu, Models: Models(), Sources: Sources(), Optimizers: Optimizers(), Metrics: Metrics()}
}

// Variants are jobs that differ in all that decides what an update is.
func Variants() map[string]*trivium.Job {
	jobs := map[string]*trivium.Job{}
	add := func(name string, change func(j *trivium.Job)) {
		j := Job()
		change(j)
		jobs[name] = j
	}
	add("momentum", func(*trivium.Job) {})
	add("adam scheduled", func(j *trivium.Job) {
		j.Optimizer = trivium.OptimizerSpec{Name: "adam", Rate: 0.05, Schedule: "warmup:5+cosine:40"}
	})
	add("adagrad regularised", func(j *trivium.Job) {
		j.Optimizer = trivium.OptimizerSpec{Name: "adagrad", Rate: 0.1, L2: 0.01, L1: 0.001}
	})
	add("ftrl", func(j *trivium.Job) { j.Optimizer = trivium.OptimizerSpec{Name: "ftrl", Rate: 0.5, L1: 0.01} })
	add("drop last", func(j *trivium.Job) { j.Last = trivium.LastDrop })
	add("index order", func(j *trivium.Job) { j.Data.Order = "index" })
	add("full batch", func(j *trivium.Job) { j.Batch, j.Epochs = trivium.FullBatch, 30 })
	add("fewer rows than shards", func(j *trivium.Job) { j.Batch = 7 })
	add("five shards", func(j *trivium.Job) { j.Shards = 5 })
	add("one shard", func(j *trivium.Job) { j.Shards = 1 })
	add("steps", func(j *trivium.Job) { j.Steps = 17 })
	return jobs
}

// Run tests the strategy that open makes.
func Run(t *testing.T, open func(env train.Env) trivium.Strategy) {
	ctx := context.Background()
	train1 := func(t *testing.T, env train.Env, job *trivium.Job) trivium.Result {
		t.Helper()
		r, err := open(env).Train(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	t.Run("learns", func(t *testing.T) {
		for name, job := range Variants() {
			r := train1(t, Env(t, 2, false), job)
			if r.Reason != trivium.Finished || r.Metrics["test.accuracy"] < 0.75 || !(r.Metrics["valid.loss"] < 0.8) {
				t.Errorf("%s: %s after %d updates with %v", name, r.Reason, r.Steps, r.Metrics)
			}
		}
	})

	t.Run("exact", func(t *testing.T) {
		for name, job := range Variants() {
			job.Exact = true
			want, err := local.New(Env(t, 1, true), local.Options{}).Train(ctx, job)
			if err != nil {
				t.Fatal(err)
			}
			for threads := 1; threads <= 3; threads++ {
				Same(t, fmt.Sprintf("%s, %d threads", name, threads), train1(t, Env(t, threads, true), job), want)
			}
		}
	})

	t.Run("own", func(t *testing.T) { own(t, open) })

	t.Run("resume", func(t *testing.T) {
		for name, job := range Variants() {
			job.Exact = true
			job.EvalEvery = 6
			job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 1000}
			if testing.Short() {
				job.Steps = 17 // two interruptions also where one comes after eight updates, and two evaluations
			}
			want := train1(t, Env(t, 2, true), job)
			// Interrupted in every fourth update, and resumed from the last checkpoint on another number of threads.
			store := blob.Dir(t.TempDir())
			var resume *checkpoint.Checkpoint
			for process := 0; ; process++ {
				env := Env(t, 1+process%2, true)
				env.Blob, env.Resume = store, resume
				ctx := interrupt(t, &env, 3*job.VirtualShards()+1)
				r, err := open(env).Train(ctx, job)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if r.Reason != trivium.Interrupted {
					Same(t, name+", resumed", r, want)
					if process < 2 {
						t.Errorf("%s: interrupted %d times, want more", name, process)
					}
					break
				}
				if resume, _, err = checkpoint.Latest(context.Background(), store); err != nil {
					t.Fatal(err)
				}
				if resume.Progress.Step != r.Steps || r.Steps == 0 {
					t.Fatalf("%s: interrupted after update %d, the checkpoint is of %d", name, r.Steps, resume.Progress.Step)
				}
			}
		}
	})

	t.Run("early stop", func(t *testing.T) {
		job := Job()
		job.Epochs, job.Stop = 1000, trivium.EarlyStop{Metric: "valid.accuracy", Target: ">= 0.8"}
		if r := train1(t, Env(t, 2, false), job); r.Reason != trivium.TargetMet || r.Metrics["valid.accuracy"] < 0.8 || r.Epochs > 50 {
			t.Errorf("%s after epoch %d with %v", r.Reason, r.Epochs, r.Metrics)
		}
		job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 3, MinDelta: 0.05}
		if r := train1(t, Env(t, 2, false), job); r.Reason != trivium.Stopped || r.Epochs < 4 || r.Epochs > 100 {
			t.Errorf("%s after epoch %d with %v", r.Reason, r.Epochs, r.Metrics)
		}
	})

	t.Run("diverges", func(t *testing.T) {
		job := Job()
		env := Env(t, 2, false)
		env.Blob, env.Checkpoints.Every = blob.Dir(t.TempDir()), 1
		job.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1e38}
		r, err := open(env).Train(ctx, job)
		diverged, ok := errors.AsType[*trivium.DivergedError](err)
		if !ok || r.Reason != trivium.Diverged || diverged.Step < 2 || diverged.Tensor == "" {
			t.Fatalf("%s, %v", r.Reason, err)
		}
		c, name, err2 := checkpoint.Latest(ctx, env.Blob)
		if err2 != nil {
			t.Fatal(err2)
		}
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error %q does not name the last good checkpoint, %s", err, name)
		}
		for _, x := range c.Params.Flat {
			if !finite.Is(x) {
				t.Fatalf("the last checkpoint, %s, has %v", name, x)
			}
		}
	})

	t.Run("weights below 0", func(t *testing.T) {
		for weight, exact := range map[float64]bool{-3: false, -1: true, math.NaN(): false} {
			job, env := Job(), Env(t, 2, exact)
			job.Exact = exact
			toy := env.Models["toy"]
			env.Models = nn.Models{"toy": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
				m, err := toy(args, s, cpu)
				return uphill{m, weight}, err
			}}
			r, err := open(env).Train(ctx, job)
			want := fmt.Sprintf("the model, a traintest.uphill, returns %v as the sum of the weights", weight)
			if r.Reason != trivium.Failed || r.Steps > 0 || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s after %d updates, %v; want %s", r.Reason, r.Steps, err, want)
			}
		}
	})

	t.Run("checkpoint that cannot be written", func(t *testing.T) {
		job := Job()
		env := Env(t, 2, false)
		disk := &fullDisk{Store: blob.Dir(t.TempDir()), left: 2*4096 + 500}
		env.Blob, env.Checkpoints.Every = disk, 5
		r, err := open(env).Train(ctx, job)
		if err == nil || r.Reason != trivium.Failed || !strings.Contains(err.Error(), errFull.Error()) {
			t.Fatalf("%s, %v", r.Reason, err)
		}
		if _, name, err2 := checkpoint.Latest(ctx, disk.Store); err2 != nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the last checkpoint is %q, %v; the error says %q", name, err2, err)
		}
	})

	t.Run("mistakes", func(t *testing.T) {
		job := Job()
		job.Batch, job.Optimizer.Name, job.Stop = 0, "adma", trivium.EarlyStop{Metric: "auc", Target: "0.9"}
		_, err := open(Env(t, 1, false)).Train(ctx, job)
		if _, ok := errors.AsType[*train.JobError](err); !ok {
			t.Fatalf("%v is no JobError", err)
		}
		for _, want := range []string{"batch: want at least 1 row", `did you mean "adam"?`, `want split.metric`, `want a comparison such as ">= 0.9"`} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %s", err, want)
			}
		}
		for want, change := range map[string]func(*trivium.Job){
			`"tory"`:                 func(j *trivium.Job) { j.Model = "tory" },
			`did you mean "recall"?`: func(j *trivium.Job) { j.Metrics = []string{"recal"} },
			"does not fit":           func(j *trivium.Job) { j.Metrics = []string{"auc"} },
			"nothing to train":       func(j *trivium.Job) { j.Batch, j.Last = 1000, trivium.LastDrop },
		} {
			job := Job()
			change(job)
			if _, err := open(Env(t, 1, false)).Train(ctx, job); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
	})
}

// interrupt returns a context that ends in the midst of training: when the model was asked for so many gradients.
func interrupt(t *testing.T, env *train.Env, calls int) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var made atomic.Int64
	toy := env.Models["toy"]
	env.Models = nn.Models{"toy": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := toy(args, s, cpu)
		if err != nil {
			return nil, err
		}
		return &interrupter{m.(*Toy), func() {
			if made.Add(1) == int64(calls) {
				cancel()
			}
		}}, nil
	}}
	return ctx
}

// An interrupter is a toy model that tells when it is asked for a gradient.
type interrupter struct {
	*Toy
	asked func()
}

// Grad implements trivium.Model.
func (m *interrupter) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	m.asked()
	return m.Toy.Grad(ctx, p, b, g, ready)
}

// An uphill model has another weight sum than the one it is made of.
type uphill struct {
	trivium.Model
	weight float64
}

// Grad implements trivium.Model.
func (m uphill) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	lossSum, _, err = m.Model.Grad(ctx, p, b, g, ready)
	return lossSum, m.weight, err
}

// Same compares results to the bit.
func Same(t *testing.T, what string, got, want trivium.Result) {
	t.Helper()
	for i := range want.Params.Flat {
		if math.Float32bits(got.Params.Flat[i]) != math.Float32bits(want.Params.Flat[i]) {
			t.Errorf("%s: cell %d is %v, want %v", what, i, got.Params.Flat[i], want.Params.Flat[i])
			break
		}
	}
	if !maps.Equal(got.Metrics, want.Metrics) {
		t.Errorf("%s: metrics %v, want %v", what, got.Metrics, want.Metrics)
	}
	if got.Reason != want.Reason || got.Steps != want.Steps || got.Epochs != want.Epochs || got.Samples != want.Samples {
		t.Errorf("%s: %s after %d updates, %d epochs, %d rows; want %s after %d, %d, %d", what, got.Reason, got.Steps, got.Epochs, got.Samples,
			want.Reason, want.Steps, want.Epochs, want.Samples)
	}
}

var errFull = errors.New("no space left on device")

// A fullDisk fails once so many bytes are written.
type fullDisk struct {
	blob.Store
	left int
}

func (f *fullDisk) take(r io.Reader) (io.Reader, error) {
	p, err := io.ReadAll(r)
	if f.left -= len(p); f.left < 0 {
		return nil, errFull
	}
	return bytes.NewReader(p), err
}

// Put implements blob.Store.
func (f *fullDisk) Put(ctx context.Context, key string, r io.Reader) error {
	r, err := f.take(r)
	if err != nil {
		return err
	}
	return f.Store.Put(ctx, key, r)
}

// PutIfAbsent implements blob.Store.
func (f *fullDisk) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	r, err := f.take(r)
	if err != nil {
		return err
	}
	return f.Store.PutIfAbsent(ctx, key, r)
}
