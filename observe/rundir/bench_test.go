package rundir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe"
)

// work is a step of about 50 µs, as softmax on a batch of 100 takes, without a system call.
func work(x float64) float64 {
	for range 35_000 {
		x = x*1.0000001 + 1e-9
	}
	return x
}

// train runs n steps, as a training loop reports them, and returns the time they took.
func train(r *observe.Recorder, n int, x *float64) time.Duration {
	begin := time.Now()
	for i := range n {
		r.Begin(int64(i))
		r.Enter(observe.Load)
		r.Leave()
		r.Enter(observe.Compute)
		*x = work(*x)
		r.Leave()
		r.Enter(observe.Push)
		r.Leave()
		r.Enter(observe.Pull)
		r.Leave()
		r.Enter(observe.Apply)
		r.Leave()
		r.Add(observe.Updates, 1)
		r.End(observe.Facts{Samples: 100, Loss: *x})
	}
	return time.Since(begin)
}

// BenchmarkOnOff compares steps of 50 µs with observation on, a hub and a run directory behind it, and off: interleaved, the best of
// many short rounds each.
func BenchmarkOnOff(b *testing.B) {
	w, err := Create(filepath.Join(b.TempDir(), "r"), someHead())
	if err != nil {
		b.Fatal(err)
	}
	hub := observe.NewHub(observe.Options{})
	hub.Attach("run directory", w)
	r := hub.Recorder(source)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- hub.Run(ctx) }()
	x := 1.0
	on, off := time.Hour, time.Hour
	const n = 200
	for b.Loop() {
		on = min(on, train(r, n, &x))
		off = min(off, train(nil, n, &x))
	}
	cancel()
	<-done
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(off.Nanoseconds())/n, "off-ns/step")
	b.ReportMetric(float64(on.Nanoseconds())/n, "on-ns/step")
	b.ReportMetric(100*(float64(on)/float64(off)-1), "%over")
}

func ExampleOpen() {
	root, err := os.MkdirTemp("", "runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	dir := filepath.Join(root, "first")
	w, err := Create(dir, Head{Strategy: "local", Model: "mlp:100"})
	if err != nil {
		fmt.Println(err)
		return
	}
	hub := observe.NewHub(observe.Options{})
	hub.Attach("run directory", w)
	r := hub.Recorder(observe.Source{Run: "first", Strategy: "local", Role: observe.Worker})
	for i := range int64(10) {
		r.Begin(i)
		r.End(observe.Facts{Samples: 100})
	}
	r.Event(observe.Info, "checkpoint", 9, "checkpoint written")
	hub.Collect(true)
	result := Summarise(hub.Latest()[0].Frame)
	result.Reason = "finished"
	if err := w.Finish(result); err != nil {
		fmt.Println(err)
		return
	}

	run, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	steps := 0
	for range run.Steps(run.Sources[0]) {
		steps++
	}
	fmt.Println(run.Head.Model, run.Result.Reason, run.Result.Samples, "samples,", steps, "steps,", run.Events[0].Text)
	// Output: mlp:100 finished 1000 samples, 10 steps, checkpoint written
}
