package allreduce_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestCompression: codecs with error feedback reach the loss without one within 1 %.
func TestCompression(t *testing.T) {
	job := digits()
	job.Model, job.Data = "softmax", trivium.Data{Source: "digits", Rows: 2500, Train: "0:2000", Test: "2000:"}
	job.Batch, job.Epochs, job.Optimizer = 100, 20, trivium.OptimizerSpec{Name: "sgd", Rate: 0.2}
	if testing.Short() {
		job.Data, job.Epochs = trivium.Data{Source: "digits", Rows: 350, Train: "0:300", Test: "300:"}, 10
	}
	losses := map[string]float64{}
	for _, codec := range []string{"none", "f16", "int8", "topk:0.05", "bf16", "1bit", "qsgd:7"} {
		if testing.Short() && len(losses) == 4 { // the others need more rows for one per cent
			break
		}
		c := &crew{n: 2, o: allreduce.Options{Compress: codec}}
		got, err := c.Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		same(t, codec, c.results[1], got)
		losses[codec] = got.Metrics["train.loss"]
		if d := got.Metrics["train.loss"] / losses["none"]; d > 1.01 {
			t.Errorf("%s: training loss %v, without codec %v", codec, losses[codec], losses["none"])
		}
	}
	t.Log(losses)
}

// TestCodecThatFitsLittle: who asks for a codec that no part of the gradient is sent by, or little of it, is told so.
func TestCodecThatFitsLittle(t *testing.T) {
	wide := trivium.Data{Source: "wide", Rows: 60, Train: "0:50", Test: "50:"}
	for _, c := range []struct {
		workers      int
		codec, model string
		data         trivium.Data
		want         string // in what is said; empty: nothing is
	}{
		{3, "topk:0.01", "mlp:8", digits().Data, ""},
		{3, "topk:10000000", "mlp:8", digits().Data, "10000000 values are to be sent"},
		{3, "powersgd:1000", "mlp:8", digits().Data, "the rank 1000 is above"},
		{3, "powersgd:2", "logistic", wide, "the rank 2 is above"}, // all but the bias is row-sparse
		{3, "topk:0.1", "logistic", wide, "for 1 of the model's 16385 parameters"},
		{1, "topk:0.01", "mlp:8", digits().Data, "topk:0.01 encodes nothing, for one worker sends nothing"},
		{1, "", "mlp:8", digits().Data, ""},
	} {
		var said []string
		env := train.Env{Sources: traintest.Sources()}
		env.Watch.Notice = func(_ observe.Level, text string) { said = append(said, text) }
		job := digits()
		job.Model, job.Data, job.Steps = c.model, c.data, 2
		k := &crew{env: env, n: c.workers, o: allreduce.Options{Compress: c.codec}}
		if _, err := k.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(said, "; "); (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%d workers, %s of %s: %q, want %q", c.workers, c.codec, c.model, text, c.want)
		}
	}
}

// TestResidualStays: what codecs dropped is collected for checkpoints alone: at the full batch, where each update ends an epoch, a measured run
// in which nothing is saved before its end sends what the codec makes of the gradients, and no dense sums beside it.
func TestResidualStays(t *testing.T) {
	job := digits()
	job.Batch, job.Epochs = trivium.FullBatch, 20
	sent := func(atEnd bool) int64 {
		c := &crew{env: train.Env{AtEnd: atEnd}, n: 2, o: allreduce.Options{Compress: "topk:0.01"}}
		if _, err := c.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		return c.sent
	}
	if measured, saved := sent(true), sent(false); measured == 0 || measured > saved/4 {
		t.Errorf("%d bytes were sent where nothing is saved before the end, and %d where each epoch may be", measured, saved)
	}
}

// TestStateStays: after an evaluation nothing is saved, unless it may be the best so far: neither what codecs dropped nor the parts of the
// optimizer's state are collected then.
func TestStateStays(t *testing.T) {
	if testing.Short() {
		t.Skip("a long training case")
	}
	for name, o := range map[string]allreduce.Options{"coded": {Compress: "topk:0.01"}, "sharded": {ShardOptimizer: true}} {
		travels := func(every int64, stop string) int64 {
			job := digits()
			job.Model, job.EvalEvery = "mlp:100", every
			if stop != "" {
				job.Stop = trivium.EarlyStop{Metric: stop, Patience: 1000}
			}
			c := &crew{n: 2, o: o}
			if _, err := c.Train(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			return c.sent + c.taken
		}
		never, always, best := travels(1<<40, ""), travels(1, ""), travels(1, "train.loss")
		if t.Logf("%s: %d bytes without evaluations, %d with, %d where each may be the best", name, never, always, best); always > never+never/4 {
			t.Errorf("%s: %d bytes travel where each update is evaluated, and %d where none is", name, always, never)
		}
		if best < always+always/4 {
			t.Errorf("%s: %d bytes travel where each evaluation may be the best, and %d where none is looked for", name, best, always)
		}
	}
}

// TestStateIsOfCheckpoint: each checkpoint has what was collected after its own update, whatever it is saved for.
func TestStateIsOfCheckpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("a long training case")
	}
	for name, o := range map[string]allreduce.Options{"coded": {Compress: "topk:0.01"}, "sharded": {ShardOptimizer: true}} {
		for what, set := range map[string]func(job *trivium.Job, env *train.Env){
			"every so many":    func(_ *trivium.Job, env *train.Env) { env.Checkpoints.Every = 3 },
			"end of the epoch": func(*trivium.Job, *train.Env) {},
			"best of some":     func(job *trivium.Job, env *train.Env) { job.EvalEvery, env.Checkpoints.Every = 2, 1<<40 },
			"best of epochs":   func(_ *trivium.Job, env *train.Env) { env.Checkpoints.Every = 1 << 40 },
		} {
			job := digits()
			env := train.Env{Blob: blob.Dir(t.TempDir()), Checkpoints: train.Checkpoints{Keep: 1000}}
			if set(job, &env); strings.HasPrefix(what, "best") {
				job.Stop = trivium.EarlyStop{Metric: "train.loss", Patience: 1000}
			}
			var steps []int64
			env.Watch.Checkpointed = func(p train.Progress, _ string) { steps = append(steps, p.Step) }
			if _, err := (&crew{env: env, n: 2, o: o}).Train(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if len(steps) < 2 {
				t.Errorf("%s, %s: checkpoints after %v", name, what, steps)
			}
			got := loadAt(t, env.Blob, steps[0])
			job.Steps = steps[0] // the last: it is collected
			end := train.Env{Blob: blob.Dir(t.TempDir())}
			if _, err := (&crew{env: end, n: 2, o: o}).Train(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			want := loadAt(t, end.Blob, steps[0])
			if !reflect.DeepEqual(got.Optimizer, want.Optimizer) || !reflect.DeepEqual(got.Codecs, want.Codecs) {
				t.Errorf("%s, %s: the checkpoint after update %d has the state of another", name, what, steps[0])
			}
		}
	}
}

// loadAt loads the checkpoint after that update.
func loadAt(t *testing.T, s blob.Store, step int64) *checkpoint.Checkpoint {
	t.Helper()
	names, err := checkpoint.List(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if c, err := checkpoint.Load(t.Context(), s, name); err == nil && c.Progress.Step == step {
			return c
		}
	}
	t.Fatalf("no checkpoint after update %d among %q", step, names)
	return nil
}

// TestResidual: what a codec dropped is in the checkpoint, and another number of workers goes on with it.
func TestResidual(t *testing.T) {
	job := digits()
	job.Optimizer = trivium.OptimizerSpec{Name: "momentum", Rate: 0.02}
	store := blob.Dir(t.TempDir())
	c := &crew{env: train.Env{Blob: store}, n: 2, o: allreduce.Options{Compress: "topk:0.01"}}
	if _, err := c.Train(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var norm float64
	for _, v := range saved.Optimizer.Slots[len(saved.Optimizer.Slots)-1] {
		norm += float64(v) * float64(v)
	}
	if fmt.Sprint(saved.Optimizer.Names) != "[velocity residual]" || norm == 0 {
		t.Fatalf("the checkpoint has %v, the residual's norm is %v", saved.Optimizer.Names, math.Sqrt(norm))
	}
	more := *job
	more.Epochs++
	with := &crew{env: train.Env{Resume: saved}, n: 3, o: allreduce.Options{Compress: "topk:0.01"}}
	a, err := with.Train(t.Context(), &more)
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	env := train.Env{Resume: saved}
	env.Watch.Notice = func(_ observe.Level, text string) { notices = append(notices, text) }
	if _, err := local.New(env, local.Options{}).Train(t.Context(), &more); err != nil {
		t.Fatal(err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "codec dropped") {
		t.Errorf("local says %q", notices)
	}
	clear(saved.Optimizer.Slots[1])
	without := &crew{env: train.Env{Resume: saved}, n: 3, o: allreduce.Options{Compress: "topk:0.01"}}
	b, err := without.Train(t.Context(), &more)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(a.Params.Flat, b.Params.Flat) {
		t.Error("the residual makes no difference")
	}
}

// TestResidualRate: what a codec dropped counts as much after a resume at another learning rate as it did when it was dropped.
func TestResidualRate(t *testing.T) {
	job := digits()
	job.Epochs, job.Optimizer = 1, trivium.OptimizerSpec{Name: "sgd", Rate: 0.5}
	store := blob.Dir(t.TempDir())
	c := &crew{env: train.Env{Blob: store}, n: 2, o: allreduce.Options{Compress: "topk:0.01"}}
	if _, err := c.Train(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	var results [2]trivium.Result
	for k := range results {
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		saved.Codecs = nil // so that its sum is shared out
		more := *job
		more.Epochs, more.Optimizer.Rate = 2, 0.25
		if k == 1 { // as if it had been so all the time
			saved.Job = &more
			for i := range saved.Optimizer.Slots[0] {
				saved.Optimizer.Slots[0][i] *= 2
			}
		}
		c := &crew{env: train.Env{Resume: saved}, n: 2, o: allreduce.Options{Compress: "topk:0.01"}}
		if results[k], err = c.Train(t.Context(), &more); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(results[0].Params.Flat, results[1].Params.Flat) {
		t.Error("the residual is not rescaled")
	}
}

// TestResidualOfPlainBucket: what a codec dropped of a bucket counts too where no codec encodes it any more: more workers go on, whose
// shares of it are too short, or one does, or the codec is another or none.
func TestResidualOfPlainBucket(t *testing.T) {
	job := digits()
	job.Model, job.Steps, job.Optimizer = "mlp:300,20", 2, trivium.OptimizerSpec{Name: "sgd", Rate: 0.5}
	store := blob.Dir(t.TempDir())
	o := allreduce.Options{Compress: "topk:1500"} // of half of the second bucket, not of a fifth
	if _, err := (&crew{env: train.Env{Blob: store}, n: 2, o: o}).Train(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	saved, _, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	l, dropped := saved.Params.Layout, saved.Optimizer.Slots[0]
	from, to := l.Range(l.Tensors() - 1)
	clear(dropped[:from])
	for i := range dropped[from:to] {
		dropped[from+i] = float32(i + 1)
	}
	kept := slices.Clone(dropped)
	for name, c := range map[string]struct {
		n     int
		o     allreduce.Options
		again bool // a checkpoint has residuals again
	}{
		"one bucket":      {5, o, true},
		"all":             {5, allreduce.Options{Compress: "topk:10000000"}, false},
		"all, sharded":    {2, allreduce.Options{Compress: "topk:10000000", ShardOptimizer: true}, false},
		"no codec":        {2, allreduce.Options{}, false},
		"one worker":      {1, o, false},
		"one, in pieces":  {1, allreduce.Options{Accumulate: 3}, false},
		"one, no average": {1, allreduce.Options{Every: 4}, false},
	} {
		if testing.Short() && name != "one bucket" && name != "all, sharded" {
			continue // all in the full run
		}
		more := *job
		more.Optimizer.Rate = 0.25
		resume := func(steps int64, dropped []float32) (trivium.Result, *checkpoint.Checkpoint) {
			t.Helper()
			copy(saved.Optimizer.Slots[0], dropped)
			more.Steps = steps
			env := train.Env{Resume: saved, Blob: blob.Dir(t.TempDir())}
			env.Watch.Notice = func(_ observe.Level, text string) {
				if strings.Contains(text, "codec dropped") {
					t.Errorf("%s: %s", name, text)
				}
			}
			r, err := (&crew{env: env, n: c.n, o: c.o}).Train(t.Context(), &more)
			if err != nil {
				t.Fatal(err)
			}
			end, _, err := checkpoint.Latest(t.Context(), env.Blob)
			if err != nil {
				t.Fatal(err)
			}
			return r, end
		}
		with, end := resume(3, kept)
		without, _ := resume(3, make([]float32, len(kept)))
		for i := range to - from {
			want := -0.5 * float64(i+1) / float64(job.Batch) // at the rate at which it was dropped
			if found := float64(with.Params.Flat[from+i] - without.Params.Flat[from+i]); !(math.Abs(found-want) <= 1e-5) {
				t.Errorf("%s: cell %d: what was dropped moved it by %v, want %v", name, i, found, want)
			}
		}
		if again := len(end.Optimizer.Slots) > 0; again != c.again || (end.Codecs != nil) != c.again {
			t.Errorf("%s: the last checkpoint has %q", name, end.Optimizer.Names)
		}
		if _, end := resume(2, kept); len(end.Optimizer.Slots) != 1 || !slices.Equal(end.Optimizer.Slots[0], kept) {
			t.Errorf("%s: before the first update, a checkpoint has %q", name, end.Optimizer.Names)
		}
	}
}

// TestResidualByHosts: what codecs dropped counts in full where the workers of a resumed run share machines in another way than before: there others
// encode what was dropped, or nobody does.
func TestResidualByHosts(t *testing.T) {
	job := digits()
	job.Model, job.Steps, job.Optimizer = buckets(), 3, trivium.OptimizerSpec{Name: "sgd", Rate: 0.5}
	layouts := map[string][][]int{
		"one host": nil, "neighbours": {{0, 1}, {2, 3}}, "far ones": {{0, 2}, {1, 3}}, "three and one": {{0, 1, 2}, {3}},
	}
	for before, hosts := range layouts {
		if testing.Short() && before != "neighbours" {
			continue // all in the full run
		}
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Blob: store, Hosts: hosts}, n: 4, o: allreduce.Options{Compress: "topk:0.05"}}
		if _, err := c.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		for after, hosts := range layouts {
			if testing.Short() && after != "three and one" {
				continue
			}
			saved, _, err := checkpoint.Latest(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			more := *job
			more.Steps++
			var flat [3][]float32 // with each worker's own, with their sum, and without
			dropped := slices.Clone(saved.Optimizer.Slots[0])
			for k := range flat {
				switch k {
				case 1:
					saved.Codecs = nil
				case 2:
					clear(saved.Optimizer.Slots[0])
				}
				c := &crew{env: train.Env{Resume: saved, Hosts: hosts}, n: 4, o: allreduce.Options{Compress: "f16"}}
				r, err := c.Train(t.Context(), &more)
				if err != nil {
					t.Fatal(err)
				}
				flat[k] = r.Params.Flat
			}
			moved := 0
			rounding := 4e-3 / float64(job.Batch) // of gradients up to 4 or so in half precision, twice
			for i, d := range dropped {
				want := -0.5 * float64(d) / float64(job.Batch)
				for k := range 2 {
					if found := float64(flat[k][i] - flat[2][i]); !(math.Abs(found-want) <= rounding+2e-3*math.Abs(want)) {
						t.Fatalf("%s, then %s: cell %d: what was dropped moved it by %v, want %v", before, after, i, found, want)
					}
				}
				if math.Abs(want) > 20*rounding {
					moved++
				}
			}
			if moved < 100 {
				t.Errorf("%s: %d cells had much dropped", before, moved)
			}
		}
	}
}
