package local_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// TestAdapts: where more threads make steps slower, training goes on with fewer and says so, and its bits are those of one thread. What is
// between the updates has all threads.
func TestAdapts(t *testing.T) {
	splits := noise(1000)
	job := trivium.Job{
		Version: trivium.JobVersion, Model: "mlp:16", Data: trivium.Data{Source: "noise"}, Batch: 10, Epochs: 40, Seed: 1,
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
	run := func(cpu *tensor.CPU) (r trivium.Result, widths []int, said string) {
		defer cpu.Close()
		env := train.Env{CPU: cpu, Splits: splits, Models: pacedModels(func() {
			widths = append(widths, cpu.Pool.Width())
			n := time.Duration(cpu.Pool.Width())
			for begin := time.Now(); time.Since(begin) < n*n*100*time.Microsecond; {
			}
		})}
		env.Watch.Notice = func(_ observe.Level, text string) { said += text }
		r, err := local.New(env, local.Options{}).Train(t.Context(), &job)
		if err != nil {
			t.Fatal(err)
		}
		if n := cpu.Pool.Width(); n != cpu.Threads() {
			t.Errorf("after training %d threads take part, want all %d", n, cpu.Threads())
		}
		return r, widths, said
	}
	want, _, said := run(tensor.NewCPU(1, false))
	if said != "" {
		t.Errorf("one thread says %q", said)
	}
	cpu := tensor.NewCPU(2, false)
	cpu.Adapt()
	r, widths, said := run(cpu)
	ones := 0
	for _, n := range widths {
		if n == 1 {
			ones++
		}
	}
	if widths[0] != 2 || 2*ones < len(widths) {
		t.Errorf("the first update has %d threads, and %d of %d have one; want 2, and most", widths[0], ones, len(widths))
	}
	if !strings.Contains(said, "fewer than the 2 threads") {
		t.Errorf("it says %q", said)
	}
	if !slices.Equal(r.Params.Flat, want.Params.Flat) {
		t.Error("the parameters are not those of one thread")
	}
}
