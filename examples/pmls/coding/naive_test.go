package coding_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/examples/pmls/coding"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestAgainstTheNaiveLoop: what one worker learns in some rounds is what the naive loop does, in float64: steps along the gradient of |x - s·A|² on
// the codes, each projected, or shrunk by what λ|s| costs; one of all rows on the parts, which are projected, or made no longer than 1.
func TestAgainstTheNaiveLoop(t *testing.T) {
	against(t, nil)
}

// TestWeights: a row of weight w counts w times in the step on the parts and in the loss; one of weight 0 is not looked at.
func TestWeights(t *testing.T) {
	weights := make([]float32, 12)
	for i := range weights {
		weights[i] = float32(i%5) * 0.75
	}
	against(t, weights)
}

func against(t *testing.T, weights []float32) {
	const parts, n, rows, rate, inner, passes = 3, 5, 12, 0.03, 4, 3
	for _, c := range []struct {
		build  nn.Builder
		args   string
		lambda float64
	}{
		{coding.Sparse, "3,lambda=0.07,rate=0.03,inner=4", 0.07},
		{coding.NMF, "3,rate=0.03,inner=4", 0},
	} {
		sparse := c.lambda > 0
		ds := coding.Atoms(rows, n, 2)
		var b trivium.Batch
		if err := ds.Read(t.Context(), &b, 0, rows); err != nil {
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
		for i := range rows {
			if weight(i) == 0 {
				b.Inputs[0].Values[n*i+i%n] = float32(math.Inf(1))
			}
		}
		ds = data.Memory(ds.Schema(), b)
		job := trivium.Job{Batch: 4, Epochs: passes, Seed: 4}
		got := pmlstest.Train(t, train.Env{}, job, with(c.build, c.args), ds, 1, server.Options{Mode: ps.BSP})

		m, err := c.build(c.args, ds.Schema(), nil)
		if err != nil {
			t.Fatal(err)
		}
		start := trivium.NewParams(m.Layout())
		m.Init(job.Seed, start)
		var a [parts][n]float64
		for i, v := range start.Flat {
			a[i/n][i%n] = float64(v)
		}
		codes := make([][parts]float64, rows)
		if !sparse { // they begin in (0, 1)
			for i := range codes {
				for k := range parts {
					codes[i][k] = (1 + float64(draw.Unit(job.Seed, draw.Stream("pmls/codes"), uint64(parts*i+k)))) / 2
				}
			}
		}
		rest := func(i int) (e [n]float64) {
			for j := range n {
				e[j] = float64(b.Inputs[0].Values[i*n+j])
				for k := range parts {
					e[j] -= codes[i][k] * a[k][j]
				}
			}
			return e
		}
		var loss float64
		for range passes {
			loss = 0
			for first := 0; first < rows; first += job.Batch {
				var step [parts][n]float64
				for i := first; i < first+job.Batch; i++ {
					w := weight(i)
					if w == 0 {
						continue
					}
					for range inner {
						e := rest(i)
						for k := range parts {
							for j := range n {
								codes[i][k] += 2 * rate * e[j] * a[k][j]
							}
						}
						for k, s := range codes[i] {
							if sparse {
								codes[i][k] = math.Copysign(max(math.Abs(s)-rate*c.lambda, 0), s)
							} else {
								codes[i][k] = max(s, 0)
							}
						}
					}
					e := rest(i)
					for j := range n {
						loss += w * e[j] * e[j] / sum
						for k := range parts {
							step[k][j] += w * 2 * rate * e[j] * codes[i][k]
						}
					}
					for _, s := range codes[i] {
						loss += w * c.lambda * math.Abs(s) / sum
					}
				}
				for k := range parts {
					var squares float64
					for j := range n {
						if a[k][j] += step[k][j]; !sparse {
							a[k][j] = max(a[k][j], 0)
						}
						squares += a[k][j] * a[k][j]
					}
					for j := range n {
						if sparse {
							a[k][j] /= max(1, math.Sqrt(squares))
						}
					}
				}
			}
		}
		for i, v := range got.Params.Flat {
			if want := a[i/n][i%n]; !(math.Abs(float64(v)-want) <= 1e-5) {
				t.Fatalf("%s: part %d, cell %d is %v, by the naive loop %v", c.args, i/n, i%n, v, want)
			}
		}
		if l := got.Metrics["train.loss"]; !(math.Abs(l-loss) <= 1e-5) {
			t.Errorf("%s: the loss is %v, by the naive loop %v", c.args, l, loss)
		}
	}
}

// TestTwice: a row of weight 2 is the row given twice, of which each has the same code, since codes of sparse coding begin at 0; and a row of weight 0
// is one that is not there.
func TestTwice(t *testing.T) {
	const rows, n, batch = 12, 5, 4
	ds := coding.Atoms(rows, n, 2)
	var b, twice trivium.Batch
	if err := ds.Read(t.Context(), &b, 0, rows); err != nil {
		t.Fatal(err)
	}
	x := b.Inputs[0].Values
	var values []float32
	for i := range rows { // the second of each update is given twice in place of the fourth
		b.Weights = append(b.Weights, []float32{1, 2, 1, 0}[i%batch])
		from := i
		if i%batch == 3 {
			from -= 2
		}
		values = append(values, x[n*from:n*(from+1)]...)
	}
	twice = trivium.Batch{Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{n}, Values: values}}}
	job := trivium.Job{Batch: batch, Epochs: 3, Seed: 4}
	var got []trivium.Result
	for _, b := range []trivium.Batch{b, twice} {
		got = append(got, pmlstest.Train(t, train.Env{}, job, with(coding.Sparse, "3,lambda=0.07"), data.Memory(ds.Schema(), b), 1, server.Options{Mode: ps.BSP}))
	}
	for i, v := range got[0].Params.Flat {
		if want := got[1].Params.Flat[i]; !(math.Abs(float64(v-want)) <= 1e-6) {
			t.Fatalf("cell %d of the parts is %v with weights, %v of rows given twice", i, v, want)
		}
	}
	if l, want := got[0].Metrics["train.loss"], got[1].Metrics["train.loss"]; !(math.Abs(l-want) <= 1e-6) {
		t.Errorf("the loss is %v with weights, %v of rows given twice", l, want)
	}
}
