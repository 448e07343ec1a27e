package allreduce_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

// TestDivergence: all ranks say the same.
func TestDivergence(t *testing.T) {
	job := digits()
	job.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1e38}
	c := &crew{n: 3}
	_, err := c.Train(t.Context(), job)
	if _, ok := errors.AsType[*trivium.DivergedError](err); !ok {
		t.Fatal(err)
	}
	for rank := range c.n {
		if c.errs[rank] == nil || c.errs[rank].Error() != err.Error() || c.results[rank].Reason != trivium.Diverged {
			t.Errorf("rank %d: %s, %v; rank 0: %v", rank, c.results[rank].Reason, c.errs[rank], err)
		}
	}
}

// TestDivergenceSeenByOne: what only rank 0 finds, as it saves, all know after the next update, and say the same of it.
func TestDivergenceSeenByOne(t *testing.T) {
	for name, o := range map[string]allreduce.Options{"": {}, "sharded": {ShardOptimizer: true}, "local": {Every: 2}} {
		job := traintest.Job()
		job.EvalEvery = 1 << 40
		env := traintest.Env(t, 1, false)
		env.Blob, env.Checkpoints.Every = blob.Dir(t.TempDir()), 4
		models := traintest.Models()
		toy := models["toy"]
		models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := toy(args, s, cpu)
			return &explosive{Toy: m.(*traintest.Toy)}, err
		}
		env.Models = models
		o.Wait = time.Minute // it ends a hang, no more
		c := &crew{env: env, n: 3, o: o}
		_, _ = c.Train(t.Context(), job)
		for rank, err := range c.errs {
			d, ok := errors.AsType[*trivium.DivergedError](err)
			if !ok || d.Step != 4 || d.Tensor != "weight" || !(d.Loss > 0) || c.results[rank].Reason != trivium.Diverged || c.results[rank].Steps > 5 { // under local SGD the others have made one more
				t.Errorf("%s rank %d: %s after update %d: %v", name, rank, c.results[rank].Reason, c.results[rank].Steps, err)
			}
		}
	}
}

// TestDivergenceOfGradient: where the loss is not finite, all name the tensor whose gradient is not, also where each has a part of the sum alone.
func TestDivergenceOfGradient(t *testing.T) {
	for name, o := range map[string]allreduce.Options{"": {}, "sharded": {ShardOptimizer: true}, "coded": {ShardOptimizer: true, Compress: "f16"}} {
		env := traintest.Env(t, 1, false)
		models := traintest.Models()
		toy := models["toy"]
		models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := toy(args, s, cpu)
			return &explosive{Toy: m.(*traintest.Toy), loss: true}, err
		}
		env.Models = models
		c := &crew{env: env, n: 3, o: o}
		_, _ = c.Train(t.Context(), traintest.Job())
		for rank, err := range c.errs {
			d, ok := errors.AsType[*trivium.DivergedError](err)
			if !ok || d.Step != 4 || d.Tensor != "weight" {
				t.Errorf("%s rank %d: %v", name, rank, err)
			}
		}
	}
}

// An explosive model's fourth gradient is infinite, with a loss that is not, or is too.
type explosive struct {
	*traintest.Toy
	calls int
	loss  bool
}

// Grad implements trivium.Model.
func (e *explosive) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	lossSum, weightSum, err = e.Toy.Grad(ctx, p, b, g, nil)
	if e.calls++; e.calls == 4 {
		g.Flat[0] = float32(math.Inf(1))
		if e.loss {
			lossSum = math.Inf(1)
		}
	}
	if ready != nil {
		ready(0)
		ready(1)
	}
	return lossSum, weightSum, err
}

// TestOneFails: a rank that cannot compute its gradient ends the job everywhere, with its words.
func TestOneFails(t *testing.T) {
	for _, exact := range []bool{false, true} {
		job := traintest.Job()
		job.Exact = exact
		env := traintest.Env(t, 1, exact)
		models := traintest.Models()
		var calls sync.Mutex
		made := 0
		toy := models["toy"]
		models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := toy(args, s, cpu)
			calls.Lock()
			defer calls.Unlock()
			made++
			return &faulty{m.(*traintest.Toy), made == 2, 0}, err
		}
		env.Models = models
		c := &crew{env: env, n: 3}
		_, _ = c.Train(t.Context(), job)
		for rank, err := range c.errs {
			if err == nil || !strings.Contains(err.Error(), "the rows are rotten") || !strings.Contains(err.Error(), "update 5") && !exact {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

// A leaver's third gradient is an error, and leaves rows behind that there are not.
type leaver struct {
	trivium.Model
	calls int
}

// Grad implements trivium.Model.
func (m *leaver) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if m.calls++; m.calls == 3 {
		g.Rows[0] = append(g.Rows[0][:0], 1<<30)
		return 0, 0, errors.New("the rows are rotten")
	}
	return m.Model.Grad(ctx, p, b, g, ready)
}

// TestRowsOfWhoFails: what a model that fails has left in a row-sparse gradient is of no account.
func TestRowsOfWhoFails(t *testing.T) {
	for _, exact := range []bool{false, true} {
		job := &trivium.Job{
			Version: trivium.JobVersion, Model: "logistic", Data: trivium.Data{Source: "wide", Rows: 300, Train: "0:200", Test: "200:"},
			Batch: 50, Epochs: 2, Seed: 3, Exact: exact,
		}
		var made atomic.Int32
		logistic := nn.Standard()["logistic"]
		env := train.Env{Sources: traintest.Sources(), Models: nn.Models{"logistic": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := logistic(args, s, cpu)
			if made.Add(1) == 2 {
				m = &leaver{Model: m}
			}
			return m, err
		}}}
		c := &crew{env: env, n: 3}
		_, _ = c.Train(t.Context(), job)
		for rank, err := range c.errs {
			if err == nil || !strings.Contains(err.Error(), "the rows are rotten") {
				t.Errorf("exact %v: rank %d: %v", exact, rank, err)
			}
		}
	}
}

type faulty struct {
	*traintest.Toy
	broken bool
	calls  int
}

// Grad implements trivium.Model.
func (f *faulty) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if f.calls++; f.broken && f.calls == 5 {
		return 0, 0, errors.New("the rows are rotten")
	}
	return f.Toy.Grad(ctx, p, b, g, ready)
}

// TestOneFailsBetween: what goes wrong at one rank between two updates all say alike, also where the others are about to evaluate, as after the last
// update.
func TestOneFailsBetween(t *testing.T) {
	misuse := &train.JobError{Err: errors.New("its rows are no good")}
	diverged := &trivium.DivergedError{Step: 3, Loss: math.NaN(), Tensor: "weight"}
	for name, o := range map[string]allreduce.Options{"": {}, "sharded": {ShardOptimizer: true}, "local": {Every: 2}} {
		for rank, failure := range []error{errors.New("it is out of memory"), misuse, diverged} {
			for _, at := range []int64{3, 4, 8} { // an update follows, an evaluation, the end
				job := traintest.Job()
				job.Steps, job.EvalEvery = 8, 4
				c := &crew{env: traintest.Env(t, 1, false), n: 3, o: o}
				c.env.AtEnd = at == 8
				c.each = func(r int, env *train.Env) {
					env.Between.After = func(_ context.Context, step int64, _ func(context.Context) (trivium.Params, error)) error {
						if r == rank && step == at {
							return failure
						}
						return nil
					}
				}
				_, _ = c.Train(t.Context(), job)
				for r, err := range c.errs {
					_, misused := errors.AsType[*train.JobError](err)
					_, ended := errors.AsType[*trivium.DivergedError](err)
					if err == nil || !strings.Contains(err.Error(), failure.Error()) || misused != (failure == misuse) || ended != (failure == diverged) {
						t.Errorf("%s: rank %d fails after update %d with %v: rank %d says %v", name, rank, at, failure, r, err)
					}
				}
			}
		}
	}
}

// TestGone: ranks that lose one return an error that names it.
func TestGone(t *testing.T) {
	job := digits()
	ctx, interrupt, lose := train.Member(t.Context())
	defer interrupt()
	gone := transport.Name{Role: "worker", ID: "7"}
	env := train.Env{}
	env.Watch.Evaluated = func(train.Progress, map[string]float64) { lose(&train.LostError{Peer: gone, Why: "a test says so"}) }
	job.Epochs = 1 << 20
	c := &crew{env: env, n: 2}
	_, err := c.Train(ctx, job)
	if lost, ok := errors.AsType[*train.LostError](err); !ok || lost.Peer != gone {
		t.Errorf("error %v", err)
	}
}
