package lda_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/lda"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// example is what a test's processes know.
var example = pmlstest.Example{
	Models: nn.Models{"lda": lda.New},
	Sources: data.Sources{"bars": func(_ context.Context, d trivium.Data) (*data.Splits, error) {
		return &data.Splits{Train: lda.Bars(int(d.Rows), 100, 7)}, nil
	}},
}

func TestMain(m *testing.M) {
	example.Enter()
	goleak.VerifyTestMain(m)
}

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
		matched(t, r.Params)
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
		whole(t, c, 100_000)
	}
	t.Logf("%d cuts; distances %.3f, loss a word %.4f", len(names), far(r.Params.Tensor(0), r.Params.Tensor(1)), r.Metrics["train.loss"])
}

// TestCase28InProcesses: one worker matches each topic, and with four, SSP(3), the last cuts have all words, in processes of their own.
func TestCase28InProcesses(t *testing.T) {
	sweeps, documents, updates := 200, 1000, 1000
	if testing.Short() {
		sweeps, documents, updates = 120, 400, 240
	}
	command := fmt.Sprintf("lda:10,alpha=1,beta=0.1 --data bars --rows %d --epochs %d --seed 2 --consistency ssp:3", documents, sweeps)
	alone := example.InProcesses(t, command+" --batch full").Last()
	matched(t, alone.Params)
	stale := example.InProcesses(t, fmt.Sprintf("%s --batch 50 --workers 4 --checkpoint-every %d", command, updates/3))
	if n := len(stale.Checkpoints); n < 2 || stale.Last().Progress.Step != int64(updates) {
		t.Fatalf("%d checkpoints, the last of update %d, want %d", n, stale.Last().Progress.Step, updates)
	}
	for _, c := range append(stale.Checkpoints, alone) {
		whole(t, c, float64(100*documents))
	}
}

// matched: each true topic is learnt.
func matched(t *testing.T, p trivium.Params) {
	t.Helper()
	for k, d := range far(p.Tensor(0), p.Tensor(1)) {
		if !(d < 0.3) {
			t.Errorf("topic %d: the nearest is at %.3f, want below 0.3", k, d)
		}
	}
}

// whole: a checkpoint counts each word once, in both tables, and no count is negative.
func whole(t *testing.T, c *checkpoint.Checkpoint, words float64) {
	t.Helper()
	for i := range 2 {
		sum := 0.0
		for _, x := range c.Params.Tensor(i) {
			if x < 0 {
				t.Errorf("update %d: a count of %v", c.Progress.Step, x)
			}
			sum += float64(x)
		}
		if sum != words {
			t.Errorf("update %d: tensor %d sums to %v, want %v", c.Progress.Step, i, sum, words)
		}
	}
}

// TestArguments: what a model is asked for, and what is refused.
func TestArguments(t *testing.T) {
	o, err := lda.Parse("4,beta=0.5")
	if err != nil || o.Topics != 4 || o.Beta != 0.5 || o.Alpha != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{"x": "number", "0": "above 0", "gamma=3": "alpha or beta", "1.5": "alpha or beta", "alpha=Inf": "at most 1e+09", "beta=1e300": "at most"} {
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

// TestCounts: a document of what is no count is refused, as a mistake in the data that names its row and column.
func TestCounts(t *testing.T) {
	for _, times := range []float32{1.5, -1, float32(math.NaN()), 1 << 31} {
		schema := trivium.Schema{Inputs: []trivium.InputSpec{{Form: trivium.CSR, Shape: []int{3}}}}
		m, err := lda.New("2", schema, nil)
		if err != nil {
			t.Fatal(err)
		}
		row := trivium.Batch{Rows: 1, IDs: []int64{7}, Inputs: []trivium.Input{{Form: trivium.CSR, Shape: []int{3}, Ptr: []int64{0, 2}, Index: []int32{0, 2}, Values: []float32{4, times}}}}
		err = m.(*lda.Model).Round(t.Context(), nil, row)
		if e, ok := errors.AsType[*data.Error](err); !ok || e.Row != 7 || e.Field != "column 2" || !strings.Contains(err.Error(), "how often the word occurs") {
			t.Errorf("%v is refused as %v", times, err)
		}
	}
}

// TestWeightsRefused: documents that weigh anything are refused before one is looked at, as a mistake in the job.
func TestWeightsRefused(t *testing.T) {
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Form: trivium.CSR, Shape: []int{3}}}}
	m, err := lda.New("2", schema, nil)
	if err != nil {
		t.Fatal(err)
	}
	row := trivium.Batch{Rows: 1, IDs: []int64{7}, Weights: []float32{2}, Inputs: []trivium.Input{{Form: trivium.CSR, Shape: []int{3}, Ptr: []int64{0, 2}, Index: []int32{0, 2}, Values: []float32{4, 1}}}}
	err = m.(*lda.Model).Round(t.Context(), nil, row)
	if e, ok := errors.AsType[*data.Error](err); !ok || e.Field != "weights" || !strings.Contains(err.Error(), "give twice") {
		t.Errorf("%v, want an Error of data about the weights", err)
	}
}

// TestLogLikelihood is worked by hand: two words, two topics, one document, of whose words two are word 0 and one word 1 of topic 0, and one
// is word 1 of topic 1. Word after word, with β = 3: 3/6 · 4/7 · 3/8 of topic 0, 3/6 of topic 1; and of the topics, with α = 4:
// 4/8 · 5/9 · 6/10 · 4/11. That is 1/308.
func TestLogLikelihood(t *testing.T) {
	o, err := lda.Parse("2,alpha=4,beta=3")
	if err != nil {
		t.Fatal(err)
	}
	l, err := trivium.NewLayout(trivium.Spec{Name: "words", Shape: []int{2, 2}}, trivium.Spec{Name: "totals", Shape: []int{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(l)
	copy(p.Tensor(0), []float32{2, 0, 1, 1})
	copy(p.Tensor(1), []float32{3, 1})
	if got, want := o.LogLikelihood(p, [][]int{{3, 1}}), -math.Log(308); !(math.Abs(got-want) < 1e-9) {
		t.Errorf("log p(w, z) is %v, want %v", got, want)
	}
}
