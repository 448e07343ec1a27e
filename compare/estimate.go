package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
)

// What a trial takes beside its measuring, in seconds, and an update beside its arithmetic: as measured on two cores. They are for the
// estimate that is printed before the first trial, and for nothing else; what finished trials took replaces them.
var pace = []struct {
	system string // that begins so
	start  float64
	update float64 // seconds
}{
	{"local", 0.2, 0},
	{"server", 0.3, 0.0008},
	{"allreduce", 0.3, 0.0004},
	{"pytorch", 6, 0.0055},
	{"horovod", 2.5, 0.009},
	{"mxnet", 2.5, 0.0045},
	{"tensorflow-mirrored", 5, 0.0065},
	{"tensorflow-sync-default", 22, 0.008}, // as shipped, a worker looks every 30 s whether the first is ready
	{"tensorflow", 5, 0.008},
	{"spark-mllib", 32, 0.32},
	{"spark", 25, 0.22},
	{"pmls", 3, 0.002},
	{"", 6, 0.006},
}

// endSeconds are for a trial's processes to go and its parameters to be evaluated.
const endSeconds = 0.6

// paceOf is how long a row takes to start, and an update beside its arithmetic, in seconds.
func paceOf(system string) (start, update float64) {
	for _, x := range pace {
		if strings.HasPrefix(system, x.system) {
			return x.start, x.update
		}
	}
	return 0, 0 // not reached: the last has every prefix
}

// estimate is how long trial c takes, where local trains so many samples a second on all cores.
func (p *Plan) estimate(g *group, c Cell, a About, ref *reference, epoch int64) time.Duration {
	start, update := paceOf(c.System)
	updates := ref.Updates + epoch
	if !a.Exact() {
		updates += ref.Updates
	}
	updates = min(updates, g.task.within(epoch))
	n := warmUpdates
	if g.batch == trivium.FullBatch {
		n = warmFull
	}
	warm := max(p.WarmUp, float64(n)*update)
	least := p.Seconds
	if !a.Peer {
		least *= p.reserve()
	}
	train := float64(updates) * (update + ref.Seconds/float64(max(1, ref.Updates)))
	whole := inSeconds(start + warm + max(least, train))
	if most := inSeconds(limitShare * p.Limit.Seconds()); whole > most { // once to the limit; see speedAlone
		whole = (most + time.Duration(p.Repeats-1)*inSeconds(start+warm+least)) / time.Duration(p.Repeats)
	}
	return whole + inSeconds(endSeconds) + p.pause()
}

func inSeconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

// estimateBlow is how long the trial of one takes: after a kill another system's processes may hang.
func (p *Plan) estimateBlow(b *blow) time.Duration {
	start, update := paceOf(b.cell.System)
	d := inSeconds(start+warmUpdates*update+endSeconds) + p.fault.after + p.fault.stop
	if b.signal == "kill" && p.Systems[b.cell.index].About().Peer {
		d += p.fault.hang
	}
	return d
}

// foresee looks how long local takes to each target, which decides how long trials are, and says how long all of them take.
func (r *runner) foresee(ctx context.Context) error {
	if err := r.openReferences(); err != nil {
		return err
	}
	r.foreseen, r.measured, r.finished = map[string]time.Duration{}, map[string]bool{}, map[trialOf]bool{}
	for _, i := range slices.Concat(r.byTask()...) {
		g := &r.groups[i]
		some, err := r.wanted(g)
		if err != nil {
			return err
		}
		if !some {
			continue
		}
		e, err := r.evaluator(ctx, g.task)
		if err != nil {
			return err
		}
		for _, c := range g.cells {
			batch := effective(&g.task, g.batch, c.Workers)
			if batch > 0 && int64(batch) > e.rows() {
				return &PlanError{fmt.Errorf("compare: %s: an update of %d rows, and there are %d: name fewer workers, or a smaller batch", c.Task, batch, e.rows())}
			}
			if r.absent[c.System] != nil || r.measured[c.ID()] {
				continue
			}
			r.plan.Watch.Status(Status{Cell: c, Repeat: 1, Total: r.total, Phase: "see how long local takes", Left: -1})
			ref, err := r.reference(ctx, e, &g.task, batch)
			if err != nil {
				return err
			}
			r.foreseen[c.ID()] = r.plan.estimate(g, c, r.plan.Systems[c.index].About(), &ref, e.perEpoch(batch))
		}
	}
	return nil
}

// settle chooses how many repeats a comparison without a trial has whose plan leaves it open.
func (r *runner) settle() error {
	p := r.plan
	n := provingRepeats
	if one := r.trialsLeft() / time.Duration(p.Repeats); one > 0 {
		n = int(min(max(p.Within/one, leastRepeats), provingRepeats))
	}
	p.Repeats, r.dir.record.Repeats, r.total = n, n, len(r.cells())*n
	return r.dir.save()
}

// wanted reports whether a trial of the group is not done yet, and counts those that are. One that is damaged is said before another is
// measured.
func (r *runner) wanted(g *group) (some bool, err error) {
	for _, c := range g.cells {
		for repeat := 1; repeat <= r.plan.Repeats; repeat++ {
			result, known, err := r.dir.load(c, repeat)
			if err != nil {
				return false, err
			}
			if !known { // the next may be there: the user removes the folder of one to run it again
				some = true
				continue
			}
			r.finished[trialOf{c.ID(), repeat}] = true
			if sum := result.whole(); sum > 0 {
				r.foreseen[c.ID()], r.measured[c.ID()] = sum, true
			}
		}
	}
	return some, nil
}

// whole is how long the trial took, with all that belongs to it.
func (r *Result) whole() (sum time.Duration) {
	for _, x := range r.Wall {
		sum += time.Duration(x * float64(time.Second))
	}
	return sum
}

// reference is what local does there, which the plan's directory keeps.
func (r *runner) reference(ctx context.Context, e *evaluator, t *Task, batch int) (reference, error) {
	key := referenceKey(t, batch)
	if ref, ok := r.references[key]; ok {
		return ref, nil
	}
	ref, err := e.refer(ctx, *t, batch)
	if err != nil {
		return ref, err
	}
	r.references[key] = ref
	return ref, writeJSON(filepath.Join(r.dir.path, referenceFile), r.references)
}

func referenceKey(t *Task, batch int) string { return fmt.Sprintf("%s %d %v", t.Name, batch, t.Target) }

const referenceFile = "references.json"

// references are those that were looked up, by task, batch and target.
func (d *directory) references() (map[string]reference, error) {
	list := map[string]reference{}
	err := readJSON(filepath.Join(d.path, referenceFile), &list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("compare: what an earlier process looked up cannot be read: %w; remove the file to have it looked up again", err)
	}
	if list == nil { // the file says null
		list = map[string]reference{}
	}
	return list, nil
}

// openReferences reads what an earlier process looked up.
func (r *runner) openReferences() (err error) {
	if r.references, err = r.dir.references(); err != nil {
		return &PlanError{err}
	}
	for key, ref := range r.references {
		ref.Losses = map[int64]float64{}
		r.references[key] = ref
	}
	return nil
}

// took replaces what was foreseen of a trial by what it took.
func (r *runner) took(c Cell, d time.Duration) {
	r.spent += d
	r.planned += r.foreseen[c.ID()]
	r.foreseen[c.ID()] = d
	r.measured[c.ID()] = true
}

// left is how long all takes that is not done.
func (r *runner) left() time.Duration {
	sum := r.trialsLeft()
	for _, b := range r.dueBlows() {
		sum += r.plan.estimateBlow(&b)
	}
	return sum
}

// dueBlows are the faults to come, where all rows end well.
func (r *runner) dueBlows() []blow {
	all := r.blows(func(int, Cell) bool { return true })
	return slices.DeleteFunc(all, func(b blow) bool { return !r.due(&b) })
}

// trialsLeft is how long the trials take that are not done: as long as the same took before, else as foreseen, at the pace so far.
func (r *runner) trialsLeft() time.Duration {
	pace := 1.0
	if r.planned > 0 {
		pace = float64(r.spent) / float64(r.planned)
	}
	var sum time.Duration
	for _, c := range r.cells() {
		if r.absent[c.System] == nil {
			one, n := r.remains(c, pace)
			sum += one * time.Duration(n)
		}
	}
	return sum
}

// remains is how long one more trial of a cell takes, and how many are to come.
func (r *runner) remains(c Cell, pace float64) (one time.Duration, n int) {
	one = r.foreseen[c.ID()]
	if !r.measured[c.ID()] {
		one = time.Duration(float64(one) * pace)
	}
	for repeat := 1; repeat <= r.plan.Repeats; repeat++ {
		if !r.finished[trialOf{c.ID(), repeat}] {
			n++
		}
	}
	return one, n
}
