package local_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// idle is a model of softmax's size on 784 inputs whose gradient costs nothing: what is left of a step is the loop.
type idle struct {
	layout *trivium.Layout
	each   func() // if any, called for each gradient
}

func (m *idle) Layout() *trivium.Layout         { return m.layout }
func (m *idle) Init(_ uint64, p trivium.Params) {}
func (m *idle) Grad(_ context.Context, _ trivium.Params, b trivium.Batch, _ trivium.Gradient, _ func(int)) (lossSum, weightSum float64, err error) {
	if m.each != nil {
		m.each()
	}
	return 1, float64(b.Rows), nil
}

// idleEnv has the idle model, and rows that cost nothing to load: views of one vector.
func idleEnv(cpu *tensor.CPU, hub *observe.Hub, each func()) train.Env {
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{1}}}}
	rows := 100 << 10
	b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{1}, Values: make([]float32, rows)}}}
	return train.Env{
		CPU: cpu, Observe: hub, Splits: &data.Splits{Train: data.Memory(schema, b)},
		Models: nn.Models{"idle": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			l, err := trivium.NewLayout(trivium.Spec{Name: "w", Shape: []int{784, 10}, Decay: 1}, trivium.Spec{Name: "b", Shape: []int{10}})
			return &idle{l, each}, err
		}},
	}
}

func idleJob(steps int64) *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "idle", Batch: 100, Steps: steps, Data: trivium.Data{Order: "index"},
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
}

// TestSteadyStateAllocatesNothing counts the allocations from one update of an epoch to another of it.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	cpu := tensor.NewCPU(2, false)
	defer cpu.Close()
	hub := observe.NewHub(observe.Options{})
	const from, to = 100, 700
	for _, exact := range []bool{false, true} {
		for _, name := range []string{"sgd", "adam"} {
			mallocs := func() uint64 {
				var before, after runtime.MemStats
				var gradients atomic.Int64
				shards := int64(1)
				if exact {
					shards = trivium.DefaultShards
				}
				each := func() {
					switch gradients.Add(1) {
					case from * shards:
						runtime.GC()
						runtime.ReadMemStats(&before)
					case to * shards:
						runtime.ReadMemStats(&after)
					}
				}
				job := idleJob(to)
				job.Exact, job.Optimizer.Name = exact, name
				env := idleEnv(cpu, hub, each)
				if exact {
					env.CPU = nil
				}
				if r, err := local.New(env, local.Options{}).Train(t.Context(), job); err != nil || gradients.Load() != to*shards {
					t.Fatal(r.Steps, gradients.Load(), err)
				}
				return after.Mallocs - before.Mallocs
			}
			// The runtime allocates a little of its own accord: what counts is there each time.
			made := mallocs()
			for try := 1; try < 3 && made > 20; try++ {
				made = mallocs()
			}
			if made > 20 {
				t.Errorf("%s, exact %v: %d allocations in %d updates", name, exact, made, to-from)
			}
		}
	}
}

// TestPhasesSumToTheWall adds up the phases of all steps, and compares with the counter of wall time.
func TestPhasesSumToTheWall(t *testing.T) {
	hub := observe.NewHub(observe.Options{})
	start := time.Now()
	if _, err := local.New(idleEnv(nil, hub, nil), local.Options{}).Train(t.Context(), idleJob(500)); err != nil {
		t.Fatal(err)
	}
	wall := time.Since(start)
	hub.Collect(true)
	frames := hub.Latest()
	if len(frames) != 1 {
		t.Fatalf("%d frames", len(frames))
	}
	var sum uint64
	for _, p := range observe.Phases() {
		sum += frames[0].Frame.Counters[observe.PhaseTime(p)]
	}
	if got := frames[0].Frame.Counters[observe.WallTime]; got != sum || sum == 0 || sum > uint64(wall) {
		t.Errorf("phases sum to %d ns, steps took %d, training %d", sum, got, wall)
	}
	if n := frames[0].Frame.Counters[observe.Steps]; n != 500 {
		t.Errorf("%d steps", n)
	}
}

// BenchmarkLoop is a step of 7,850 parameters without the model: loading a view, SGD, bookkeeping, and with observation on or off.
func BenchmarkLoop(b *testing.B) {
	for _, observed := range []bool{false, true} {
		name := "off"
		if observed {
			name = "on"
		}
		b.Run("observe "+name, func(b *testing.B) {
			cpu := tensor.NewCPU(0, false)
			defer cpu.Close()
			var hub *observe.Hub
			if observed {
				hub = observe.NewHub(observe.Options{})
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { defer close(done); _ = hub.Run(ctx) }()
				defer func() { cancel(); <-done }()
			}
			env := idleEnv(cpu, hub, nil)
			for b.Loop() {
				if _, err := local.New(env, local.Options{}).Train(context.Background(), idleJob(1000)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/update")
		})
	}
}
