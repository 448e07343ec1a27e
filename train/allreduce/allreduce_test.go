package allreduce_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

// A crew is a strategy that runs n ranks in this process, and returns what rank 0 returns.
type crew struct {
	env     train.Env
	n       int
	o       allreduce.Options
	each    func(rank int, env *train.Env) // nil: all have env
	threads int                            // of the ranks after the first; 0: one or two
	network transport.Network              // nil: in memory
	hubs    []*observe.Hub
	results []trivium.Result
	errs    []error
	sent    int64 // bytes of rank 0
	taken   int64 // by rank 0
}

// Train implements trivium.Strategy.
func (c *crew) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	network := c.network
	if network == nil {
		network = transport.NewMemory()
	}
	var peers []transport.Name
	var ports []transport.Port
	for i := range c.n {
		peers = append(peers, transport.Name{Role: "worker", ID: fmt.Sprint(i)})
		port, err := network.Open(ctx, peers[i], transport.Options{})
		if err != nil {
			return trivium.Result{}, err
		}
		defer port.Close()
		ports = append(ports, port)
	}
	for i := range c.n {
		for j := range c.n {
			if i != j {
				if err := ports[i].Know(peers[j], ports[j].Addr()); err != nil {
					return trivium.Result{}, err
				}
			}
		}
	}
	c.results, c.errs = make([]trivium.Result, c.n), make([]error, c.n)
	var wait sync.WaitGroup
	for i := range c.n {
		env := c.env
		if i > 0 {
			env.Blob, env.Watch = nil, train.Watch{}
			threads := 1 + i%2
			if c.threads > 0 {
				threads = c.threads
			}
			env.CPU = tensor.NewCPU(threads, job.Exact)
			defer env.CPU.Close()
		}
		env.Rank, env.Peers, env.Port = i, peers, ports[i]
		env.Observe = observe.NewHub(observe.Options{}) // phases are checked
		if c.each != nil {
			c.each(i, &env)
		}
		c.hubs = append(c.hubs, env.Observe)
		wait.Go(func() { c.results[i], c.errs[i] = allreduce.New(env, c.o).Train(ctx, job) })
	}
	wait.Wait()
	c.sent, c.taken = int64(ports[0].Stats().BytesSent), int64(ports[0].Stats().BytesReceived)
	return c.results[0], c.errs[0]
}

func ranks(n int, o allreduce.Options) func(env train.Env) trivium.Strategy {
	return func(env train.Env) trivium.Strategy { return &crew{env: env, n: n, o: o} }
}

// TestKit: what holds for every strategy.
func TestKit(t *testing.T) {
	for _, n := range []int{1, 3} {
		if testing.Short() && n == 1 {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) { traintest.Run(t, ranks(n, allreduce.Options{})) })
	}
}

// TestExact: 1 to 16 ranks and more have the bits of local.
func TestExact(t *testing.T) {
	for name, job := range traintest.Variants() {
		job.Exact = true
		want, err := local.New(traintest.Env(t, 1, true), local.Options{}).Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		sizes := []int{2, 3, 5, 8, 16, 17}
		if name == "momentum" { // of one job, every number
			sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
		}
		for _, n := range sizes {
			if testing.Short() && n != 2 && n != 5 { // three are TestKit's
				continue
			}
			c := &crew{env: traintest.Env(t, 1, true), n: n}
			if _, err := c.Train(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			for rank, got := range c.results {
				traintest.Same(t, fmt.Sprintf("%s, rank %d of %d", name, rank, n), got, want)
			}
		}
	}
}

// digits is a job of eleven updates an epoch.
func digits() *trivium.Job {
	job := &trivium.Job{
		Version: trivium.JobVersion, Model: "mlp:24", Data: trivium.Data{Source: "digits", Rows: 1250, Train: "0:1010", Test: "1010:"},
		Batch: 100, Epochs: 2, Seed: 9, Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
	}
	if testing.Short() { // the race detector makes arithmetic slow
		job.Data.Rows, job.Data.Train, job.Data.Test, job.Batch = 250, "0:210", "210:", 20
	}
	return job
}

// buckets is a model whose gradient travels in more than one bucket.
func buckets() string {
	if testing.Short() {
		return "mlp:170,20"
	}
	return "mlp:300,20"
}

// same compares ranks bit for bit.
func same(t *testing.T, what string, got, want trivium.Result) {
	t.Helper()
	traintest.Same(t, what, got, want)
}

// TestAgreement: all ranks have the same bits in fast mode too, and learn what local learns. The models have dense and row-sparse
// tensors, and more than one bucket.
func TestAgreement(t *testing.T) {
	for _, model := range []string{"softmax", "mlp:24", buckets()} {
		job := digits()
		job.Model = model
		if testing.Short() {
			job.Steps = 5
		}
		want, err := local.New(train.Env{}, local.Options{}).Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{2, 3, 4} {
			if testing.Short() && n == 2 {
				continue
			}
			c := &crew{n: n}
			if _, err := c.Train(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			for rank, got := range c.results {
				same(t, fmt.Sprintf("%s, rank %d of %d", model, rank, n), got, c.results[0])
			}
			got := c.results[0]
			if got.Samples != want.Samples || got.Steps != want.Steps {
				t.Errorf("%d rows in %d updates, want %d in %d", got.Samples, got.Steps, want.Samples, want.Steps)
			}
			if d := math.Abs(got.Metrics["test.loss"] - want.Metrics["test.loss"]); !(d < 0.02*want.Metrics["test.loss"]+1e-3) {
				t.Errorf("%s at %d ranks: test loss %v, local has %v", model, n, got.Metrics["test.loss"], want.Metrics["test.loss"])
			}
		}
	}
}

// TestSparse: row-sparse tensors, in fast and in exact mode.
func TestSparse(t *testing.T) {
	env := train.Env{Sources: traintest.Sources()}
	for _, model := range []string{"logistic", "fm:4"} {
		job := &trivium.Job{
			Version: trivium.JobVersion, Model: model, Data: trivium.Data{Source: "wide", Rows: 700, Train: "0:600", Test: "600:"},
			Batch: 50, Epochs: 2, Seed: 3, Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
		}
		for _, exact := range []bool{false, true} {
			job.Exact = exact
			want, err := local.New(env, local.Options{}).Train(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if !want.Params.Layout.Spec(0).RowSparse {
				t.Fatalf("%s: nothing is row-sparse", model)
			}
			for _, n := range []int{2, 3} {
				c := &crew{env: env, n: n}
				if _, err := c.Train(t.Context(), job); err != nil {
					t.Fatal(err)
				}
				for rank, got := range c.results {
					same(t, fmt.Sprintf("%s, rank %d of %d", model, rank, n), got, c.results[0])
				}
				if exact {
					same(t, model+", exact", c.results[0], want)
				} else if d := math.Abs(c.results[0].Metrics["test.loss"] - want.Metrics["test.loss"]); !(d < 1e-3) {
					t.Errorf("%s: test loss %v, local has %v", model, c.results[0].Metrics["test.loss"], want.Metrics["test.loss"])
				}
			}
		}
	}
}

// TestRowsTold: of touched rows that travel as lists it is told as of sums, beside what was guessed; and in exact mode there are none.
func TestRowsTold(t *testing.T) {
	for _, exact := range []bool{false, true} {
		job := &trivium.Job{
			Version: trivium.JobVersion, Model: "logistic", Data: trivium.Data{Source: "wide", Rows: 200, Train: "0:150", Test: "150:"},
			Batch: 50, Steps: 3, Seed: 3, Exact: exact,
		}
		c := &crew{env: train.Env{Sources: traintest.Sources()}, n: 2}
		if _, err := c.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		told := regexp.MustCompile(`^all-gather of \d+ bytes among 2 workers, [a-z]+: (?:[0-9.]+[mµ]?s|too short to measure) in the median of [23], guessed [0-9.]+[mµ]?s: .*$`)
		is := slices.ContainsFunc(c.hubs[0].Events(), func(e observe.Event) bool { return e.Kind == "collective" && told.MatchString(e.Text) })
		if is == exact {
			t.Errorf("exact %v: it is told of all-gathers: %v: %v", exact, is, c.hubs[0].Events())
		}
	}
}

// TestResumeAnywhere: a run that goes from local to this strategy and back has the bits of one that was never interrupted.
func TestResumeAnywhere(t *testing.T) {
	job := digits()
	job.Exact, job.Epochs, job.EvalEvery = true, 3, 7
	if testing.Short() {
		job.Model = "mlp:8"
	}
	want, err := local.New(train.Env{}, local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	store := blob.Dir(t.TempDir())
	var resume *checkpoint.Checkpoint
	for k, n := range []int{0, 3, 0, 2, 5} { // 0: local; at 3 and 5 with sharded optimizer state
		ctx, cancel := context.WithCancel(t.Context())
		env := train.Env{Blob: store, Resume: resume}
		env.Watch.Evaluated = func(p train.Progress, _ map[string]float64) {
			if k < 4 && p.Step >= int64(7*(k+1)) {
				cancel()
			}
		}
		var s trivium.Strategy = &crew{env: env, n: n, o: allreduce.Options{ShardOptimizer: n%2 == 1}}
		if n == 0 {
			s = local.New(env, local.Options{})
		}
		got, err := s.Train(ctx, job)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if k == 4 {
			same(t, "resumed", got, want)
			return
		}
		if got.Reason != trivium.Interrupted {
			t.Fatalf("part %d: %s after update %d", k, got.Reason, got.Steps)
		}
		if c, ok := s.(*crew); ok {
			for rank, r := range c.results {
				if r.Steps != got.Steps || r.Reason != got.Reason {
					t.Errorf("rank %d: %s after update %d, rank 0 %s after %d", rank, r.Reason, r.Steps, got.Reason, got.Steps)
				}
			}
		}
		if resume, _, err = checkpoint.Latest(t.Context(), store); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShardOptimizer: workers that keep a part of the optimizer's state each make the updates of those that keep all of it.
func TestShardOptimizer(t *testing.T) {
	env := train.Env{Sources: traintest.Sources()}
	dense, sparse := digits(), &trivium.Job{
		Version: trivium.JobVersion, Model: "fm:4", Data: trivium.Data{Source: "wide", Rows: 400, Train: "0:300", Test: "300:"},
		Batch: 50, Epochs: 2, Seed: 3, Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
	}
	dense.EvalEvery = 4
	sizes := []int{2, 3}
	if testing.Short() {
		dense.Model, dense.Steps, sparse.Steps, sizes = "mlp:8", 6, 6, []int{3}
	}
	for _, job := range []*trivium.Job{dense, sparse} {
		for _, exact := range []bool{false, true} {
			job.Exact = exact
			for _, n := range sizes {
				whole := &crew{env: env, n: n}
				want, err := whole.Train(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				for _, hosts := range [][][]int{nil, {{0, 2}, {1}}} {
					if hosts != nil && n != 3 {
						continue
					}
					parts := &crew{env: env, n: n, o: allreduce.Options{ShardOptimizer: true}}
					parts.env.Hosts = hosts
					if _, err := parts.Train(t.Context(), job); err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("%s at %d ranks on %v, exact %v", job.Model, n, hosts, exact)
					for rank, got := range parts.results {
						same(t, fmt.Sprintf("%s: rank %d", what, rank), got, parts.results[0])
					}
					switch got := parts.results[0]; {
					case exact:
						same(t, what, got, want)
					case n == 2: // two addends have one order; the loss rides in another type
						if !slices.Equal(got.Params.Flat, want.Params.Flat) {
							t.Errorf("%s: the parameters are others", what)
						}
					default:
						if d := math.Abs(got.Metrics["test.loss"] - want.Metrics["test.loss"]); !(d < 1e-3) {
							t.Errorf("%s: test loss %v, with all of the state %v", what, got.Metrics["test.loss"], want.Metrics["test.loss"])
						}
					}
				}
			}
		}
	}
	dense.Exact = false
	coded := &crew{n: 3, o: allreduce.Options{ShardOptimizer: true, Compress: "topk:0.1"}}
	if _, err := coded.Train(t.Context(), dense); err != nil {
		t.Fatal(err)
	}
	for rank, got := range coded.results {
		same(t, fmt.Sprintf("with a codec, rank %d", rank), got, coded.results[0])
	}
	clipped := digits()
	clipped.Optimizer.ClipNorm = 1
	if err := (allreduce.Options{ShardOptimizer: true}).Check(clipped, nil); err == nil || !strings.Contains(err.Error(), "norm of the whole gradient") {
		t.Errorf("clipping by the global norm: %v", err)
	}
}

// TestShardedState: what workers with sharded optimizer state save is what those save that have all of it, with the updates of each row; also where they go
// on from there, and save before the first update of their own.
func TestShardedState(t *testing.T) {
	job := &trivium.Job{
		Version: trivium.JobVersion, Model: "fm:4", Data: trivium.Data{Source: "wide", Rows: 200, Train: "0:150", Test: "150:"},
		Batch: 50, Epochs: 2, Seed: 3, Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
	}
	save := func(resume *checkpoint.Checkpoint, o allreduce.Options) *checkpoint.Checkpoint {
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Sources: traintest.Sources(), Blob: store, Resume: resume}, n: 2, o: o} // of two ranks' sums there is one order
		if _, err := c.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	want := save(nil, allreduce.Options{})
	var resume *checkpoint.Checkpoint
	for _, what := range []string{"from the start", "with no update left"} {
		resume = save(resume, allreduce.Options{ShardOptimizer: true})
		if got := resume.Optimizer; !reflect.DeepEqual(got, want.Optimizer) {
			t.Errorf("%s: the state differs, of %v; the updates of rows are the same: %v", what, got.Names, reflect.DeepEqual(got.RowSteps, want.Optimizer.RowSteps))
		}
	}
}

// TestLocalSGD: ranks that average every few updates end with the same bits, and learn nearly what local learns.
func TestLocalSGD(t *testing.T) {
	env := train.Env{Sources: traintest.Sources()}
	sparse := &trivium.Job{
		Version: trivium.JobVersion, Model: "fm:4", Data: trivium.Data{Source: "wide", Rows: 700, Train: "0:600", Test: "600:"},
		Batch: 50, Epochs: 2, Seed: 3, Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
	}
	for _, job := range []*trivium.Job{digits(), sparse} {
		job.EvalEvery = 10
		want, err := local.New(env, local.Options{}).Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		for _, every := range []int64{2, 4, 1000} {
			if testing.Short() && every == 1000 { // too few rows to learn from alone
				continue
			}
			c := &crew{env: env, n: 3, o: allreduce.Options{Every: every}}
			if _, err := c.Train(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			for rank, got := range c.results {
				same(t, fmt.Sprintf("every %d: rank %d", every, rank), got, c.results[0])
			}
			if got := c.results[0]; got.Samples != want.Samples || !(got.Metrics["test.loss"] < want.Metrics["test.loss"]+0.3) {
				t.Errorf("every %d: %d rows, test loss %v; local has %d, %v", every, got.Samples, got.Metrics["test.loss"], want.Samples, want.Metrics["test.loss"])
			}
		}
	}
}

// TestSmallShares: a codec that can encode a bucket and not a rank's share of it leaves it as it is.
func TestSmallShares(t *testing.T) {
	env := traintest.Env(t, 1, false)
	for _, o := range []allreduce.Options{{Compress: "topk:10"}, {Compress: "topk:10", ShardOptimizer: true}} { // of 18 cells
		c := &crew{env: env, n: 4, o: o}
		if _, err := c.Train(t.Context(), traintest.Job()); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusals(t *testing.T) {
	job := digits()
	job.Exact, job.Optimizer.Name = true, "lbfgs"
	err := allreduce.Options{Compress: "topk:0.01", Every: 4, Accumulate: 2}.Check(job, nil)
	for _, want := range []string{"topk:0.01 changes them", "local SGD has others", "no other pieces", "lbfgs", "give one of --every and --compress"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	for _, codec := range []string{"auto", "auto:f16"} {
		job := digits()
		if err := (allreduce.Options{Compress: codec}).Check(job, nil); err != nil {
			t.Errorf("%s: %v", codec, err)
		}
		if job.Exact = true; (allreduce.Options{Compress: codec}).Check(job, nil) == nil {
			t.Errorf("%s is taken in exact mode", codec)
		}
	}
	if err := (allreduce.Options{Compress: "zip", Every: -1}).Check(digits(), nil); err == nil || !strings.Contains(err.Error(), "no such codec") || !strings.Contains(err.Error(), "every -1") {
		t.Errorf("error %v", err)
	}
}
