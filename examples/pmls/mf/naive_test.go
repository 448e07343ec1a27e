package mf_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/mf"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestAgainstTheNaiveLoop: what one worker learns is what stochastic gradient descent learns that takes the entries one after another, in float64:
// L and R, the loss of the last pass, and the predictions.
func TestAgainstTheNaiveLoop(t *testing.T) {
	against(t, nil)
}

// TestWeights: the step of an entry of weight w is w times as large, and its squared error counts w times; one of weight 0 is not looked at.
func TestWeights(t *testing.T) {
	weights := make([]float32, 81)
	for i := range weights {
		weights[i] = float32(i%5) * 0.75
	}
	against(t, weights)
}

func against(t *testing.T, weights []float32) {
	const (
		args                                  = "2,rate=0.04,offset=3,power=0.6,l2=0.15,mean=0.7,start=0.8"
		rank, rate, offset, power, l2, middle = 2, 0.04, 3, 0.6, 0.15, 0.7
		passes                                = 4
	)
	rows := blocks()
	var b trivium.Batch
	if err := rows.Read(t.Context(), &b, 0, rows.Rows()); err != nil {
		t.Fatal(err)
	}
	b.Weights = weights
	sum := b.WeightSum()
	weight := func(i int) float64 {
		if weights == nil {
			return 1
		}
		return float64(weights[i])
	}
	for i := range b.Rows {
		if weight(i) == 0 {
			b.Labels.Real[i] = float32(math.Inf(1))
		}
	}
	rows = data.Memory(rows.Schema(), b)
	m, err := mf.New(args, rows.Schema(), nil)
	if err != nil {
		t.Fatal(err)
	}
	job := trivium.Job{Batch: 27, Epochs: passes, Seed: 6}
	got := pmlstest.Train(t, train.Env{}, job, func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
		return mf.New(args, rows.Schema(), nil)
	}, rows, 1, server.Options{Mode: ps.BSP})

	start := trivium.NewParams(m.Layout())
	m.Init(job.Seed, start)
	x := make([]float64, len(start.Flat)) // L, then R
	for i, v := range start.Flat {
		x[i] = float64(v)
	}
	predict := func(i int) (l, r []float64, prediction float64) {
		l, r = x[rank*b.Inputs[0].Index[i]:][:rank], x[9*rank+rank*int(b.Inputs[1].Index[i]):][:rank]
		return l, r, middle + l[0]*r[0] + l[1]*r[1]
	}
	var loss float64
	for pass := range passes {
		loss = 0
		step := rate * math.Pow(offset+float64(pass), -power)
		for i := range b.Rows {
			l, r, p := predict(i)
			e, w := float64(b.Labels.Real[i])-p, weight(i)
			if w == 0 {
				continue
			}
			loss += w * e * e / sum
			for k := range rank { // the gradient of w·(e² + l2·(|l|² + |r|²))
				dl, dr := w*(-2*e*r[k]+2*l2*l[k]), w*(-2*e*l[k]+2*l2*r[k])
				l[k], r[k] = l[k]-step*dl, r[k]-step*dr
			}
		}
	}
	for i, want := range x {
		if !(math.Abs(float64(got.Params.Flat[i])-want) <= 1e-5) {
			t.Fatalf("cell %d is %v, by the naive loop %v", i, got.Params.Flat[i], want)
		}
	}
	if l := got.Metrics["train.loss"]; !(math.Abs(l-loss) <= 1e-5) {
		t.Errorf("the loss is %v, by the naive loop %v", l, loss)
	}
	scores := make([]float32, b.Rows)
	if err := m.(trivium.Predictor).Predict(t.Context(), got.Params, b, scores); err != nil {
		t.Fatal(err)
	}
	var after float64
	for i, s := range scores {
		_, _, want := predict(i)
		if !(math.Abs(float64(s)-want) <= 1e-5) {
			t.Fatalf("entry %d is predicted as %v, by the naive loop as %v", i, s, want)
		}
		if w, e := weight(i), want-float64(b.Labels.Real[i]); w != 0 {
			after += w * e * e
		}
	}
	l, of, err := m.(trivium.Predictor).Loss(b, scores)
	if err != nil || of != sum || !(math.Abs(l-after) <= 1e-4) {
		t.Errorf("the loss of the predictions is %v of the weight %v (%v), by the naive loop %v of %v", l, of, err, after, sum)
	}
}
