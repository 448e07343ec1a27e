package kmeans_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/kmeans"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestAgainstTheNaiveLoop: one worker moves the centres as Sculley's loop does, point after point, by 1 over the points that a centre has had. The
// centres begin close to one another, amidst the groups, so that points change between them; the first point is as far from two.
func TestAgainstTheNaiveLoop(t *testing.T) {
	against(t, nil)
}

// TestWeights: a point of weight w moves its centre by w over the weight of the points that the centre has had, and counts w times in the loss. One
// of weight 0 is not looked at.
func TestWeights(t *testing.T) {
	weights := make([]float32, 200)
	for i := range weights {
		weights[i] = float32(i%5) * 0.75
	}
	against(t, weights)
}

func against(t *testing.T, weights []float32) {
	start := []float32{1, 0, -1, 0, 0, 100, 0, 2}
	points := kmeans.Groups(200, 3)
	var b trivium.Batch
	if err := points.Read(t.Context(), &b, 0, points.Rows()); err != nil {
		t.Fatal(err)
	}
	b.Inputs[0].Values[0], b.Inputs[0].Values[1] = 0, -3
	b.Weights = weights
	sum := b.WeightSum()
	for i, w := range weights {
		if w == 0 {
			b.Inputs[0].Values[2*i+i%2] = float32(math.Inf(1))
		}
	}
	points = data.Memory(points.Schema(), b)
	got := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 40, Epochs: 2}, func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		return kmeans.From(start, s)
	}, points, 1, server.Options{Mode: ps.BSP})

	var centres [4][2]float64
	had := [4]float64{1, 1, 1, 1}
	for c := range centres {
		centres[c] = [2]float64{float64(start[2*c]), float64(start[2*c+1])}
	}
	var loss float64
	for range 2 {
		loss = 0
		for i := range b.Rows {
			w := 1.0
			if weights != nil {
				w = float64(weights[i])
			}
			if w == 0 {
				continue
			}
			x, y := float64(b.Inputs[0].Values[2*i]), float64(b.Inputs[0].Values[2*i+1])
			best, least := 0, math.Inf(1)
			for c, m := range centres {
				if d := (x-m[0])*(x-m[0]) + (y-m[1])*(y-m[1]); d < least {
					best, least = c, d
				}
			}
			loss += w * least / sum
			had[best] += w
			centres[best][0] += w * (x - centres[best][0]) / had[best]
			centres[best][1] += w * (y - centres[best][1]) / had[best]
		}
	}
	for c, m := range centres {
		row := got.Params.Flat[3*c : 3*c+3]
		if float64(row[2]) != had[c] || !(math.Abs(float64(row[0]/row[2])-m[0]) <= 1e-4) || !(math.Abs(float64(row[1]/row[2])-m[1]) <= 1e-4) {
			t.Errorf("centre %d is %v of %v points, by the naive loop %v of %v", c, []float32{row[0] / row[2], row[1] / row[2]}, row[2], m, had[c])
		}
	}
	if l := got.Metrics["train.loss"]; !(math.Abs(l-loss) <= 1e-4*loss) {
		t.Errorf("the loss is %v, by the naive loop %v", l, loss)
	}
}

// TestChoiceOfWeights: centres begin at rows that weigh something, as what these weigh, so that another scale of all weights changes nothing.
func TestChoiceOfWeights(t *testing.T) {
	points := kmeans.Groups(200, 3)
	var b trivium.Batch
	if err := points.Read(t.Context(), &b, 0, points.Rows()); err != nil {
		t.Fatal(err)
	}
	trained := func(weight float32) []float32 {
		b.Weights = make([]float32, b.Rows)
		for i := range b.Rows {
			if i >= 40 && i < 80 {
				b.Weights[i] = weight * float32(1+i%3)
			} else {
				b.Inputs[0].Values[2*i] = float32(math.NaN())
			}
		}
		rows := data.Memory(points.Schema(), b)
		r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 40, Epochs: 2, Seed: 3}, func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
			return kmeans.New("4", s, nil)
		}, rows, 1, server.Options{Mode: ps.BSP})
		if l := r.Metrics["train.loss"]; !(l < 2.2) {
			t.Errorf("weights of %v: mean squared distance %v, want 2", weight, l)
		}
		return r.Params.Flat
	}
	one, small := trained(1), trained(1.0/1024)
	for i, x := range one {
		if small[i]*1024 != x {
			t.Fatalf("the table is %v, and %v with weights of 1/1024", one, small)
		}
	}
}

// TestResumed: a run that goes on begins with the points that its centres have had, and not with the start once more.
func TestResumed(t *testing.T) {
	points := kmeans.Groups(200, 3)
	job := trivium.Job{Batch: 40, Epochs: 3}
	want := pmlstest.Train(t, train.Env{}, job, corner, points, 1, server.Options{Mode: ps.BSP})
	env := train.Env{Blob: blob.Dir(t.TempDir())}
	part := job
	part.Epochs = 1
	pmlstest.Train(t, env, part, corner, points, 1, server.Options{Mode: ps.BSP})
	var err error
	if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
		t.Fatal(err)
	}
	got := pmlstest.Train(t, env, job, corner, points, 1, server.Options{Mode: ps.BSP})
	for i, x := range want.Params.Flat { // the table's float64 sums are float32 in a checkpoint
		if !(math.Abs(float64(got.Params.Flat[i]-x)) <= 1e-3) {
			t.Fatalf("in two parts %v, in one %v", got.Params.Flat, want.Params.Flat)
		}
	}
}
