package allreduce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestPhasesAreTheTime: what an outer clock shows from the beginning to the last update is in the steps, the gradient's in compute, and next to
// nothing is other. In virtual time, which passes while a gradient is computed, a busy machine changes none of it.
func TestPhasesAreTheTime(t *testing.T) {
	const steps, quick, late = 6, 10 * time.Millisecond, 30 * time.Millisecond
	job := traintest.Job()
	job.Steps, job.EvalEvery = steps, 1<<40
	env := traintest.Env(t, 1, false) // a pool of more looks at the clock while it waits for work
	splits, err := train.OpenData(t.Context(), env, job)
	if err != nil {
		t.Fatal(err)
	}
	defer splits.Close()
	env.Splits = splits
	var begin, end time.Time
	c := &crew{env: env, n: 3, threads: 1}
	c.each = func(rank int, env *train.Env) {
		if rank == 0 {
			env.Watch.Begin = func(train.Progress) { begin = time.Now() }
			env.Between.After = func(context.Context, int64, func(context.Context) (trivium.Params, error)) error {
				end = time.Now()
				return nil
			}
		}
		takes := map[int]time.Duration{}
		for n := range steps {
			takes[n+1] = quick
			if rank == 2 {
				takes[n+1] = late
			}
		}
		env.Models = traintest.Models()
		toy := env.Models["toy"]
		env.Models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := toy(args, s, cpu)
			return &slow{Toy: m.(*traintest.Toy), grad: takes}, err
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := c.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		outer := end.Sub(begin)
		for rank := range c.n {
			get := c.counters(t, rank)
			compute := steps * quick
			if rank == 2 {
				compute = steps * late
			}
			if x := get(observe.PhaseTime(observe.Compute)); x != compute {
				t.Errorf("rank %d: %v of compute, want %v", rank, x, compute)
			}
			wall := get(observe.WallTime)
			if outer < steps*late || wall > outer || float64(wall) < 0.97*float64(outer) {
				t.Errorf("rank %d: the steps took %v, by an outer clock %v", rank, wall, outer)
			}
			if x := get(observe.PhaseTime(observe.Other)); float64(x) > 0.05*float64(wall) {
				t.Errorf("rank %d: %v of other in %v", rank, x, wall)
			}
		}
	})
}
