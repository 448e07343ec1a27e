package allreduce_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestLateWorker: whom the others wait for is named after a second, and once: again only where it takes much longer than before. Where it
// has come and another one is still missing, that one is named.
func TestLateWorker(t *testing.T) {
	second := func(n ...float64) map[int]time.Duration { // by update, from the first
		m := map[int]time.Duration{}
		for i, k := range n {
			m[i+1] = time.Duration(k * float64(time.Second))
		}
		return m
	}
	late := func(step, worker int, wait, op string) string {
		return fmt.Sprintf("step %d: waiting for worker %d for %s now: it has not begun %s", step, worker, wait, op)
	}
	const sum, part = "allreduce of gradient of weight to bias", "reduce-scatter of gradient of weight to bias"
	for name, c := range map[string]struct {
		workers, late int
		all           bool // are as slow
		grad          map[int]time.Duration
		last          map[int]time.Duration // of the last worker; nil: as the others
		measure       time.Duration
		o             allreduce.Options
		want          []string // is said
	}{
		"the other":    {workers: 2, late: 1, grad: second(0, 0, 2), want: []string{late(2, 1, "1s", sum)}},
		"rank 0":       {workers: 2, late: 0, grad: second(2), want: []string{late(0, 0, "1s", sum)}},
		"one of three": {workers: 3, late: 2, grad: second(0, 2), want: []string{late(1, 2, "1s", sum)}},
		"always":       {workers: 2, late: 1, grad: second(2, 2, 2, 3, 2), want: []string{late(0, 1, "1s", sum)}},
		"all":          {workers: 3, all: true, grad: second(5, 5)},
		"local SGD": {
			workers: 2, late: 1, grad: second(1, 1), o: allreduce.Options{Every: 2},
			want: []string{late(1, 1, "1s", "allreduce of model")},
		},
		"two of three": {workers: 3, late: 1, grad: second(2.5), last: second(9.5), want: []string{late(0, 1, "1s", sum), late(0, 2, "3s", sum)}},
		"the other of two": { // the one that was late before is as late as then
			workers: 3, late: 1, grad: second(2.5, 0, 2.5), last: second(0, 0, 19.5),
			want: []string{late(0, 1, "1s", sum), late(2, 2, "3s", sum)},
		},
		"sharded, longer": {
			workers: 2, late: 1, grad: second(2, 0, 20), o: allreduce.Options{ShardOptimizer: true},
			want: []string{late(0, 1, "1s", part), late(2, 1, "4s", part)},
		},
		"evaluation": {workers: 2, measure: 2 * time.Second, want: []string{"step 6: waiting for worker 0 for 1s now: it measures the model"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := traintest.Job()
			job.Steps = 6
			env := traintest.Env(t, 1, false) // a pool of more looks at the clock while it waits for work
			splits, err := train.OpenData(t.Context(), env, job)
			if err != nil {
				t.Fatal(err)
			}
			defer splits.Close()
			env.Splits = splits
			crew := &crew{env: env, n: c.workers, o: c.o, threads: 1}
			crew.each = func(rank int, env *train.Env) {
				env.Models = traintest.Models()
				toy := env.Models["toy"]
				env.Models["toy"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
					m, err := toy(args, s, cpu)
					slow := &slow{Toy: m.(*traintest.Toy), measure: c.measure}
					if rank == c.late || c.all {
						slow.grad = c.grad
					}
					if c.last != nil && rank == c.workers-1 {
						slow.grad = c.last
					}
					return slow, err
				}
			}
			synctest.Test(t, func(t *testing.T) {
				if _, err := crew.Train(t.Context(), job); err != nil {
					t.Fatal(err)
				}
			})
			var said []string
			for _, h := range crew.hubs {
				for _, e := range h.Events() {
					if e.Kind == "waiting" {
						said = append(said, fmt.Sprintf("step %d: %s", e.Step, e.Text))
						if measured := c.measure > 0; measured != (e.Level == observe.Info) {
							t.Errorf("level %s", e.Level)
						}
					}
				}
			}
			if !slices.Equal(said, c.want) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// A slow model takes its time.
type slow struct {
	*traintest.Toy
	grad    map[int]time.Duration // by call, from 1
	calls   int
	measure time.Duration // the first time
}

// Grad implements trivium.Model.
func (m *slow) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (_, _ float64, err error) {
	m.calls++
	time.Sleep(m.grad[m.calls])
	return m.Toy.Grad(ctx, p, b, g, ready)
}

// Predict implements trivium.Predictor.
func (m *slow) Predict(ctx context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	time.Sleep(m.measure)
	m.measure = 0
	return m.Toy.Predict(ctx, p, b, scores)
}
