package local_test

import (
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// TestAdapts: updates are made with all threads and with fewer, to see which is faster, and the bits are those of one thread. What was found is
// said, and what comes after training has all threads.
func TestAdapts(t *testing.T) {
	splits := noise(1000)
	job := trivium.Job{
		Version: trivium.JobVersion, Model: "mlp:16", Data: trivium.Data{Source: "noise"}, Batch: 50, Epochs: 20, Seed: 1,
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
	run := func(cpu *tensor.CPU) (r trivium.Result, widths map[int]int, said string) {
		defer cpu.Close()
		widths = map[int]int{}
		env := train.Env{CPU: cpu, Splits: splits, Models: pacedModels(func() {
			widths[cpu.Pool.Width()]++
			for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; { // so that training lasts longer than the first window
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
	want, _, _ := run(tensor.NewCPU(1, false))
	if _, widths, said := run(tensor.NewCPU(2, false)); widths[1] > 0 || said != "" {
		t.Errorf("who was told to take two threads takes one in %d updates, and says %q", widths[1], said)
	}
	cpu := tensor.NewCPU(2, false)
	cpu.Adapt()
	r, widths, said := run(cpu)
	if widths[1] == 0 || widths[2] < 16 {
		t.Errorf("updates by threads: %v, want some with one, and the first ones with two", widths)
	}
	if found := cpu.Width().Found(); said != found {
		t.Errorf("it says %q, and has found %q", said, found)
	}
	if !slices.Equal(r.Params.Flat, want.Params.Flat) {
		t.Error("the parameters are not those of one thread")
	}
	cpu = tensor.NewCPU(2, false)
	cpu.Adapt()
	w, limit := cpu.Width(), time.Now().Add(time.Minute)
	for w.Found() == "" { // steps that two threads make slower, until that is found
		if time.Now().After(limit) {
			t.Fatal("nothing is found")
		}
		w.Begin()
		n := time.Duration(cpu.Pool.Width())
		for begin := time.Now(); time.Since(begin) < n*n*100*time.Microsecond; {
		}
		w.End()
	}
	if _, _, said := run(cpu); said == "" || said != w.Found() {
		t.Errorf("it says %q, and has found %q", said, w.Found())
	}
}
