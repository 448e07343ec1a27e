package kmeans_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/kmeans"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// corner starts with a centre in each group.
func corner(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
	return kmeans.From([]float32{7, 12, -13, 8, 12, -8, -8, -13}, s)
}

// example is what a test's processes know.
var example = pmlstest.Example{
	Models: nn.Models{"corner": corner},
	Sources: data.Sources{"groups": func(context.Context, trivium.Data) (*data.Splits, error) {
		return &data.Splits{Train: kmeans.Groups(1000, 1)}, nil
	}},
}

func TestMain(m *testing.M) {
	example.Enter()
	goleak.VerifyTestMain(m)
}

var corners = [][2]float64{{10, 10}, {-10, 10}, {10, -10}, {-10, -10}}

// TestCase27: 1,000 points around (±10, ±10), deviation 1, one start centre in each group, ten passes, batches of 100: centres within 0.3.
func TestCase27(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ASP}} {
			r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 100, Epochs: 10}, corner, kmeans.Groups(1000, 1), workers, o)
			check(t, o.Mode, r.Params, r.Metrics["train.loss"])
		}
	}
}

// TestCase27InProcesses is TestCase27 with workers and a server in processes of their own.
func TestCase27InProcesses(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for mode, consistency := range map[ps.Mode]string{ps.BSP: "bsp", ps.SSP: "ssp:3", ps.ASP: "asp"} {
			r := example.InProcesses(t, fmt.Sprintf("corner --data groups --batch 100 --epochs 10 --workers %d --consistency %s", workers, consistency))
			check(t, mode, r.Last().Params, r.Metrics["train.loss"])
		}
	}
}

func check(t *testing.T, mode ps.Mode, p trivium.Params, loss float64) {
	t.Helper()
	const points = 2500 + 1 // ten passes, and the start
	for c, want := range corners {
		n := p.Tensor(1)[c]
		if n != points {
			t.Errorf("%s: centre %d has %v points, want %v", mode, c, n, points)
		}
		for i, x := range want {
			if got := float64(p.Tensor(0)[2*c+i] / n); math.Abs(got-x) > 0.3 {
				t.Errorf("%s: centre %d: coordinate %d is %v, want %v", mode, c, i, got, x)
			}
		}
	}
	// Two coordinates of variance 1. Under ASP nothing bounds how old the centres are by which a worker measures its last rows: in a job
	// this short they may be those of the beginning.
	if mode != ps.ASP && !(loss < 2.2) {
		t.Errorf("%s: mean squared distance %v, want 2", mode, loss)
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
