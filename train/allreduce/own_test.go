package allreduce_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
)

// plain is SGD of a program's own, which tells its rate.
type plain struct {
	rate  float64
	whole bool
}

func (plain) Slots() int           { return 0 }
func (p plain) Elementwise() bool  { return !p.whole }
func (p plain) Rate(int64) float64 { return p.rate }
func (p plain) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, _ [][]float32) {
	for i, x := range g {
		u[i] = x * -float32(p.rate)
	}
}

var plains = optim.Optimizers{
	"plain": func(s trivium.OptimizerSpec, _ kernel.ISA) (trivium.Optimizer, error) {
		return plain{s.Rate, false}, nil
	},
	"whole": func(s trivium.OptimizerSpec, _ kernel.ISA) (trivium.Optimizer, error) {
		return plain{s.Rate, true}, nil
	},
}

// TestResidualOfOwn: what codecs dropped is rescaled by the rates of an optimizer of the program's own, those of the job of the checkpoint
// too, which this program must know.
func TestResidualOfOwn(t *testing.T) {
	var ends [][]float32
	o := allreduce.Options{Compress: "topk:0.01"}
	for _, name := range []string{"sgd", "plain"} {
		job := digits()
		job.Epochs, job.Optimizer = 1, trivium.OptimizerSpec{Name: name, Rate: 0.5}
		store := blob.Dir(t.TempDir())
		if _, err := (&crew{env: train.Env{Optimizers: plains, Blob: store}, n: 2, o: o}).Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		saved.Codecs = nil // so that its sum is shared out
		more := *job
		more.Epochs, more.Optimizer.Rate = 2, 0.25
		r, err := (&crew{env: train.Env{Optimizers: plains, Resume: saved}, n: 2, o: o}).Train(t.Context(), &more)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, r.Params.Flat)
		was := *job
		was.Optimizer.Name = "plane"
		saved.Job = &was
		_, err = (&crew{env: train.Env{Optimizers: plains, Resume: saved}, n: 2, o: o}).Train(t.Context(), &more)
		if want := `the job of the checkpoint: optim: no optimizer is called "plane"; did you mean "plain"?`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if !slices.Equal(ends[0], ends[1]) {
		t.Error("an optimizer of the program's own ends elsewhere than the one that ships")
	}
}

// TestShardOfOwn: no worker has all cells where the optimizer's state is sharded.
func TestShardOfOwn(t *testing.T) {
	job := digits()
	job.Optimizer = trivium.OptimizerSpec{Name: "whole", Rate: 0.5}
	if err := (allreduce.Options{}).Check(job, plains); err != nil {
		t.Error(err)
	}
	want := "optimizer whole looks at more than one cell of the gradient"
	c := &crew{env: train.Env{Optimizers: plains}, n: 2, o: allreduce.Options{ShardOptimizer: true}}
	if _, err := c.Train(t.Context(), job); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
