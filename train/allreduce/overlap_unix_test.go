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
// takes twice as long. Two processes over TCP on loopback, of which one begins some milliseconds later: the first update does not count.
func BenchmarkExposed(b *testing.B) {
	perUpdate := func(b *testing.B, mebibytes int, micros int64, how string) (exposed float64) {
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
		for _, w := range tapes { // the mean of both
			exposed += float64(read(b, w).exposed) / 2e3
		}
		return exposed
	}
	for _, mebibytes := range []int{4, 16, 64} {
		for _, how := range []string{"waits", "works"} {
			b.Run(fmt.Sprintf("MiB=%d/backward=%s", mebibytes, how), func(b *testing.B) {
				for b.Loop() {
					alone := perUpdate(b, mebibytes, 0, how)
					exposed := perUpdate(b, mebibytes, int64(2*alone), how)
					b.ReportMetric(alone, "µs-alone")
					b.ReportMetric(exposed, "µs-exposed")
					b.ReportMetric(100*exposed/alone, "%-exposed")
				}
			})
		}
	}
}
