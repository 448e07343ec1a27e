package local_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

const (
	loadTakes  = 7 * time.Millisecond
	gradTakes  = 5 * time.Millisecond
	applyTakes = 2 * time.Millisecond
)

// slowRows take their time to be read, slowModel to be differentiated, and slowRule to be applied.
type slowRows struct{ data.Dataset }

func (r slowRows) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	time.Sleep(loadTakes)
	return r.Dataset.Read(ctx, dst, from, to)
}

type slowModel struct{ *idle }

func (m slowModel) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	time.Sleep(gradTakes)
	return m.idle.Grad(ctx, p, b, g, ready)
}

type slowRule struct{}

func (slowRule) Slots() int        { return 0 }
func (slowRule) Elementwise() bool { return false } // so that it is called once an update

func (slowRule) Apply(_ int64, _ *trivium.Layout, _ int, _, _, u []float32, _ [][]float32) {
	time.Sleep(applyTakes)
	clear(u)
}

// TestPhasesAreTheTime: what an outer clock shows from the beginning to the end is in the steps, and in the phase that it belongs to: nothing
// is in none, and nothing is other. In virtual time, which passes where the rows, the model and the optimizer say so, all of it is exact.
func TestPhasesAreTheTime(t *testing.T) {
	const steps = 20
	synctest.Test(t, func(t *testing.T) {
		cpu := tensor.NewCPU(1, false) // a pool of more looks at the clock while it waits for work
		defer cpu.Close()
		hub := observe.NewHub(observe.Options{})
		env := idleEnv(cpu, hub, nil)
		env.Splits = &data.Splits{Train: slowRows{env.Splits.Train}}
		build := env.Models["idle"]
		env.Models = nn.Models{"idle": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := build(args, s, cpu)
			return slowModel{m.(*idle)}, err
		}}
		env.Optimizers = optim.Optimizers{"slow": func(trivium.OptimizerSpec, kernel.ISA) (trivium.Optimizer, error) { return slowRule{}, nil }}
		job := idleJob(steps)
		job.Optimizer = trivium.OptimizerSpec{Name: "slow"}
		var begin, end time.Time
		env.Watch.Begin = func(train.Progress) { begin = time.Now() }
		env.Between.After = func(context.Context, int64, func(context.Context) (trivium.Params, error)) error {
			end = time.Now() // before the reader is waited for, which has begun the next rows
			return nil
		}
		if r, err := local.New(env, local.Options{}).Train(t.Context(), job); err != nil || r.Steps != steps {
			t.Fatal(r.Steps, err)
		}
		hub.Collect(true)
		frames := hub.Latest()
		if len(frames) != 1 {
			t.Fatalf("%d frames", len(frames))
		}
		get := func(c observe.Counter) time.Duration { return time.Duration(frames[0].Frame.Counters[c]) }
		outer := end.Sub(begin)
		if least := steps*(gradTakes+applyTakes) + loadTakes; outer < least {
			t.Fatalf("by an outer clock training took %v, want at least %v", outer, least)
		}
		if wall := get(observe.WallTime); wall != outer {
			t.Errorf("the steps took %v, by an outer clock %v", wall, outer)
		}
		for p, want := range map[observe.Phase]time.Duration{
			observe.Load: outer - steps*(gradTakes+applyTakes), observe.Compute: steps * gradTakes, observe.Apply: steps * applyTakes, observe.Other: 0,
		} {
			if x := get(observe.PhaseTime(p)); x != want {
				t.Errorf("%v of %s, want %v", x, p, want)
			}
		}
	})
}
