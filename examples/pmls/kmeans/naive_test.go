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
	start := []float32{1, 0, -1, 0, 0, 100, 0, 2}
	points := kmeans.Groups(200, 3)
	var b trivium.Batch
	if err := points.Read(t.Context(), &b, 0, points.Rows()); err != nil {
		t.Fatal(err)
	}
	b.Inputs[0].Values[0], b.Inputs[0].Values[1] = 0, -3
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
			x, y := float64(b.Inputs[0].Values[2*i]), float64(b.Inputs[0].Values[2*i+1])
			best, least := 0, math.Inf(1)
			for c, m := range centres {
				if d := (x-m[0])*(x-m[0]) + (y-m[1])*(y-m[1]); d < least {
					best, least = c, d
				}
			}
			loss += least / float64(b.Rows)
			had[best]++
			centres[best][0] += (x - centres[best][0]) / had[best]
			centres[best][1] += (y - centres[best][1]) / had[best]
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
