package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// trial runs one trial and keeps its result. An error ends the plan: that of ctx, or of this machine; what a system does wrong is in
// the result.
func (r *runner) trial(ctx context.Context, g *group, c Cell, system System, repeat int) (Result, error) {
	status := Status{Cell: c, Repeat: repeat, Done: len(r.done), Total: r.total, Phase: "prepare", Left: r.left()}
	lap := laps{now: r.plan.now, last: r.plan.now(), sum: map[string]float64{}}
	r.plan.Watch.Status(status)
	if result, ok := r.refused[c.ID()]; ok { // another trial would say so again
		return result, r.again(c, repeat, result)
	}
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
	if err == nil {
		if err := r.measureLink(ctx, space); err != nil {
			return Result{}, err
		}
	}
	if err != nil {
		result.Error = err.Error()
	} else {
		spec.spaces = space
		flag := ""
		if r.plan.Host.Launcher == nil {
			flag = quiet(r.plan.pause(), r.plan.Cores, time.Sleep)
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

// again keeps what an earlier repeat came to as that of a repeat which is not measured.
func (r *runner) again(c Cell, repeat int, result Result) error {
	sitting, err := r.sit()
	if err != nil {
		return err
	}
	dir, err := r.dir.begin(c, repeat)
	if err != nil {
		return err
	}
	result.Sitting = sitting
	return r.dir.finish(dir, c, repeat, result)
}

// reserve is by how much a trial of ours is longer than it must be at the speed of the warm-up's end: it cannot go on, as other systems' do. Of
// 369 trials of a full run 72 became 1.05 to 1.36 times as fast, and one 1.56 times. A quick comparison has three minutes, and no other system.
func (p *Plan) reserve() float64 {
	if p.Quick {
		return 1.05
	}
	return 1.5
}

// pause is how long the machine is watched before a trial, for what else it does: of a second, the share that a trial is of one of the full run.
func (p *Plan) pause() time.Duration {
	if p.Quick {
		return leastPause
	}
	return min(max(time.Duration(p.Seconds/fullSeconds*float64(time.Second)), leastPause), time.Second)
}

const leastPause = 100 * time.Millisecond // clock ticks are of 10

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

// tidy removes what nobody asks for any more: parameters, but for those of the proof of the first repeat, which stay also where the machine
// loses its power; and the folders of a system's processes.
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
	entries, err := os.ReadDir(dir)
	for _, x := range entries {
		if x.IsDir() {
			_ = os.RemoveAll(filepath.Join(dir, x.Name())) // else what a process that got away still writes there stays
		}
	}
	return errors.Join(append(errs, err)...)
}

// spec says what a trial is to do: to the target as local reaches it, an epoch more, and as long as the rule has it. Rows that take
// another way get twice as much.
func (r *runner) spec(ctx context.Context, e *evaluator, g *group, c Cell, system System) (Spec, *reference, error) {
	a := system.About()
	s := Spec{
		Task: g.task, Workers: c.Workers, Servers: c.Servers, Threads: 1, Batch: g.batch, Mode: a.Mode, Cores: r.plan.Cores, Link: c.Link,
		Seconds: r.plan.Seconds, reserve: r.plan.reserve(), WarmUp: r.plan.WarmUp, limit: r.plan.Limit, rows: e.rows(), classes: e.splits.Schema().Labels.Width,
	}
	s.Task.Job.Data = e.task.Job.Data // where the processes find it
	if in := e.splits.Schema().Inputs; len(in) == 1 {
		s.input = in[0]
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
	last = min(last, g.task.within(epoch))
	var every int64
	if o, ok := system.(*own); ok {
		every = o.every()
	}
	if c := int64(a.Clocks); c > 0 { // an update is what lies between two clocks
		batch = perClock(e.rows(), c)
		last = g.task.within(c)
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
		result.Error, result.Last, result.Refused = why(err)
		return result, nil
	}
	sampler := newSampler(t, r.plan.Cores)
	finished := false
	status.Phase = "start"
	r.plan.Watch.Status(status)
	for e, err := range t.Events() {
		if err != nil {
			result.Error, result.Last, result.Refused = why(err)
			break
		}
		switch e.Kind {
		case Ready:
			sampler.warmUp.begin(t.Processes())
			lap.end("start")
			result.StartSeconds = e.Seconds
			status.Phase = "warm up"
		case Warmed:
			sampler.warmUp.end()
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
			sampler.warmUp.updates = e.Warm
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
	result.PerRole, result.Window = sampler.use(), sampler.window()
	result.Flags = append(result.Flags, sampler.flags()...)
	return result, keep
}
