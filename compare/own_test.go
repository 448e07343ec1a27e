package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// TestOwnJob: what a row trains in the place of its task's job.
func TestOwnJob(t *testing.T) {
	task := Task{Job: trivium.Job{Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.5}}}
	spec := Spec{Task: task, Workers: 3, Batch: 100}
	theirs := spec
	theirs.Task.Own = true
	for _, c := range []struct {
		row   string
		spec  Spec
		batch int
		rate  float64
	}{
		{"server-asp", spec, 300, 0.5},
		{"server-asp-whole", spec, 300, 1.5},
		{"server-ssp3-clock10", spec, 3, sampleRate},
		{"server-ssp3-clock10", theirs, 3, 0.5},
	} {
		i := slices.IndexFunc(strategies, func(r row) bool { return r.name == c.row })
		if job, err := (&own{row: &strategies[i]}).job(c.spec); err != nil || job.Batch != c.batch || job.Optimizer.Rate != c.rate {
			t.Errorf("%s: batch %d, rate %v, %v; want %d, %v", c.row, job.Batch, job.Optimizer.Rate, err, c.batch, c.rate)
		}
		c.spec.Task.Job.Optimizer.Rate = 0
		if _, err := (&own{row: &strategies[i]}).job(c.spec); (err != nil) != (c.row == "server-asp-whole") {
			t.Errorf("%s without a rate: %v", c.row, err)
		}
	}
}

// TestWholeCommand: the command that repeats the row has its rate.
func TestWholeCommand(t *testing.T) {
	i := slices.IndexFunc(strategies, func(r row) bool { return r.name == "server-asp-whole" })
	p := &Plan{Tasks: []Task{{Name: "mine", File: "job.yaml", Job: trivium.Job{Optimizer: trivium.OptimizerSpec{Rate: 0.1}}}}}
	got := (&own{row: &strategies[i]}).trainCommand(&Table{Task: "mine", Own: true}, &Row{Workers: 3, Threads: 1, Effective: 300}, p)
	if want := "trivium train -f job.yaml --topology server --workers 3 --processes --consistency asp --rate 0.3 --threads 1 --batch 100"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestCoresCommand: the command that repeats the row of all cores leaves their number to train, unless the row had others than this machine has.
func TestCoresCommand(t *testing.T) {
	i := slices.IndexFunc(strategies, func(r row) bool { return r.name == "local-cores" })
	p := &Plan{Tasks: []Task{{Name: "mine", File: "job.yaml"}}}
	for _, threads := range []int{runtime.NumCPU(), runtime.NumCPU() + 1} {
		want := "trivium train -f job.yaml"
		if threads != runtime.NumCPU() {
			want += fmt.Sprintf(" --threads %d", threads)
		}
		got := (&own{row: &strategies[i]}).trainCommand(&Table{Task: "mine"}, &Row{Workers: 1, Threads: threads, Effective: 300}, p)
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestCommandStops: the command that repeats the row trains to the comparison's target, whatever early stop the file has.
func TestCommandStops(t *testing.T) {
	i := slices.IndexFunc(strategies, func(r row) bool { return r.name == "local" })
	table := &Table{Task: "mine", Own: true, Target: Target{"valid", "auc", 0.78, true}}
	for patience, more := range map[int]string{0: "", 3: " --patience 0"} {
		task := Task{Name: "mine", File: "job.yaml", Job: trivium.Job{Stop: trivium.EarlyStop{Metric: "valid.loss", Patience: patience}}}
		got := (&own{row: &strategies[i]}).trainCommand(table, &Row{Workers: 1, Threads: 1, Effective: 300}, &Plan{Tasks: []Task{task}})
		if want := "trivium train -f job.yaml --threads 1 --batch 300 --stop-metric valid.auc --target '>= 0.78'" + more; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// The page says why asynchronous rows of ours and of others come to their targets differently, where it has both.
func TestWholeSteps(t *testing.T) {
	for other, want := range map[string]bool{"mxnet-async": true, "tensorflow-async": true, "mxnet-sync": false} {
		ran := []Repeat{{}}
		r := Report{Tables: []*Table{{Rows: []*Row{{System: "server-asp", Trials: ran}, {System: other, Trials: ran}}}}}
		r.threats()
		if got := slices.Contains(r.Threats, wholeSteps); got != want {
			t.Errorf("%s: the page says so: %v, want %v: %s", other, got, want, strings.Join(r.Threats, "\n"))
		}
	}
}

// The page says what a net of ours need not compute, where it stands beside one that does.
func TestLeftOut(t *testing.T) {
	for _, c := range []struct {
		model string
		peer  bool
		want  bool
	}{{"mlp:100", true, true}, {"mlp:100", false, false}, {"softmax", true, false}} {
		r := Report{Tables: []*Table{{Model: c.model, Rows: []*Row{{System: "it", Peer: c.peer, Trials: []Repeat{{}}}}}}}
		r.threats()
		if got := slices.Contains(r.Threats, leftOut); got != c.want {
			t.Errorf("%v: the page says so: %v", c, got)
		}
	}
}

// TestSummed: the evaluator has the data's checksum, so no process of a trial looks at all rows for it.
func TestSummed(t *testing.T) {
	bookkeeping(t)
	h := inMemory()
	network := transport.NewMemory()
	h.Network = network
	var mu sync.Mutex
	started, summed := 0, 0
	h.Launcher = func() launch.Launcher {
		return launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
			var a processes.Assignment
			err := json.Unmarshal(c.Config, &a)
			mu.Lock()
			started++
			if a.Summed {
				summed++
			}
			mu.Unlock()
			return errors.Join(err, work(ctx, c, network, h.Sources))
		})
	}
	run(t, small(t, h, digits(), "local", "allreduce"))
	if started != 4 || summed != started {
		t.Errorf("%d of %d processes leave the checksum to the evaluator, want 4 of 4", summed, started)
	}
}

// TestClocksCommand: the command that repeats a row with clocks has them; without, each step of one row would be a round.
func TestClocksCommand(t *testing.T) {
	p := &Plan{Tasks: []Task{{Name: "mine", File: "job.yaml"}}}
	for i := range strategies {
		r := &strategies[i]
		if r.clocks == 0 {
			continue
		}
		got := (&own{row: r}).trainCommand(&Table{Task: "mine", Own: true}, &Row{Workers: 3, Threads: 1, Effective: 3}, p)
		want := fmt.Sprintf("trivium train -f job.yaml --topology server --workers 3 --processes --consistency ssp:3 --optimizer-on worker --clocks %d --threads 1 --batch 1", r.clocks)
		if got != want {
			t.Errorf("%s: %s\nwant %s", r.name, got, want)
		}
	}
}

// TestLossAlone: a model that makes no predictions is compared by its loss, which is the same as that of one which does.
func TestLossAlone(t *testing.T) {
	bookkeeping(t)
	models := nn.Standard()
	models["mute"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := nn.Softmax(args, s, cpu)
		return struct{ trivium.Model }{m}, err
	}
	var curves [2][]curvePoint
	for i, model := range []string{"softmax", "mute"} {
		h := inMemory()
		h.Models = models
		task := digits()
		task.Own, task.Job.Model, task.Job.Batch, task.Target = true, model, 60, Target{"test", "loss", 0.9, false}
		network, sources := h.Network, h.Sources
		h.Launcher = func() launch.Launcher {
			return launch.NewGoroutines(func(ctx context.Context, c launch.Child) error { return workOn(ctx, c, network, sources, models) })
		}
		rows := run(t, small(t, h, task, "local", "server-bsp", "allreduce")).Tables[0].Rows
		for _, x := range rows {
			if x.Error != "" || x.Proof != proven || x.Reached != 1 {
				t.Fatalf("%s of %s: error %q, proof %q, reached in %d", x.System, model, x.Error, x.Proof, x.Reached)
			}
		}
		curves[i] = rows[0].Trials[0].Curve
	}
	for k, a := range curves[0] {
		if b := curves[1][k]; a.Update != b.Update || !(math.Abs(*a.Value-*b.Value) <= 1e-6) {
			t.Errorf("after update %d the loss is %v, and by gradients, after %d, %v", a.Update, *a.Value, b.Update, *b.Value)
		}
	}
}

// TestFasterThanWarmUp: a trial whose updates take a third less than at the end of its warm-up lasts as long as it was told to, and none longer than
// its bound.
func TestFasterThanWarmUp(t *testing.T) {
	p := &Plan{Seconds: 5}
	o := trialOrder{Seconds: p.reserve() * p.Seconds, Updates: 100}
	for _, perUpdate := range []float64{0.0003, 0.001, 0.4} {
		if n := o.measured(perUpdate, time.Second); float64(n)*perUpdate*2/3 < p.Seconds-1e-9 {
			t.Errorf("%d updates of %v s are over after %.2f s where they take a third less, want %v s", n, perUpdate, float64(n)*perUpdate*2/3, p.Seconds)
		}
	}
	o.Longest = 4
	if n := o.measured(0.01, time.Second); n != 300 {
		t.Errorf("%d updates of 0.01 s, where 3 s are left", n)
	}
	if n := o.measured(0, time.Second); n != o.Updates {
		t.Errorf("%d updates where a warm-up took no time", n)
	}
}

// TestShortTrials: the page says how many trials are shorter than was ordered, each once, and how short they are.
func TestShortTrials(t *testing.T) {
	took := func(seconds ...float64) (list []Repeat) {
		for i, s := range seconds {
			list = append(list, Repeat{Repeat: i + 1, Result: Result{Seconds: s}})
		}
		return list
	}
	rows := []*Row{{System: "local", cell: "local", Trials: took(5.2, 3.85, 4.5)}, {System: "allreduce", cell: "allreduce", Trials: took(7, 5, 6)}}
	rows[1].Trials[1].Result = Result{Error: "it hangs"}
	r := &Report{Seconds: 5, Tables: []*Table{{Rows: rows}, {Workers: 2, Rows: rows[:1]}}}
	if said := fmt.Sprint(r.setup()); !strings.Contains(said, "2 of 5 trials are shorter, the shortest 3.85 s") {
		t.Error(said)
	}
	rows[0].Trials = took(5.2, 5)
	if said := fmt.Sprint(r.setup()); strings.Contains(said, "shorter") {
		t.Error(said)
	}
}

// TestWithin: a target counts within what train trains on: the job's epochs or its steps, whichever end first. The page says it.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		epochs   int
		steps    int64
		perEpoch int64
		want     int64
		words    string
	}{
		{20, 24, 10, 24, "20 epochs and 24 updates"},
		{2, 24, 10, 20, "2 epochs and 24 updates"},
		{2, 0, 10, 20, "2 epochs"},
		{0, 7, 10, 7, "7 updates"},
		{1, 1, 1, 1, "1 epoch and 1 update"},
	} {
		task := Task{Name: "mine", Own: true, Cap: c.epochs, Job: trivium.Job{Steps: c.steps}}
		if got := task.within(c.perEpoch); got != c.want {
			t.Errorf("%+v: %d updates", c, got)
		}
		r := &Report{}
		r.table(&group{task: task}, &Plan{})
		if page := fmt.Sprint(r.setup()); !strings.Contains(page, "{"+c.words+" ") {
			t.Errorf("%+v: the page says %s", c, page)
		}
	}
}

// TestStepsBound: a row that trains on past the job's steps, to be measured, does not meet the target there, and is looked at where train would end.
func TestStepsBound(t *testing.T) {
	bookkeeping(t)
	for steps, batch := range map[int64]int{24: 60, 3: trivium.FullBatch} {
		task := digits()
		task.Own, task.Cap, task.Job.Steps, task.Job.Batch = true, 0, steps, batch
		task.Target = Target{"train", "loss", 1e-9, false}
		table := run(t, small(t, inMemory(), task, "local", "allreduce", "server-asp")).Tables[0]
		if table.Reference != steps {
			t.Errorf("%d steps: local is followed for %d", steps, table.Reference)
		}
		why := fmt.Sprintf("not reached where it was looked for, up to update %d (best ", steps)
		for _, x := range table.Rows {
			if made := x.Trials[0].Result.Updates; made < steps || x.Error != "" || !strings.HasPrefix(x.Why, why) {
				t.Errorf("%s makes %d updates: %s%s, want %s", x.System, made, x.Error, x.Why, why)
			}
		}
	}
}
