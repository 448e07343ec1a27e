package mf_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/mf"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// example is what a test's processes know.
var example = pmlstest.Example{
	Models:  nn.Models{"mf": mf.New},
	Sources: data.Sources{"blocks": func(context.Context, trivium.Data) (*data.Splits, error) { return &data.Splits{Train: blocks()}, nil }},
}

func TestMain(m *testing.M) {
	example.Enter()
	goleak.VerifyTestMain(m)
}

// quickStart is the model of case 26.
const quickStart = "3,rate=0.5,offset=100,power=0.5,l2=0,mean=0,start=1"

// blocks is the 9×9 matrix with diagonal 3×3 blocks of 1, 2 and 3, zeros observed.
func blocks() data.Dataset {
	b := trivium.Batch{
		Inputs: []trivium.Input{{Name: "row", Form: trivium.CSR, Shape: []int{9}, Ptr: []int64{0}}, {Name: "column", Form: trivium.CSR, Shape: []int{9}, Ptr: []int64{0}}},
		Labels: trivium.Labels{Kind: trivium.Real, Width: 1},
	}
	for i := range int32(9) {
		for j := range int32(9) {
			for k, id := range []int32{i, j} {
				in := &b.Inputs[k]
				in.Index, in.Values, in.Ptr = append(in.Index, id), append(in.Values, 1), append(in.Ptr, int64(len(in.Index)+1))
			}
			x := float32(0)
			if i/3 == j/3 {
				x = float32(1 + i/3)
			}
			b.Labels.Real = append(b.Labels.Real, x)
			b.Rows++
		}
	}
	s := trivium.Schema{Labels: trivium.LabelSpec{Kind: trivium.Real, Width: 1}}
	for _, in := range b.Inputs {
		s.Inputs = append(s.Inputs, trivium.InputSpec{Name: in.Name, Form: in.Form, Shape: in.Shape})
	}
	return data.Memory(s, b)
}

// grouped reports whether rows of L are equal within a block and apart across.
func grouped(l []float32) bool {
	for i := range 9 {
		for j := range 9 {
			far := 0.0
			for k := range 3 {
				far = max(far, math.Abs(float64(l[3*i+k]-l[3*j+k])))
			}
			if i/3 == j/3 && far > 0.05 || i/3 != j/3 && far < 0.5 {
				return false
			}
		}
	}
	return true
}

// TestCase26: rank 3, start uniform in (-1, 1), step 0.5(100 + t)^-0.5, 200 passes: the rows of L show the blocks in at least 14 of 20
// starts, with one worker and with four at s = 5 (Boesen's quick start).
func TestCase26(t *testing.T) {
	starts := uint64(20)
	if testing.Short() {
		starts = 5
	}
	for _, workers := range []int{1, 4} {
		good := uint64(0)
		for seed := range starts {
			r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: trivium.FullBatch, Epochs: 200, Seed: seed}, func(args string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
				return mf.New(quickStart, s, nil)
			}, blocks(), workers, server.Options{Mode: ps.SSP, Staleness: 5})
			if grouped(r.Params.Tensor(0)) {
				good++
			}
		}
		t.Logf("%d workers: %d of %d starts", workers, good, starts)
		if good*20 < starts*14 {
			t.Errorf("%d workers: the blocks show in %d of %d starts, want 14 of 20", workers, good, starts)
		}
	}
}

// TestCase26InProcesses is TestCase26 with workers and a server in processes of their own.
func TestCase26InProcesses(t *testing.T) {
	starts := 20
	if testing.Short() {
		starts = 2
	}
	for _, workers := range []int{1, 4} {
		good := 0
		for seed := range starts {
			r := example.InProcesses(t, fmt.Sprintf("mf:%s --data blocks --batch full --epochs 200 --seed %d --workers %d --consistency ssp:5", quickStart, seed, workers))
			if grouped(r.Last().Params.Tensor(0)) {
				good++
			}
		}
		t.Logf("%d workers: %d of %d starts", workers, good, starts)
		if good*20 < starts*14 {
			t.Errorf("%d workers: the blocks show in %d of %d starts, want 14 of 20", workers, good, starts)
		}
	}
}

// TestArguments: what a model is asked for, and what is refused.
func TestArguments(t *testing.T) {
	o, err := mf.Parse("4,rate=0.1")
	if err != nil || o.Rank != 4 || o.Rate != 0.1 || o.Power != mf.DefaultOptions().Power {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{"x": "number", "rank=0": "whole", "speed=3": "want a rank", "rate=Inf": "at most 1e+09", "l2=-1": "0 or more", "offset=0": "above 0", "start=-1": "0 or more", "mean=-Inf": "at most"} {
		if _, err := mf.Parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
	_, err = mf.New("x", trivium.Schema{}, nil)
	if _, ok := errors.AsType[*nn.ArgumentError](err); !ok {
		t.Errorf("%v, want an ArgumentError", err)
	}
	if _, err := mf.New("", trivium.Schema{}, nil); err == nil {
		t.Error("a model of no data")
	}
}
