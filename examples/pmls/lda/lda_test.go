package lda_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/examples/pmls/lda"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far returns, for each true topic, the L1 distance to the learnt one that is nearest.
func far(words []float32, totals []float32) (distances []float64) {
	topics := len(totals)
	for k := range 2 * lda.Side {
		truth := make([]float64, lda.Side*lda.Side)
		for _, w := range lda.Bar(k) {
			truth[w] = 1.0 / lda.Side
		}
		best := 2.0
		for j := range topics {
			d := 0.0
			for w, x := range truth {
				d += math.Abs(float64(words[w*topics+j]/totals[j]) - x)
			}
			best = min(best, d)
		}
		distances = append(distances, best)
	}
	return distances
}

// TestCase28Alone: 25 words, 10 topics, 1,000 documents of 100 words, α = 1, β = 0.1, 200 sweeps, one worker: each true topic is matched
// within L1 distance 0.3, and log p(w, z) rises.
func TestCase28Alone(t *testing.T) {
	sweeps, documents := 200, 1000
	if testing.Short() {
		sweeps, documents = 120, 400
	}
	var mine *lda.Model
	build := func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		m, err := lda.New("10,alpha=1,beta=0.1", s, nil)
		mine, _ = m.(*lda.Model)
		return m, err
	}
	rows := lda.Bars(documents, 100, 7)
	var likelihood []float64
	for _, n := range []int{2, sweeps} {
		r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: trivium.FullBatch, Epochs: n, Seed: 2}, build, rows, 1, server.Options{Mode: ps.SSP, Staleness: 3})
		likelihood = append(likelihood, mine.LogLikelihood(r.Params, mine.Documents()))
		if n != sweeps {
			continue
		}
		for k, d := range far(r.Params.Tensor(0), r.Params.Tensor(1)) {
			if !(d < 0.3) {
				t.Errorf("topic %d: the nearest is at %.3f, want below 0.3", k, d)
			}
		}
		t.Logf("distances %.3f, loss a word %.4f", far(r.Params.Tensor(0), r.Params.Tensor(1)), r.Metrics["train.loss"])
	}
	if !(likelihood[1] > likelihood[0]) {
		t.Errorf("log p(w, z) went from %v to %v", likelihood[0], likelihood[1])
	}
	t.Logf("log p(w, z) %.0f after 2 sweeps, %.0f after %d", likelihood[0], likelihood[1], sweeps)
}

// TestCase28Stale: four workers, SSP(3): no count that is read is negative (Round says so), and every cut sums to all words.
func TestCase28Stale(t *testing.T) {
	sweeps := 200
	if testing.Short() {
		sweeps = 30
	}
	store := blob.Dir(t.TempDir())
	var mu sync.Mutex
	build := func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		mu.Lock()
		defer mu.Unlock()
		return lda.New("10,alpha=1,beta=0.1", s, nil)
	}
	env := train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: int64(sweeps), Keep: 1000}}
	r := pmlstest.Train(t, env, trivium.Job{Batch: 250, Epochs: sweeps, Seed: 2}, build, lda.Bars(1000, 100, 7), 4, server.Options{Mode: ps.SSP, Staleness: 3})
	names, err := checkpoint.List(t.Context(), store)
	if err != nil || len(names) < 2 {
		t.Fatalf("checkpoints %q, %v", names, err)
	}
	for _, name := range names {
		c, err := checkpoint.Load(t.Context(), store, name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			sum := 0.0
			for _, x := range c.Params.Tensor(i) {
				if x < 0 {
					t.Errorf("%s: a count of %v", name, x)
				}
				sum += float64(x)
			}
			if sum != 100_000 {
				t.Errorf("%s: tensor %d sums to %v, want 100,000", name, i, sum)
			}
		}
	}
	t.Logf("%d cuts; distances %.3f, loss a word %.4f", len(names), far(r.Params.Tensor(0), r.Params.Tensor(1)), r.Metrics["train.loss"])
}

// TestArguments: what a model is asked for, and what is refused.
func TestArguments(t *testing.T) {
	o, err := lda.Parse("4,beta=0.5")
	if err != nil || o.Topics != 4 || o.Beta != 0.5 || o.Alpha != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{"x": "number", "0": "above 0", "gamma=3": "alpha or beta", "1.5": "alpha or beta"} {
		if _, err := lda.Parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
	_, err = lda.New("x", trivium.Schema{}, nil)
	if _, ok := errors.AsType[*nn.ArgumentError](err); !ok {
		t.Errorf("%v, want an ArgumentError", err)
	}
	if _, err := lda.New("", trivium.Schema{}, nil); err == nil {
		t.Error("a model of no data")
	}
}
