package kmeans_test

import (
	"errors"
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/examples/pmls/kmeans"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var corners = [][2]float64{{10, 10}, {-10, 10}, {10, -10}, {-10, -10}}

// TestCase27: 1,000 points around (±10, ±10), deviation 1, one start centre in each group, ten passes, batches of 100: centres within 0.3.
func TestCase27(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ASP}} {
			from := func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
				return kmeans.From([]float32{7, 12, -13, 8, 12, -8, -8, -13}, s)
			}
			r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 100, Epochs: 10}, from, kmeans.Groups(1000, 1), workers, o)
			check(t, o, r, 2500+1)
		}
	}
}

func check(t *testing.T, o server.Options, r trivium.Result, points float32) {
	t.Helper()
	p := r.Params
	for c, want := range corners {
		n := p.Tensor(1)[c]
		if n != points {
			t.Errorf("%s: centre %d has %v points, want %v", o.Mode, c, n, points)
		}
		for i, x := range want {
			if got := float64(p.Tensor(0)[2*c+i] / n); math.Abs(got-x) > 0.3 {
				t.Errorf("%s: centre %d: coordinate %d is %v, want %v", o.Mode, c, i, got, x)
			}
		}
	}
	// Two coordinates of variance 1. Under ASP nothing bounds how old the centres are by which a worker measures its last rows: in a job
	// this short they may be those of the beginning.
	if o.Mode != ps.ASP && !(r.Metrics["train.loss"] < 2.2) {
		t.Errorf("%s: mean squared distance %v, want 2", o.Mode, r.Metrics["train.loss"])
	}
}

// TestChoice: without given centres, rows that lie apart are taken.
func TestChoice(t *testing.T) {
	r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 100, Epochs: 5, Seed: 3}, func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		return kmeans.New("4", s, nil)
	}, kmeans.Groups(1000, 2), 2, server.Options{Mode: ps.SSP, Staleness: 1})
	if !(r.Metrics["train.loss"] < 2.2) {
		t.Errorf("mean squared distance %v, want 2", r.Metrics["train.loss"])
	}
}

// TestRefused: arguments and data that are none.
func TestRefused(t *testing.T) {
	for _, args := range []string{"", "0", "x"} {
		_, err := kmeans.New(args, trivium.Schema{}, nil)
		if _, ok := errors.AsType[*nn.ArgumentError](err); !ok {
			t.Errorf("%q: %v, want an ArgumentError", args, err)
		}
	}
	if _, err := kmeans.New("2", trivium.Schema{}, nil); err == nil {
		t.Error("no input is taken")
	}
}
