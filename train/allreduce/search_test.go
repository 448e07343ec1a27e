package allreduce_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

// searches are jobs of L-BFGS: one on dense rows, and one whose tensors are row-sparse, so that a gradient has some of their rows.
func searches() map[string]*trivium.Job {
	lbfgs := trivium.OptimizerSpec{Name: "lbfgs", L2: 0.001}
	dense := traintest.Job()
	dense.Batch, dense.Epochs, dense.Optimizer = trivium.FullBatch, 12, lbfgs
	sparse := traintest.Job()
	sparse.Model, sparse.Batch, sparse.Epochs, sparse.Optimizer = "fm:2", trivium.FullBatch, 6, lbfgs
	sparse.Data = trivium.Data{Source: "wide", Rows: 60, Train: "0:50", Test: "50:"}
	return map[string]*trivium.Job{"dense": dense, "sparse": sparse}
}

// searchEnv knows the models and sources of both jobs.
func searchEnv(t *testing.T, threads int, exact bool) train.Env {
	env := traintest.Env(t, threads, exact)
	env.Models = nn.Standard()
	for name, build := range traintest.Models() {
		env.Models[name] = build
	}
	return env
}

// TestSearch: L-BFGS by several workers is that of one: in exact mode with its bits, and else as near as sums in another order are.
func TestSearch(t *testing.T) {
	for name, job := range searches() {
		for _, exact := range []bool{true, false} {
			job.Exact = exact
			want, err := local.New(searchEnv(t, 1, exact), local.Options{}).Train(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{1, 2, 3, 5} {
				if testing.Short() && n != 3 {
					continue // all in the full run
				}
				what := fmt.Sprintf("%s, exact %v, %d workers", name, exact, n)
				c := &crew{env: searchEnv(t, 1, exact), n: n}
				if _, err := c.Train(t.Context(), job); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for _, got := range c.results {
					same(t, what, got, c.results[0])
				}
				got := c.results[0]
				if exact {
					same(t, what, got, want)
				} else if d := math.Abs(got.Metrics["train.loss"] - want.Metrics["train.loss"]); !(d <= 1e-3*want.Metrics["train.loss"]) || got.Steps != want.Steps {
					t.Errorf("%s: %d updates to a loss of %v, by one %d to %v", what, got.Steps, got.Metrics["train.loss"], want.Steps, want.Metrics["train.loss"])
				}
			}
		}
	}
}

// TestSearchInPieces: a gradient that is computed in pieces is the same sum.
func TestSearchInPieces(t *testing.T) {
	job := searches()["dense"]
	want, err := local.New(searchEnv(t, 1, false), local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&crew{env: searchEnv(t, 1, false), n: 2, o: allreduce.Options{Accumulate: 3}}).Train(t.Context(), job)
	if err != nil || !(math.Abs(got.Metrics["train.loss"]-want.Metrics["train.loss"]) <= 1e-3*want.Metrics["train.loss"]) {
		t.Errorf("a loss of %v, want %v; %v", got.Metrics["train.loss"], want.Metrics["train.loss"], err)
	}
}

// TestSearchConverges: where no step makes the loss smaller, all end, and say so, also where nothing was looked at before. The losses that they compare
// have all digits.
func TestSearchConverges(t *testing.T) {
	for _, atEnd := range []bool{false, true} {
		searchConverges(t, atEnd)
	}
}

func searchConverges(t *testing.T, atEnd bool) {
	job := searches()["dense"]
	job.Epochs = 10_000
	alone, err := local.New(searchEnv(t, 1, false), local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	var notice string
	env := searchEnv(t, 1, false)
	env.AtEnd = atEnd
	env.Watch.Notice = func(_ observe.Level, text string) { notice = text }
	c := &crew{env: env, n: 3}
	if _, err := c.Train(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	for rank, got := range c.results {
		if got.Reason != trivium.Finished || got.Steps != c.results[0].Steps || got.Steps > 200 {
			t.Errorf("rank %d: %s after %d updates", rank, got.Reason, got.Steps)
		}
	}
	if loss := c.results[0].Metrics["train.loss"]; !strings.Contains(notice, "converged") || !(loss <= alone.Metrics["train.loss"]+1e-5) {
		t.Errorf("%q at a loss of %v, alone %v", notice, loss, alone.Metrics["train.loss"])
	}
}

// TestSearchSeesWholeLosses: the sums of losses that searches compare are float64s. Riding with the gradient they would be float32s.
func TestSearchSeesWholeLosses(t *testing.T) {
	job := digits() // whose rows weigh 1
	job.Batch, job.Steps, job.Optimizer = trivium.FullBatch, 1, trivium.OptimizerSpec{Name: "lbfgs"}
	var loss float64
	env := train.Env{Watch: train.Watch{Progress: func(p train.Progress) { loss = p.Loss }}}
	r, err := (&crew{env: env, n: 2}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	sum := loss * float64(r.Samples)
	if off := math.Abs(sum-float64(float32(sum))) / sum; !(off > 1e-13) {
		t.Errorf("the sum of losses, %v, has no more digits than a float32", sum)
	}
}

// TestSearchResumes: the history is in checkpoints, and goes on under another number of workers and by itself.
func TestSearchResumes(t *testing.T) {
	job := searches()["dense"]
	job.Exact = true
	want, err := local.New(searchEnv(t, 1, true), local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	env := searchEnv(t, 1, true)
	env.Blob = blob.Dir(t.TempDir())
	for i, workers := range []int{3, 0, 2} {
		job.Steps = []int64{4, 7, 0}[i]
		strategy := trivium.Strategy(&crew{env: env, n: workers})
		if workers == 0 {
			strategy = local.New(env, local.Options{})
		}
		got, err := strategy.Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			same(t, "resumed", got, want)
			break
		}
		if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
			t.Fatal(err)
		}
	}
}

// A counted model ends ctx at its so-many-th gradient.
type counted struct {
	trivium.Model
	calls *atomic.Int64
	at    int64
	stop  func()
}

// Grad implements trivium.Model.
func (m counted) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if m.calls.Add(1) == m.at {
		m.stop()
	}
	return m.Model.Grad(ctx, p, b, g, ready)
}

// TestSearchInterrupted: who is asked to stop within a line search stops with all others after the update, which is whole.
func TestSearchInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calls atomic.Int64
	env := searchEnv(t, 1, false)
	toy := env.Models["toy"]
	env.Models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := toy(args, s, cpu)
		return counted{m, &calls, 10, stop}, err
	}
	c := &crew{env: env, n: 3}
	_, _ = c.Train(ctx, searches()["dense"])
	for rank, got := range c.results {
		if got.Reason != trivium.Interrupted || got.Steps == 0 || got.Steps != c.results[0].Steps {
			t.Errorf("rank %d: %s after %d updates, %v", rank, got.Reason, got.Steps, c.errs[rank])
		}
		traintest.Same(t, fmt.Sprintf("rank %d", rank), got, c.results[0])
	}
}

// TestSearchRefusals: what L-BFGS cannot be combined with.
func TestSearchRefusals(t *testing.T) {
	job := searches()["dense"]
	for want, o := range map[string]allreduce.Options{
		"topk:0.1 changes them":    {Compress: "topk:0.1"},
		"each worker has its own":  {Every: 4},
		"no worker has them where": {ShardOptimizer: true},
	} {
		if err := o.Check(job, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v does not say %q", o, err, want)
		}
	}
	if err := (allreduce.Options{}).Check(job, nil); err != nil {
		t.Error(err)
	}
}
