package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/internal/shell"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/server"
)

// A training is one run of a job with all that is around it: data, threads, run directory, exporters, progress.
type training struct {
	job     *trivium.Job
	file    *jobFile               // that it was read from; nil: none
	resume  *checkpoint.Checkpoint // nil: from the start
	from    string                 // the folder of resume
	origin  string                 // what the user calls it
	typed   []string               // the command that asked for it
	out     string
	name    string // of the run directory; empty: time and model
	threads int
	every   int64
	listen  string
	show    *progress

	topology  string
	options   json.RawMessage                          // of the topology
	flags     []string                                 // that give them
	tuned     []string                                 // flags that are about the optimizer
	workers   int                                      // at least 1
	servers   int                                      // processes that only serve
	machines  int                                      // of a cluster, that they are on; 0: this one
	processes bool                                     // each worker has one of its own
	ship      bool                                     // the workers get their rows from this process
	assemble  func(ctx context.Context) (*team, error) // nil: on this machine
	called    func(run string)                         // is told the run's name; nil: nobody asks
	reached   func(train.Progress)                     // is told how far it is; nil: nobody asks
	restarts  int                                      // how often it may go on after one of its processes was lost
	restarted int                                      // how often it has: a run before this one has its name
	evaluated int64                                    // the update of the last evaluation

	again  []string          // the command that begins anew, where a run that goes on is not what the user asked for; nil: it is
	check  func(facts) error // may refuse to train on the data, before anything is written
	splits *data.Splits
	known  facts
	model  trivium.Model // to be described; training builds its own
	tabled bool          // it is trained on tables, without the job's optimizer
	scales bool          // its rows are of a table, whose columns can be scaled
	keeps  string        // what of each row its worker alone has, so that it cannot be resumed; empty: nothing
	needed bool          // without a run directory nothing is trained
	dir    string        // of the run, once it is there
	kept   string        // where its checkpoints are, likewise
	saved  string        // the newest checkpoint
}

// facts are what a run directory says of the data.
type facts struct {
	checksum string
	rows     int64 // for training
	notes    []string
}

// train runs t. What it returns as error has its exit code.
func (s *session) train(ctx context.Context, t *training) error {
	if t.topology != alone || t.processes {
		return s.trainWithWorkers(ctx, t)
	}
	if err := t.open(ctx, s); err != nil {
		return err
	}
	defer t.splits.Close()
	if err := t.know(facts{t.splits.Checksum, t.splits.Train.Rows(), t.splits.Notes}); err != nil {
		return err
	}
	cpu := tensor.NewCPU(t.threads, t.job.Exact)
	defer cpu.Close()
	if t.threads == 0 {
		cpu.Adapt()
	}
	var err error
	if err = t.build(s, t.splits.Schema(), t.splits.LabelColumn(), cpu); err != nil { // before anything is written
		return misused(err)
	}
	about, err := t.head(cpu.ISA)
	if err != nil {
		return err
	}
	o := newObservation(about)
	store, err := o.open(t)
	if err != nil {
		return errors.Join(misused(err), o.abandon())
	}
	t.model = nil // described: its memory is not for the run
	if err := o.serve(t.listen, t.show); err != nil {
		return errors.Join(misused(err), o.abandon())
	}
	stop := o.run()
	t.show.start()
	began := false
	strategy := local.New(train.Env{
		Run: about.Name, CPU: cpu, Models: s.models, Sources: s.sources, Optimizers: s.optimizers, Metrics: s.metrics, Splits: t.splits,
		Blob: store, Checkpoints: train.Checkpoints{Every: t.every}, Resume: t.resume, OwnResume: true, Notes: about.Versions,
		Observe: o.hub, Watch: t.watch(o, func() {
			began = true
			o.figures(observe.Process, t.restarted)
		}),
	}, local.Options{})
	result, err := strategy.Train(ctx, t.job)
	t.show.finish()
	stop()
	if !began && err != nil { // the job was refused
		return errors.Join(t.verdict(s, result, err), o.abandon())
	}
	err = t.verdict(s, result, err)
	t.conclude(o, result, err)
	return err
}

func (t *training) know(k facts) error {
	t.known = k
	if t.check == nil {
		return nil
	}
	return t.check(k)
}

// build makes the model that is described, or says why it cannot be trained like this. label is the column of the labels, if they are one.
func (t *training) build(s *session, schema trivium.Schema, label string, cpu *tensor.CPU) (err error) {
	if t.model, err = s.models.Build(t.job.Model, schema, cpu); err != nil {
		return train.NameLabel(err, label)
	}
	if _, t.tabled = t.model.(server.Program); t.tabled && t.topology != served {
		return fmt.Errorf("%s is trained on tables and has no gradients: give --topology %s", t.job.Model, served)
	}
	if t.tabled && len(t.tuned) > 0 {
		const text = "%s is trained on tables, without an optimizer: give no %s; what it takes stands behind its name, as in %[1]s:KEY=X"
		name, _, _ := strings.Cut(t.job.Model, ":")
		return fmt.Errorf(text, name, strings.Join(t.tuned, ", "))
	}
	t.keep(t.model)
	t.scales = label != ""
	if err := train.CheckData(t.model, schema); err != nil {
		return fmt.Errorf("model %q: %w", t.job.Model, err)
	}
	return train.CheckMetrics(t.model, s.metrics, t.job)
}

// open opens the data, with the transform of the checkpoint if there is one.
func (t *training) open(ctx context.Context, s *session) (err error) {
	options := data.Options{Labels: train.Labels(t.job.Model)}
	if t.resume != nil && len(t.resume.Transform) > 0 {
		if options.Transform, err = data.DecodeTransform(t.resume.Transform); err != nil {
			return misused(err)
		}
	}
	if t.splits, err = s.open(ctx, t.job.Data, options); err != nil {
		return t.file.ofData(err)
	}
	if t.splits.Train == nil { // a program's own source has returned others alone
		return errors.Join(misusedf("train: the source %q has no rows to train on", t.job.Data.Source), t.splits.Close())
	}
	return nil
}

// head describes the run.
func (t *training) head(isa kernel.ISA) (rundir.Head, error) {
	configuration, err := t.job.Encode()
	if err != nil {
		return rundir.Head{}, err
	}
	hash, err := t.job.Hash()
	if err != nil {
		return rundir.Head{}, err
	}
	b, err := thisBuild()
	if err != nil {
		return rundir.Head{}, err
	}
	threads := t.threads
	if threads == 0 {
		threads = max(1, runtime.GOMAXPROCS(0)/t.workers)
	}
	h := rundir.Head{
		Name: t.name, Start: time.Now(), Command: t.typed,
		Strategy: t.topology, Model: t.job.Model, DataSource: t.job.Data.Source, DataChecksum: t.known.checksum,
		Configuration: configuration, ConfigurationHash: hash,
		Seeds:    map[string]uint64{"job": t.job.Seed},
		Versions: map[string]string{"trivium": b.Version, "revision": b.Revision, "binary": b.Binary, "go": b.Go, "platform": b.Platform},
		Kernels:  isa.String(), Threads: threads, CheckpointEvery: t.every, Notes: t.known.notes,
	}
	if t.topology != alone {
		h.Workers, h.Servers, h.Machines, h.Options = t.workers, t.servers, t.machines, t.options
	}
	if h.Name == "" {
		h.Name = h.Start.Format("20060102-150405-") + identifier(t.job.Model)
	}
	if t.resume != nil {
		h.Notes = append(slices.Clone(h.Notes), fmt.Sprintf(resumedNote+"%s at update %d", t.origin, t.resume.Progress.Step))
	}
	return h, nil
}

// resumedNote begins the note of a run that went on from a checkpoint, whose update ends it.
const resumedNote = "resumed from "

// watch shows what training says of itself.
func (t *training) watch(o *observation, begin func()) train.Watch {
	if t.resume != nil { // its metrics are the run's until there are newer ones
		t.evaluated = t.resume.Progress.Evaluated
	}
	reached := func(p train.Progress) {
		o.step.Store(p.Step)
		if t.reached != nil {
			t.reached(p)
		}
	}
	return train.Watch{
		Begin: func(p train.Progress) {
			begin()
			reached(p)
			for _, n := range t.known.notes {
				t.show.say("note", n)
			}
			words := fmt.Sprintf("%s on %s rows, batch %s", t.job.Model, thousands(t.known.rows), batchWord(t.job.Batch))
			if !t.tabled {
				words += ", " + t.job.Optimizer.Name
				if t.job.Optimizer.Rate > 0 { // else it is an optimizer of the program's own, and the rate too
					words += fmt.Sprintf(" at rate %v", t.job.Optimizer.Rate)
				}
			}
			if t.topology != alone {
				words += fmt.Sprintf(", %s of %s", t.topology, quantity.Count(t.workers, "worker"))
			}
			if p.Began > 0 {
				words += fmt.Sprintf(", from update %s on", thousands(p.Began))
			}
			t.show.say("begin", words)
		},
		Progress: func(p train.Progress) {
			reached(p)
			t.show.update(p)
		},
		Evaluated: func(p train.Progress, metrics map[string]float64) {
			t.evaluated = p.Step
			t.show.evaluated(p, metrics)
		},
		Checkpointed: func(_ train.Progress, name string) { t.saved = name },
		Note:         func(text string) { t.show.say("note", text) },
		Notice:       t.show.notice,
	}
}

func batchWord(n int) string {
	if n == trivium.FullBatch {
		return "full"
	}
	return thousands(int64(n))
}

// verdict gives what training returned its exit code, and its words.
func (t *training) verdict(s *session, r trivium.Result, err error) error {
	var diverged *trivium.DivergedError
	var refused *train.JobError
	var mistake *data.Error
	var worker *processes.WorkerError
	switch {
	case r.Reason == trivium.Interrupted && err == nil, r.Reason == trivium.Interrupted && t.topology == alone:
		if t.assemble != nil { // who submitted it resumes elsewhere
			return &codedError{Interrupted, fmt.Errorf("interrupted after update %s", thousands(r.Steps))}
		}
		if t.saved == "" && (t.restarted == 0 || t.from == "") {
			return &codedError{Interrupted, fmt.Errorf("interrupted after update %s, before the first checkpoint: nothing is saved, repeat the command", thousands(r.Steps))}
		}
		return &codedError{Interrupted, fmt.Errorf("interrupted after update %s; %s", thousands(r.Steps), t.goOnWith(s))}
	case err == nil:
		return nil
	case errors.As(err, &worker) && worker.Lost:
		if t.assemble != nil || t.restarted < t.restarts { // it goes on by itself
			return &codedError{Lost, err}
		}
		if t.saved != "" || t.from != "" {
			err = fmt.Errorf("%w; %s", err, t.goOnWith(s))
		} else {
			err = fmt.Errorf("%w; there was no checkpoint yet", err)
		}
		return &codedError{Lost, err}
	case errors.As(err, &diverged):
		if t.topology == alone {
			err = diverged // without the name of the checkpoint: the user gets the path
		}
		if !t.tabled { // else there is neither
			err = fmt.Errorf("%w; a lower learning rate or clipping usually helps", err)
		}
		if t.saved != "" && t.assemble == nil { // else who submitted it has it elsewhere, now as in the cases below
			err = fmt.Errorf("%w; the last good checkpoint is %s", err, filepath.Join(t.kept, t.saved))
		}
		return &codedError{Diverged, err}
	case errors.As(err, &refused), errors.As(err, &mistake):
		return misused(err)
	case r.Reason == trivium.Failed && t.saved != "" && t.assemble == nil:
		return fmt.Errorf("%w; %s", err, t.goOnWith(s))
	}
	return err
}

// keep notes what m keeps of each row at its worker, if it does.
func (t *training) keep(m trivium.Model) {
	_, tabled := m.(server.Program)
	if k, ok := m.(server.Keeper); ok && tabled {
		t.keeps = k.Keeps()
	}
}

// goOnWith tells a user how to go on.
func (t *training) goOnWith(s *session) string {
	from := []string{cmp.Or(t.dir, filepath.Dir(t.kept))}
	if t.saved == "" && t.from != "" { // it ended before its first checkpoint
		from = []string{filepath.Dir(filepath.Dir(t.from)), "--checkpoint", filepath.Base(t.from)}
	}
	if t.again != nil {
		return "repeat with: " + shell.Words(t.again...)
	}
	if t.keeps != "" {
		return fmt.Sprintf("it cannot be resumed, since the workers alone have %s of each row: repeat the command", t.keeps)
	}
	command := append([]string{s.command, "train", "--resume"}, from...)
	if t.topology != alone {
		command = append(command, "--topology", t.topology, "--workers", fmt.Sprint(t.workers))
		command = append(command, t.flags...)
	}
	if t.processes {
		command = append(command, "--processes")
	}
	if t.ship { // the data may be on this machine alone
		command = append(command, "--ship-data")
	}
	if t.every > 0 {
		command = append(command, "--checkpoint-every", fmt.Sprint(t.every))
	}
	if t.restarts > 0 {
		command = append(command, "--restarts", fmt.Sprint(t.restarts))
	}
	if t.out != "runs" {
		command = append(command, "--out", t.out)
	}
	return "resume with: " + shell.Words(command...)
}

// conclude writes the result and says what came of it.
func (t *training) conclude(o *observation, r trivium.Result, err error) {
	result := rundir.Result{
		End: time.Now(), Reason: string(r.Reason), Metrics: r.Metrics, Steps: r.Steps, Epochs: int64(r.Epochs), Samples: r.Samples,
		Checkpoint: t.saved,
	}
	if err != nil {
		result.Error = err.Error()
		result.ExitCode = Failed
		var coded *codedError
		if errors.As(err, &coded) {
			result.ExitCode = coded.code
		}
		if result.Reason == "" {
			result.Reason = string(trivium.Failed)
		}
	}
	for _, problem := range o.finish(&result) {
		t.show.say("notice", problem)
	}
	words := result.Reason
	for _, name := range slices.Sorted(maps.Keys(r.Metrics)) {
		words += fmt.Sprintf("  %s %s", name, figure(r.Metrics[name]))
	}
	if len(r.Metrics) > 0 {
		words += t.asOf(r.Steps)
	}
	words += fmt.Sprintf("  %s in updates, %s samples/s", quantity.Seconds(result.Seconds), quantity.Short(result.SamplesPerSec))
	if t.show.style == objects {
		t.show.mu.Lock()
		out := map[string]any{
			"event": "result", "reason": result.Reason, "run": t.dir, "updates": r.Steps, "samples": r.Samples,
			"seconds": result.Seconds, "samples_per_second": finite.OrNil(result.SamplesPerSec), "exit_code": result.ExitCode,
		}
		for name, v := range r.Metrics {
			out[name] = finite.OrNil(v)
		}
		t.show.encode(out)
		t.show.mu.Unlock()
		return
	}
	t.show.say("result", words)
	for _, name := range []string{"test.r2", "valid.r2"} {
		if r.Metrics[name] < 0 && err == nil {
			t.show.say("hint", name+" is below 0: always predicting the mean of the labels would be nearer; what may help: "+t.untried())
			break
		}
	}
	if t.dir != "" && t.assemble == nil {
		t.show.say("run", fmt.Sprintf("run directory %s", t.dir))
	}
}

// asOf says which update the metrics of a result are of, where there were steps without another evaluation.
func (t *training) asOf(steps int64) string {
	switch {
	case t.evaluated >= steps:
		return ""
	case t.evaluated < 0: // the checkpoint was made beside training, which went on to an evaluation that it does not number
		return "  as of the run before"
	}
	return "  as of update " + thousands(t.evaluated)
}

// untried lists what may bring a model nearer to real labels, of what its job does not do already.
func (t *training) untried() string {
	var advice []string
	if how := t.job.Data.Scale; t.scales && (how == "" || how == "none") {
		advice = append(advice, "columns of like size (--scale standard)")
	}
	searches := t.job.Optimizer.Name == "lbfgs"
	switch {
	case t.tabled: // it refuses flags of an optimizer
		name, _, _ := strings.Cut(t.job.Model, ":")
		advice = append(advice, fmt.Sprintf("other arguments of its own, as in %s:KEY=X", name))
	case !searches:
		advice = append(advice, "another --rate")
	}
	advice = append(advice, "more --epochs")
	if !searches && t.job.Model == "linear" {
		advice = append(advice, "--optimizer lbfgs")
	}
	return strings.Join(advice, ", ")
}

// store is where checkpoints go: in the run directory, or, where there is none, in a temporary folder, so that the model is not lost.
func (t *training) store() (blob.Store, error) {
	if t.dir == "" {
		dir, err := os.MkdirTemp("", "trivium-")
		if err != nil {
			return nil, err
		}
		t.kept = filepath.Join(dir, checkpointsDir)
		where := ""
		if t.assemble != nil { // who reads this sits elsewhere
			where = " on the coordinator's machine"
		}
		t.show.say("notice", "the model goes to "+dir+where+" instead, which eval, apply, export and train --resume take for a run")
		return blob.Dir(t.kept), nil
	}
	t.kept = filepath.Join(t.dir, checkpointsDir)
	return blob.Dir(t.kept), nil
}
