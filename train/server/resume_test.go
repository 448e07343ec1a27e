package server_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestResumeBits: under BSP, with a codec too, a run that as many workers and servers go on with ends with the bits of one that was not
// interrupted, from what is saved at its end and from a snapshot between, in the middle of an epoch and under a schedule of learning rates.
func TestResumeBits(t *testing.T) {
	const rows = "rows of randomk:0.1" // of a row-sparse tensor
	for _, name := range []string{rows, "none", "f16", "bf16", "int8", "1bit", "1bit:l2", "topk:0.05", "randomk:0.1", "qsgd:7", "powersgd:2"} {
		for n := 2; n <= 3; n++ {
			if testing.Short() && (n == 3 || name != rows) {
				continue
			}
			j, codec := job(), strings.TrimPrefix(name, "rows of ")
			if name == rows {
				model := "fm:64"
				if testing.Short() {
					model = "fm:8"
				}
				j.Model, j.Data = model, trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
			}
			j.Epochs, j.Optimizer = 3, trivium.OptimizerSpec{Name: "momentum", Rate: 0.02, Schedule: "step:3,0.5"}
			c := func(env train.Env) *crew {
				return &crew{env: env, workers: n, servers: 2, o: server.Options{Mode: ps.BSP, Compress: codec}}
			}
			want, err := c(train.Env{}).Train(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			store := blob.Dir(t.TempDir())
			first := *j
			first.Steps = 11
			if _, err := c(train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 3, Keep: 100}}).paced(t, &first); err != nil {
				t.Fatal(err)
			}
			names, err := checkpoint.List(t.Context(), store)
			if err != nil || len(names) < 2 {
				t.Fatalf("%q, %v", names, err)
			}
			if testing.Short() {
				names = names[:1]
			}
			for _, at := range names {
				saved, err := checkpoint.Load(t.Context(), store, at)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c(train.Env{Resume: saved}).Train(t.Context(), j)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Params.Flat, want.Params.Flat) {
					t.Errorf("%s, %d workers: resumed after update %d, the run ends with other bits", name, n, saved.Progress.Step)
				}
			}
		}
	}
}

// TestDroppedGoesOn: what codecs had dropped of gradients counts in full where another number of workers goes on, or as many after another
// topology, at another learning rate, and of a model that is too small for a codec here.
func TestDroppedGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "small.csv")
	if err := os.WriteFile(file, []byte("label,a,b,c\n"+strings.Repeat("1,0.5,-1,2\n0,-1,1.5,1\n", 150)), 0o600); err != nil {
		t.Fatal(err)
	}
	small := trivium.Data{Source: file, Train: "0:200", Test: "200:"}
	for model, d := range map[string]trivium.Data{"softmax": job().Data, "logistic": small} {
		j := job()
		j.Model, j.Data, j.Batch, j.Steps = model, d, 100, 1
		store := blob.Dir(t.TempDir())
		alone(t, train.Env{Blob: store}, j)
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		dropped := make([]float32, saved.Params.Layout.Len())
		saved.Optimizer.Names = append(saved.Optimizer.Names, "residual")
		saved.Optimizer.Slots = append(saved.Optimizer.Slots, dropped)
		for range 3 { // as allreduce would have them
			saved.Codecs = append(saved.Codecs, compress.AppendStates(nil, []*compress.Residual{compress.NewResidual(len(dropped)), compress.NewResidual(len(dropped))}))
		}
		j.Steps, j.Optimizer.Rate = 2, j.Optimizer.Rate/2 // what was dropped counts as it did at the rate of then
		var flat [2][]float32
		for k := range flat {
			c := &crew{env: train.Env{Resume: saved}, workers: 3, servers: 2, o: server.Options{Mode: ps.BSP, Compress: "f16"}}
			r, err := c.Train(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			flat[k] = r.Params.Flat
			for i := range dropped {
				dropped[i] = float32(100 + i%50)
			}
		}
		for i, x := range dropped {
			want := -2 * j.Optimizer.Rate * float64(x) / float64(j.Batch)
			if found := float64(flat[1][i] - flat[0][i]); !(math.Abs(found/want-1) <= 0.01) {
				t.Fatalf("%s, of %d cells: what was dropped of cell %d moved it by %v, want %v", model, len(dropped), i, found, want)
			}
		}
	}
}

// TestSumsGoOn: of AdaGrad a checkpoint has the squares that one optimizer sums up, whichever topology made it, between updates or at the end, and
// whichever goes on from it. A server that steps with each of three workers' gradients sums up three times as many.
func TestSumsGoOn(t *testing.T) {
	const updates = 20
	j := job()
	j.Data.Rows, j.Data.Train, j.Data.Test = 1000, "0:900", "900:"
	j.Batch, j.Epochs, j.Optimizer = 450, 10, trivium.OptimizerSpec{Name: "adagrad", Rate: 1e-4} // short steps of many rows, so that all go one way
	ways := map[string]func(env train.Env){
		"local": func(env train.Env) { alone(t, env, j) },
		"ssp": func(env train.Env) { // in lock step
			c := &crew{env: env, workers: 3, servers: 2, o: server.Options{Mode: ps.SSP}}
			if _, err := c.paced(t, j); err != nil {
				t.Fatal(err)
			}
		},
	}
	load := func(store blob.Store, name string) *checkpoint.Checkpoint {
		c, err := checkpoint.Load(t.Context(), store, name)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sums := func(c *checkpoint.Checkpoint) (sum float64) {
		for _, x := range c.Optimizer.Slots[slices.Index(c.Optimizer.Names, "squares")] {
			sum += float64(x)
		}
		return sum
	}
	each, want := blob.Dir(t.TempDir()), map[int64]float64{} // of local, by update
	alone(t, train.Env{Blob: each, Checkpoints: train.Checkpoints{Every: 1, Keep: 100}}, j)
	for _, name := range cuts(t, each, updates) {
		c := load(each, name)
		want[c.Progress.Step] = sums(c)
	}
	check := func(what string, c *checkpoint.Checkpoint) {
		t.Helper()
		got, want := sums(c), want[c.Progress.Step]
		t.Logf("%s: after update %d squares sum to %.4g, of local to %.4g", what, c.Progress.Step, got, want)
		if !(math.Abs(got/want-1) < 0.1) {
			t.Errorf("%s: after update %d squares sum to %v, of local to %v", what, c.Progress.Step, got, want)
		}
	}
	for first, begin := range ways {
		store := blob.Dir(t.TempDir())
		begin(train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 7, Keep: 100}})
		names := cuts(t, store, 2)
		between, end := load(store, names[0]), load(store, names[len(names)-1])
		if between.Progress.Step >= updates || end.Progress.Step != updates {
			t.Fatalf("%s: checkpoints %q", first, names)
		}
		check(first+", between", between)
		check(first+", at the end", end)
		for second, goOn := range ways {
			later := blob.Dir(t.TempDir())
			goOn(train.Env{Blob: later, Resume: between})
			c, _, err := checkpoint.Latest(t.Context(), later)
			if err != nil || c.Progress.Step != updates {
				t.Fatalf("%s, then %s: no checkpoint of update %d: %v", first, second, updates, err)
			}
			check(first+", then "+second, c)
		}
	}
}

// TestStateGoesOn: so it is of every rule's state, of dense and of row-sparse tensors: each tensor's part of a checkpoint is about as large as
// local has it, whoever made it, and whoever goes on from one. FTRL's says where the parameters are.
func TestStateGoesOn(t *testing.T) {
	const updates = 24
	ssp := func(j *trivium.Job, workers int, at server.Place) func(env train.Env) {
		return func(env train.Env) { // in lock step
			c := &crew{env: env, workers: workers, servers: 2, o: server.Options{Mode: ps.SSP, OptimizerAt: at}}
			if _, err := c.paced(t, j); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		model     string
		optimizer trivium.OptimizerSpec
	}{
		{"softmax", trivium.OptimizerSpec{Name: "ftrl", Rate: 0.002, L1: 0.02}},
		{"fm:8", trivium.OptimizerSpec{Name: "ftrl", Rate: 0.002, L1: 0.001}},
		{"fm:8", trivium.OptimizerSpec{Name: "adagrad", Rate: 1e-4}},
		{"fm:8", trivium.OptimizerSpec{Name: "rmsprop", Rate: 1e-5}},
		{"fm:8", trivium.OptimizerSpec{Name: "adam", Rate: 1e-5}},
		{"fm:8", trivium.OptimizerSpec{Name: "momentum", Rate: 1e-4}},
	} {
		if testing.Short() && x.model != "softmax" {
			continue // all in the full run
		}
		what := x.model + ", " + x.optimizer.Name
		j := job()
		j.Model, j.Optimizer, j.Epochs, j.Steps = x.model, x.optimizer, 6, updates
		j.Data.Rows, j.Data.Train, j.Data.Test, j.Batch = 500, "0:400", "400:", 100
		if x.model != "softmax" {
			j.Data.Source, j.Batch = "wide", 6 // of most rows no worker has more than one
		}
		ways := map[string]func(env train.Env){
			"local": func(env train.Env) { alone(t, env, j) }, "one worker": ssp(j, 1, server.AtServer), "three workers": ssp(j, 3, server.AtServer),
			"three workers, each with an optimizer": ssp(j, 3, server.AtWorker),
		}
		sizes := func(c *checkpoint.Checkpoint) map[string]float64 {
			sums := map[string]float64{}
			for k, v := range c.Optimizer.Slots {
				for i := range c.Params.Layout.Tensors() {
					from, to := c.Params.Layout.Range(i)
					for _, x := range v[from:to] {
						sums[c.Optimizer.Names[k]+"/"+c.Params.Layout.Spec(i).Name] += math.Abs(float64(x))
					}
				}
			}
			return sums
		}
		each, want := blob.Dir(t.TempDir()), map[int64]map[string]float64{} // of local, by update
		alone(t, train.Env{Blob: each, Checkpoints: train.Checkpoints{Every: 1, Keep: 100}}, j)
		load := func(store blob.Store, name string) *checkpoint.Checkpoint {
			c, err := checkpoint.Load(t.Context(), store, name)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		for _, name := range cuts(t, each, updates) {
			c := load(each, name)
			want[c.Progress.Step] = sizes(c)
		}
		check := func(way string, c *checkpoint.Checkpoint) {
			t.Helper()
			got, want := sizes(c), want[c.Progress.Step]
			for name, size := range want {
				t.Logf("%s: %s: after update %d %s is %.3f of local's %.4g", what, way, c.Progress.Step, name, got[name]/size, size)
				if r := got[name] / size; !(r > 0.7) || !(r < 1.4) {
					t.Errorf("%s: %s: after update %d %s is %v times as large as of local", what, way, c.Progress.Step, name, r)
				}
			}
			if x.optimizer.Name != "ftrl" {
				return
			}
			rule, err := optim.New(x.optimizer, kernel.Best())
			if err != nil {
				t.Fatal(err)
			}
			u, l := make([]float32, c.Params.Layout.Len()), c.Params.Layout
			slots := [][]float32{slices.Clone(c.Optimizer.Slots[0]), slices.Clone(c.Optimizer.Slots[1])}
			rule.Apply(2, l, 0, c.Params.Flat, make([]float32, len(u)), u, slots)
			for i, p := range c.Params.Flat {
				z, n := float64(c.Optimizer.Slots[0][i]), c.Optimizer.Slots[1][i]
				if bits := 1e-6*math.Abs(float64(p)) + 1e-7*x.optimizer.Rate*(1+math.Abs(z)); n > 0 && !(math.Abs(float64(u[i])) <= bits) {
					t.Fatalf("%s: %s: cell %d is %v, and z and n put it at %v", what, way, i, p, p+u[i])
				}
			}
		}
		for first, begin := range ways {
			store := blob.Dir(t.TempDir())
			begin(train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 9, Keep: 100}})
			names := cuts(t, store, 2)
			between, end := load(store, names[0]), load(store, names[len(names)-1])
			if between.Progress.Step >= updates || end.Progress.Step != updates {
				t.Fatalf("%s, %s: checkpoints %q", what, first, names)
			}
			check(first+", between", between)
			check(first+", at the end", end)
			for second, goOn := range ways {
				if first == second {
					continue
				}
				later := blob.Dir(t.TempDir())
				goOn(train.Env{Blob: later, Resume: between})
				c, _, err := checkpoint.Latest(t.Context(), later)
				if err != nil || c.Progress.Step != updates {
					t.Fatalf("%s: %s, then %s: no checkpoint of update %d: %v", what, first, second, updates, err)
				}
				check(first+", then "+second, c)
			}
		}
	}
}
