package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// measured is counts whose loss is the number of rows that all workers have counted, and whose rounds read them.
type measured struct{ counts }

func (m *measured) Round(ctx context.Context, w *ps.Worker, b trivium.Batch) error {
	if _, err := m.t.Get(ctx, 0, make([]int64, 4)); err != nil {
		return err
	}
	return m.counts.Round(ctx, w, b)
}

func (m *measured) Outputs() trivium.Outputs {
	return trivium.Outputs{Task: trivium.MultiClass, Width: 10}
}

func (m *measured) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	for i := range b.Rows {
		scores[10*i] = p.Flat[0] + p.Flat[1] + p.Flat[2]
	}
	return nil
}

func (m *measured) Loss(b trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	for i := range b.Rows {
		lossSum += float64(scores[10*i])
	}
	return lossSum, float64(b.Rows), nil
}

// TestEarlyStopHasAll: an evaluation that may end training measures what all updates before it have made, in every mode, with a worker that is
// behind; and where it ends training, that is the result, and what is saved.
func TestEarlyStopHasAll(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	models := nn.Models{"measured": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) { return &measured{counts{l: l}}, nil }}
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ESSP, Staleness: 3}, {Mode: ps.ASP}} {
		j := job()
		j.Model, j.Epochs, j.EvalEvery = "measured", 1000, 7
		j.Stop = trivium.EarlyStop{Metric: "test.loss", Patience: 3} // it grows
		store := blob.Dir(t.TempDir())
		o.Slow = server.Slow{Worker: 1, Factor: 4, Unit: time.Millisecond}
		measures := 0
		watch := train.Watch{Evaluated: func(p train.Progress, m map[string]float64) {
			measures++
			if m["test.loss"] != float64(p.Samples) {
				t.Errorf("%s:%d: after update %d the model has %v rows of %d", o.Mode, o.Staleness, p.Step, m["test.loss"], p.Samples)
			}
		}}
		c := &crew{env: train.Env{Models: models, Blob: store, Watch: watch}, workers: 3, servers: 2, o: o}
		r, err := c.paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		f, g := r.Params.Flat, saved.Params.Flat
		if want := float32(r.Samples); r.Reason != trivium.Stopped || r.Steps != 28 || measures != 4 || f[0]+f[1]+f[2] != want || g[0]+g[1]+g[2] != want {
			t.Errorf("%s:%d: %s after %d updates and %d evaluations: result %v, checkpoint %v, want %v", o.Mode, o.Staleness, r.Reason, r.Steps, measures,
				f[0]+f[1]+f[2], g[0]+g[1]+g[2], want)
		}
		for rank, x := range c.results[:3] {
			if x.Reason != r.Reason || x.Steps != r.Steps {
				t.Errorf("%s: rank %d: %s after %d updates", o.Mode, rank, x.Reason, x.Steps)
			}
		}
	}
}
