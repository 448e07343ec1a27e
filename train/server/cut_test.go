package server_test

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

// TestCutCounts: a checkpoint that is taken while workers are at different updates holds exactly the rows of each worker's first rounds.
func TestCutCounts(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	models := nn.Models{"counts": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) { return &counts{l: l}, nil }}
	modes := []server.Options{{Mode: ps.SSP, Staleness: 3}, {Mode: ps.ESSP, Staleness: 1}, {Mode: ps.ASP}, {Mode: ps.SSP, Servers: 2}}
	if testing.Short() {
		modes = modes[:1]
	}
	for _, o := range modes {
		j := job()
		j.Model, j.Epochs, j.Batch = "counts", 4, 30 // 54 updates of 10 rows a worker, the last one short
		want := 6                                    // of 216 updates, that at the end among them
		if o.Mode == ps.ASP {
			j.Epochs, want = 5, 3 // the fast ones are done when the slow one is half way, and then it is cut no more
		}
		servers := 2 - o.Servers
		store := blob.Dir(t.TempDir())
		o.Slow = server.Slow{Worker: 1, Factor: 2, Unit: time.Millisecond}
		c := &crew{env: train.Env{Models: models, Blob: store, Checkpoints: train.Checkpoints{Every: 40, Keep: 1000}}, workers: 3, servers: servers, o: o}
		if _, err := c.paced(t, j); err != nil {
			t.Fatal(err)
		}
		names := cuts(t, store, want)
		for _, name := range names {
			x, err := checkpoint.Load(t.Context(), store, name)
			if err != nil {
				t.Fatal(err)
			}
			at := x.Progress
			if all := at.Step/54*1600 + at.Step%54*30; at.Samples != all {
				t.Errorf("%s:%d, %s: %d rows in %d updates, want %d", o.Mode, o.Staleness, name, at.Samples, at.Step, all)
			}
			for rank := range int64(3) { // of the short update of 10 rows, ranks have 3, 3 and 4
				want := at.Step/54*(53*10+3+rank/2) + at.Step%54*10
				if got := int64(x.Params.Flat[rank]); got != want {
					t.Errorf("%s:%d, %s: rank %d has added %d rows, want %d", o.Mode, o.Staleness, name, rank, got, want)
				}
			}
		}
		t.Logf("%s:%d: %d checkpoints", o.Mode, o.Staleness, len(names))
	}
}

// cuts are the checkpoints, of which there are so many at least. A cut is taken while training goes on; in virtual time it takes none.
func cuts(t *testing.T, store blob.Store, want int) []string {
	t.Helper()
	names, err := checkpoint.List(t.Context(), store)
	if err != nil || len(names) < want {
		t.Fatalf("%d checkpoints, want %d at least: %v", len(names), want, err)
	}
	return names
}

// TestRowStepsOfCuts: how often a row was updated, as a cut says it, does not depend on what early stopping saved before, nor on where the run was
// resumed.
func TestRowStepsOfCuts(t *testing.T) {
	j := job()
	j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
	j.Batch, j.Epochs, j.EvalEvery = 100, 2, 5
	j.Optimizer, j.Stop = trivium.OptimizerSpec{Name: "adam", Rate: 0.003}, trivium.EarlyStop{Metric: "test.loss", Patience: 1000}
	each, store := blob.Dir(t.TempDir()), blob.Dir(t.TempDir())
	alone(t, train.Env{Blob: each, Checkpoints: train.Checkpoints{Every: 1, Keep: 1000}}, j)
	counts := map[int64][][]uint32{}
	for _, name := range cuts(t, each, 12*j.Epochs) {
		c, err := checkpoint.Load(t.Context(), each, name)
		if err != nil {
			t.Fatal(err)
		}
		counts[c.Progress.Step] = c.Optimizer.RowSteps
	}
	check := func(store blob.Store, from *checkpoint.Checkpoint, least int) (first *checkpoint.Checkpoint) {
		t.Helper()
		one := &crew{env: train.Env{Blob: store, Resume: from, Checkpoints: train.Checkpoints{Every: 4, Keep: 1000}}, o: server.Options{Mode: ps.SSP}}
		if _, err := one.paced(t, j); err != nil {
			t.Fatal(err)
		}
		for _, name := range cuts(t, store, least) {
			c, err := checkpoint.Load(t.Context(), store, name)
			if err != nil {
				t.Fatal(err)
			}
			if want := counts[c.Progress.Step]; want == nil || !slices.EqualFunc(c.Optimizer.RowSteps, want, slices.Equal) {
				t.Errorf("%s, after update %d: rows were updated otherwise than by local", name, c.Progress.Step)
			}
			if first == nil || c.Progress.Step < first.Progress.Step {
				first = c
			}
		}
		return first
	}
	first := check(store, nil, 3*j.Epochs-1)
	j.EvalEvery, j.Stop = 0, trivium.EarlyStop{} // whose saving overtakes cuts
	if next := check(blob.Dir(t.TempDir()), first, 2); next.Progress.Step <= first.Progress.Step {
		t.Errorf("resumed after update %d, the first checkpoint is of update %d", first.Progress.Step, next.Progress.Step)
	}
}

// TestCutResumes: what a cut holds is what there was: alone, and with staleness 0, local goes on from it to the same model.
func TestCutResumes(t *testing.T) {
	for name, change := range map[string]func(j *trivium.Job){
		"softmax": func(*trivium.Job) {},
		"sparse": func(j *trivium.Job) {
			j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
		},
	} {
		for _, at := range []server.Place{server.AtServer, server.AtWorker} {
			if testing.Short() && (name != "sparse" || at != server.AtServer) {
				continue
			}
			j := job()
			j.Batch, j.Epochs, j.Optimizer = 100, 6, trivium.OptimizerSpec{Name: "adam", Rate: 0.003}
			if testing.Short() {
				j.Epochs = 3
			}
			change(j)
			whole := alone(t, train.Env{}, j)
			store := blob.Dir(t.TempDir())
			one := &crew{env: train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: int64(5 * j.Epochs / 3), Keep: 1000}}, o: server.Options{Mode: ps.SSP, Servers: 2, Lanes: 3, OptimizerAt: at}}
			if _, err := one.paced(t, j); err != nil {
				t.Fatal(err)
			}
			names := cuts(t, store, 3)
			names = []string{names[0], names[len(names)/2]}
			if testing.Short() {
				names = names[:1]
			}
			for _, n := range names {
				c, err := checkpoint.Load(t.Context(), store, n)
				if err != nil {
					t.Fatal(err)
				}
				for way, s := range map[string]trivium.Strategy{
					"local":  local.New(train.Env{Resume: c, Splits: shared(t.Context(), train.Env{}, j)}, local.Options{}),
					"server": &crew{env: train.Env{Resume: c}, o: server.Options{Mode: ps.SSP, Servers: 3, OptimizerAt: at}},
				} {
					got, err := s.Train(t.Context(), j)
					if err != nil {
						t.Fatal(err)
					}
					if got.Steps != whole.Steps || got.Samples != whole.Samples {
						t.Errorf("%s: %s: %d updates of %d rows, want %d of %d", name, n, got.Steps, got.Samples, whole.Steps, whole.Samples)
					}
					for i, x := range got.Params.Flat {
						if d := math.Abs(float64(x - whole.Params.Flat[i])); d > 1e-4 {
							t.Fatalf("%s, optimizer at the %s: from %s on as %s: cell %d is %v, want %v", name, at, n, way, i, x, whole.Params.Flat[i])
						}
					}
				}
			}
		}
	}
}

// TestCase19: snapshots every 10 rounds, all killed, restored on other numbers of servers: under BSP the bits of an uninterrupted run.
func TestCase19(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: trains five times; TestCutResumes is the short one")
	}
	j := job()
	j.Exact, j.Batch, j.Epochs, j.Optimizer = true, 100, 5, trivium.OptimizerSpec{Name: "adam", Rate: 0.01}
	store := blob.Dir(t.TempDir())
	env := train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 10, Keep: 1000}}
	whole := &crew{env: env, workers: 3, servers: 2, o: server.Options{Mode: ps.BSP, Lanes: 2}}
	want, err := whole.Train(t.Context(), j)
	if err != nil {
		t.Fatal(errors.Join(whole.errs...))
	}
	names, err := checkpoint.List(t.Context(), store)
	if err != nil || len(names) != 8 {
		t.Fatalf("%q, %v", names, err)
	}
	c, err := checkpoint.Load(t.Context(), store, names[4])
	if err != nil || c.Progress.Step != 50 {
		t.Fatalf("update %d, %v", c.Progress.Step, err)
	}
	for _, servers := range []int{1, 2, 5} {
		again := &crew{env: train.Env{Resume: c}, workers: 1 + servers%3, servers: servers, o: server.Options{Mode: ps.BSP}}
		got, err := again.Train(t.Context(), j)
		if err != nil {
			t.Fatal(errors.Join(again.errs...))
		}
		traintest.Same(t, "restored", got, want)
	}
}

// fullDisk takes so many checkpoints, and then no byte more.
type fullDisk struct {
	blob.Store
	left int
}

func (f *fullDisk) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	return f.Put(ctx, key, r)
}

func (f *fullDisk) Put(ctx context.Context, key string, r io.Reader) error {
	if strings.HasSuffix(key, "manifest.json") {
		f.left--
	}
	if f.left < 0 {
		return errors.New("no space left on device")
	}
	return f.Store.Put(ctx, key, r)
}

// TestCase20: a disk that is full in the middle of a cut ends the run with an error that says so, and the cut before it loads.
func TestCase20(t *testing.T) {
	j := job()
	j.Epochs, j.Batch = 30, 30
	disk := blob.Dir(t.TempDir())
	c := &crew{
		env:     train.Env{Blob: &fullDisk{disk, 2}, Checkpoints: train.Checkpoints{Every: 10, Keep: 10}},
		workers: 3, servers: 2, o: server.Options{Mode: ps.SSP, Staleness: 3},
	}
	r, err := c.paced(t, j)
	if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "stays") {
		t.Fatalf("error %v", err)
	}
	if r.Steps > 200 { // the third cut is asked for after some 30 updates of 1,620
		t.Errorf("the run went on until update %d: what is told is the checkpoint at its end", r.Steps)
	}
	names, err := checkpoint.List(t.Context(), disk)
	if err != nil || len(names) == 0 {
		t.Fatalf("%q, %v", names, err)
	}
	saved, _, err := checkpoint.Latest(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	j.Epochs = saved.Progress.Epoch + 2
	if r := alone(t, train.Env{Resume: saved}, j); r.Reason != trivium.Finished {
		t.Fatal(r.Reason)
	}
}

// TestCutOfFewRows: of a batch below the number of workers some have no rows. What a cut says of the optimizer is of those that have, as
// what is saved at the end of a run of as many updates.
func TestCutOfFewRows(t *testing.T) {
	j := job()
	j.Batch, j.Steps, j.Optimizer = 2, 60, trivium.OptimizerSpec{Name: "adam", Rate: 0.001}
	squares := func(c *checkpoint.Checkpoint) (sum float64) {
		for _, x := range c.Optimizer.Slots[slices.Index(c.Optimizer.Names, "squares")] {
			sum += float64(x)
		}
		return sum
	}
	run := func(j *trivium.Job, every int64) blob.Store {
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: every, Keep: 100}}, workers: 4, servers: 1, o: server.Options{Mode: ps.SSP}}
		if _, err := c.paced(t, j); err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := run(j, 20)
	got, err := checkpoint.Load(t.Context(), store, cuts(t, store, 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	part := *j
	part.Steps = got.Progress.Step
	want, _, err := checkpoint.Latest(t.Context(), run(&part, 0))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := squares(got), squares(want); want.Progress.Step != part.Steps || !(math.Abs(a/b-1) < 0.1) {
		t.Errorf("after update %d the squares of a cut sum to %v, those of a run that ends there to %v", part.Steps, a, b)
	}
}

// portsOf keeps the ports that a network opens, by their names' IDs.
type portsOf struct {
	transport.Network
	mu    sync.Mutex
	ports map[string]transport.Port
}

func (s *portsOf) Open(ctx context.Context, n transport.Name, o transport.Options) (transport.Port, error) {
	p, err := s.Network.Open(ctx, n, o)
	s.mu.Lock()
	s.ports[n.ID] = p
	s.mu.Unlock()
	return p, err
}

// TestLinkBreaksDuringCut: a link that breaks while a checkpoint is taken, and comes back, ends nothing.
func TestLinkBreaksDuringCut(t *testing.T) {
	j := job()
	j.Batch, j.Epochs = 30, 2
	network := &portsOf{Network: transport.NewMemory(), ports: map[string]transport.Port{}}
	store := blob.Dir(t.TempDir())
	env := train.Env{Blob: store, Checkpoints: train.Checkpoints{Every: 6, Keep: 100}}
	env.Between.After = func(_ context.Context, step int64, _ func(context.Context) (trivium.Params, error)) error {
		if step%6 < 4 {
			w, s := network.ports["0"], network.ports["3"]
			s.Forget(w.Name()) // the worker's end breaks, and still knows where the server is, as when a cable is cut
			return s.Know(w.Name(), w.Addr())
		}
		return nil
	}
	o := server.Options{Mode: ps.SSP, Staleness: 3, Slow: server.Slow{Worker: 1, Factor: 2, Unit: 10 * time.Millisecond}}
	r, err := (&crew{env: env, workers: 3, servers: 1, o: o, network: network}).Train(t.Context(), j)
	if err != nil || r.Reason != trivium.Finished {
		t.Fatalf("%s after %d: %v", r.Reason, r.Steps, err)
	}
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil || saved.Progress.Step != r.Steps {
		t.Error(err)
	}
}
