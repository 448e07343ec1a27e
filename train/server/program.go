package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
)

// A Program is what a worker does with tables. Training by gradients is one (gradients, descent). A model that is trained otherwise, such
// as topics by Gibbs sampling, implements Program beside trivium.Model: then its own tables are served, and its Round is called in place
// of its Grad. A table that is named as one of its tensors, and has as many cells, is that tensor: it begins with what Init wrote, and
// is read where the model is measured or saved.
type Program interface {
	// Tables describes the tables. One that says neither Mode nor Staleness gets those of the run. The names "updates" and "evaluations" are
	// taken: workers agree by tables that are called so.
	Tables() []ps.Spec
	// Round does a worker's part of an update with its rows b, which know their IDs: reads, computes, adds. The strategy calls Clock.
	Round(ctx context.Context, w *ps.Worker, b trivium.Batch) error
}

// A Beginner is a Program that wants to know what it is part of. Begin is called before the first round, the tables being filled; what
// it adds is there when the first round begins.
type Beginner interface {
	Begin(ctx context.Context, w *ps.Worker, p Part) error
}

// A Part is what a worker is of its job.
type Part struct {
	Job           *trivium.Job
	Rank, Workers int
	Rounds        int64        // that are behind it, where a run goes on
	Train         data.Dataset // the training rows
	Epoch         func() int   // the pass over them that is under way, from 0
}

// A Scorer is a Program that knows how well it does: the sums of loss and weight over the rows of the last round.
type Scorer interface {
	RoundLoss() (lossSum, weightSum float64)
}

// A Keeper is a Program that keeps something for each row between rounds, by the row's ID. It wants rows in index order, so that each
// stays with its worker, and cannot be resumed.
type Keeper interface {
	Keeps() string // what it keeps: it is named where a run is refused
}

// choose makes the program of the model, and returns the tables it wants.
func (w *worker) choose(updater string) []ps.Spec {
	l := w.run.Layout()
	w.tables = new(tables)
	if p, ok := w.run.Model.(Program); ok {
		w.own = &modelProgram{Program: p, layout: l}
		w.program = w.own
		w.run.Identify()
		return w.own.specs(w.o)
	}
	w.tables = newTables(l, w.o, updater)
	w.program = &gradients{w}
	if w.o.apart() {
		w.program = newDescent(w)
	}
	return w.program.Tables()
}

// gradients is the program of training by gradients: one step a round.
type gradients struct{ w *worker }

// Tables implements Program.
func (g *gradients) Tables() []ps.Spec { return g.w.tables.specs }

// pull reads the rows of row-sparse tensors that b needs; the dense ones were read when the last round ended.
func (g *gradients) pull(ctx context.Context, b *trivium.Batch) error {
	w := g.w
	if len(w.tables.sparse) == 0 {
		return nil
	}
	w.run.Enter(observe.Pull)
	defer w.run.Leave()
	return w.touched.pull(ctx, b, w.run.Params.Flat)
}

// Round implements Program: it adds this worker's gradient, or the update that its optimizer makes of it.
func (g *gradients) Round(ctx context.Context, _ *ps.Worker, b trivium.Batch) error {
	w := g.w
	if err := g.pull(ctx, &b); err != nil {
		return err
	}
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	w.sums = w.sums[:0]
	if w.codec != nil && w.o.OptimizerAt == AtServer {
		w.client.SetRate(w.run.LearningRate(w.round))
	}
	if w.job.Exact {
		all := int(w.run.UpdateRows())
		for _, p := range w.facts.mine() {
			from, _ := w.job.Shard(p.From, all)
			_, to := w.job.Shard(p.To-1, all)
			w.run.Enter(observe.Compute)
			loss, weight, err := w.run.SumShards(&b, p.From, p.To, w.gradient)
			w.run.Leave()
			if err != nil {
				return fmt.Errorf("train: update %d: %w", w.round, err)
			}
			w.sums = append(w.sums, partSum{p.Node, loss, weight})
			if err := w.push(p.Node, to-from, weight, loss); err != nil {
				return err
			}
		}
		return nil
	}
	var loss, weight float64
	if b.Rows > 0 {
		w.run.Enter(observe.Compute)
		var err error
		loss, weight, err = w.run.Sum(w.run.Params, &b, w.gradient)
		w.run.Leave()
		if err != nil {
			return fmt.Errorf("train: update %d: %w", w.round, err)
		}
		by := w.divisor(b.Rows, weight)
		if w.o.OptimizerAt == AtWorker {
			w.run.Enter(observe.Apply)
			w.ownUpdate(w.round, by)
			w.run.Leave()
		}
		if err := w.push(0, b.Rows, by, loss); err != nil {
			return err
		}
	}
	w.sums = append(w.sums, partSum{0, loss, weight})
	return nil
}

// share is this worker's part of the update's rows.
func (w *worker) share(rows int) float32 { return float32(float64(rows) / float64(w.run.UpdateRows())) }

// checkRows refuses data of so few rows that servers, which know none but the job's batch, would count workers that never have one. A Program
// has no steps that they count.
func (o Options) checkRows(run *train.Run, workers int) error {
	rows, _ := run.Extent()
	_, own := run.Model.(Program)
	if own || o.Mode == ps.BSP || o.OptimizerAt == AtWorker || min(rows, int64(workers)) == int64(busy(run.Job.Batch, workers)) {
		return nil
	}
	return &train.JobError{Err: fmt.Errorf("server: %d training rows are too few for %d workers, of whom under %s each takes a step of the server's: give --workers %d, or --consistency bsp", rows, workers, o.Mode, rows)}
}

// checkProgram refuses what a model's own Program would not heed: its rounds, and what it adds to its tables, are its own.
func (o Options) checkProgram(run *train.Run) error {
	if _, own := run.Model.(Program); !own {
		return nil
	}
	var errs []error
	for _, x := range []struct {
		asked bool
		why   string
	}{
		{run.Job.Exact, "exact mode promises the bits of one process, and its rounds add up in other orders where workers are more"},
		{o.Compress != "", "what it adds to its tables goes as it is, and " + o.Compress + " would change it"},
		{o.Mean, "what its rounds come to is added up, and none of it is a mean"},
	} {
		if x.asked {
			errs = append(errs, fmt.Errorf("server: %s is trained by a program of its own: %s", run.Job.Model, x.why))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &train.JobError{Err: errors.Join(errs...)}
}

// checkNames refuses what is called as this package calls tables of its own.
func checkNames(run *train.Run) error {
	var errs []error
	if p, own := run.Model.(Program); own {
		for _, s := range p.Tables() {
			if s.Name == factsTable || s.Name == agreeTable {
				const text = "server: a table of %s is called %q, as one by which the workers agree: give it another name than %q and %q"
				errs = append(errs, fmt.Errorf(text, run.Job.Model, s.Name, factsTable, agreeTable))
			}
		}
	} else {
		for l, i := run.Layout(), 0; i < l.Tensors(); i++ {
			if s := l.Spec(i); !s.RowSparse && strings.HasPrefix(s.Name, rowPrefix) {
				const text = "server: tensor %q of %s is dense: give it a name that does not begin with %q, as the tables of row-sparse ones do"
				errs = append(errs, fmt.Errorf(text, s.Name, run.Job.Model, rowPrefix))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &train.JobError{Err: errors.Join(errs...)}
}

// busy is how many workers have rows in an update of so many, which are shared out evenly: the others take no step.
func busy(rows, workers int) int {
	if rows == trivium.FullBatch {
		return workers
	}
	return min(rows, workers)
}

// divisor is what the sum of this worker's gradients is divided by; 0: it takes no step. Under BSP the server adds up all sums and all weights,
// and divides once. Where each worker's sum is a step of its own, of which an nth counts, that is to be its part of the update: it is divided
// by an nth of what all rows of the update weigh. Of the others' that is not known before they meet: each counts for what one here has
// weighed so far, on average.
func (w *worker) divisor(rows int, weight float64) float64 {
	if w.o.Mode == ps.BSP && w.o.OptimizerAt == AtServer {
		return weight
	}
	w.rows, w.weight = w.rows+int64(rows), w.weight+weight
	n, _ := w.busy()
	others := float64(w.run.UpdateRows()-int64(rows)) * w.weight / float64(w.rows)
	return (weight + others) / float64(n)
}

// A modelProgram is one that a model brings.
type modelProgram struct {
	Program
	w       *worker
	layout  *trivium.Layout
	tensors []programTensor
	slack   int // rounds that a read of any of its tables may lack
}

// A programTensor is a tensor of the model with the table that is it.
type programTensor struct {
	tensor int
	spec   ps.Spec
	cells  anyTable
}

// specs are the tables, under the run's options.
func (p *modelProgram) specs(o Options) []ps.Spec {
	specs := p.Program.Tables()
	for i := range specs {
		s := &specs[i]
		if s.Mode == ps.SSP && s.Staleness == 0 {
			s.Mode, s.Staleness = o.Mode, o.Staleness
		}
		if o.Mode != ps.SSP && o.Mode != ps.ESSP && s.Mode == o.Mode {
			s.Staleness = 0
		}
		p.slack = max(p.slack, s.Staleness)
		if t := p.layout.Index(s.Name); t >= 0 {
			if from, to := p.layout.Range(t); s.Rows*s.Cols == int64(to-from) {
				p.tensors = append(p.tensors, programTensor{tensor: t, spec: *s})
			}
		}
	}
	return specs
}

// open takes the tables, fills those that are tensors, and begins.
func (p *modelProgram) open(w *worker) (err error) {
	p.w = w
	if k, ok := p.Program.(Keeper); ok {
		var errs []error
		if w.job.Data.Order != "index" {
			errs = append(errs, fmt.Errorf("server: %s keeps %s of each row at the worker that has it: want --order index", w.job.Model, k.Keeps()))
		}
		if w.env.Resume != nil {
			errs = append(errs, fmt.Errorf("server: %s keeps %s of each row at its worker, which a checkpoint does not have: it cannot be resumed", w.job.Model, k.Keeps()))
		}
		if err := errors.Join(errs...); err != nil {
			return &train.JobError{Err: err}
		}
	}
	for i := range p.tensors {
		x := &p.tensors[i]
		if x.cells, err = openAny(w.w, x.spec); err != nil {
			return err
		}
		if w.env.Rank == 0 {
			if err := x.cells.add(w.run.Params.Tensor(x.tensor)); err != nil {
				return err
			}
		}
	}
	if err := w.w.Barrier(w.ctx); err != nil {
		return err
	}
	if b, ok := p.Program.(Beginner); ok {
		if err := b.Begin(w.ctx, w.w, Part{w.job, w.env.Rank, w.env.Workers(), w.run.At().Step, w.run.Splits().Train, func() int { return w.run.At().Epoch }}); err != nil {
			return err
		}
	}
	return w.w.Barrier(w.ctx)
}

// Round implements Program. What its reads wait is booked as that, and else it computes.
func (p *modelProgram) Round(ctx context.Context, w *ps.Worker, b trivium.Batch) error {
	began := time.Now()
	run := p.w.run
	var since time.Time
	var waited time.Duration // for others and for answers: no work of its own
	w.OnWait(func(staleness ps.Clock, behind bool) {
		since = time.Now()
		if behind {
			run.Enter(observe.WaitPhase(int(staleness)))
		} else {
			run.Enter(observe.Pull)
		}
	}, func() {
		run.Leave()
		waited += time.Since(since)
	})
	run.Enter(observe.Compute)
	err := p.Program.Round(ctx, w, b)
	run.Leave()
	w.OnWait(nil, nil)
	p.w.took = time.Since(began) - waited
	var loss, weight float64
	if s, ok := p.Program.(Scorer); ok {
		loss, weight = s.RoundLoss()
	} else {
		weight = float64(b.Rows)
	}
	p.w.sums = append(p.w.sums[:0], partSum{0, loss, weight})
	return err
}

// read makes params what the tables have.
func (p *modelProgram) read(ctx context.Context, params trivium.Params) error {
	for i := range p.tensors {
		if err := p.tensors[i].cells.read(ctx, params.Tensor(p.tensors[i].tensor)); err != nil {
			return err
		}
	}
	return nil
}

// An anyTable is a table whose cells are what they are.
type anyTable interface {
	add(cells []float32) error
	read(ctx context.Context, cells []float32) error
	restore(ctx context.Context, s ps.Store, m *ps.Manifest, name string, cells []float32) error
}

type tableOf[T ps.Number] struct {
	ps.Table[T]
	cols int
	row  []T
}

func openAny(w *ps.Worker, s ps.Spec) (anyTable, error) {
	switch s.Cell {
	case ps.Float64:
		return openOf[float64](w, s)
	case ps.Int32:
		return openOf[int32](w, s)
	case ps.Int64:
		return openOf[int64](w, s)
	}
	return openOf[float32](w, s)
}

func openOf[T ps.Number](w *ps.Worker, s ps.Spec) (anyTable, error) {
	t, err := ps.TableOf[T](w, s.Name)
	return &tableOf[T]{t, int(s.Cols), make([]T, s.Cols)}, err
}

// add adds rows that are not all zero.
func (t *tableOf[T]) add(cells []float32) error {
	for r := range len(cells) / t.cols {
		any := false
		for i, x := range cells[r*t.cols : (r+1)*t.cols] {
			t.row[i] = T(x)
			any = any || x != 0
		}
		if any {
			if err := t.DenseInc(int64(r), 0, t.row); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads all rows, many at a time.
func (t *tableOf[T]) read(ctx context.Context, cells []float32) error {
	rows := len(cells) / t.cols
	var ids []int64
	var dst []T
	for at := 0; at < rows; at += rowsAtOnce {
		ids = ids[:0]
		for r := at; r < min(rows, at+rowsAtOnce); r++ {
			ids = append(ids, int64(r))
		}
		if len(dst) < len(ids)*t.cols {
			dst = make([]T, len(ids)*t.cols)
		}
		if _, err := t.GetRows(ctx, ids, dst[:len(ids)*t.cols]); err != nil {
			return err
		}
		for i, x := range dst[:len(ids)*t.cols] {
			cells[at*t.cols+i] = float32(x)
		}
	}
	return nil
}
