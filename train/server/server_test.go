package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestStrategy: one worker behaves as local does, over tables.
func TestStrategy(t *testing.T) {
	traintest.Run(t, func(env train.Env) trivium.Strategy { return server.New(env, server.Options{Mode: ps.BSP, Servers: 2}) })
}

// TestExact: the bits are those of local, for every number of workers and servers.
func TestExact(t *testing.T) {
	for name, j := range traintest.Variants() {
		j.Exact = true
		want, err := local.New(traintest.Env(t, 1, true), local.Options{}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 3, 5} {
			for _, servers := range []int{1, 3} {
				if testing.Short() && (n == 1 || n == 3) != (servers == 3) {
					continue // all in the full run
				}
				c := &crew{env: traintest.Env(t, 1, true), workers: n, servers: servers, o: server.Options{Mode: ps.BSP, Lanes: n}}
				got, err := c.Train(t.Context(), j)
				if err != nil {
					t.Fatalf("%s, %d workers, %d servers: %v", name, n, servers, errors.Join(c.errs...))
				}
				what := fmt.Sprintf("%s, %d workers, %d servers", name, n, servers)
				traintest.Same(t, what, got, want)
				for rank := range n {
					for i, x := range c.results[rank].Params.Flat {
						if math.Float32bits(x) != math.Float32bits(want.Params.Flat[i]) {
							t.Fatalf("%s: rank %d: cell %d is %v, want %v", what, rank, i, x, want.Params.Flat[i])
						}
					}
				}
			}
		}
	}
}

// TestModes: what workers may not have seen yet costs no more than a little of the loss, wherever the optimizer is.
func TestModes(t *testing.T) {
	epochs := 80 // at 40 Adam at ASP's workers was 0.3 to 2.5 % off, in 16 runs
	if testing.Short() {
		epochs = 3
	}
	for _, optimizer := range []trivium.OptimizerSpec{{Name: "sgd", Rate: 0.1}, {Name: "adam", Rate: 0.002}} {
		j := job()
		j.Epochs, j.Batch = epochs, 120
		j.Optimizer = optimizer
		if testing.Short() && optimizer.Name != "sgd" {
			continue // it comes close only after more epochs than the race detector allows
		}
		want := alone(t, train.Env{}, j)
		for _, o := range []server.Options{
			{Mode: ps.BSP},
			{Mode: ps.SSP, Staleness: 3},
			{Mode: ps.ESSP, Staleness: 2},
			{Mode: ps.ASP, Lanes: 3},
			{Mode: ps.SSP},
			{Mode: ps.BSP, OptimizerAt: server.AtWorker},
			{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker},
			{Mode: ps.ASP, OptimizerAt: server.AtWorker},
		} {
			got := paced(t, o, j)
			a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]
			t.Logf("%s %s:%d, optimizer at the %s: test loss %.4f, local %.4f", optimizer.Name, o.Mode, o.Staleness, o.OptimizerAt, a, b)
			if !(math.Abs(a/b-1) < 0.02) {
				t.Errorf("%s %s:%d, optimizer at the %s: test loss %v, local reaches %v", optimizer.Name, o.Mode, o.Staleness, o.OptimizerAt, a, b)
			}
			if got.Steps != want.Steps || got.Samples != want.Samples || got.Reason != trivium.Finished {
				t.Errorf("%+v: %d updates, %d rows, %s", o, got.Steps, got.Samples, got.Reason)
			}
		}
	}
}

// TestRowSparse: a model with row-sparse tensors, of which only the rows of a batch travel.
func TestRowSparse(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: trains fourteen models to the end")
	}
	at := server.AtWorker
	stale := []server.Options{{Mode: ps.ASP, Lanes: 2}, {Mode: ps.SSP, Staleness: 3, OptimizerAt: at}}
	for optimizer, loose := range map[string][]server.Options{
		"adam": stale,
		"sgd":  stale,
		"ftrl": {{Mode: ps.ASP}, {Mode: ps.BSP, OptimizerAt: at}, {Mode: ps.SSP, Staleness: 3, OptimizerAt: at}, {Mode: ps.BSP, OptimizerAt: at, StepsPerRound: 4, Mean: true}},
	} {
		j := job()
		j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 3000, Train: "0:2400", Test: "2400:"}
		j.Optimizer = trivium.OptimizerSpec{Name: optimizer, Rate: 0.01}
		j.Exact, j.Epochs = true, 20
		if optimizer == "adam" { // at 0.01 stale steps cost it up to 2 %
			j.Optimizer.Rate, j.Epochs = 0.003, 40
		}
		want := alone(t, train.Env{}, j)
		w := &crew{workers: 3, servers: 2, o: server.Options{Mode: ps.BSP}}
		got, err := w.Train(t.Context(), j)
		if err != nil {
			t.Fatal(errors.Join(w.errs...))
		}
		traintest.Same(t, optimizer, got, want)
		j.Exact = false
		for _, o := range loose {
			got := paced(t, o, j)
			a, b := got.Metrics["test.loss"], want.Metrics["test.loss"]
			t.Logf("%s %s:%d, optimizer at the %s: test loss %.4f, local %.4f", optimizer, o.Mode, o.Staleness, o.OptimizerAt, a, b)
			if !(a < 1.02*b) {
				t.Errorf("%s %+v: test loss %v, local reaches %v", optimizer, o, a, b)
			}
		}
	}
}

// TestResume: what one strategy has begun the other finishes, to the bit, on any number of workers and servers.
func TestResume(t *testing.T) {
	for name, change := range map[string]func(j *trivium.Job){
		"softmax": func(*trivium.Job) {},
		"sparse": func(j *trivium.Job) {
			j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "sparse" {
				t.Skip("not run here: twice as long as the dense one")
			}
			j := small(job())
			j.Exact, j.Epochs, j.Optimizer = true, 2, trivium.OptimizerSpec{Name: "adam", Rate: 0.01, Schedule: "cosine:20"}
			change(j)
			whole := alone(t, train.Env{}, j)
			half := *j
			half.Steps = whole.Steps/2 + 1
			begin := map[string]func(env train.Env) trivium.Strategy{
				"local": func(env train.Env) trivium.Strategy {
					env.Splits = shared(t.Context(), env, j)
					return local.New(env, local.Options{})
				},
				"server": func(env train.Env) trivium.Strategy {
					return &crew{env: env, workers: 3, servers: 2, o: server.Options{Mode: ps.BSP}}
				},
				"other sizes": func(env train.Env) trivium.Strategy {
					return &crew{env: env, workers: 2, o: server.Options{Mode: ps.BSP, Servers: 1}} // beside the workers
				},
			}
			for first, a := range begin {
				for second, b := range begin {
					if testing.Short() && (first != "server" || second == first) {
						continue // two of nine pairs: a run cut by servers goes on elsewhere
					}
					store := blob.Dir(t.TempDir())
					if _, err := a(train.Env{Blob: store}).Train(t.Context(), &half); err != nil {
						t.Fatalf("%s: %v", first, err)
					}
					c, _, err := checkpoint.Latest(t.Context(), store)
					if err != nil {
						t.Fatal(err)
					}
					got, err := b(train.Env{Resume: c}).Train(t.Context(), j)
					if err != nil {
						t.Fatalf("%s, then %s: %v", first, second, err)
					}
					traintest.Same(t, first+", then "+second, got, whole)
				}
			}
		})
	}
}

// TestInterrupt: all stop after the same update; under ASP each after one of its own. What is saved is resumed.
func TestInterrupt(t *testing.T) {
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ASP}} {
		j := small(job())
		j.Epochs = 1 << 20
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Blob: store}, workers: 3, servers: 1, o: o}
		c.env.Watch.Progress = func(p train.Progress) {
			if p.Step > 20 {
				cancel()
			}
		}
		r, err := c.Train(ctx, j)
		if err != nil || r.Reason != trivium.Interrupted {
			t.Fatalf("%s: %s, %v", o.Mode, r.Reason, errors.Join(c.errs...))
		}
		for rank, x := range c.results[:3] {
			if o.Mode != ps.ASP && (x.Steps != r.Steps || x.Reason != r.Reason) {
				t.Errorf("rank %d: %s after %d updates, rank 0 after %d", rank, x.Reason, x.Steps, r.Steps)
			}
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil || saved.Progress.Step != r.Steps {
			t.Fatalf("%s: %v", o.Mode, err)
		}
		j.Epochs = saved.Progress.Epoch + 2
		again := &crew{env: train.Env{Resume: saved}, workers: 2, servers: 1, o: o}
		if r, err := again.Train(t.Context(), j); err != nil || r.Reason != trivium.Finished {
			t.Fatalf("%s: resumed: %s, %v", o.Mode, r.Reason, errors.Join(again.errs...))
		}
	}
}

// TestInterruptOfSlow: who emulates compute as training is interrupted does so no longer, nor in the rounds that it still makes with the others.
func TestInterruptOfSlow(t *testing.T) {
	j := small(job())
	j.Epochs = 1 << 20
	splits := shared(t.Context(), train.Env{}, j) // outside of virtual time, which does not pass while it is opened
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ASP}} {
		synctest.Test(t, func(t *testing.T) {
			o.Slow = server.Slow{Worker: 1, Factor: 2, Unit: 20 * time.Second}
			c := &crew{env: train.Env{Splits: splits, CPU: tensor.NewCPU(1, false)}, workers: 2, servers: 1, o: o}
			defer c.env.CPU.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			r, err := c.Train(ctx, j)
			if took := time.Since(began); err != nil || r.Reason != trivium.Interrupted || took > 6*time.Second {
				t.Errorf("%s: %s after %v, asked to stop after 5 s: %v", o.Mode, r.Reason, took, errors.Join(c.errs...))
			}
		})
	}
}

// TestEarlyStop: all stop after the evaluation that rank 0 makes.
func TestEarlyStop(t *testing.T) {
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}, {Mode: ps.ASP}} {
		j := job()
		j.Epochs, j.Stop = 1000, trivium.EarlyStop{Metric: "test.accuracy", Target: ">= 0.7"}
		c := &crew{workers: 3, servers: 1, o: o}
		r, err := c.paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		for rank, x := range c.results[:3] {
			if x.Reason != trivium.TargetMet || x.Steps != r.Steps {
				t.Errorf("%s: rank %d: %s after %d updates, rank 0 after %d", o.Mode, rank, x.Reason, x.Steps, r.Steps)
			}
		}
	}
}

// TestUneven: workers that have no rows of an update, and more workers than rows.
func TestUneven(t *testing.T) {
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.ASP}} {
		j := traintest.Job()
		j.Batch, j.Epochs = 3, 1
		c := &crew{env: traintest.Env(t, 1, false), workers: 5, servers: 1, o: o}
		if r, err := c.Train(t.Context(), j); err != nil || r.Reason != trivium.Finished {
			t.Fatalf("%s: %s, %v", o.Mode, r.Reason, errors.Join(c.errs...))
		}
	}
}

// TestDiverged: the same error at all, under BSP; else at one, which ends the others.
func TestDiverged(t *testing.T) {
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.ASP}, {Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker}} {
		j := traintest.Job()
		j.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1e38}
		c := &crew{env: traintest.Env(t, 1, false), workers: 3, servers: 1, o: o}
		_, _ = c.paced(t, j)
		found := 0
		for rank := range 3 {
			if _, ok := errors.AsType[*trivium.DivergedError](c.errs[rank]); ok {
				found++
			} else if _, ok := errors.AsType[*train.LostError](c.errs[rank]); !ok && c.results[rank].Reason != trivium.Interrupted && c.errs[rank] != nil { // nil: it had not begun, or nothing was wrong
				t.Errorf("%s: rank %d: %v", o.Mode, rank, c.errs[rank])
			}
		}
		sound := c.results[0].Reason == trivium.Finished // huge steps may happen to cancel, where each is of other parameters
		for _, x := range c.results[0].Params.Flat {
			sound = sound && x-x == 0
		}
		if found == 0 && !sound || o.Mode == ps.BSP && found < 3 {
			t.Errorf("%s: %d of 3 say that it diverged: %v", o.Mode, found, errors.Join(c.errs...))
		}
	}
}

// TestMistakes are refused with every reason at once.
func TestMistakes(t *testing.T) {
	j := job()
	j.Exact, j.Optimizer.ClipNorm = true, 1
	err := server.Options{Mode: ps.ASP, Staleness: -1, Servers: -2}.Check(j, nil, 2)
	for _, want := range []string{"staleness", "servers", "give --consistency bsp", "clip by value, or train under allreduce"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	j = job()
	j.Optimizer.Name = "lbfgs"
	if err := (server.Options{}).Check(j, nil, 2); err == nil || !strings.Contains(err.Error(), "lbfgs") {
		t.Error(err)
	}
	j.Optimizer.Name = "ftrl"
	at := server.AtWorker
	for _, c := range []struct {
		o    server.Options
		want string // empty: nothing is wrong
	}{
		{server.Options{Mode: ps.ASP}, ""},
		{server.Options{Mode: ps.BSP, OptimizerAt: at}, ""},
		{server.Options{Mode: ps.SSP, OptimizerAt: at}, ""},
		{server.Options{Mode: ps.SSP, Staleness: 1, OptimizerAt: at}, ""},
		{server.Options{Mode: ps.ASP, OptimizerAt: at}, ""},
		{server.Options{Mode: ps.BSP, OptimizerAt: at, Clocks: 2}, "--merge mean"},
		{server.Options{Mode: ps.BSP, OptimizerAt: at, Clocks: 2, Mean: true}, ""},
		{server.Options{Mode: ps.SSP, Staleness: 1, OptimizerAt: at, Clocks: 2, Mean: true}, "one step a round"},
	} {
		if err := c.o.Check(j, nil, 1); err != nil {
			t.Errorf("%+v: of one worker, which reads all that it added: %v", c.o, err)
		}
		if err := c.o.Check(j, nil, 2); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	for _, s := range []string{"worker=x", "factor=0.5", "unit=soon", "speed=2", ""} {
		if _, err := server.ParseSlow(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	for s, want := range map[string]string{
		"worker=0,factor=8,worker=1":   "server: slow: worker is given twice, and is wanted once: one worker is slow, or with worker=rotate each in its turn",
		"worker=0, factor=2, factor=2": "server: slow: factor is given twice",
		"unit=20ms,unit=5ms":           "server: slow: unit is given twice",
		"rotate,unit=5ms":              `server: slow: want worker=N or worker=rotate, factor=X, unit=TIME, found "rotate"`,
	} {
		if _, err := server.ParseSlow(s); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", s, err, want)
		}
	}
	o, err := server.ParseSlow("worker=rotate,factor=4,unit=20ms")
	if err != nil || !o.Rotate || o.Factor != 4 || o.Unit.Milliseconds() != 20 {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestScheduleOfRows: of a row that several workers touch in one update, a schedule counts that update once.
func TestScheduleOfRows(t *testing.T) {
	j := job()
	j.Model, j.Data = "logistic", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
	j.Batch, j.Epochs, j.Steps, j.Optimizer = 16, 0, 60, trivium.OptimizerSpec{Name: "sgd", Rate: 0.01, Schedule: "linear:40"}
	want := alone(t, train.Env{}, j)
	if !want.Params.Layout.Spec(0).RowSparse {
		t.Fatal("nothing is row-sparse")
	}
	for _, o := range []server.Options{{Mode: ps.SSP}, {Mode: ps.ASP}} {
		got, err := (&crew{workers: 4, servers: 1, o: o}).paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		var along, all float64
		for i, x := range want.Params.Flat { // it begins at 0
			along, all = along+float64(x)*float64(got.Params.Flat[i]), all+float64(x)*float64(x)
		}
		if r := along / all; !(math.Abs(r-1) <= 0.15) { // 0.47, where each worker's gradient counts
			t.Errorf("%v: the model moves %.3f times as far as one process moves it", o.Mode, r)
		}
	}
}

// TestWeightlessRows: rows of a row-sparse tensor that only examples without weight touch are stepped as in one process, to the bit.
func TestWeightlessRows(t *testing.T) {
	j := job()
	j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:", ClassWeight: "-1=0"}
	j.Exact, j.Batch, j.Epochs, j.Steps, j.Optimizer = true, 32, 0, 30, trivium.OptimizerSpec{Name: "momentum", Rate: 0.02}
	want := alone(t, train.Env{}, j)
	for _, n := range []int{5, 8} { // of 16 shards of two rows, many weigh nothing
		c := &crew{workers: n, servers: 2, o: server.Options{Mode: ps.BSP}}
		got, err := c.Train(t.Context(), j)
		if err != nil {
			t.Fatal(errors.Join(c.errs...))
		}
		traintest.Same(t, fmt.Sprintf("%d workers", n), got, want)
	}
}

// TestFTRLBeginsAtFirstWeight: a worker's FTRL begins where the model does, also where its first rows weigh nothing.
func TestFTRLBeginsAtFirstWeight(t *testing.T) {
	j := traintest.Job()
	j.Data.Order, j.Data.ClassWeight = "index", "0=0" // row i is of class i mod 3: worker 0 begins with one that weighs nothing
	j.Batch, j.Epochs, j.Steps, j.Optimizer = 2, 0, 6, trivium.OptimizerSpec{Name: "ftrl", Rate: 1e-5}
	env := traintest.Env(t, 1, false)
	want := alone(t, env, j)
	c := &crew{env: env, workers: 2, servers: 1, o: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}}
	got, err := c.Train(t.Context(), j)
	if err != nil {
		t.Fatal(errors.Join(c.errs...))
	}
	var off, all float64
	for i, x := range want.Params.Flat {
		d := float64(got.Params.Flat[i] - x)
		off, all = off+d*d, all+float64(x)*float64(x)
	}
	if r := math.Sqrt(off / all); !(r < 0.1) { // 0.32, where worker 0 takes the model to 0
		t.Errorf("the model ends %.2f of its size from where one process leaves it", r)
	}
}
