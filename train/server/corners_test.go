package server_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// lazy is counts with a table of its own staleness, which every round reads.
type lazy struct{ counts }

func (m *lazy) Tables() []ps.Spec {
	return []ps.Spec{{Name: "seen", Rows: 2, Cols: 4, Cell: ps.Int64, Mode: ps.SSP, Staleness: 5}}
}

func (m *lazy) Round(ctx context.Context, w *ps.Worker, b trivium.Batch) error {
	if _, err := m.t.Get(ctx, 0, make([]int64, 4)); err != nil {
		return err
	}
	return m.counts.Round(ctx, w, b)
}

// TestProgramOfOwnStaleness: result and checkpoint hold all rounds of all workers, however stale a read of the program's table may be.
func TestProgramOfOwnStaleness(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	models := nn.Models{"lazy": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) { return &lazy{counts{l: l}}, nil }}
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 1}, {Mode: ps.SSP, Staleness: 5}, {Mode: ps.ASP}} {
		j := job()
		j.Model, j.Epochs, j.Steps, j.Batch = "lazy", 0, 18, 300
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Models: models, Blob: store, Checkpoints: train.Checkpoints{Every: 7}}, workers: 3, servers: 2, o: o}
		r, err := c.paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		f, g := r.Params.Flat, saved.Params.Flat
		if want := float32(r.Samples); f[0]+f[1]+f[2] != want || g[0]+g[1]+g[2] != want {
			t.Errorf("%s:%d: result %v, checkpoint %v, want %v", o.Mode, o.Staleness, f[0]+f[1]+f[2], g[0]+g[1]+g[2], want)
		}
	}
}

// asked is counts whose worker 1 is asked to stop in one of its rounds.
type asked struct {
	counts
	rounds, in int
	stop       func()
}

func (m *asked) Round(ctx context.Context, w *ps.Worker, b trivium.Batch) error {
	if m.rounds++; m.rank == 1 && m.rounds == m.in {
		m.stop()
	}
	return m.counts.Round(ctx, w, b)
}

// TestStopAtEnd: where all agree to stop after the last update of all, result and checkpoint hold all rounds of all workers too.
func TestStopAtEnd(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	j := job()
	j.Model, j.Epochs, j.Steps = "asked", 0, 18
	j.Data.Train, j.Data.Test = "0:2000", "" // what is measured at the end would be interrupted
	splits := shared(t.Context(), train.Env{}, j)
	store := blob.Dir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		models := nn.Models{"asked": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			return &asked{counts: counts{l: l}, in: 14, stop: stop}, nil // it says so in update 15: all stop after update 18
		}}
		cpu := tensor.NewCPU(1, false)
		defer cpu.Close()
		slow := server.Slow{Worker: 1, Factor: 2, Unit: time.Millisecond} // when the others are done it has three rounds to go
		c := &crew{
			env:     train.Env{Models: models, Blob: store, Splits: splits, CPU: cpu},
			workers: 3, servers: 2, o: server.Options{Mode: ps.SSP, Staleness: 3, Slow: slow},
		}
		r, err := c.Train(ctx, j)
		if err != nil {
			t.Fatal(errors.Join(c.errs...))
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		f, g := r.Params.Flat, saved.Params.Flat
		if want := float32(r.Samples); r.Steps != 18 || f[0]+f[1]+f[2] != want || g[0]+g[1]+g[2] != want {
			t.Errorf("%s after %d updates: result %v, checkpoint %v, want %v", r.Reason, r.Steps, f[0]+f[1]+f[2], g[0]+g[1]+g[2], want)
		}
	})
}

// TestRowStepsOfResumed: how often a row was updated does not depend on how often the run was resumed.
func TestRowStepsOfResumed(t *testing.T) {
	sum := func(c *checkpoint.Checkpoint) (n int) {
		for _, rows := range c.Optimizer.RowSteps {
			for _, k := range rows {
				n += int(k)
			}
		}
		return n
	}
	for _, at := range []server.Place{server.AtWorker, server.AtServer} {
		if testing.Short() && at == server.AtServer {
			continue // in the full run
		}
		j := job()
		j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
		j.Batch, j.Epochs, j.Optimizer = 8, 0, trivium.OptimizerSpec{Name: "adam", Rate: 0.003}
		run := func(steps int64, from *checkpoint.Checkpoint) *checkpoint.Checkpoint {
			x := *j
			x.Steps = steps
			store := blob.Dir(t.TempDir())
			c := &crew{env: train.Env{Blob: store, Resume: from}, workers: 4, servers: 1, o: server.Options{OptimizerAt: at}}
			if _, err := c.paced(t, &x); err != nil {
				t.Fatal(err)
			}
			got, _, err := checkpoint.Latest(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		want := sum(run(64, nil))
		var c *checkpoint.Checkpoint
		for _, s := range []int64{60, 61, 62, 64} {
			c = run(s, c)
		}
		if got := sum(c); !(math.Abs(float64(got-want)) <= 0.02*float64(want)) {
			t.Errorf("optimizer at the %v: %d updates of rows, uninterrupted %d", at, got, want)
		}
	}
}

// TestOwnStepsOfResumed: the steps that a worker takes by itself go on where they were, also where a round is no whole number of them.
func TestOwnStepsOfResumed(t *testing.T) {
	for _, batch := range []int{80, 64} {
		j := job()
		j.Batch, j.Epochs, j.Optimizer = batch, 2, trivium.OptimizerSpec{Name: "sgd", Rate: 0.1, Schedule: "step:26,0.01"}
		o := server.Options{Mode: ps.SSP, OptimizerAt: server.AtWorker, Clocks: 10} // rounds of 160 rows
		whole, err := (&crew{o: o}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		store := blob.Dir(t.TempDir())
		half := *j
		half.Epochs = 1
		if _, err := (&crew{env: train.Env{Blob: store}, o: o}).Train(t.Context(), &half); err != nil {
			t.Fatal(err)
		}
		c, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&crew{env: train.Env{Resume: c}, o: o}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range got.Params.Flat {
			if x != whole.Params.Flat[i] {
				t.Errorf("batch %d: parameter %d is %v, uninterrupted %v", batch, i, x, whole.Params.Flat[i])
				break
			}
		}
	}
}

// TestUnevenRows: workers whose parts of an update are not equal, or empty, move the model together as far as one process would.
func TestUnevenRows(t *testing.T) {
	for _, batch := range []int{4, 2, 6} {
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP}, {Mode: ps.ASP}, {Mode: ps.SSP, OptimizerAt: server.AtWorker}} {
			j := job()
			j.Batch, j.Epochs, j.Steps, j.Optimizer = batch, 0, 20, trivium.OptimizerSpec{Name: "sgd", Rate: 0.001}
			want := alone(t, train.Env{}, j)
			still := *j
			still.Optimizer.Rate = 1e-12
			begin := alone(t, train.Env{}, &still)
			got, err := (&crew{workers: 4, servers: 1, o: o}).paced(t, j)
			if err != nil {
				t.Fatal(err)
			}
			var along, all float64
			for i, x := range want.Params.Flat {
				a, b := float64(x-begin.Params.Flat[i]), float64(got.Params.Flat[i]-begin.Params.Flat[i])
				along, all = along+a*b, all+a*a
			}
			if r := along / all; !(math.Abs(r-1) <= 0.02) {
				t.Errorf("batch %d, %v, optimizer at the %v: the model moves %.3f times as far as one process moves it", batch, o.Mode, o.OptimizerAt, r)
			}
		}
	}
}

// TestUnevenWeights: where each worker's gradient makes a step, it counts for what its rows weigh, whatever the optimizer.
func TestUnevenWeights(t *testing.T) {
	for _, spec := range []trivium.OptimizerSpec{{Name: "sgd", Rate: 0.01}, {Name: "momentum", Rate: 0.001}, {Name: "adam", Rate: 0.0003}} {
		if testing.Short() && spec.Name != "adam" {
			continue // all in the full run
		}
		j := job()
		j.Data.ClassWeight = "0=10,1=10,2=10,3=10,4=10,5=0.1,6=0.1,7=0.1,8=0.1,9=0.1"
		j.Batch, j.Epochs, j.Steps, j.Optimizer = 8, 0, 80, spec
		want := alone(t, train.Env{}, j)
		still := *j
		still.Optimizer.Rate = 1e-12
		begin := alone(t, train.Env{}, &still)
		for _, o := range []server.Options{{Mode: ps.SSP}, {Mode: ps.ASP}, {Mode: ps.SSP, OptimizerAt: server.AtWorker}, {Mode: ps.BSP, OptimizerAt: server.AtWorker}} {
			got, err := (&crew{workers: 4, servers: 1, o: o}).paced(t, j)
			if err != nil {
				t.Fatal(err)
			}
			var off, all float64
			for i, x := range want.Params.Flat {
				a, b := float64(x-begin.Params.Flat[i]), float64(got.Params.Flat[i]-begin.Params.Flat[i])
				off, all = off+(a-b)*(a-b), all+a*a
			}
			if r := math.Sqrt(off / all); r > 0.25 { // 0.1 to 0.2; 0.46 to 0.54 where each worker counts the same
				t.Errorf("%s, %v, optimizer at the %v: the model ends %.2f of its way from where one process brings it", spec.Name, o.Mode, o.OptimizerAt, r)
			}
		}
	}
}

// TestScheduleOfWeightless: a schedule counts updates also where a worker's rows weigh nothing, as most do here.
func TestScheduleOfWeightless(t *testing.T) {
	j := job()
	j.Data.ClassWeight = "0=0,1=0,2=0,3=0,4=0,5=0"
	j.Batch, j.Epochs, j.Optimizer = 4, 0, trivium.OptimizerSpec{Name: "sgd", Rate: 0.01, Schedule: "linear:40"}
	var ends [2]trivium.Result
	for i, steps := range []int64{50, 80} {
		x := *j
		x.Steps = steps
		var err error
		if ends[i], err = (&crew{workers: 4, servers: 1, o: server.Options{Mode: ps.SSP, Staleness: 1}}).paced(t, &x); err != nil {
			t.Fatal(err)
		}
	}
	var off, all float64
	for i, x := range ends[0].Params.Flat { // softmax begins at 0
		d := float64(ends[1].Params.Flat[i] - x)
		off, all = off+d*d, all+float64(x)*float64(x)
	}
	if r := math.Sqrt(off / all); !(r < 0.06) { // 0.01 to 0.02, since two runs differ by what came first; 0.19 where updates are counted that have weight
		t.Errorf("from update 50 to update 80 the model goes %.2f of its way, though the rate is 0 after 40", r)
	}
}

// TestFewerRowsThanWorkers: workers that never have a row are not counted: not in the mean of the workers' optimizers; and a job is
// refused where a server would count them.
func TestFewerRowsThanWorkers(t *testing.T) {
	for _, batch := range []int{30, trivium.FullBatch} {
		j := job()
		j.Data.Train, j.Batch, j.Epochs, j.Steps, j.Optimizer = "0:2", batch, 0, 9, trivium.OptimizerSpec{Name: "momentum", Rate: 0.001}
		sure, store := blob.Dir(t.TempDir()), blob.Dir(t.TempDir())
		alone(t, train.Env{Blob: sure}, j)
		o := server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}
		if _, err := (&crew{env: train.Env{Blob: store}, workers: 3, servers: 1, o: o}).paced(t, j); err != nil {
			t.Fatal(err)
		}
		want, _, err := checkpoint.Latest(t.Context(), sure)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range want.Optimizer.Slots[0] {
			if y := got.Optimizer.Slots[0][i]; !(math.Abs(float64(x-y)) <= 1e-3) {
				t.Errorf("batch %d: velocity %d is %v, local has %v", batch, i, y, x)
				break
			}
		}
		for _, mode := range []ps.Mode{ps.SSP, ps.ASP} {
			_, err := (&crew{workers: 3, servers: 1, o: server.Options{Mode: mode}}).paced(t, j)
			if err == nil || !contains(err, "2 training rows") || !contains(err, "--workers 2") {
				t.Errorf("batch %d, %s: %v", batch, mode, err)
			}
		}
	}
}

// TestMomentumIsTold: who asks for the one momentum that reads its own steps late is told, once, of what does not.
func TestMomentumIsTold(t *testing.T) {
	for _, c := range []struct {
		optimizer string
		o         server.Options
		told      int
	}{
		{"momentum", server.Options{Mode: ps.SSP, Staleness: 3}, 1},
		{"nesterov", server.Options{Mode: ps.ESSP, Staleness: 1}, 1},
		{"momentum", server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker}, 0},
		{"momentum", server.Options{Mode: ps.SSP}, 0},
		{"momentum", server.Options{Mode: ps.ASP}, 0},
		{"momentum", server.Options{Mode: ps.BSP}, 0},
		{"sgd", server.Options{Mode: ps.SSP, Staleness: 3}, 0},
	} {
		var told []string
		j := job()
		j.Epochs, j.Steps, j.Optimizer = 0, 2, trivium.OptimizerSpec{Name: c.optimizer, Rate: 0.001}
		env := train.Env{Watch: train.Watch{Notice: func(_ observe.Level, text string) { told = append(told, text) }}}
		if _, err := (&crew{env: env, workers: 2, servers: 1, o: c.o}).paced(t, j); err != nil {
			t.Fatal(err)
		}
		if len(told) != c.told || c.told > 0 && !strings.Contains(told[0], "--optimizer-on worker") {
			t.Errorf("%s, %+v: %q", c.optimizer, c.o, told)
		}
	}
}

// TestInterruptOfIdleWorker: also a worker that has no shard of an exact job can end it for all.
func TestInterruptOfIdleWorker(t *testing.T) {
	for _, shards := range []int{3, 2} {
		j := job()
		j.Exact, j.Shards, j.Batch, j.Epochs, j.Steps = true, shards, 30, 0, 40
		ports, peers := memoryPorts(t, 3)
		var wait sync.WaitGroup
		for i := range 3 {
			ctx, interrupt, _ := train.Member(t.Context())
			env := train.Env{Rank: i, Peers: peers, Port: ports[i], Epoch: 7, Splits: shared(t.Context(), train.Env{}, j)}
			if i == 0 { // the one without a shard, where there are two
				env.Between.After = func(_ context.Context, step int64, _ func(context.Context) (trivium.Params, error)) error {
					if step == 5 {
						interrupt()
					}
					return nil
				}
			}
			wait.Go(func() {
				r, err := server.New(env, server.Options{Mode: ps.BSP}).Train(ctx, j)
				if r.Steps > 7 || err != nil && !strings.Contains(err.Error(), "interrupt") {
					t.Errorf("%d shards: worker %d ends after %d updates, %s: %v", shards, i, r.Steps, r.Reason, err)
				}
			})
		}
		wait.Wait()
	}
}

// TestProgramOfFewRows: a program has no steps of a server's optimizer, and may have workers without rows in any mode.
func TestProgramOfFewRows(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	models := nn.Models{"counts": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) { return &counts{l: l}, nil }}
	for _, mode := range []ps.Mode{ps.SSP, ps.ASP} {
		j := job()
		j.Model, j.Data.Train, j.Epochs, j.Steps = "counts", "0:2", 0, 3
		r, err := (&crew{env: train.Env{Models: models}, workers: 3, servers: 1, o: server.Options{Mode: mode}}).paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Params.Flat; f[0]+f[1]+f[2] != 6 {
			t.Errorf("%s: %v", mode, f)
		}
	}
}

// TestProgramRefuses: what a program's rounds would not heed is refused, and not passed over.
func TestProgramRefuses(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	models := nn.Models{"counts": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) { return &counts{l: l}, nil }}
	for want, o := range map[string]server.Options{
		"exact mode": {Mode: ps.BSP},
		"f16":        {Mode: ps.BSP, Compress: "f16"},
		"a mean":     {Mode: ps.BSP, OptimizerAt: server.AtWorker, Clocks: 2, Mean: true},
	} {
		j := job()
		j.Model, j.Exact = "counts", want == "exact mode"
		_, err := (&crew{env: train.Env{Models: models}, workers: 2, servers: 1, o: o}).Train(t.Context(), j)
		if _, refused := errors.AsType[*train.JobError](err); !refused || !contains(err, "counts is trained by a program of its own") || !contains(err, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// named is counts with a table, or, without a program, a tensor, of that name.
type named struct {
	counts
	table string
}

func (m *named) Tables() []ps.Spec {
	return append(m.counts.Tables(), ps.Spec{Name: m.table, Rows: 2, Cols: 4, Cell: ps.Int64})
}

// TestNamesTaken: a table or a tensor that is called as one of the strategy's own is refused by that name, whatever the mode.
func TestNamesTaken(t *testing.T) {
	for want, program := range map[string]bool{`"updates"`: true, `"evaluations"`: true, `"row of w"`: false} {
		l, err := trivium.NewLayout(trivium.Spec{Name: strings.Trim(want, `"`), Shape: []int{2, 4}})
		if err != nil {
			t.Fatal(err)
		}
		models := nn.Models{"named": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			m := &named{counts{l: l}, strings.Trim(want, `"`)}
			if program {
				return m, nil
			}
			return struct{ trivium.Model }{m}, nil
		}}
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.ASP}} {
			j := job()
			j.Model = "named"
			_, err = (&crew{env: train.Env{Models: models}, workers: 2, servers: 1, o: o}).Train(t.Context(), j)
			if _, refused := errors.AsType[*train.JobError](err); !refused || !contains(err, "of named is") || !contains(err, want) {
				t.Errorf("%s: %s: %v", o.Mode, want, err)
			}
		}
	}
}

// TestWait: a worker whose round takes ten minutes more than the others' is taken for one that hangs, unless Options.Wait is longer.
func TestWait(t *testing.T) {
	if testing.Short() {
		t.Skip("a long training case")
	}
	for wait, want := range map[time.Duration]string{0: "held by worker/1: no progress in 10m0s", time.Hour: ""} {
		j := job()
		j.Epochs, j.Steps = 0, 2
		slow := server.Slow{Worker: 1, Factor: 2, Unit: 11 * time.Minute}
		c := &crew{workers: 2, servers: 1, o: server.Options{Mode: ps.BSP, Wait: wait, Slow: slow}}
		if r, err := c.paced(t, j); want == "" && (err != nil || r.Steps != 2) || want != "" && (err == nil || !contains(err, want)) {
			t.Errorf("waits for %v: %d updates, error %v, want %q", wait, r.Steps, err, want)
		}
	}
}
