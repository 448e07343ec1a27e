package allreduce_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/traintest"
)

// A poisoned model's first gradient is not finite, at one rank.
type poisoned struct {
	*traintest.Toy
	bad bool
}

// Grad implements trivium.Model.
func (m *poisoned) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	lossSum, weightSum, err = m.Toy.Grad(ctx, p, b, g, ready)
	if m.bad {
		m.bad = false
		g.Flat[len(g.Flat)-1] = float32(math.NaN())
	}
	return lossSum, weightSum, err
}

// TestOneDiverges: under local SGD, all ranks say the same of a model that has diverged at one of them alone.
func TestOneDiverges(t *testing.T) {
	env := traintest.Env(t, 1, false)
	models := traintest.Models()
	toy := models["toy"]
	var made atomic.Int32
	models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := toy(args, s, cpu)
		return &poisoned{m.(*traintest.Toy), made.Add(1) == 2}, err
	}
	env.Models = models
	c := &crew{env: env, n: 3, o: allreduce.Options{Every: 2}}
	_, _ = c.Train(t.Context(), traintest.Job())
	for rank, err := range c.errs {
		d, ok := errors.AsType[*trivium.DivergedError](err)
		if !ok || d.Tensor == "" || err.Error() != c.errs[0].Error() {
			t.Errorf("rank %d: %v; rank 0: %v", rank, err, c.errs[0])
		}
	}
}

// A lossy model's third loss is infinite, with finite gradients, of which the largest is another tensor's at each worker.
type lossy struct {
	*traintest.Toy
	tensor, calls int
}

// Grad implements trivium.Model.
func (m *lossy) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	lossSum, weightSum, err = m.Toy.Grad(ctx, p, b, g, ready)
	if m.calls++; m.calls == 3 {
		g.Tensor(m.tensor)[0] = 100 * float32(1+m.tensor)
		lossSum = math.Inf(1)
	}
	return lossSum, weightSum, err
}

// TestLossDiverges: under local SGD, where only the loss has left the range, all ranks say the same though their gradients differ.
func TestLossDiverges(t *testing.T) {
	env := traintest.Env(t, 1, false)
	models := traintest.Models()
	toy := models["toy"]
	var made atomic.Int32
	models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := toy(args, s, cpu)
		return &lossy{Toy: m.(*traintest.Toy), tensor: int(made.Add(1)) % 2}, err
	}
	env.Models = models
	c := &crew{env: env, n: 2, o: allreduce.Options{Every: 3}}
	_, _ = c.Train(t.Context(), traintest.Job())
	for rank, err := range c.errs {
		d, ok := errors.AsType[*trivium.DivergedError](err)
		if !ok || d.Largest != "bias" || err.Error() != c.errs[0].Error() {
			t.Errorf("rank %d: %v; rank 0: %v", rank, err, c.errs[0])
		}
	}
}
