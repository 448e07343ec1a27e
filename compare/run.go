package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Run carries out p and returns its report, which is also in its directory. When ctx ends, what is finished stays, and the same plan goes
// on from there. A system that is absent, or whose trials fail, is a row that says so, and no error.
func Run(ctx context.Context, p Plan) (_ *Report, err error) {
	p.defaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	d, err := p.openDirectory()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r := &runner{plan: &p, dir: d}
	defer r.close()
	if err := r.detect(ctx); err != nil {
		return nil, err
	}
	r.joinNetwork()
	if err := d.save(); err != nil {
		return nil, err
	}
	r.groups = p.groups()
	for i := range r.groups {
		r.total += len(r.groups[i].cells) * p.Repeats
	}
	if p.Full {
		each := time.Duration((p.Seconds + p.WarmUp + 4) * float64(time.Second))
		p.Watch.Note(fmt.Sprintf("%d trials, at the least about %v in all; it may be interrupted at any time", r.total, (each * time.Duration(r.total)).Round(time.Minute)))
	}
	report := newReport(&p, &d.record)
	for i := range r.groups {
		if err := r.table(ctx, report, &r.groups[i]); err != nil {
			return nil, err
		}
	}
	report.finish(ctx, &p)
	return report, report.Write(p.Dir)
}

// A runner is a plan under way.
type runner struct {
	plan   *Plan
	dir    *directory
	groups []group
	done   int
	fresh  int           // trials of this process
	spent  time.Duration // on them
	total  int

	absent map[string]error
	spaces map[Link]*spaces
	eval   *evaluator
	evalOf string
}

func (r *runner) close() {
	for _, s := range r.spaces {
		s.close()
	}
	if r.eval != nil {
		r.eval.close()
	}
}

// detect looks which systems are here.
func (r *runner) detect(ctx context.Context) error {
	r.absent = map[string]error{}
	for _, s := range r.plan.Systems {
		facts, err := s.Detect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.absent[s.Name()] = err
			r.dir.record.Absent[s.Name()] = err.Error()
			continue
		}
		delete(r.dir.record.Absent, s.Name())
		r.dir.record.Facts[s.Name()] = facts
	}
	return nil
}

// joinNetwork decides, before the first trial, how processes reach each other, and says so.
func (r *runner) joinNetwork() {
	r.spaces = map[Link]*spaces{}
	note := func(text string) {
		r.plan.Watch.Note(text)
		if !slices.Contains(r.dir.record.Notes, text) {
			r.dir.record.Notes = append(r.dir.record.Notes, text)
		}
	}
	if r.plan.Host.Launcher != nil {
		return
	}
	most := slices.Max(r.plan.Workers)
	for _, s := range r.plan.Systems {
		most = max(most, slices.Max(r.plan.Workers)+s.About().Server+1) // a peer may have a scheduler
	}
	if r.plan.Full { // its cells have 5 workers
		most = max(most, 8)
	}
	probe, err := newSpaces(Link{Apart: true}, most)
	if err != nil {
		note(fmt.Sprintf("network: not measured, and links are not shaped: %v; processes talk over the loopback of this machine", err))
		return
	}
	r.spaces[Link{Apart: true}] = probe
	for i, l := range r.plan.Links {
		if l.Mbit == 0 {
			r.plan.Links[i].Apart = true
		}
	}
}

// space returns the namespaces of a link; nil: there are none.
func (r *runner) space(link Link) (*spaces, error) {
	if !link.Apart && link.Mbit == 0 {
		return nil, nil
	}
	link.Apart = true
	if s, ok := r.spaces[link]; ok {
		return s, nil
	}
	one, ok := r.spaces[Link{Apart: true}]
	if !ok {
		return nil, errors.New("not measured: network namespaces are not permitted here, so the link cannot be shaped")
	}
	s, err := newSpaces(link, len(one.list))
	if err == nil {
		r.spaces[link] = s
	}
	return s, err
}

// table measures one table: its rows in turns, repeat after repeat.
func (r *runner) table(ctx context.Context, report *Report, g *group) error {
	t := report.table(g, r.plan)
	for repeat := 1; repeat <= r.plan.Repeats; repeat++ {
		for i, c := range g.cells {
			system := r.plan.Systems[c.index]
			result, known, err := r.dir.load(c, repeat)
			if err != nil {
				return err
			}
			if !known {
				if gone := r.absent[c.System]; gone != nil {
					t.Rows[i].Error = gone.Error()
					r.done++
					continue
				}
				began := r.plan.now()
				if result, err = r.trial(ctx, g, c, system, repeat); err != nil {
					return err
				}
				r.fresh++
				r.spent += r.plan.now().Sub(began)
			}
			r.done++
			t.add(i, repeat, result)
			r.plan.Watch.Trialed(Trialed{c, repeat, result}, *t)
		}
	}
	if r.eval != nil && r.evalOf == g.task.Name {
		batch := effective(&g.task, g.batch, g.work)
		if ref, ok := r.eval.known[fmt.Sprintf("%d %v", batch, g.task.Target)]; ok {
			t.Reference = ref.Updates
		}
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
	e, err := openEvaluator(ctx, t, r.plan.Host)
	if err != nil {
		return nil, err
	}
	r.eval, r.evalOf = e, t.Name
	return e, r.room(e)
}

// trial runs one trial and keeps its result. An error ends the plan: that of ctx, or of this machine; what a system does wrong is in
// the result.
func (r *runner) trial(ctx context.Context, g *group, c Cell, system System, repeat int) (Result, error) {
	status := Status{Cell: c, Repeat: repeat, Done: r.done, Total: r.total, Phase: "prepare", Left: r.left()}
	r.plan.Watch.Status(status)
	e, err := r.evaluator(ctx, g.task)
	if err != nil {
		return Result{}, err
	}
	spec, ref, err := r.spec(ctx, e, g, c, system)
	if err != nil {
		return Result{}, err
	}
	if spec.OutDir, err = r.dir.begin(c, repeat); err != nil {
		return Result{}, err
	}
	var result Result
	space, err := r.space(c.Link)
	if err != nil {
		result.Error = err.Error()
	} else {
		spec.spaces = space
		pause := time.Second
		if r.plan.Quick {
			pause = 100 * time.Millisecond
		}
		flag := ""
		if r.plan.Host.Launcher == nil {
			flag = quiet(pause, max(1, len(r.plan.Cores)), time.Sleep)
		}
		var keep []Event
		result, keep = r.measure(ctx, system, spec, status)
		if flag != "" {
			result.Flags = append(result.Flags, flag)
		}
		if err := ctx.Err(); err != nil {
			return result, err
		}
		if result.Error == "" {
			status.Phase = "evaluate"
			r.plan.Watch.Status(status)
			if err := r.judge(ctx, e, g, system, spec, ref, &result, keep); err != nil {
				return result, err
			}
		}
		if err := tidy(spec.OutDir, keep, repeat, proofs(spec.Snapshots)); err != nil {
			return result, err
		}
	}
	return result, r.dir.finish(spec.OutDir, c, repeat, result)
}

// tidy removes the parameters that nobody asks for any more: those of the proof stay, of the first repeat.
func tidy(dir string, keep []Event, repeat int, proof []int64) error {
	var errs []error
	for _, k := range keep {
		if repeat != 1 || !slices.Contains(proof, k.Update) {
			errs = append(errs, os.Remove(k.Path))
			continue
		}
		if to := filepath.Join(dir, snapshotName(k.Update)); k.Path != to { // a peer's are in folders of its processes
			errs = append(errs, os.Rename(k.Path, to))
		}
	}
	return errors.Join(errs...)
}

// left is how long the rest takes, at the pace so far.
func (r *runner) left() time.Duration {
	if r.fresh == 0 {
		return -1
	}
	return r.spent / time.Duration(r.fresh) * time.Duration(r.total-r.done)
}

// spec says what a trial is to do: to the target as local reaches it, an epoch more, and as long as the rule has it. Rows that take
// another way get twice as much.
func (r *runner) spec(ctx context.Context, e *evaluator, g *group, c Cell, system System) (Spec, *reference, error) {
	a := system.About()
	s := Spec{
		Task: g.task, Workers: c.Workers, Servers: c.Servers, Threads: 1, Batch: g.batch, Mode: a.Mode, Cores: r.plan.Cores, Link: c.Link,
		Seconds: r.plan.Seconds, WarmUp: r.plan.WarmUp, limit: r.plan.Limit, rows: e.rows(), classes: e.splits.Schema().Labels.Width,
	}
	if in := e.splits.Schema().Inputs; len(in) == 1 {
		s.inputs = in[0].Columns()
	}
	batch := s.Effective()
	if batch > 0 && int64(batch) > e.rows() {
		return s, nil, fmt.Errorf("compare: %s: an update of %d rows, and there are %d: name fewer workers, or a smaller batch", c.Task, batch, e.rows())
	}
	ref, err := e.refer(ctx, g.task, batch)
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
		if c := int64(o.clocks); c > 0 { // an update is what lies between two clocks
			batch = int((e.rows() + c - 1) / c)
			last = c * int64(g.task.Cap)
		}
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

// prepare writes what peers read, once a task.
func (r *runner) prepare(ctx context.Context, e *evaluator) (dir, init string, err error) {
	if dir, err = filepath.Abs(filepath.Join(r.dir.path, "data", e.task.Name)); err != nil {
		return "", "", err
	}
	if err := prepare(ctx, e, dir); err != nil {
		return "", "", err
	}
	init = filepath.Join(dir, "init.safetensors")
	return dir, init, e.writeInit(init)
}

// measure starts the row's processes and follows them to their end.
func (r *runner) measure(ctx context.Context, system System, spec Spec, status Status) (result Result, keep []Event) {
	began := r.plan.now()
	t, err := system.Start(ctx, spec)
	if err != nil {
		result.Error, result.Last = why(err)
		return result, nil
	}
	sampler := newSampler(t)
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
			result.StartSeconds = e.Seconds
			status.Phase = "warm up"
		case Begin:
			sampler.begin()
			status.Phase = "train"
		case Updated:
			if e.Seconds > 0 && e.Samples > 0 {
				status.Rate = float64(e.Samples) / e.Seconds
			}
		case End:
			sampler.end()
		case Snapshot:
			keep = append(keep, e)
		case Finished:
			finished = true
			result.Updates, result.Samples, result.Seconds = e.Update, e.Samples, e.Seconds
			result.Phases, result.Staleness = e.Phases, e.Stale
			if e.Seconds > 0 {
				result.SamplesPerSec = float64(e.Samples) / e.Seconds
			}
		}
		status.Elapsed = r.plan.now().Sub(began)
		r.plan.Watch.Status(status)
	}
	sampler.close()
	if err := t.Stop(context.WithoutCancel(ctx)); err != nil && result.Error == "" {
		result.Flags = append(result.Flags, "not all of it was put away: "+err.Error())
	}
	if !finished && result.Error == "" {
		result.Error = "it ended without a result"
	}
	result.PerRole = sampler.use()
	result.Flags = append(result.Flags, sampler.flags(max(1, len(r.plan.Cores)))...)
	return result, keep
}
