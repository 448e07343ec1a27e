package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

func ExampleOpen() {
	job := &trivium.Job{
		Version: 1, Model: "toy", Data: trivium.Data{Source: "toy"}, Batch: 50, Epochs: 20, Seed: 1,
		Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.1},
		Stop:      trivium.EarlyStop{Metric: "valid.accuracy", Target: ">= 0.8"},
	}
	env := train.Env{Models: traintest.Models(), Sources: traintest.Sources()}
	result, err := local.New(env, local.Options{}).Train(context.Background(), job)
	fmt.Println(result.Reason, err)

	job.Batch, job.Stop.Target = 0, "high"
	_, err = train.Open(context.Background(), env, job, "local")
	fmt.Println(err)
	// Output:
	// target met <nil>
	// job: batch: want at least 1 row, or full; found 0
	// train: stop.target: want a comparison such as ">= 0.9", found "high"
}

func run(t *testing.T, env train.Env, job *trivium.Job) trivium.Result {
	t.Helper()
	r, err := local.New(env, local.Options{}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEvaluatorInExactMode cuts rows in shards: the metrics are those of all rows, and no shard count but 1 has to give their bits.
func TestEvaluatorInExactMode(t *testing.T) {
	splits, err := traintest.Sources()["toy"](t.Context(), trivium.Data{})
	if err != nil {
		t.Fatal(err)
	}
	env := traintest.Env(t, 1, false)
	m, err := env.Models.Build("toy", splits.Train.Schema(), env.CPU)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(m.Layout())
	m.Init(5, p)
	names := []string{"accuracy", "logloss", "f1", "confusion", "top2"}
	var whole map[string]float64
	for _, shards := range []int{0, 1, 2, 7, 16, 300} {
		e, err := train.NewEvaluator(m, nil, names, shards)
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Evaluate(t.Context(), p, splits.Train)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		s.Values("train", values)
		if s.Rows != splits.Train.Rows() || len(values) != len(names)+1 {
			t.Errorf("%d rows, %v", s.Rows, values)
		}
		if whole == nil {
			whole = values
		}
		for k, v := range values {
			if !(math.Abs(v-whole[k]) <= 1e-12) {
				t.Errorf("%d shards: %s is %v, of all rows %v", shards, k, v, whole[k])
			}
		}
		if !(math.Abs(values["train.loss"]-values["train.logloss"]) <= 1e-6) {
			t.Errorf("loss %v, log-loss %v", values["train.loss"], values["train.logloss"])
		}
	}
}

func TestEvaluationsAndWhatTheyMeasure(t *testing.T) {
	job := traintest.Job()
	job.Steps, job.EvalEvery = 20, 6
	var steps []int64
	var metrics []map[string]float64
	env := traintest.Env(t, 1, false)
	env.Watch.Evaluated = func(p train.Progress, m map[string]float64) {
		steps, metrics = append(steps, p.Step), append(metrics, m)
	}
	r := run(t, env, job)
	if want := []int64{6, 12, 18, 20}; !slices.Equal(steps, want) {
		t.Fatalf("evaluated after updates %v, want %v", steps, want)
	}
	if got, want := slices.Sorted(maps.Keys(metrics[0])), slices.Sorted(maps.Keys(r.Metrics)); !slices.Equal(got, want) {
		t.Errorf("while training: %v, want %v", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(r.Metrics)), []string{"test.accuracy", "test.loss", "train.loss", "valid.accuracy", "valid.loss"}; !slices.Equal(got, want) {
		t.Errorf("in the end: %v, want %v", got, want)
	}
}

// TestCheckpointsThatAreKept wants the newest two and the best one.
func TestCheckpointsThatAreKept(t *testing.T) {
	job := traintest.Job()
	job.Epochs, job.EvalEvery = 3, 1
	job.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 50} // jumps about
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 1000}
	env := traintest.Env(t, 1, false)
	store := blob.Dir(t.TempDir())
	env.Blob, env.Checkpoints.Every = store, 3
	var said []string
	env.Watch.Checkpointed = func(_ train.Progress, name string) { said = append(said, name) }
	r := run(t, env, job)
	names, err := checkpoint.List(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Load(t.Context(), store, names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	best := fmt.Sprintf("step-%012d", c.Progress.BestStep)
	if c.Progress.Step != r.Steps || len(names) > 3 || len(names) < 2 || !slices.Contains(names, best) {
		t.Errorf("left %v, the best is %s", names, best)
	}
	if !maps.Equal(c.Progress.Metrics, r.Metrics) || len(r.Metrics) != 5 {
		t.Errorf("metrics %v, want %v", c.Progress.Metrics, r.Metrics)
	}
	if len(said) < 11 || !slices.IsSorted(said) {
		t.Errorf("said %v", said)
	}
}

func TestResumeRefuses(t *testing.T) {
	store := blob.Dir(t.TempDir())
	env := traintest.Env(t, 1, false)
	env.Blob = store
	run(t, env, traintest.Job())
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *checkpoint.Checkpoint, j *trivium.Job){
		`state ["velocity"], optimizer "adam" keeps ["mean" "squares"]`: func(_ *checkpoint.Checkpoint, j *trivium.Job) { j.Optimizer = trivium.OptimizerSpec{Name: "adam"} },
		"checksum other": func(c *checkpoint.Checkpoint, _ *trivium.Job) { c.Data = "other" },
		`tensor "weight": the model has shape [3 5], the checkpoint [3 4]`: func(c *checkpoint.Checkpoint, _ *trivium.Job) {
			c.Params = trivium.NewParams(layout(t, trivium.Spec{Name: "weight", Shape: []int{3, 4}, Decay: 1}, trivium.Spec{Name: "bias", Shape: []int{3}}))
		},
		"row 999 of 203": func(c *checkpoint.Checkpoint, _ *trivium.Job) { c.Progress.Row = 999 },
	} {
		c, job := *saved, traintest.Job()
		change(&c, job)
		env := traintest.Env(t, 1, false)
		env.Resume = &c
		_, err := local.New(env, local.Options{}).Train(t.Context(), job)
		if _, ok := errors.AsType[*train.JobError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestFinishedJobResumed trains no further, and more epochs give what they would have given at once.
func TestFinishedJobResumed(t *testing.T) {
	store := blob.Dir(t.TempDir())
	env := traintest.Env(t, 1, false)
	env.Blob = store
	first := run(t, env, traintest.Job())
	c, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	env.Resume = c
	again := run(t, env, traintest.Job())
	traintest.Same(t, "resumed at its end", again, first)
	if names, err := checkpoint.List(t.Context(), store); err != nil || len(names) != 2 {
		t.Errorf("checkpoints %v, %v", names, err)
	}
	longer := traintest.Job()
	longer.Epochs = 7
	want := run(t, traintest.Env(t, 1, false), longer)
	traintest.Same(t, "three epochs more", run(t, env, longer), want)
}

// TestOtherBatchAfterResume: epochs count rows, whatever the updates behind them had.
func TestOtherBatchAfterResume(t *testing.T) {
	store := blob.Dir(t.TempDir())
	env := traintest.Env(t, 1, false)
	env.Blob = store
	first := run(t, env, traintest.Job())
	c, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	env.Resume, env.Blob = c, nil
	for _, batch := range []int{10, 100, trivium.FullBatch} {
		job := traintest.Job()
		job.Batch, job.Epochs = batch, job.Epochs+2
		perEpoch := int64(1)
		if batch > 0 {
			perEpoch = (203 + int64(batch) - 1) / int64(batch)
		}
		if r := run(t, env, job); r.Steps != first.Steps+2*perEpoch || r.Epochs != job.Epochs {
			t.Errorf("batch %d: %d updates and %d epochs, want %d and %d", batch, r.Steps, r.Epochs, first.Steps+2*perEpoch, job.Epochs)
		}
	}
}

// TestOtherBatchInAnEpoch: an epoch that began with updates of one size ends with those of another: at its last row, or, where the short
// last update is dropped, once no more rows make one.
func TestOtherBatchInAnEpoch(t *testing.T) {
	const rows = 203
	for _, c := range []struct {
		last                trivium.LastPolicy
		batch, steps, other int
		rest, whole         int // updates of the other size in the rest of the epoch, and in one
	}{
		{trivium.LastKeep, 17, 3, 10, 16, 21},
		{trivium.LastKeep, 20, 5, trivium.FullBatch, 1, 1},
		{trivium.LastDrop, 3, 1, 50, 4, 4},
		{trivium.LastDrop, 20, 5, 40, 2, 5},
		{trivium.LastDrop, 40, 4, 50, 0, 4},
	} {
		env := traintest.Env(t, 1, false)
		env.Blob = blob.Dir(t.TempDir())
		job := traintest.Job()
		job.Last, job.Batch, job.Steps = c.last, c.batch, int64(c.steps)
		run(t, env, job)
		var err error
		if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
			t.Fatal(err)
		}
		env.Blob = nil
		job = traintest.Job()
		job.Last, job.Batch, job.Epochs = c.last, c.other, 2
		samples := 2 * rows
		if c.last == trivium.LastDrop {
			samples = c.steps*c.batch + (c.rest+c.whole)*c.other
		}
		r := run(t, env, job)
		if steps := c.steps + c.rest + c.whole; r.Steps != int64(steps) || r.Epochs != 2 || r.Samples != int64(samples) {
			t.Fatalf("%s: %d updates of %d rows, then %d: %d updates, %d epochs and %d samples; want %d, 2 and %d", c.last, c.steps, c.batch, c.other,
				r.Steps, r.Epochs, r.Samples, steps, samples)
		}
	}
}

func TestInterruptedBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(t.TempDir())
	r, err := local.New(env, local.Options{}).Train(ctx, traintest.Job())
	if err != nil || r.Reason != trivium.Interrupted || r.Steps != 0 {
		t.Errorf("%s after %d updates, %v", r.Reason, r.Steps, err)
	}
}

// TestInterruptedInAnEvaluation resumes with the evaluation that was cut short: early stopping sees what it would have seen.
func TestInterruptedInAnEvaluation(t *testing.T) {
	job := traintest.Job()
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 1000}
	count := func(env *train.Env, n *int) {
		env.Watch.Evaluated = func(train.Progress, map[string]float64) { *n++ }
	}
	var whole, cut int
	env := traintest.Env(t, 1, false)
	count(&env, &whole)
	want := run(t, env, job)

	env = traintest.Env(t, 1, false)
	count(&env, &cut)
	env.Blob = blob.Dir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	splits, err := data.Open(ctx, job.Data, data.Options{Sources: env.Sources})
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	splits.Valid = &tripwire{splits.Valid, func() {
		if reads++; reads == 2 {
			cancel()
		}
	}}
	env.Splits = splits
	r, err := local.New(env, local.Options{}).Train(ctx, job)
	if err != nil || r.Reason != trivium.Interrupted || r.Epochs != 2 {
		t.Fatalf("%s after epoch %d, %v", r.Reason, r.Epochs, err)
	}
	c, _, err := checkpoint.Latest(t.Context(), env.Blob)
	if err != nil {
		t.Fatal(err)
	}
	env.Resume = c
	traintest.Same(t, "resumed", run(t, env, job), want)
	if cut != whole {
		t.Errorf("%d evaluations, want %d", cut, whole)
	}
}

// TestBestIsKept: an evaluation that is made up for after a resume finds the best model, and it is the one that was resumed from.
func TestBestIsKept(t *testing.T) {
	job := traintest.Job()
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 1000, MinDelta: 1000} // the first stays the best
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(t.TempDir())
	env.Checkpoints.Keep = 1
	ctx, cancel := context.WithCancel(t.Context())
	splits, err := data.Open(ctx, job.Data, data.Options{Sources: env.Sources})
	if err != nil {
		t.Fatal(err)
	}
	env.Splits = splits
	valid := splits.Valid
	splits.Valid = &tripwire{valid, cancel}
	if r, err := local.New(env, local.Options{}).Train(ctx, job); err != nil || r.Reason != trivium.Interrupted || r.Epochs != 1 {
		t.Fatalf("%s after epoch %d, %v", r.Reason, r.Epochs, err)
	}
	splits.Valid = valid
	if env.Resume, _, err = checkpoint.Latest(t.Context(), env.Blob); err != nil {
		t.Fatal(err)
	}
	run(t, env, job)
	names, err := checkpoint.List(t.Context(), env.Blob)
	if err != nil || !slices.Equal(names, []string{"step-000000000011", "step-000000000044"}) {
		t.Errorf("checkpoints %v, %v: want the first, which was the best, and the last", names, err)
	}
}

// TestOtherMetricAfterResume: the best of the metric that was watched before is no bound for another.
func TestOtherMetricAfterResume(t *testing.T) {
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(t.TempDir())
	job := traintest.Job()
	job.Stop = trivium.EarlyStop{Metric: "valid.loss", Patience: 1000}
	run(t, env, job)
	c, _, err := checkpoint.Latest(t.Context(), env.Blob)
	if err != nil {
		t.Fatal(err)
	}
	high := 1000.
	c.Progress.Best = &high // as a loss may be
	env.Resume, env.Blob = c, blob.Dir(t.TempDir())
	longer := traintest.Job()
	longer.Epochs, longer.Stop = 7, trivium.EarlyStop{Metric: "valid.accuracy", Patience: 1000}
	run(t, env, longer)
	c, _, err = checkpoint.Latest(t.Context(), env.Blob)
	if err != nil || c.Progress.Best == nil || *c.Progress.Best > 1 {
		t.Errorf("%v: the best accuracy is %v", err, c.Progress.Best)
	}
}

// A tripwire calls f when it is read.
type tripwire struct {
	data.Dataset
	f func()
}

func (w *tripwire) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	w.f()
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.Dataset.Read(ctx, dst, from, to)
}

// TestRunDirectoryThatFails has a sink that fails at once: training goes on.
func TestRunDirectoryThatFails(t *testing.T) {
	hub := observe.NewHub(observe.Options{})
	hub.Attach("broken", broken{})
	env := traintest.Env(t, 1, false)
	env.Observe = hub
	env.Watch.Evaluated = func(train.Progress, map[string]float64) { hub.Collect(true) }
	if r := run(t, env, traintest.Job()); r.Reason != trivium.Finished || r.Steps != 44 {
		t.Errorf("%s after %d updates", r.Reason, r.Steps)
	}
	hub.Collect(true)
	if len(hub.Incomplete()) == 0 {
		t.Error("nobody was told that the metrics are incomplete")
	}
}

type broken struct{}

func (broken) Frame(observe.Frame) error               { return os.ErrPermission }
func (broken) Step(observe.Source, observe.Step) error { return os.ErrPermission }
func (broken) Event(observe.Event) error               { return os.ErrPermission }

func TestCheckpointsGoToAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(file)
	r, err := local.New(env, local.Options{}).Train(t.Context(), traintest.Job())
	if _, ok := errors.AsType[*train.JobError](err); err == nil || ok || r.Reason != trivium.Failed || r.Steps != 11 {
		t.Errorf("%s after %d updates, %v", r.Reason, r.Steps, err)
	}
}

// A mute model makes no predictions.
type mute struct{ trivium.Model }

// TestMute: rows that are kept from training for an evaluation that there will not be are spoken of.
func TestMute(t *testing.T) {
	for _, c := range []struct{ part, want string }{
		{"", "; its 41 test rows are neither measured nor trained on: data.train says which rows are for training, such as 0:"},
		{"0:", "so it cannot be evaluated"},
	} {
		env := traintest.Env(t, 1, false)
		toy := env.Models["toy"]
		env.Models["mute"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := toy(args, s, cpu)
			return mute{m}, err
		}
		env.Sources["alone"] = func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
			s, err := env.Sources["toy"](ctx, d)
			return &data.Splits{Train: s.Train}, err
		}
		var notes []string
		env.Watch.Note = func(text string) { notes = append(notes, text) }
		run(t, env, &trivium.Job{
			Version: 1, Model: "mute", Data: trivium.Data{Source: "alone", Train: c.part}, Batch: 50, Epochs: 1,
			Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
		})
		if len(notes) == 0 || !strings.HasSuffix(notes[0], c.want) {
			t.Errorf("train %q: notes %q, want %s", c.part, notes, c.want)
		}
	}
}

// TestCopiesStay: a checkpoint that somebody copied is neither the newest one, nor for the run to prune.
func TestCopiesStay(t *testing.T) {
	const other = "before-the-rate-was-lowered"
	job := traintest.Job()
	job.Epochs = 1
	env := traintest.Env(t, 1, false)
	env.Blob = blob.Dir(t.TempDir())
	env.Checkpoints = train.Checkpoints{Every: 5, Keep: 1}
	run(t, env, job)
	c, name, err := checkpoint.Latest(t.Context(), env.Blob)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := env.Blob.List(t.Context(), name+"/")
	for _, o := range objects {
		p, e := blob.Read(t.Context(), env.Blob, o.Key, o.Size)
		err = errors.Join(err, e, env.Blob.Put(t.Context(), other+strings.TrimPrefix(o.Key, name), bytes.NewReader(p)))
	}
	if err != nil {
		t.Fatal(err)
	}
	env.Resume = c
	longer := traintest.Job()
	longer.Epochs = 2
	run(t, env, longer)
	names, err := checkpoint.List(t.Context(), env.Blob)
	if err != nil || !slices.Equal(names, []string{other, "step-000000000022"}) {
		t.Errorf("checkpoints %v, %v: want the copy, and the last one", names, err)
	}
}
