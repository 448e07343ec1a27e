package local_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

// naive is the algorithm without anything around it: every gradient of every shard is kept, and summed by the tree's definition.
func naive(t *testing.T, env train.Env, job *trivium.Job) trivium.Params {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	splits, err := data.Open(t.Context(), job.Data, data.Options{Sources: env.Sources})
	check(err)
	model, err := env.Models.Build(job.Model, splits.Train.Schema(), env.CPU)
	check(err)
	l := model.Layout()
	opt, err := optim.New(job.Optimizer, env.CPU.ISA)
	check(err)
	p := trivium.NewParams(l)
	model.Init(job.Seed, p)
	slots := make([][]float32, opt.Slots())
	for k := range slots {
		slots[k] = make([]float32, l.Len())
	}
	step := int64(0)
	for epoch := range job.Epochs {
		o := data.BatchOptions{Batch: job.Batch, Last: job.Last, Shuffle: job.Data.Order != "index", Seed: job.Seed, Epoch: epoch}
		for b, err := range data.Batches(t.Context(), splits.Train, o) {
			check(err)
			if step++; job.Steps > 0 && step > job.Steps {
				return p
			}
			leaves, weights := make([]trivium.Gradient, job.VirtualShards()), make([]float64, job.VirtualShards())
			for v := range leaves {
				leaves[v] = trivium.NewGradient(l)
				if from, to := job.Shard(v, b.Rows); from < to {
					_, weights[v], err = model.Grad(t.Context(), p, b.Slice(from, to), leaves[v], nil)
					check(err)
				}
			}
			g, weight := sumTree(leaves, weights)
			u := make([]float32, l.Len())
			for i := range g.Flat {
				g.Flat[i] /= float32(weight)
			}
			opt.Apply(step, l, 0, p.Flat, g.Flat, u, slots)
			for i := range u {
				p.Flat[i] += u[i]
			}
		}
	}
	return p
}

func sumTree(leaves []trivium.Gradient, weights []float64) (trivium.Gradient, float64) {
	n, half := len(leaves), 1
	if n == 1 {
		return leaves[0], weights[0]
	}
	for 2*half < n {
		half *= 2
	}
	g, w := sumTree(leaves[:half], weights[:half])
	h, x := sumTree(leaves[half:], weights[half:])
	g.Add(h)
	return g, w + x
}

// TestAgainstTheNaiveLoop wants the bits of the naive loop, in exact mode.
func TestAgainstTheNaiveLoop(t *testing.T) {
	for name, job := range traintest.Variants() {
		job.Exact = true
		env := traintest.Env(t, 2, true)
		r, err := local.New(env, local.Options{}).Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range naive(t, env, job).Flat {
			if math.Float32bits(r.Params.Flat[i]) != math.Float32bits(want) {
				t.Errorf("%s: cell %d is %v, want %v", name, i, r.Params.Flat[i], want)
				break
			}
		}
	}
}

func lbfgsJob() *trivium.Job {
	job := traintest.Job()
	job.Batch, job.Epochs = trivium.FullBatch, 25
	job.Optimizer = trivium.OptimizerSpec{Name: "lbfgs", L2: 0.001}
	return job
}

func TestLBFGS(t *testing.T) {
	for _, exact := range []bool{false, true} {
		job := lbfgsJob()
		job.Exact = exact
		r, err := local.New(traintest.Env(t, 2, exact), local.Options{}).Train(t.Context(), job)
		if err != nil || r.Reason != trivium.Finished || r.Metrics["test.accuracy"] < 0.75 {
			t.Fatalf("exact %v: %s, %v, %v", exact, r.Reason, r.Metrics, err)
		}
		// Momentum needs hundreds of updates to come so low.
		slow := traintest.Job()
		slow.Batch, slow.Epochs = trivium.FullBatch, 100
		m, err := local.New(traintest.Env(t, 2, false), local.Options{}).Train(t.Context(), slow)
		if err != nil || m.Metrics["train.loss"] < r.Metrics["train.loss"]-0.01 {
			t.Errorf("exact %v: L-BFGS ends at %v after %d updates, momentum at %v after %d; %v", exact, r.Metrics["train.loss"], r.Steps, m.Metrics["train.loss"], m.Steps, err)
		}
		if !exact {
			continue
		}
		one, err := local.New(traintest.Env(t, 1, true), local.Options{}).Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		traintest.Same(t, "one thread", one, r)
	}
}

func TestLBFGSConverges(t *testing.T) {
	job := lbfgsJob()
	job.Epochs = 10000
	var notice string
	env := traintest.Env(t, 1, false)
	env.Watch.Notice = func(_ observe.Level, text string) { notice = text }
	r, err := local.New(env, local.Options{}).Train(t.Context(), job)
	if err != nil || r.Reason != trivium.Finished || r.Steps > 200 || !strings.Contains(notice, "converged") {
		t.Errorf("%s after %d updates, %q, %v", r.Reason, r.Steps, notice, err)
	}
}

// TestLBFGSResumes goes on after each update, from the history that the checkpoint has.
func TestLBFGSResumes(t *testing.T) {
	job := lbfgsJob()
	job.Exact, job.Epochs = true, 14
	job.Optimizer.Params = map[string]float64{"history": 4}
	want, err := local.New(traintest.Env(t, 2, true), local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	env := traintest.Env(t, 1, true)
	env.Blob = blob.Dir(t.TempDir())
	for steps := int64(3); ; steps += 4 {
		job.Steps = steps
		r, err := local.New(env, local.Options{}).Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if r.Steps == want.Steps {
			traintest.Same(t, fmt.Sprintf("resumed to update %d", steps), r, want)
			break
		}
		if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
			t.Fatal(err)
		}
	}
	job.Optimizer = trivium.OptimizerSpec{Name: "momentum"}
	_, err = local.New(env, local.Options{}).Train(t.Context(), job)
	if _, ok := errors.AsType[*train.JobError](err); !ok || !strings.Contains(err.Error(), `"momentum" keeps ["velocity"]`) {
		t.Errorf("error %v", err)
	}
}

func TestLBFGSWantsAllRows(t *testing.T) {
	job := lbfgsJob()
	job.Batch = 100
	_, err := local.New(traintest.Env(t, 1, false), local.Options{}).Train(t.Context(), job)
	if err == nil || !strings.Contains(err.Error(), "want batch full, found 100") {
		t.Errorf("error %v", err)
	}
}
