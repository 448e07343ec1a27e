package allreduce_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
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

// TestAveragesOnlyWhenDue: local SGD averages every few updates and after the last. The ends of epochs are among its averages where the model may
// be measured or saved there, and not in a run that is looked at only at its end, such as a trial of compare.
func TestAveragesOnlyWhenDue(t *testing.T) {
	const every = 3
	for _, atEnd := range []bool{true, false} {
		job := traintest.Job()
		job.Epochs, job.Batch = 0, 50
		env := traintest.Env(t, 1, false)
		opened, err := train.OpenData(t.Context(), env, job)
		if err != nil {
			t.Fatal(err)
		}
		rows := opened.Train.Rows()
		_ = opened.Close()
		perEpoch := (rows + 49) / 50
		job.Steps = 3*perEpoch + 1
		if perEpoch%every == 0 || perEpoch < 2 || job.Steps%every == 0 {
			t.Fatalf("%d updates an epoch show nothing", perEpoch)
		}
		var mu sync.Mutex
		models := map[int64]map[uint32]bool{} // the different ones after each update
		env.AtEnd = atEnd
		env.Between.After = func(ctx context.Context, step int64, latest func(context.Context) (trivium.Params, error)) error {
			p, err := latest(ctx)
			if err != nil {
				return err
			}
			h := crc32.NewIEEE()
			if err := binary.Write(h, binary.LittleEndian, p.Flat); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if models[step] == nil {
				models[step] = map[uint32]bool{}
			}
			models[step][h.Sum32()] = true
			return nil
		}
		c := &crew{env: env, n: 3, o: allreduce.Options{Every: every}}
		if r, err := c.Train(t.Context(), job); err != nil || r.Steps != job.Steps {
			t.Fatalf("%+v, %v", r, err)
		}
		for step := int64(1); step <= job.Steps; step++ {
			want := step%every == 0 || step == job.Steps || !atEnd && step%perEpoch == 0
			if got := len(models[step]) == 1; got != want {
				t.Errorf("only at its end looked at: %v; update %d of %d, %d an epoch: averaged %v, want %v", atEnd, step, job.Steps, perEpoch, got, want)
			}
		}
	}
}
