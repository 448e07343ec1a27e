package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Run carries out p and returns its report, which is also in its directory. When ctx ends, what is finished stays, and the same plan goes
// on from there. A system that is absent, or whose trials fail, is a row that says so, and no error.
func Run(ctx context.Context, p Plan) (_ *Report, err error) {
	r, err := begin(ctx, &p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(fullDisk(p.Dir, err, nil), r.close()) }()
	if r.forecast().Trials > 0 {
		if err := r.dir.unfinish(); err != nil {
			return nil, err
		}
	}
	if err := r.dir.save(); err != nil {
		return nil, err
	}
	report := newReport(&p, &r.dir.record)
	if err := r.tables(ctx, report); err != nil {
		return nil, err
	}
	if err := r.faults(ctx, report); err != nil {
		return nil, err
	}
	report.Sittings = r.dir.record.Sittings
	report.finish(ctx, &p)
	if err := ctx.Err(); err != nil { // the check was not let finish: who goes on makes the report
		return nil, err
	}
	if err := report.Write(p.Dir); err != nil {
		return nil, err
	}
	return report, nil
}

// Foresee says how long Run would take, and measures nothing but how long local takes to the targets.
func Foresee(ctx context.Context, p Plan) (_ Forecast, err error) {
	r, err := begin(ctx, &p)
	if err != nil {
		return Forecast{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	return r.forecast(), nil
}

// begin makes everything ready for the first trial.
func begin(ctx context.Context, p *Plan) (_ *runner, err error) {
	p.defaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	defer func() { err = fullDisk(p.Dir, err, nil) }()
	d, err := p.openDirectory()
	if err != nil {
		return nil, err
	}
	if d.fresh {
		if other := p.stranded(); other != "" {
			p.Watch.Note(other)
		}
	}
	r := &runner{plan: p, dir: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := r.detect(ctx); err != nil {
		return nil, err
	}
	r.joinNetwork(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	by := "the loopback"
	if len(r.spaces) > 0 {
		by = "namespaces of their own"
	}
	if err := d.reach(by); err != nil {
		return nil, err
	}
	r.groups = p.groups()
	r.total = len(r.cells()) * p.Repeats
	if err := r.foresee(ctx); err != nil {
		return nil, err
	}
	if f := r.forecast(); f.Trials > 0 {
		p.Watch.Note(f.brief())
	}
	return r, nil
}

// A runner is a plan under way.
type runner struct {
	plan   *Plan
	dir    *directory
	groups []group
	done   map[trialOf]bool
	total  int

	sitting    int                      // of this process; 0: it has not measured yet
	references map[string]reference     // by task, batch and target
	foreseen   map[string]time.Duration // of a trial, by cell
	measured   map[string]bool          // by cell: foreseen is what one took
	finished   map[trialOf]bool
	cut        map[string]bool // by cell: a trial ended at the time limit, short of the target
	spent      time.Duration   // on trials of this process
	planned    time.Duration   // what was foreseen of them

	absent map[string]error
	spaces map[Link]*spaces
	eval   *evaluator
	evalOf string
}

func (r *runner) close() error {
	for _, s := range r.spaces {
		s.close()
	}
	if r.eval != nil {
		r.eval.close()
	}
	return r.dir.close()
}

// detect looks which systems are here.
func (r *runner) detect(ctx context.Context) error {
	r.absent = map[string]error{}
	facts, errs := r.ask(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var mixed []string
	for i, s := range r.plan.Systems {
		if errs[i] != nil {
			r.absent[s.Name()] = errs[i]
			r.dir.record.Absent[s.Name()] = errs[i].Error()
			continue
		}
		if why := r.dir.changed(s.Name(), facts[i]); why != "" {
			mixed = append(mixed, why)
		}
		delete(r.dir.record.Absent, s.Name())
		r.dir.record.Facts[s.Name()] = facts[i]
	}
	if len(mixed) > 0 {
		return &MixedError{r.dir.path, mixed}
	}
	return nil
}

// ask asks all systems which version is here: other systems side by side, one on each core, since a processor takes seconds to import some
// libraries. The rows of one share what it answers.
func (r *runner) ask(ctx context.Context) (facts []Facts, errs []error) {
	facts, errs = make([]Facts, len(r.plan.Systems)), make([]error, len(r.plan.Systems))
	rows := map[*peerSpec][]int{} // nil: those that are no peer's
	for i, s := range r.plan.Systems {
		var of *peerSpec
		if p, ok := s.(*peer); ok {
			of = p.peerSpec
		}
		rows[of] = append(rows[of], i)
	}
	var wait sync.WaitGroup
	var telling sync.Mutex
	cores := make(chan struct{}, max(1, len(r.plan.Cores)))
	for _, list := range rows {
		wait.Go(func() {
			cores <- struct{}{}
			defer func() { <-cores }()
			for _, i := range list {
				s := r.plan.Systems[i]
				telling.Lock()
				r.plan.Watch.Status(Status{Cell: Cell{System: s.Name()}, Phase: "ask which version is here", Left: -1})
				telling.Unlock()
				facts[i], errs[i] = s.Detect(ctx)
			}
		})
	}
	wait.Wait()
	return facts, errs
}

// A trialOf names a trial: tables that ask for the same one share it.
type trialOf struct {
	cell   string
	repeat int
}

// tables measures all tables. Each repeat goes through all of them, task after task, before the next one begins: rows that are compared are
// measured in turns, also where two tables share one; what the machine does in an hour falls on all of them; and a plan that is given up
// in the middle of some hours has all its tables, of fewer repeats.
func (r *runner) tables(ctx context.Context, report *Report) error {
	r.done, r.cut = map[trialOf]bool{}, map[string]bool{}
	made := make([]*Table, len(r.groups))
	for i := range r.groups {
		made[i] = report.table(&r.groups[i], r.plan)
	}
	for repeat := 1; repeat <= r.plan.Repeats; repeat++ {
		for _, list := range r.byTask() {
			for _, i := range list {
				if err := r.round(ctx, &r.groups[i], made[i], repeat); err != nil {
					return err
				}
			}
		}
	}
	for i := range r.groups {
		g := &r.groups[i]
		ref := r.references[referenceKey(&g.task, effective(&g.task, g.batch, g.work))]
		made[i].Reference, made[i].Checksum = ref.Updates, ref.Checksum
	}
	return nil
}

// byTask are the groups of each task, whose data is then read once a repeat.
func (r *runner) byTask() (list [][]int) {
	for _, t := range r.plan.Tasks {
		var of []int
		for i := range r.groups {
			if r.groups[i].task.Name == t.Name {
				of = append(of, i)
			}
		}
		list = append(list, of)
	}
	return list
}

// cells are those of all tables, each once.
func (r *runner) cells() (list []Cell) {
	seen := map[string]bool{}
	for i := range r.groups {
		for _, c := range r.groups[i].cells {
			if !seen[c.ID()] {
				seen[c.ID()] = true
				list = append(list, c)
			}
		}
	}
	return list
}

// round measures the rows of a table once.
func (r *runner) round(ctx context.Context, g *group, t *Table, repeat int) error {
	for i, c := range g.cells {
		result, known, err := r.dir.load(c, repeat)
		if err != nil {
			return err
		}
		if !known {
			if gone := r.absent[c.System]; gone != nil {
				t.Rows[i].Error = gone.Error()
				r.done[trialOf{c.ID(), repeat}] = true
				continue
			}
			began := r.plan.now()
			if result, err = r.trial(ctx, g, c, r.plan.Systems[c.index], repeat); err != nil {
				return err
			}
			r.took(c, r.plan.now().Sub(began))
		}
		r.done[trialOf{c.ID(), repeat}] = true
		r.finished[trialOf{c.ID(), repeat}] = true
		if result.Cut && !result.Reached {
			r.cut[c.ID()] = true
		}
		t.add(i, repeat, result)
		r.plan.Watch.Trialed(Trialed{c, repeat, result}, *t)
	}
	return nil
}

// evaluator opens the data of a task, and makes sure that the machine can hold the row's processes.
func (r *runner) evaluator(ctx context.Context, t Task) (*evaluator, error) {
	if r.eval != nil && r.evalOf == t.Name {
		return r.eval, nil
	}
	if r.eval != nil {
		r.eval.close()
		r.eval = nil
	}
	var err error
	if t.Job.Data, err = drawn(ctx, t.Job.Data, filepath.Join(r.dir.path, dataDir)); err != nil {
		return nil, err
	}
	e, err := openEvaluator(ctx, t, r.plan.Host)
	if err != nil {
		return nil, err
	}
	if why := r.otherData(e); why != "" {
		e.close()
		return nil, &MixedError{r.dir.path, []string{why}}
	}
	r.eval, r.evalOf = e, t.Name
	return e, r.room(e)
}

// otherData says that the task's data is not what earlier trials trained on: a file may have been changed under its name. Empty: it is, or
// there are none.
func (r *runner) otherData(e *evaluator) string {
	for key, ref := range r.references {
		if strings.HasPrefix(key, e.task.Name+" ") && ref.Checksum != e.splits.Checksum {
			return fmt.Sprintf("the data of %s has the checksum %s, and had %s", e.task.Name, e.splits.Checksum, ref.Checksum)
		}
	}
	return ""
}

// trial runs one trial and keeps its result. An error ends the plan: that of ctx, or of this machine; what a system does wrong is in
// the result.
func (r *runner) trial(ctx context.Context, g *group, c Cell, system System, repeat int) (Result, error) {
	status := Status{Cell: c, Repeat: repeat, Done: len(r.done), Total: r.total, Phase: "prepare", Left: r.left()}
	lap := laps{now: r.plan.now, last: r.plan.now(), sum: map[string]float64{}}
	r.plan.Watch.Status(status)
	e, err := r.evaluator(ctx, g.task)
	if err != nil {
		return Result{}, err
	}
	spec, ref, err := r.spec(ctx, e, g, c, system)
	if err != nil {
		return Result{}, err
	}
	if r.cut[c.ID()] {
		if err := r.speedAlone(ctx, e, g, system, &spec, ref); err != nil {
			return Result{}, err
		}
	}
	if spec.OutDir, err = r.dir.begin(c, repeat); err != nil {
		return Result{}, err
	}
	var result Result
	sitting, err := r.sit()
	if err != nil {
		return Result{}, err
	}
	space, err := r.space(ctx, c.Link)
	if ctx.Err() != nil { // which is no failure of the row
		return Result{}, ctx.Err()
	}
	if err != nil {
		result.Error = err.Error()
	} else {
		spec.spaces = space
		pause := quietPause
		if r.plan.Quick {
			pause = quickPause
		}
		flag := ""
		if r.plan.Host.Launcher == nil {
			flag = quiet(pause, r.plan.Cores, time.Sleep)
		}
		lap.end("prepare")
		var keep []Event
		result, keep = r.measure(ctx, system, spec, status, &lap)
		if flag != "" {
			result.Flags = append(result.Flags, flag)
		}
		if err := errors.Join(ctx.Err(), fullDisk(r.dir.path, nil, &result)); err != nil {
			return result, err
		}
		if result.Error == "" {
			status.Phase = "evaluate"
			r.plan.Watch.Status(status)
			if err := r.judge(ctx, e, g, system, spec, ref, repeat, &result, keep); err != nil {
				return result, err
			}
		}
		if err := tidy(spec.OutDir, keep, repeat, proofs(spec.Snapshots)); err != nil {
			return result, err
		}
		lap.end("evaluate")
		result.Wall = lap.sum
	}
	result.Sitting = sitting
	return result, r.dir.finish(spec.OutDir, c, repeat, result)
}

// How long the machine is watched before a trial, for what else it does.
const (
	quietPause = time.Second
	quickPause = 100 * time.Millisecond
)

// laps divide the time of a trial.
type laps struct {
	now  func() time.Time
	last time.Time
	sum  map[string]float64
}

func (l *laps) end(name string) {
	now := l.now()
	l.sum[name] += now.Sub(l.last).Seconds()
	l.last = now
}

// tidy removes the parameters that nobody asks for any more: those of the proof stay, of the first repeat, also after the machine lost its
// power.
func tidy(dir string, keep []Event, repeat int, proof []int64) error {
	var errs []error
	for _, k := range keep {
		if repeat != 1 || !slices.Contains(proof, k.Update) {
			if err := os.Remove(k.Path); !errors.Is(err, fs.ErrNotExist) { // a file that a system only spoke of is its failure, see judge
				errs = append(errs, err)
			}
			continue
		}
		err := synchronise(k.Path)
		if errors.Is(err, fs.ErrNotExist) { // likewise
			continue
		}
		to := filepath.Join(dir, snapshotName(k.Update)) // a peer's are in folders of its processes
		errs = append(errs, err, os.Rename(k.Path, to))
	}
	return errors.Join(errs...)
}

// spec says what a trial is to do: to the target as local reaches it, an epoch more, and as long as the rule has it. Rows that take
// another way get twice as much.
func (r *runner) spec(ctx context.Context, e *evaluator, g *group, c Cell, system System) (Spec, *reference, error) {
	a := system.About()
	s := Spec{
		Task: g.task, Workers: c.Workers, Servers: c.Servers, Threads: 1, Batch: g.batch, Mode: a.Mode, Cores: r.plan.Cores, Link: c.Link,
		Seconds: r.plan.Seconds, WarmUp: r.plan.WarmUp, limit: r.plan.Limit, rows: e.rows(), classes: e.splits.Schema().Labels.Width,
	}
	s.Task.Job.Data = e.task.Job.Data // where the processes find it
	if in := e.splits.Schema().Inputs; len(in) == 1 {
		s.inputs = in[0].Columns()
	}
	batch := s.Effective()
	if batch > 0 && int64(batch) > e.rows() {
		return s, nil, fmt.Errorf("compare: %s: an update of %d rows, and there are %d: name fewer workers, or a smaller batch", c.Task, batch, e.rows())
	}
	ref, err := r.reference(ctx, e, &g.task, batch)
	if err != nil {
		return s, nil, err
	}
	epoch := e.perEpoch(batch)
	last := ref.Updates + epoch
	if !a.Exact() {
		last += ref.Updates
	}
	last = min(last, epoch*int64(g.task.Cap))
	var every int64
	if o, ok := system.(*own); ok {
		every = o.every()
	}
	if c := int64(a.Clocks); c > 0 { // an update is what lies between two clocks
		batch = int((e.rows() + c - 1) / c)
		last = c * int64(g.task.Cap)
	}
	s.Updates = last
	s.Snapshots = e.places(batch, last, every, r.plan.Most)
	if a.Exact() { // where local reached it, a row that computes the same does too
		s.Snapshots = with(s.Snapshots, ref.Updates)
	}
	if a.Peer {
		if s.DataDir, s.InitPath, err = r.prepare(ctx, e); err != nil {
			return s, nil, err
		}
	}
	if a.Exact() {
		if err := e.losses(ctx, g.task, &ref, proofs(s.Snapshots)); err != nil {
			return s, nil, err
		}
	}
	return s, &ref, nil
}

// speedAlone shortens a trial of a row that has been to the time limit once and did not meet the target: another would say so again. Its
// speed is measured for as long as the rule has it, and the first of its places is proven.
func (r *runner) speedAlone(ctx context.Context, e *evaluator, g *group, system System, s *Spec, ref *reference) error {
	s.Updates = 1
	if len(s.Snapshots) > 0 {
		s.Updates, s.Snapshots = s.Snapshots[0], s.Snapshots[:1]
	}
	if !system.About().Exact() {
		return nil
	}
	return e.losses(ctx, g.task, ref, s.Snapshots)
}

// prepare writes what peers read, once a task.
func (r *runner) prepare(ctx context.Context, e *evaluator) (dir, init string, err error) {
	if dir, err = filepath.Abs(filepath.Join(r.dir.path, dataDir, e.task.Name)); err != nil {
		return "", "", err
	}
	if err := prepare(ctx, e, dir); err != nil {
		return "", "", err
	}
	init = filepath.Join(dir, "init.safetensors")
	return dir, init, e.writeInit(init)
}

// measure starts the row's processes and follows them to their end.
func (r *runner) measure(ctx context.Context, system System, spec Spec, status Status, lap *laps) (result Result, keep []Event) {
	began := r.plan.now()
	t, err := system.Start(ctx, spec)
	if err != nil {
		result.Error, result.Last = why(err)
		return result, nil
	}
	sampler := newSampler(t, r.plan.Cores)
	finished := false
	status.Phase = "start"
	r.plan.Watch.Status(status)
	for e, err := range t.Events() {
		if err != nil {
			result.Error, result.Last = why(err)
			break
		}
		switch e.Kind {
		case Ready:
			lap.end("start")
			result.StartSeconds = e.Seconds
			status.Phase = "warm up"
		case Begin:
			sampler.begin()
			lap.end("warm up")
			status.Phase = "train"
		case Updated:
			if e.Seconds > 0 && e.Samples > 0 {
				status.Rate = float64(e.Samples) / e.Seconds
			}
		case End:
			sampler.end()
			lap.end("train")
		case Snapshot:
			keep = append(keep, e)
		case Finished:
			finished = true
			result.Updates, result.Samples, result.Seconds = e.Update, e.Samples, e.Seconds
			result.Phases, result.Staleness = e.Phases, e.Stale
			if e.Seconds > 0 {
				result.SamplesPerSec = float64(e.Samples) / e.Seconds
			}
			result.Cut = e.Update < spec.Updates
		}
		status.Elapsed = r.plan.now().Sub(began)
		r.plan.Watch.Status(status)
	}
	sampler.close()
	if err := t.Stop(context.WithoutCancel(ctx)); err != nil && result.Error == "" {
		result.Flags = append(result.Flags, "not all of it was put away: "+err.Error())
	}
	lap.end("stop")
	if !finished && result.Error == "" {
		result.Error = "it ended without a result"
	}
	result.PerRole = sampler.use()
	result.Flags = append(result.Flags, sampler.flags()...)
	return result, keep
}
