//go:build unix

package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/server"
)

// caseModels has, beside the standard ones, the cases of package ps as a model, so that they run in the processes of a job.
func caseModels() nn.Models {
	m := nn.Standard()
	m["cases"] = func(args string, _ trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		l, err := trivium.NewLayout(trivium.Spec{Name: "exactly", Shape: []int{4, 4}}, trivium.Spec{Name: "array", Shape: []int{1, 10}})
		return &cases{l: l, only16: args == "16"}, err
	}
	return m
}

// cases is a model that has no gradient: in each round every worker checks what it reads, and adds.
type cases struct {
	l             *trivium.Layout
	only16        bool // the others are left out
	rank, workers int
	round         int
	mode          ps.Spec
	exactly       ps.Table[int64]   // case 16: 16 cells that count
	a, b          ps.Table[int32]   // case 3: in round i cell id is i
	array         ps.Table[float32] // case 5: each adds j + 1 to cell j twice
	matrix        ps.Table[float32] // case 6
	sparse        ps.Table[float32] // case 10: a server's SGD on rows
	one           ps.Table[float32] // case 7
	long          ps.Table[float32] // case 12: a row over all servers
	keys          ps.Table[float64] // case 21: the same rows again and again
}

func (m *cases) Layout() *trivium.Layout          { return m.l }
func (m *cases) Init(uint64, trivium.Params)      {}
func (m *cases) RoundLoss() (sum, weight float64) { return 1, 1 }
func (m *cases) Grad(context.Context, trivium.Params, trivium.Batch, trivium.Gradient, func(int)) (float64, float64, error) {
	return 0, 0, errors.New("cases have no gradient")
}

func (m *cases) Tables() []ps.Spec {
	return []ps.Spec{
		{Name: "exactly", Rows: 4, Cols: 4, Cell: ps.Int64},
		{Name: "a", Rows: 10, Cols: 1000, Cell: ps.Int32},
		{Name: "b", Rows: 10, Cols: 1000, Cell: ps.Int32},
		{Name: "array", Rows: 1, Cols: 10},
		{Name: "matrix", Rows: 11, Cols: 10},
		{Name: "sparse", Cols: 4, Optimizer: "sgd rate=0.1"},
		{Name: "one", Rows: 1, Cols: 1},
		{Name: "long", Rows: 1, Cols: 10_000},
		{Name: "keys", Cols: 2, Cell: ps.Float64, Partition: ps.Hash},
	}
}

func (m *cases) Begin(_ context.Context, w *ps.Worker, p server.Part) (err error) {
	m.rank, m.workers = p.Rank, p.Workers
	err = errors.Join(
		find(w, "exactly", &m.exactly), find(w, "a", &m.a), find(w, "b", &m.b), find(w, "array", &m.array), find(w, "matrix", &m.matrix),
		find(w, "sparse", &m.sparse), find(w, "one", &m.one), find(w, "long", &m.long), find(w, "keys", &m.keys),
	)
	m.mode = m.a.Spec()
	return err
}

func find[T ps.Number](w *ps.Worker, name string, to *ps.Table[T]) (err error) {
	*to, err = ps.TableOf[T](w, name)
	return err
}

// Round implements server.Program.
func (m *cases) Round(ctx context.Context, _ *ps.Worker, _ trivium.Batch) error {
	i, n := m.round, m.workers
	m.round++
	least := 0 // rounds of the others that a read must hold
	switch m.mode.Mode {
	case ps.BSP:
		least = i
	case ps.SSP, ps.ESSP:
		least = max(0, i-m.mode.Staleness)
	}
	// count checks a cell to which each worker adds `each` a round, this one with its own rounds in any mode.
	count := func(what string, x, each float64) error {
		low, high := each*float64((n-1)*least+i), math.Inf(1)
		if m.mode.Mode == ps.BSP {
			high = low
		}
		if x < low || x > high {
			return fmt.Errorf("%s, round %d of worker %d: %v, want %v to %v", what, i, m.rank, x, low, high)
		}
		return nil
	}
	var errs []error
	row64, row32 := make([]int64, 4), make([]int32, 1000)
	for r := range int64(4) {
		_, err := m.exactly.Get(ctx, r, row64)
		errs = append(errs, err)
		for c, x := range row64 {
			errs = append(errs, count("case 16", float64(x), 1), m.exactly.Inc(r, int64(c), 1))
		}
	}
	if losses.on.Load() && m.round == 20 && (losses.lost.Load() == 0 || losses.doubled.Load() == 0) {
		errs = append(errs, errors.New("case 16: no frame was lost, or none doubled"))
	}
	if m.only16 {
		return errors.Join(errs...)
	}
	for _, t := range []ps.Table[int32]{m.a, m.b} {
		for _, r := range []int64{0, int64(1 + m.rank)} {
			_, err := t.Get(ctx, r, row32)
			errs = append(errs, err, t.Inc(r, int64(m.rank), 1))
			if row32[m.rank] != int32(i) {
				errs = append(errs, fmt.Errorf("case 3, round %d: row %d, cell %d is %d", i, r, m.rank, row32[m.rank]))
			}
			for q := range n {
				if r == 0 && int(row32[q]) < least {
					errs = append(errs, fmt.Errorf("case 3, round %d: cell %d is %d, the bound is %d", i, q, row32[q], least))
				}
			}
		}
	}
	ten, add := make([]float32, 10), make([]float32, 10)
	_, err := m.array.Get(ctx, 0, ten)
	errs = append(errs, err)
	for j, x := range ten {
		add[j] = float32(j + 1)
		errs = append(errs, count("case 5", float64(x), 2*float64(j+1)))
	}
	errs = append(errs, m.array.DenseInc(0, 0, add), m.array.DenseInc(0, 0, add))
	for r := range int64(11) {
		_, err := m.matrix.Get(ctx, r, ten)
		errs = append(errs, err)
		twice := float64(1)
		if r <= 1 || r == 5 || r == 10 {
			twice = 2
		}
		for j := range ten {
			k := float64(10*r) + float64(j)
			errs = append(errs, count("case 6", float64(ten[j]), k*twice))
			add[j] = float32(k)
		}
		errs = append(errs, m.matrix.DenseInc(r, 0, add))
		if twice == 2 {
			errs = append(errs, m.matrix.DenseInc(r, 0, add))
		}
	}
	cell := make([]float32, 1)
	_, err = m.one.Get(ctx, 0, cell)
	errs = append(errs, err, m.one.Inc(0, 0, 3), m.one.Inc(0, 0, -4))
	errs = append(errs, count("case 7", -float64(cell[0]), 1))
	long := make([]float32, 10_000)
	_, err = m.long.Get(ctx, 0, long)
	errs = append(errs, err)
	for _, j := range []int{0, 4999, 9999} {
		errs = append(errs, count("case 12", float64(long[j]), 1))
	}
	for j := range long {
		long[j] = 1
	}
	errs = append(errs, m.long.DenseInc(0, 0, long))
	many, pairs := make([]int64, 200), make([]float64, 400)
	for k := range many {
		many[k] = int64(k*k) - 1000
	}
	_, err = m.keys.GetRows(ctx, many, pairs)
	errs = append(errs, err)
	for k, r := range many {
		errs = append(errs, count("case 21", pairs[2*k+1], 1), m.keys.Inc(r, 1, 1))
	}
	// Gradients of one for row 1, every worker, and twice for row 3: a step of 0.1 a gradient.
	grad := []float32{1, 1, 1, 1}
	four := make([]float32, 4)
	errs = append(errs, m.sparse.DenseInc(1, 0, grad), m.sparse.DenseInc(3, 0, grad), m.sparse.DenseInc(3, 0, grad))
	for _, r := range []int64{1, 3, 5} {
		_, err := m.sparse.Get(ctx, r, four)
		each := map[int64]float64{1: 0.1, 3: 0.2}[r]
		errs = append(errs, err)
		if x, want := -float64(four[0]), each*float64(n*i); m.mode.Mode == ps.BSP && !(math.Abs(x-want) <= 1e-3*(1+want)) {
			errs = append(errs, fmt.Errorf("case 10, round %d: row %d is %v, want %v", i, r, -x, -want))
		}
	}
	return errors.Join(errs...)
}

// saved trains, and returns the checkpoint of the end too, which is that of so many updates.
func saved(t *testing.T, d *processes.Driver, updates int64) (trivium.Result, *checkpoint.Checkpoint) {
	t.Helper()
	store := blob.Dir(t.TempDir())
	d.Ready = func(processes.Facts) (blob.Store, error) { return store, nil }
	r, err := d.Train(t.Context())
	if err != nil || r.Steps != updates {
		t.Fatalf("%d updates, want %d: %v", r.Steps, updates, err)
	}
	c, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil || c.Progress.Step != updates {
		t.Fatalf("no checkpoint of update %d: %v", updates, err)
	}
	return r, c
}

// TestCasesInProcesses runs cases 1, 3, 5, 6, 7, 10, 12, 16 and 21 of package ps in processes of their own, four workers and two servers: what
// each worker reads in every round is within its bound, and in the end each of 16 cells has counted every round of all.
func TestCasesInProcesses(t *testing.T) {
	t.Parallel()
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ESSP, Staleness: 1}, {Mode: ps.ASP}, {Mode: ps.SSP}} {
		if testing.Short() && (o.Mode != ps.SSP || o.Staleness == 0) {
			continue
		}
		rounds := int64(50)
		if o.Mode == ps.SSP && o.Staleness > 0 && !testing.Short() {
			rounds = 250
		}
		t.Run(fmt.Sprintf("%s:%d", o.Mode, o.Staleness), func(t *testing.T) {
			j := small(job())
			j.Model, j.Epochs, j.Steps, j.Batch = "cases", 0, rounds, 100
			d := driver(t, j, o)
			d.Workers, d.Servers = 4, 2
			_, c := saved(t, d, rounds)
			for i, x := range c.Params.Flat[:16] {
				if x != float32(4*rounds) {
					t.Errorf("case 16: cell %d is %v, want %d", i, x, 4*rounds)
				}
			}
			for k, x := range c.Params.Flat[16:] {
				if want := float32(2 * (k + 1) * 4 * int(rounds)); x != want {
					t.Errorf("case 5: cell %d is %v, want %v", k, x, want)
				}
			}
		})
	}
}

// TestCase24InProcesses is TestCase24 with three workers and a server in processes of their own, at the pace that they find.
func TestCase24InProcesses(t *testing.T) {
	t.Parallel()
	case24(t, func(job *trivium.Job, _ *data.Splits, o server.Options) (trivium.Result, error) {
		return driver(t, job, o).Train(t.Context())
	})
}

// TestExactInProcesses is TestExact with workers and servers in processes of their own: the parameters have the bits of local.
func TestExactInProcesses(t *testing.T) {
	t.Parallel()
	dense, sparse := job(), job()
	dense.Optimizer = trivium.OptimizerSpec{Name: "momentum", Rate: 0.02}
	sparse.Model, sparse.Data = "fm:4", trivium.Data{Source: "wide", Rows: 2000, Train: "0:1600", Test: "1600:"}
	sparse.Optimizer = trivium.OptimizerSpec{Name: "adam", Rate: 0.01}
	for _, j := range []*trivium.Job{small(dense), small(sparse)} {
		if testing.Short() && j.Model != sparse.Model {
			continue // both in the full run
		}
		j.Exact, j.Epochs = true, 2
		want := alone(t, train.Env{}, j)
		for _, n := range []int{1, 2, 3, 5} {
			for _, servers := range []int{1, 3} {
				if testing.Short() && (n != 3 || servers == 1) {
					continue // all in the full run
				}
				d := driver(t, j, server.Options{Mode: ps.BSP})
				d.Workers, d.Servers = n, servers
				got, c := saved(t, d, want.Steps)
				what := fmt.Sprintf("%s, %d workers, %d servers", j.Model, n, servers)
				if a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]; a != b {
					t.Errorf("%s: test loss %v, local's is %v", what, a, b)
				}
				for i, x := range c.Params.Flat {
					if math.Float32bits(x) != math.Float32bits(want.Params.Flat[i]) {
						t.Fatalf("%s: cell %d is %v, want %v", what, i, x, want.Params.Flat[i])
					}
				}
			}
		}
	}
}
