package average_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/average"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func job() *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 2000, Train: "0:1600", Test: "1600:"},
		Batch: 300, Epochs: 8, Seed: 9, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.5},
	}
}

// group is the environments of n workers on a network in memory.
func group(t *testing.T, n int) []train.Env {
	t.Helper()
	network := transport.NewMemory()
	envs := make([]train.Env, n)
	var peers []transport.Name
	for i := range n {
		peers = append(peers, transport.Name{Role: "worker", ID: fmt.Sprint(i)})
	}
	for i := range n {
		port, err := network.Open(t.Context(), peers[i], transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = port.Close() })
		envs[i] = train.Env{Rank: i, Peers: peers, Port: port}
	}
	for i := range n {
		for j := range n {
			if err := envs[i].Port.Know(peers[j], envs[j].Port.Addr()); i != j && err != nil {
				t.Fatal(err)
			}
		}
	}
	return envs
}

// run trains with all environments at once.
func run(ctx context.Context, envs []train.Env, j *trivium.Job) ([]trivium.Result, []error) {
	results, errs := make([]trivium.Result, len(envs)), make([]error, len(envs))
	var wait sync.WaitGroup
	for i := range envs {
		wait.Go(func() { results[i], errs[i] = average.New(envs[i], average.Options{}).Train(ctx, j) })
	}
	wait.Wait()
	return results, errs
}

// TestTheMeanOfWhatEachLearns compares with the mean of three runs of local, each on its shard.
func TestTheMeanOfWhatEachLearns(t *testing.T) {
	envs := group(t, 3)
	store := blob.Dir(t.TempDir())
	envs[0].Blob = store
	j := job()
	results, errs := run(t.Context(), envs, j)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var want []float64
	var weights, loss float64
	for rank := range 3 {
		splits, err := data.Open(t.Context(), j.Data, data.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shard, err := data.Shard(t.Context(), splits.Train, data.ShardOptions{Part: rank, Parts: 3, Shuffle: true, Seed: j.Seed})
		if err != nil {
			t.Fatal(err)
		}
		own := *j
		own.Batch = 100
		r, err := local.New(train.Env{Splits: &data.Splits{Train: shard}}, local.Options{}).Train(t.Context(), &own)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = make([]float64, len(r.Params.Flat))
		}
		for i, x := range r.Params.Flat {
			want[i] += float64(r.Samples) * float64(x)
		}
		weights += float64(r.Samples)
		loss += float64(r.Samples) * r.Metrics["train.loss"]
		if results[rank].Samples != r.Samples {
			t.Errorf("rank %d saw %d rows, want %d", rank, results[rank].Samples, r.Samples)
		}
	}
	for rank, r := range results {
		if got := r.Metrics["train.loss"]; !(math.Abs(got-loss/weights) <= 1e-9) {
			t.Errorf("rank %d: the last epoch's loss is %v, want that of all workers' rows, %v", rank, got, loss/weights)
		}
		for i, x := range r.Params.Flat {
			if math.Float32bits(x) != math.Float32bits(results[0].Params.Flat[i]) {
				t.Fatalf("rank %d has another model than rank 0", rank)
			}
			if d := math.Abs(float64(x) - want[i]/weights); d > 1e-6 {
				t.Fatalf("cell %d is %g off the mean", i, d)
			}
		}
	}
	if a := results[0].Metrics["test.accuracy"]; a < 0.8 {
		t.Errorf("test accuracy %.3f", a)
	}
	if m := results[1].Metrics; m["test.accuracy"] != 0 {
		t.Errorf("rank 1 measured %v", m)
	}
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if d := saved.Params.Flat[17] - results[0].Params.Flat[17]; d != 0 || saved.Job.Batch != 300 {
		t.Errorf("the checkpoint is of another model or job (batch %d)", saved.Job.Batch)
	}
}

// TestResumeOfAll: a checkpoint counts the rows of all workers, whatever topology made it, and each goes on as far in its own.
func TestResumeOfAll(t *testing.T) {
	store := blob.Dir(t.TempDir())
	j := job()
	j.Steps = 5 // 1,500 of 1,600 rows
	if _, err := local.New(train.Env{Blob: store}, local.Options{}).Train(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	from, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	envs := group(t, 3)
	for i := range envs {
		envs[i].Resume = from
	}
	envs[0].Blob = store
	j.Steps, j.Epochs = 0, 1
	results, errs := run(t.Context(), envs, j)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for rank, r := range results { // of 533 or 534 rows, 500 are behind each
		if r.Steps != 6 || r.Epochs != 1 || r.Samples < 533 || r.Samples > 534 {
			t.Errorf("rank %d ends after update %d, epoch %d and %d rows, want 6, 1 and its shard's", rank, r.Steps, r.Epochs, r.Samples)
		}
	}
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if p := saved.Progress; p.Step != 6 || p.Row != 0 || p.Samples != 3*results[0].Samples {
		t.Errorf("the checkpoint is of update %d, row %d, after %d rows, want 6, 0 and %d", p.Step, p.Row, p.Samples, 3*results[0].Samples)
	}
}

// TestNoticedOnce: what holds for the whole job is said by rank 0 alone.
func TestNoticedOnce(t *testing.T) {
	store := blob.Dir(t.TempDir())
	j := job()
	j.Data.Rows, j.Data.Train, j.Data.Test, j.Batch, j.Steps = 60, "0:48", "48:", 12, 1
	if _, err := local.New(train.Env{Blob: store}, local.Options{}).Train(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	from, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	dropped := make([]float32, len(from.Params.Flat))
	dropped[0] = 1
	from.Optimizer.Names, from.Optimizer.Slots = append(from.Optimizer.Names, "residual"), append(from.Optimizer.Slots, dropped)
	j.Steps = 2
	envs := group(t, 3)
	said := make([][]string, len(envs))
	for i := range envs {
		envs[i].Resume = from
		envs[i].Watch.Notice = func(_ observe.Level, text string) { said[i] = append(said[i], text) }
	}
	if _, errs := run(t.Context(), envs, j); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	if len(said[0]) != 1 || !strings.Contains(said[0][0], "codec dropped") || len(said[1])+len(said[2]) > 0 {
		t.Errorf("the ranks say %q", said)
	}
}

// TestMeanOfTheRest: what counts is the rows since all had the same model. Of a run that goes on, one that is asked to end before its first update
// weighs nothing; if all are, the model stays as it is, bit for bit.
func TestMeanOfTheRest(t *testing.T) {
	store := blob.Dir(t.TempDir())
	j := job()
	j.Steps = 45 // of 48
	if _, err := local.New(train.Env{Blob: store}, local.Options{}).Train(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	from, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	j.Steps = 0
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	rest := func(ctx ...context.Context) trivium.Params {
		t.Helper()
		envs := group(t, len(ctx))
		results, errs := make([]trivium.Result, len(ctx)), make([]error, len(ctx))
		var wait sync.WaitGroup
		for i := range envs {
			envs[i].Resume = from
			wait.Go(func() { results[i], errs[i] = average.New(envs[i], average.Options{}).Train(ctx[i], j) })
		}
		wait.Wait()
		for i, err := range errs {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("rank %d: %v", i, err)
			}
		}
		return results[0].Params
	}
	if p := rest(canceled, canceled, canceled); !slices.Equal(p.Flat, from.Params.Flat) {
		t.Error("nobody has made an update, and the model is another")
	}
	splits, err := data.Open(t.Context(), j.Data, data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	shard, err := data.Shard(t.Context(), splits.Train, data.ShardOptions{Part: 1, Parts: 2, Shuffle: true, Seed: j.Seed})
	if err != nil {
		t.Fatal(err)
	}
	own, half := *j, *from
	own.Batch = 150
	half.Progress.Row, half.Progress.Samples = from.Progress.Row/2, from.Progress.Samples/2
	want, err := local.New(train.Env{Splits: &data.Splits{Train: shard}, Resume: &half}, local.Options{}).Train(t.Context(), &own)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range rest(canceled, t.Context()).Flat {
		if d := math.Abs(float64(v - want.Params.Flat[i])); d > 1e-6 {
			t.Fatalf("cell %d is %g off what the only rank that trained has made", i, d)
		}
	}
}

func TestRefusals(t *testing.T) {
	j := job()
	j.Exact, j.Stop.Metric = true, "test.accuracy"
	j.Optimizer.Name = "lbfgs"
	_, err := average.New(train.Env{}, average.Options{}).Train(t.Context(), j)
	for _, word := range []string{"exact mode", "lbfgs", "early stop", "--stop-metric= --patience 0"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v does not speak of %s", err, word)
		}
	}
}

// TestDiverges: a worker whose loss is no number ends the job with that, and not with the mean of what others make.
func TestDiverges(t *testing.T) {
	j := job()
	j.Optimizer.Rate = 1e38
	results, errs := run(t.Context(), group(t, 1), j)
	if d, ok := errors.AsType[*trivium.DivergedError](errs[0]); !ok || results[0].Reason != trivium.Diverged || d.Step < 2 {
		t.Errorf("%s, %v", results[0].Reason, errs[0])
	}
}

// A worker that vanishes ends the others with an error that names it.
func TestLostPeer(t *testing.T) {
	for _, gone := range []int{0, 2} {
		envs := group(t, 3)
		if err := envs[gone].Port.Close(); err != nil {
			t.Fatal(err)
		}
		live := append(append([]train.Env{}, envs[:gone]...), envs[gone+1:]...)
		_, errs := run(t.Context(), live, job())
		for i, err := range errs {
			if lost, ok := errors.AsType[*train.LostError](err); !ok || lost.Peer != envs[gone].Peers[gone] {
				t.Errorf("without rank %d: error %d is %v", gone, i, err)
			}
		}
	}
}

// TestHungPeer: no link tells of a worker that only hangs. Ranks that hear of it at different times all name it, and not each other.
func TestHungPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envs := group(t, 3)
		cpu := tensor.NewCPU(1, false) // a pool of more looks at the clock while it waits for work
		defer cpu.Close()
		lost := &train.LostError{Peer: envs[2].Peers[2], Why: "a test says so"}
		var wait sync.WaitGroup
		for rank := range 2 {
			envs[rank].CPU = cpu
			wait.Go(func() {
				ctx, interrupt, lose := train.Member(t.Context())
				defer time.AfterFunc(30*time.Second, interrupt).Stop() // it does not end the wait, nor what may be said of a loss
				defer time.AfterFunc(time.Minute+time.Duration(rank)*100*time.Millisecond, func() { lose(lost) }).Stop()
				if _, err := average.New(envs[rank], average.Options{}).Train(ctx, job()); !errors.Is(err, lost) {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		wait.Wait()
	})
}

// TestLossInTheMean: a worker that waits for one that will never come, such as one that has diverged, ends as soon as it is told so.
func TestLossInTheMean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envs := group(t, 3)
		cpu := tensor.NewCPU(1, false)
		defer cpu.Close()
		lost := &train.LostError{Peer: envs[2].Peers[2], Why: "it has diverged"}
		told := time.Now().Add(time.Minute)
		var wait sync.WaitGroup
		for rank := range 2 {
			envs[rank].CPU = cpu
			wait.Go(func() {
				ctx, interrupt, lose := train.Member(t.Context())
				defer interrupt()
				defer time.AfterFunc(time.Until(told), func() { lose(lost) }).Stop()
				if _, err := average.New(envs[rank], average.Options{}).Train(ctx, job()); !errors.Is(err, lost) {
					t.Errorf("rank %d: %v", rank, err)
				}
				if late := time.Since(told); late < 0 || late > 10*time.Millisecond {
					t.Errorf("rank %d ends %v after it was told", rank, late)
				}
			})
		}
		wait.Wait()
	})
}
