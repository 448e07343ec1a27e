package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// TestRunsOfOneMoment: runs without names that begin at one moment have a directory each.
func TestRunsOfOneMoment(t *testing.T) {
	out := t.TempDir()
	var runs [16]*observation
	var errs [len(runs)]error
	var wait sync.WaitGroup
	begin := make(chan struct{})
	for i := range runs {
		runs[i] = newObservation(rundir.Head{Name: "now", Start: time.Now(), Configuration: json.RawMessage("{}")})
		wait.Go(func() {
			<-begin
			errs[i] = runs[i].create(&training{out: out})
		})
	}
	close(begin)
	wait.Wait()
	dirs := map[string]bool{}
	for i, o := range runs {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		dirs[o.writer.Dir()] = true
		if err := o.abandon(); err != nil {
			t.Error(err)
		}
	}
	if len(dirs) != len(runs) {
		t.Errorf("%d directories of %d runs: %v", len(dirs), len(runs), dirs)
	}
}

// TestServe: who asks an address that serves metrics for its page is led to them.
func TestServe(t *testing.T) {
	o := newObservation(rundir.Head{Name: "r"})
	var said bytes.Buffer
	if err := o.serve("127.0.0.1:0", newProgress(&said, false, false, func(string) string { return "" })); err != nil {
		t.Fatal(err)
	}
	defer o.run()()
	at := strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(said.String(), "metrics at ")), "/metrics")
	for path, want := range map[string]int{"/": http.StatusOK, "/metrics": http.StatusOK, "/runs": http.StatusNotFound} {
		answer, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want || want == http.StatusOK && !strings.Contains(string(page), "trivium_build_info") {
			t.Errorf("%s: %s, %v: %.100s", path, answer.Status, err, page)
		}
	}
}

// TestNamedAnew: all that a run's processes report has the name of its folder, also of those that began under one that another run has.
func TestNamedAnew(t *testing.T) {
	out := t.TempDir()
	if err := os.MkdirAll(filepath.Join(out, "now", "checkpoints"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := newObservation(rundir.Head{Name: "now", Start: time.Now(), Configuration: json.RawMessage("{}")})
	o.hub.Recorder(observe.Source{Run: "now", Role: observe.Worker})
	o.hub.Collect(true)
	if _, err := o.open(&training{out: out}); err != nil {
		t.Fatal(err)
	}
	o.figures(observe.Driver, 1)
	o.hub.Collect(true)
	latest := o.hub.Latest()
	restarts := uint64(0)
	for _, r := range latest {
		if r.Frame.Source.Run != "now-2" {
			t.Errorf("%v reports for the run %q, whose folder is now-2", r.Frame.Source, r.Frame.Source.Run)
		}
		restarts += r.Frame.Counter(observe.Restarts)
	}
	if len(latest) != 2 {
		t.Errorf("%d sources report, want the worker and the driver", len(latest))
	}
	if restarts != 1 {
		t.Errorf("%d restarts are counted, want 1", restarts)
	}
	if err := o.abandon(); err != nil {
		t.Error(err)
	}
}

// A turning model gives its turn away every so many gradients, and waits until it gets it back.
type turning struct {
	trivium.Model
	turn *turn
}

func (m turning) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	m.turn.begins()
	return m.Model.Grad(ctx, p, b, g, ready)
}

// A turn is one of two runs that alternate.
type turn struct {
	length, updates int
	took            chan time.Duration // what a slice took
	mine            chan struct{}
	since           time.Time
}

func (t *turn) begins() {
	if t.updates%t.length == 0 {
		if t.updates > 0 {
			t.took <- time.Since(t.since)
		}
		<-t.mine
		t.since = time.Now()
	}
	t.updates++
}

// BenchmarkObservation decides what observation costs at softmax and a batch of 100: two runs of one process alternate in slices of
// 300 updates, some 10 ms, in the order ABBA; the observed one has a hub with a run directory and TensorBoard files, as train has, whose
// collector works in that one's slices only, in one of ten of them (in use, once in 100 ms). Both runs begin anew every forty pairs, in
// alternating order, since where the parameters lie makes a difference of its own. The metric is the median of the ratios of the pairs,
// with its interval of 95 %; "neither" is the same with two runs that are not observed, which shows what noise would do.
func BenchmarkObservation(b *testing.B) {
	const rows, cols, length, pairs = 10_000, 784, 300, 40
	x := tensor.Aligned[float32](rows * cols)
	class := make([]int32, rows)
	for i := range x {
		x[i] = (draw.Unit(42, 0, uint64(i)) + 1) / 2
	}
	for i := range class {
		class[i] = int32(draw.Below(42, 1, uint64(i), 10))
	}
	splits := &data.Splits{Train: data.Memory(
		trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{cols}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 10}},
		trivium.Batch{
			Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{cols}, Values: x}},
			Labels: trivium.Labels{Kind: trivium.Class, Width: 10, Class: class},
		})}
	cpu := tensor.NewCPU(0, false)
	defer cpu.Close()
	job := &trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Batch: 100, Epochs: 1 << 30, Data: trivium.Data{Order: "index"},
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
	// start begins a run, which trains when it has its turn, until the context ends.
	start := func(ctx context.Context, wait *sync.WaitGroup, hub *observe.Hub) *turn {
		t := &turn{length: length, took: make(chan time.Duration), mine: make(chan struct{})}
		env := train.Env{CPU: cpu, Splits: splits, Observe: hub, Models: nn.Models{"softmax": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax(args, s, cpu)
			return turning{m, t}, err
		}}}
		wait.Go(func() {
			if _, err := local.New(env, local.Options{}).Train(ctx, job); err != nil {
				b.Error(err)
			}
			close(t.took)
		})
		return t
	}
	for _, observed := range []bool{true, false} {
		name := map[bool]string{true: "on", false: "neither"}[observed]
		b.Run(name, func(b *testing.B) {
			var ratios, plain []float64
			for round := 0; b.Loop(); round++ {
				var hub *observe.Hub
				if observed {
					o := newObservation(rundir.Head{Name: fmt.Sprint("run", round), Strategy: "local", Start: time.Now()})
					t := &training{out: filepath.Join(b.TempDir(), "runs"), name: o.head.Name, show: newProgress(b.Output(), false, true, func(string) string { return "" })}
					o.head.Configuration = []byte("{}")
					if err := o.create(t); err != nil {
						b.Fatal(err)
					}
					o.figures(observe.Driver, 0)
					defer func() { o.finish(&rundir.Result{End: time.Now()}) }()
					hub = o.hub
				}
				ctx, cancel := context.WithCancel(b.Context())
				var wait sync.WaitGroup
				var a, z *turn
				if round%2 == 0 {
					a, z = start(ctx, &wait, nil), start(ctx, &wait, hub)
				} else {
					z = start(ctx, &wait, hub)
					a = start(ctx, &wait, nil)
				}
				slice := func(t *turn, k int) float64 {
					t.mine <- struct{}{}
					var collector sync.WaitGroup
					if t == z && hub != nil && k%10 == 0 {
						collector.Go(func() { hub.Collect(k%100 == 0) })
					}
					took := <-t.took
					collector.Wait()
					return took.Seconds() / length
				}
				for k := range pairs + 1 {
					var off, on float64
					if k%2 == 0 {
						off = slice(a, k)
						on = slice(z, k)
					} else {
						on = slice(z, k)
						off = slice(a, k)
					}
					if k > 0 { // the first warms up
						ratios, plain = append(ratios, on/off), append(plain, off)
					}
				}
				cancel()
				for _, t := range []*turn{a, z} { // each is told, at its turn, to end: it makes the update that it had begun
					t.mine <- struct{}{}
					for range t.took {
					}
				}
				wait.Wait()
			}
			low, mid, high := medianInterval(ratios)
			b.ReportMetric(100*(mid-1), "%more")
			b.ReportMetric(100*(low-1), "%more-low")
			b.ReportMetric(100*(high-1), "%more-high")
			slices.Sort(plain)
			b.ReportMetric(1e6*plain[len(plain)/2], "µs/update-off")
			b.ReportMetric(float64(len(ratios)), "pairs")
		})
	}
}

// medianInterval sorts v and returns its median, between the bounds that hold the true one in 95 of 100 cases, whatever v's distribution:
// order statistics at half of n ± 0.98·√n.
func medianInterval(v []float64) (low, mid, high float64) {
	slices.Sort(v)
	n := len(v)
	d := int(math.Ceil(0.98 * math.Sqrt(float64(n))))
	return v[max(0, n/2-d)], v[n/2], v[min(n-1, n/2+d)]
}
