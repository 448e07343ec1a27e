package compare

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
	report.Sittings, report.LinkSpeeds = r.dir.record.Sittings, r.dir.record.LinkSpeeds
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
	p.Repeats = d.record.Repeats // of what is begun, where the plan leaves it open
	r.groups = p.groups()
	r.total = len(r.cells()) * p.Repeats
	for _, without := range []string{p.untouched(r.groups), p.unprogrammed()} {
		if without != "" {
			p.Watch.Note(without)
		}
	}
	if err := r.openFaults(); err != nil {
		return nil, err
	}
	if err := r.foresee(ctx); err != nil {
		return nil, err
	}
	if p.open && len(r.finished) == 0 {
		if err := r.settle(); err != nil {
			return nil, err
		}
	}
	p.Watch.Note(r.forecast().brief())
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
	cut        map[string]bool   // by cell: a trial ended at the time limit, short of the target
	refused    map[string]Result // by cell: what a trial came to whose job the row does not take
	dealt      []Fault           // of this process and earlier ones
	spent      time.Duration     // on trials of this process
	planned    time.Duration     // what was foreseen of them

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
	r.done, r.cut, r.refused = map[trialOf]bool{}, map[string]bool{}, map[string]Result{}
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
		if result.Refused {
			result.Wall = nil // that of a trial, and there is no other
			r.refused[c.ID()] = result
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
