package local_test

import (
	"context"
	"runtime"
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
type idle struct{ layout *trivium.Layout }

func (m *idle) Layout() *trivium.Layout         { return m.layout }
func (m *idle) Init(_ uint64, p trivium.Params) {}
func (m *idle) Grad(_ context.Context, _ trivium.Params, b trivium.Batch, _ trivium.Gradient, _ func(int)) (lossSum, weightSum float64, err error) {
	return 1, float64(b.Rows), nil
}

// idleEnv has the idle model, and rows that cost nothing to load: views of one vector.
func idleEnv(cpu *tensor.CPU, hub *observe.Hub) train.Env {
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{1}}}}
	rows := 100 << 10
	b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{1}, Values: make([]float32, rows)}}}
	return train.Env{
		CPU: cpu, Observe: hub, Splits: &data.Splits{Train: data.Memory(schema, b)},
		Models: nn.Models{"idle": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			l, err := trivium.NewLayout(trivium.Spec{Name: "w", Shape: []int{784, 10}, Decay: 1}, trivium.Spec{Name: "b", Shape: []int{10}})
			return &idle{l}, err
		}},
	}
}

func idleJob(steps int64) *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "idle", Batch: 100, Steps: steps, Data: trivium.Data{Order: "index"},
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
}

// TestSteadyStateAllocatesNothing trains for n and for 3n updates within an epoch, and wants as many allocations.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	cpu := tensor.NewCPU(2, false)
	defer cpu.Close()
	hub := observe.NewHub(observe.Options{})
	const n = 300
	for _, exact := range []bool{false, true} {
		for _, name := range []string{"sgd", "adam"} {
			mallocs := func(steps int64) uint64 {
				job := idleJob(steps)
				job.Exact, job.Optimizer.Name = exact, name
				env := idleEnv(cpu, hub)
				if exact {
					env.CPU = nil
				}
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				if r, err := local.New(env, local.Options{}).Train(t.Context(), job); err != nil || r.Steps != steps {
					t.Fatal(r.Steps, err)
				}
				runtime.ReadMemStats(&after)
				return after.Mallocs - before.Mallocs
			}
			mallocs(10)
			// The runtime allocates a little of its own accord: what counts is there each time.
			few, many := uint64(0), uint64(21)
			for try := 0; try < 3 && many > few+20; try++ {
				few, many = mallocs(n), mallocs(3*n)
			}
			if many > few+20 {
				t.Errorf("%s, exact %v: %d allocations in %d updates, %d in %d", name, exact, few, n, many, 3*n)
			}
		}
	}
}

// TestPhasesSumToTheWall adds up the phases of all steps, and compares with the counter of wall time.
func TestPhasesSumToTheWall(t *testing.T) {
	hub := observe.NewHub(observe.Options{})
	start := time.Now()
	if _, err := local.New(idleEnv(nil, hub), local.Options{}).Train(t.Context(), idleJob(500)); err != nil {
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
			env := idleEnv(cpu, hub)
			for b.Loop() {
				if _, err := local.New(env, local.Options{}).Train(context.Background(), idleJob(1000)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/update")
		})
	}
}
