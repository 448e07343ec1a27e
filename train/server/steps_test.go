package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/server"
)

// TestCase24: logistic regression as PMLS ran it reaches the held-out loss of local within 1 % at equal samples, with a step a row on a
// copy, and with one step a round.
func TestCase24(t *testing.T) {
	case24(t, func(job *trivium.Job, splits *data.Splits, o server.Options) (trivium.Result, error) {
		c := &crew{env: train.Env{Splits: splits}, workers: 3, servers: 1, o: o}
		return c.paced(t, job)
	})
}

func case24(t *testing.T, run func(*trivium.Job, *data.Splits, server.Options) (trivium.Result, error)) {
	rows, columns := int64(10_000), 10_000
	if testing.Short() {
		rows, columns = 1000, 300
	}
	j := &trivium.Job{
		Version: trivium.JobVersion, Model: "logistic", Data: trivium.Data{Source: "logistic", Rows: rows, Columns: columns, Order: "index"},
		Batch: 100, Epochs: 2, Seed: 1, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
	splits, err := data.Open(t.Context(), j.Data, data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer splits.Close()
	want, err := local.New(train.Env{Splits: splits}, local.Options{}).Train(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	apart := *j
	apart.Batch, apart.Optimizer.Rate = 3, 0.001
	for _, x := range []struct {
		job *trivium.Job
		o   server.Options
	}{
		{j, server.Options{Mode: ps.SSP, Staleness: 3}},
		{&apart, server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker, Clocks: 100}},
	} {
		got, err := run(x.job, splits, x.o)
		if err != nil {
			t.Fatal(err)
		}
		a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]
		t.Logf("%+v: test loss %.4f, local %.4f", x.o, a, b)
		if !(math.Abs(a/b-1) < 0.01) || got.Samples != want.Samples {
			t.Errorf("%+v: test loss %v after %d rows, local reaches %v after %d", x.o, a, got.Samples, b, want.Samples)
		}
	}
}

// TestStepsApart: alone, steps on a copy are those of local: with one worker nothing is stale. Several average, or sum.
func TestStepsApart(t *testing.T) {
	for _, optimizer := range []trivium.OptimizerSpec{{Name: "sgd", Rate: 0.1}, {Name: "adam", Rate: 0.003}} {
		j := job()
		j.Batch, j.Epochs, j.Optimizer = 20, 2, optimizer
		want := alone(t, train.Env{}, j)
		for _, o := range []server.Options{{StepsPerRound: 7}, {Clocks: 10}, {Clocks: 2, Mean: true}} {
			if testing.Short() && (o.Clocks == 10 || optimizer.Name == "adam" && !o.Mean) {
				continue
			}
			o.Mode, o.Staleness, o.OptimizerAt = ps.SSP, 3, server.AtWorker
			got, err := (&crew{o: o}).Train(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			rounds := int64(2 * o.Clocks)
			if o.StepsPerRound > 0 {
				rounds = 2 * (1600/140 + 1)
			}
			if got.Steps != rounds || got.Samples != want.Samples {
				t.Errorf("%+v: %d rounds of %d rows, want %d of %d", o, got.Steps, got.Samples, rounds, want.Samples)
			}
			for i, x := range got.Params.Flat { // the table adds the sum of the steps, which rounds anew
				if d := math.Abs(float64(x - want.Params.Flat[i])); d > 2e-4 {
					t.Fatalf("%s, %+v: cell %d is %v, local has %v", optimizer.Name, o, i, x, want.Params.Flat[i])
				}
			}
			o.Mean = true // three workers' steps summed overshoot at such rates
			c := &crew{workers: 3, servers: 1, o: o}
			if got, err = c.paced(t, j); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %+v: 3 workers: test loss %.4f, local %.4f", optimizer.Name, o, got.Metrics["test.loss"], want.Metrics["test.loss"])
			if !(got.Metrics["test.loss"] < 1.6) { // 2.30 is a guess
				t.Errorf("%s, %+v: 3 workers: test loss %v, local reaches %v", optimizer.Name, o, got.Metrics["test.loss"], want.Metrics["test.loss"])
			}
		}
	}
}

// TestStepsSparse: of row-sparse tensors the rows that a round touched travel.
func TestStepsSparse(t *testing.T) {
	j := job()
	j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1200, Train: "0:1000", Test: "1000:"}
	j.Batch, j.Epochs, j.Optimizer = 10, 2, trivium.OptimizerSpec{Name: "sgd", Rate: 0.05}
	want := alone(t, train.Env{}, j)
	if !want.Params.Layout.Spec(0).RowSparse {
		t.Fatal("nothing is row-sparse")
	}
	got, err := (&crew{o: server.Options{OptimizerAt: server.AtWorker, Clocks: 10}}).Train(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range got.Params.Flat {
		if d := math.Abs(float64(x - want.Params.Flat[i])); d > 2e-4 {
			t.Fatalf("cell %d is %v, local has %v", i, x, want.Params.Flat[i])
		}
	}
}

// TestStepsRefused: what several steps a round cannot be.
func TestStepsRefused(t *testing.T) {
	j := job()
	j.Batch, j.Exact = trivium.FullBatch, true
	err := server.Options{StepsPerRound: 4, Clocks: 3}.Check(j, nil, 2)
	for _, want := range []string{"two ways", "give --optimizer-on worker", "exact", "all rows"} {
		if err == nil || !contains(err, want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if err := (server.Options{Mean: true}).Check(job(), nil, 2); err == nil || !contains(err, "give --steps-per-round or --clocks") {
		t.Error(err)
	}
}

func contains(err error, word string) bool {
	return strings.Contains(err.Error(), word)
}

// counts is a model whose Program counts rows: each adds 1 to a cell of its worker, and keeps nothing.
type counts struct {
	l    *trivium.Layout
	rank int64
	t    ps.Table[int64]
	rows float64
}

func (m *counts) Layout() *trivium.Layout         { return m.l }
func (m *counts) Init(_ uint64, p trivium.Params) { p.Flat[4] = 5 }
func (m *counts) Grad(context.Context, trivium.Params, trivium.Batch, trivium.Gradient, func(int)) (float64, float64, error) {
	return 0, 0, errors.New("counts has no gradient")
}

func (m *counts) Tables() []ps.Spec {
	return []ps.Spec{{Name: "seen", Rows: 2, Cols: 4, Cell: ps.Int64}}
}

func (m *counts) Begin(_ context.Context, w *ps.Worker, p server.Part) (err error) {
	m.rank = int64(p.Rank)
	m.t, err = ps.TableOf[int64](w, "seen")
	return err
}

func (m *counts) RoundLoss() (lossSum, weightSum float64) { return 2 * m.rows, m.rows }

func (m *counts) Round(_ context.Context, _ *ps.Worker, b trivium.Batch) error {
	m.rows = float64(b.Rows)
	if len(b.IDs) != b.Rows {
		return fmt.Errorf("%d IDs of %d rows", len(b.IDs), b.Rows)
	}
	return m.t.Inc(0, m.rank, int64(b.Rows))
}

// TestProgram: a model that brings its own program has its tables, its rounds, and its tensors where it is saved.
func TestProgram(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	models := nn.Models{"counts": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) { return &counts{l: l}, nil }}
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ASP}} {
		j := job()
		j.Model, j.Epochs = "counts", 3
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Models: models, Blob: store}, workers: 3, servers: 2, o: o}
		r, err := c.Train(t.Context(), j)
		if err != nil {
			t.Fatal(errors.Join(c.errs...))
		}
		if r.Metrics["train.loss"] != 2 {
			t.Errorf("%s: %v", o.Mode, r.Metrics)
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []trivium.Params{r.Params, saved.Params} {
			if got := p.Flat[0] + p.Flat[1] + p.Flat[2]; got != 3*1600 || p.Flat[4] != 5 {
				t.Errorf("%s: %v", o.Mode, p.Flat)
			}
		}
		j.Epochs = 4
		c = &crew{env: train.Env{Models: models, Resume: saved}, workers: 2, servers: 1, o: o}
		if r, err = c.Train(t.Context(), j); err != nil {
			t.Fatal(errors.Join(c.errs...))
		}
		if got := r.Params.Flat[0] + r.Params.Flat[1] + r.Params.Flat[2]; got != 4*1600 {
			t.Errorf("%s: resumed: %v", o.Mode, r.Params.Flat)
		}
	}
}
