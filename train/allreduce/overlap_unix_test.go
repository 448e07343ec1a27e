//go:build unix

package allreduce_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/allreduce"
)

// models are the standard ones, and the emulated one.
func models() nn.Models {
	m := nn.Standard()
	m["emulated"] = newEmulated
	return m
}

// An emulated model has layers of equal length whose backward pass takes a given time altogether: waiting, as for an accelerator, or at work.
// Its gradient is zero.
type emulated struct {
	layout *trivium.Layout
	took   time.Duration
	pause  *pauser // nil: at work
}

const emulatedLayers = 32

func newEmulated(args string, _ trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
	var mebibytes, micros int
	var how string
	if _, err := fmt.Sscanf(args, "%d,%d,%s", &mebibytes, &micros, &how); err != nil {
		return nil, fmt.Errorf("emulated: want MEBIBYTES,MICROSECONDS,waits or works, found %q: %w", args, err)
	}
	m := &emulated{took: time.Duration(micros) * time.Microsecond}
	var err error
	if how != "works" {
		if m.pause, err = newPauser(); err != nil {
			return nil, err
		}
	}
	var specs []trivium.Spec
	for i := range emulatedLayers {
		specs = append(specs, trivium.Spec{Name: fmt.Sprintf("layer %d", i), Shape: []int{mebibytes << 18 / emulatedLayers}})
	}
	m.layout, err = trivium.NewLayout(specs...)
	return m, err
}

// Layout implements trivium.Model.
func (m *emulated) Layout() *trivium.Layout { return m.layout }

// Init implements trivium.Model.
func (m *emulated) Init(_ uint64, p trivium.Params) { clear(p.Flat) }

// Grad implements trivium.Model: the last layers are final first.
func (m *emulated) Grad(_ context.Context, _ trivium.Params, b trivium.Batch, _ trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	begin := time.Now()
	for k := range emulatedLayers {
		until := m.took * time.Duration(k+1) / emulatedLayers
		if m.pause != nil {
			if err := m.pause.wait(until - time.Since(begin)); err != nil {
				return 0, 0, err
			}
		}
		for time.Since(begin) < until { // at work
		}
		if ready != nil {
			ready(emulatedLayers - 1 - k)
		}
	}
	return float64(b.Rows), float64(b.Rows), nil
}

// BenchmarkExposed: of the time that the gradient travels when nothing else is to do, how much is not hidden behind a backward pass that
// takes twice as long. Two processes over TCP on loopback.
//
// Exposed is the time from when the last worker has ended its backward pass until all have the sum. The other worker waits for that one too, which
// may have begun the update later, because it applied the one before for longer: %-waited is what both spend on the sum, in the mean. In the first
// update the worker that has begun sooner waits some 10 to 40 ms for the other: it does not count.
func BenchmarkExposed(b *testing.B) {
	perUpdate := func(b *testing.B, mebibytes int, micros int64, how string) (exposed, waited float64) {
		b.Helper()
		job := &trivium.Job{
			Version: trivium.JobVersion, Model: fmt.Sprintf("emulated:%d,%d,%s", mebibytes, micros, how),
			Data:  trivium.Data{Source: "digits", Rows: 200, Train: "0:200", Order: "index"},
			Batch: 2, Epochs: 1 << 20, Steps: int64(800 / mebibytes), Seed: 1, EvalEvery: 1 << 40, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
		}
		d, tapes := driverOver(b, job, 2, allreduce.Options{}, true)
		if _, err := d.Train(b.Context()); err != nil {
			b.Fatal(err)
		}
		one, other := read(b, tapes[0]).ends, read(b, tapes[1]).ends
		updates := 0.0
		for i := 1; i < min(len(one), len(other)); i++ {
			if x, y := one[i], other[i]; x[0] > 0 && y[0] > 0 {
				updates++
				exposed += float64(max(x[1], y[1])-max(x[0], y[0])) / 1e3
				waited += float64(x[1]-x[0]+y[1]-y[0]) / 2e3
			}
		}
		if 2*updates < float64(job.Steps) {
			b.Fatalf("of %d updates %v were seen", job.Steps, updates)
		}
		return exposed / updates, waited / updates
	}
	for _, mebibytes := range []int{4, 16, 64} {
		for _, how := range []string{"waits", "works"} {
			b.Run(fmt.Sprintf("MiB=%d/backward=%s", mebibytes, how), func(b *testing.B) {
				for b.Loop() {
					alone, _ := perUpdate(b, mebibytes, 0, how)
					exposed, waited := perUpdate(b, mebibytes, int64(2*alone), how)
					b.ReportMetric(alone, "µs-alone")
					b.ReportMetric(exposed, "µs-exposed")
					b.ReportMetric(100*exposed/alone, "%-exposed")
					b.ReportMetric(100*waited/alone, "%-waited")
				}
			})
		}
	}
}
