package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/train"
)

// trainVerb trains.
type trainVerb struct {
	Model string `arg:"" optional:"" help:"A model: ${models}, some with arguments, such as mlp:128,32 (help models)."`
	File  string `short:"f" placeholder:"JOB.YAML" help:"Read the job from a file; flags override it."`
	jobFlags

	Topology  string `group:"Run" placeholder:"NAME" help:"Where parameters live (help topologies; default local, or allreduce for several workers)."`
	Workers   amount `short:"w" group:"Run" default:"1" placeholder:"N" help:"Workers that share the job (default 1, at most 256); --batch is then each worker's."`
	Processes bool   `group:"Run" help:"Give each worker a process of its own, in place of threads of this one."`
	ShipData  bool   `group:"Run" help:"Read the data here and send each worker its rows, in place of letting each open it."`

	topologyFlags
	serverFlags

	onFlags

	Threads         amount `group:"Run" placeholder:"N" help:"Threads of each worker (default: the cores, shared out evenly; one process alone takes as many as make its steps fastest)."`
	Out             string `group:"Run" default:"runs" placeholder:"DIR" help:"Where run directories go (default runs)."`
	Name            string `group:"Run" placeholder:"NAME" help:"Of the run directory; else time and model."`
	Resume          string `group:"Run" placeholder:"RUN" help:"Go on from the newest checkpoint of a run; by one worker, whatever the run had, unless --topology or --workers say otherwise."`
	Checkpoint      string `group:"Run" placeholder:"NAME" help:"With --resume: a checkpoint of the run; else the newest."`
	CheckpointEvery amount `group:"Run" placeholder:"N" help:"Write a checkpoint every N updates; else at the end of an epoch, at most every 5 s."`
	Restarts        amount `group:"Run" placeholder:"N" help:"Where a worker, a server or a machine is lost, go on from the newest checkpoint, else from the start, at most N times (default: it ends, with exit code 3)."`
	Listen          string `group:"Run" placeholder:"ADDR" help:"Serve /metrics for Prometheus there, such as 127.0.0.1:7077."`
	JSON            bool   `name:"json" group:"Output" help:"Print a JSON object a line."`
	Quiet           bool   `short:"q" group:"Output" help:"Print only what went wrong."`
}

func (v *trainVerb) Run(ctx context.Context, s *session) error {
	t := &training{
		typed: s.typed, out: v.Out, name: v.Name, threads: int(v.Threads), every: int64(v.CheckpointEvery), listen: v.Listen, restarts: int(v.Restarts),
		topology: v.Topology, workers: int(v.Workers), processes: v.Processes || v.On != "", ship: v.ShipData,
		tuned: v.optimizing(),
	}
	if v.OptimizerOn != "" {
		t.tuned = append(t.tuned, "--optimizer-on")
	}
	t.show = newProgress(s.out, v.JSON, v.Quiet, os.Getenv)
	var err error
	if v.Resume == "" {
		t.job, t.file, err = v.job(s)
	} else if err = misused(joinByLine(v.checkRun())); err == nil {
		err = v.goOn(ctx, s, t)
	}
	if err != nil {
		return err
	}
	if err := t.settle(); err != nil {
		return misused(err)
	}
	if err := v.configure(s, t); err != nil {
		return misused(err)
	}
	if err := v.serve(s, t, v.Compress); err != nil {
		return misused(err)
	}
	t.flags = append(v.args(), v.served()...)
	if v.On == "" || v.ShipData { // else the path is the machines', which may have it
		if instead := standIn(&t.job.Data); instead != "" {
			t.show.say("note", instead)
		}
	}
	if v.On != "" {
		return s.submit(ctx, t, v.onFlags)
	}
	return s.trainThrough(ctx, t)
}

// goOn makes t the rest of an earlier run. Only how long it trains can be changed.
func (v *trainVerb) goOn(ctx context.Context, s *session, t *training) error {
	r, err := s.findTrained(v.Out, v.Resume)
	if err != nil {
		return err
	}
	saved, name, err := loadCheckpoint(ctx, filepath.Join(r.Dir, checkpointsDir), v.Checkpoint)
	if err != nil {
		return takeEarlier(err)
	}
	job, file, err := v.goneOn(s, saved.Job)
	if err != nil {
		return misused(err)
	}
	var mistakes, errs []error
	for _, mistake := range each(job.Validate()) {
		mistakes = append(mistakes, file.at(mistake))
	}
	if len(mistakes) == 0 { // else what is wrong with a value says more than that it is another
		if errs, err = changes(saved.Job, job, file); err != nil {
			return err
		}
	}
	p := saved.Progress
	past := func(j *trivium.Job) bool {
		return j.Epochs > 0 && p.Epoch >= j.Epochs || j.Steps > 0 && p.Step >= j.Steps
	}
	ended := r.Result != nil && r.Result.ExitCode == Done // else it was killed or interrupted before its last evaluation, which is made up for
	if past(job) && (ended || v.Epochs != nil || v.Steps != nil || job.Epochs != saved.Job.Epochs || job.Steps != saved.Job.Steps) {
		state := "is finished after"
		if !past(saved.Job) {
			state = "has a checkpoint after"
		}
		more := fmt.Sprintf("--epochs %d", p.Epoch+1)
		if job.Steps > 0 && p.Step >= job.Steps {
			more = fmt.Sprintf("--steps %d", 2*p.Step)
		}
		errs = append(errs, fmt.Errorf("--resume: %s %s %d updates: to go on, give it more, such as %s", r.name(), state, p.Step, more))
	}
	if v.Model != "" && v.Model != saved.Job.Model {
		errs = append(errs, fmt.Errorf("--resume: %s is a checkpoint of %s, not of %s", name, saved.Job.Model, v.Model))
	}
	if err := s.checkOptimizer(job); err != nil {
		errs = append(errs, fmt.Errorf("--resume: %s: %w", name, err))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	errs = append(errs, mistakes...)
	_, stop := train.NewStopper(job.Stop)
	for _, mistake := range each(stop) {
		errs = append(errs, file.under("stop", mistake))
	}
	for _, mistake := range each(train.CheckWatched(job.Stop, s.metrics)) {
		errs = append(errs, file.under("stop.metric", mistake))
	}
	if err := errors.Join(errs...); err != nil {
		return misused(err)
	}
	t.job, t.resume, t.from, t.origin = job, saved, name, name
	if h := r.Head; v.Topology == "" && v.Workers == 1 && h.Strategy != alone {
		const text = "resumed by one worker; the run had %s of %s: to go on so, give --topology %[1]s --workers %[3]d"
		workers := max(1, h.Workers)
		t.show.say("note", fmt.Sprintf(text, h.Strategy, quantity.Count(workers, "worker"), workers))
	}
	return nil
}

// goneOn is the job of a run that goes on, under what the file and the flags say of it, and the file, if there is one.
func (v *trainVerb) goneOn(s *session, saved *trivium.Job) (*trivium.Job, *jobFile, error) {
	text, err := saved.Encode()
	if err != nil {
		return nil, nil, err
	}
	job, err := trivium.DecodeJob(text) // of its own: a file's parameters are put among the others
	if err != nil {
		return nil, nil, err
	}
	var file *jobFile
	if v.File != "" {
		if file, err = readJobFile(v.File, s.command, job, given{}); err != nil {
			return nil, nil, err
		}
		if job.Optimizer.Rate == 0 { // which stands for the optimizer's own
			job.Optimizer.Rate = saved.Optimizer.Rate
		}
	}
	flags := given{}
	v.apply(job, flags)
	if file != nil {
		file.flags = flags
		if v.Model != "" { // which is looked at by itself
			job.Model = saved.Model
		}
	}
	if v.Batch != nil {
		v.ofAll(job)
	}
	if job.Data.Source != saved.Data.Source { // as where the run began
		standIn(&job.Data)
	}
	return job, file, nil
}

// changes refuses what of a job cannot change where its run goes on. Flags and a file that say what it says already do not matter: the run's own
// command may be repeated.
func changes(from, to *trivium.Job, file *jobFile) (errs []error, err error) {
	var fields [2]map[string]any
	for i, job := range []*trivium.Job{from, to} {
		text, err := job.Encode()
		if err != nil {
			return nil, err
		}
		if fields[i], err = (rundir.Head{Configuration: text}).JobFields(); err != nil {
			return nil, err
		}
	}
	for _, d := range rundir.Diff(fields[0], fields[1]) {
		if d.Key != "epochs" && d.Key != "steps" && !strings.HasPrefix(d.Key, "stop.") {
			e := fmt.Errorf("--resume: %s stays %s; only epochs, steps and the early stop can be changed", d.Key, cmp.Or(d.A, "as it was"))
			if line, ok := file.line(d.Key); ok {
				e = fmt.Errorf("%s: line %d: %w", file.name, line, e)
			}
			errs = append(errs, e)
		}
	}
	return errs, nil
}

// standIns are generated data of the shape of well-known sets, which the manual's commands name.
var standIns = map[string]trivium.Data{
	"mnist":    {Source: "digits"},
	"mnist10k": {Source: "digits", Rows: 10_000, Train: "0:8000", Test: "8000:"},
	"a9a":      {Source: "adult", Rows: 32_561, Train: "0:26000", Test: "26000:"},
}

// standIn makes d generated data if it names one of the sets that the manual uses and that is not on this machine, and says so. Any
// other source that is not there is an error, when it is opened.
func standIn(d *trivium.Data) string {
	generated, ok := standIns[filepath.Base(d.Source)]
	if !ok || strings.Contains(d.Source, "://") {
		return ""
	}
	if _, err := os.Stat(d.Source); !errors.Is(err, os.ErrNotExist) {
		return ""
	}
	missing, as := d.Source, generated.Source
	d.Source, d.Format = generated.Source, ""
	switch {
	case d.Rows > 0: // as many as were asked for, with the generator's own rows to test on
		as += fmt.Sprintf(" --rows %d", d.Rows)
	case d.Train == "" && d.Valid == "" && d.Test == "":
		d.Rows, d.Train, d.Test = generated.Rows, generated.Train, generated.Test
	default:
		d.Rows = generated.Rows
	}
	return fmt.Sprintf("%s is not on this machine: generated data of its shape is used instead (--data %s)", missing, as)
}

// ofAll makes a worker's rows of an update, which --batch has, those of all, which a job has.
func (v *trainVerb) ofAll(job *trivium.Job) {
	if job.Batch > 0 && v.Workers > 1 {
		job.Batch *= int(v.Workers)
	}
}

// job puts the job together, with the file if there is one: the model's defaults, under the file, under the flags. It reports every mistake at once.
func (v *trainVerb) job(s *session) (*trivium.Job, *jobFile, error) {
	job := new(trivium.Job)
	g := given{}
	var file *jobFile
	var errs []error
	if v.File != "" {
		var err error
		if file, err = readJobFile(v.File, s.command, job, g); err != nil {
			errs = append(errs, each(err)...)
		}
	}
	flags := given{}
	put(flags, "model", &job.Model, notEmpty(v.Model), same)
	v.apply(job, flags)
	maps.Copy(g, flags)
	if file != nil {
		file.flags = flags
	}
	ofWorker := v.Batch != nil || !g["batch"]
	if v.Model == "" && !g["model"] {
		if len(errs) == 0 { // else what is wrong with the file comes first: it may name one
			errs = append(errs, fmt.Errorf("no model is named; try: %s train softmax", s.name))
		}
		job.Model = "?" // said already
	} else if err := s.checkModel(job.Model); err != nil {
		errs = append(errs, file.at(fmt.Errorf("job: model: %w", err)))
	} else if err := s.checkStandard(job.Model); err != nil {
		errs = append(errs, file.at(fmt.Errorf("job: model: %s: %w", job.Model, err)))
	}
	fillDefaults(job, g)
	if ofWorker {
		v.ofAll(job)
	}
	if job.Optimizer.Name == "adamw" && g["optimizer.decay"] && job.Optimizer.Decay == 0 { // which in a job is where nothing is said
		errs = append(errs, file.at(errors.New("job: optimizer.decay: adamw without decay is adam: name that, or leave decay out, for 0.01")))
	}
	if g["shards"] && job.Shards > 0 && !job.Exact { // else Validate says what is wrong with it
		errs = append(errs, file.at(errors.New("job: shards: it is of exact mode: ask for exact too, or leave it out")))
	}
	mistakes := file.news("", each(job.Validate()), nil)
	for _, mistake := range mistakes {
		errs = append(errs, file.at(mistake))
	}
	_, stop := train.NewStopper(job.Stop)
	for _, part := range []struct { // of which Validate leaves more to others: found before data is read or a process started
		section string
		err     error
	}{
		{"optimizer", s.optimizers.CheckSpec(job.Optimizer)},
		{"metrics", s.metrics.CheckNames(job.Metrics...)},
		{"stop", stop},
		{"stop.metric", train.CheckWatched(job.Stop, s.metrics)},
		{"data.class_weight", data.CheckClassWeights(job.Data.ClassWeight)},
	} {
		if part.section == "optimizer" && file != nil && file.wrong["optimizer.name"] { // which parameters there are, the name says
			continue
		}
		for _, mistake := range file.news(part.section, each(part.err), mistakes) {
			errs = append(errs, file.under(part.section, mistake))
		}
	}
	errs = append(errs, v.checkRun()...)
	if err := joinByLine(errs); err != nil {
		return nil, nil, misused(err)
	}
	return job, file, nil
}

// checkRun finds the mistakes in the flags that are not the job's.
func (v *trainVerb) checkRun() (errs []error) {
	if err := checkThreads(v.Threads); err != nil {
		errs = append(errs, err)
	}
	if v.Workers > cluster.MaxWorkers {
		errs = append(errs, fmt.Errorf("--workers: want at most %d, found %d", cluster.MaxWorkers, v.Workers))
	}
	if err := checkTopology(v.Topology); err != nil {
		errs = append(errs, err)
	}
	if v.Name == "last" {
		errs = append(errs, errors.New("--name: last means the newest run; choose another name"))
	} else if err := checkName(v.Name); err != nil {
		errs = append(errs, fmt.Errorf("--name: %w", err))
	} else if err := vacant(filepath.Join(v.Out, v.Name)); v.Name != "" && err != nil {
		errs = append(errs, fmt.Errorf("--name: %w: choose another name", err))
	}
	if err := v.checkRestarts(); err != nil {
		errs = append(errs, err)
	}
	if v.Checkpoint != "" && v.Resume == "" {
		errs = append(errs, errors.New("--checkpoint: it is one of the run that --resume names"))
	}
	if v.On == "" && v.Token != "" {
		errs = append(errs, errors.New("--token: it is a cluster's; name its coordinator with --on"))
	}
	if v.On != "" && v.Listen != "" {
		errs = append(errs, errors.New("--listen: a job of a cluster (--on) serves no /metrics; its run directory has what was measured"))
	}
	if v.On != "" && v.JSON {
		errs = append(errs, errors.New("--json: with --on the coordinator prints, in lines"))
	}
	return errs
}

// maxThreads is more than any machine has cores: each takes memory, needed or not.
const maxThreads = 1 << 12

func checkThreads(n amount) error {
	if n > maxThreads {
		return fmt.Errorf("--threads: want at most %d, found %d", maxThreads, n)
	}
	return nil
}

// checkName refuses the name of a run that would be more than a folder beside the other runs.
func checkName(name string) error {
	if name != "" && (name == "." || name == ".." || strings.ContainsAny(name, `/\`)) {
		return fmt.Errorf("want the name of a folder, without its path, found %q", name)
	}
	if strings.ContainsFunc(name, unicode.IsControl) { // lists have a line for each run
		return fmt.Errorf("want a name that can be printed, found %q", name)
	}
	return nil
}

// vacant says why dir cannot become a run directory: what lies there is somebody's.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	return nil // where it cannot be read for another reason, making it fails likewise
}

func notEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
