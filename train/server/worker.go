package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
)

// A worker is one rank's training.
type worker struct {
	*cluster
	run *train.Run
	env *train.Env
	o   Options
	job *trivium.Job

	ctx     context.Context // ends when a process that this one needs is lost
	state   *optim.State    // at the worker: its optimizer; else rank 0's room for that of the servers
	stateMu sync.Mutex      // of it and rules, where rank 0 reads them
	rule    trivium.Optimizer
	codec   compress.Codec   // of what is sent to servers; nil: none
	teller  *teller          // of this worker's state; nil: rank 0, or there is none
	others  []*remote.Client // of rank 0: the other workers' tellers

	client   *ps.Client
	w        *ps.Worker
	tables   *tables       // of the model's tensors, where it is trained by its gradient
	program  Program       // what a round is
	own      *modelProgram // the program, where the model brings it; else nil
	facts    *facts        // nil under ASP, where nobody waits
	evals    *agreement    // nil where no evaluation stops training
	gradient trivium.Gradient
	touched  touched
	update   []float32
	rules    *ownRule // that made it
	round    int64    // at hand
	toldStop bool     // the others know
	stepping bool     // between the batch and the end of its round
	cutting  *cutting
	sums     []partSum
	wanted   []ps.Wanted
	settled  bool          // all have made their last updates
	rows     int64         // that divisor has seen in this run
	weight   float64       // theirs
	took     time.Duration // by the last step's own work
	updates  int64         // in all
	begun    int64         // the update after which this run goes on
	rowsWere [][]uint32    // the updates of each row by then, where the optimizer counts them
}

// train is the life of a worker.
func (w *worker) train(ctx context.Context) (trivium.Result, error) {
	// An interrupt ends training between two updates, and is agreed on where updates are made by all; what is lost ends it at once.
	hard := train.UntilLost(ctx)
	w.ctx = hard
	var err error
	if w.state, err = w.run.OptimizerState(); err != nil {
		return train.NotBegun(hard, err)
	}
	if w.rule, err = w.env.Optimizers.New(w.job.Optimizer, w.run.CPU.ISA); err != nil {
		return train.NotBegun(hard, &train.JobError{Err: err})
	}
	walk, stop := context.WithCancelCause(hard)
	defer stop(nil)
	if err := w.open(); err != nil {
		return train.NotBegun(hard, w.failure(err))
	}
	defer w.client.Close()
	w.run.Refresh(w.refresh)
	w.run.Keep(w.keep)
	if w.evals != nil {
		w.run.Agree(func(ctx context.Context, values map[string]float64, err error) (map[string]float64, error) {
			values, err = w.evals.agree(hard, values, err)
			if errors.Is(err, errLeft) {
				stop(errStopped)
			}
			return values, err
		})
	} else {
		w.run.Agree(func(_ context.Context, values map[string]float64, err error) (map[string]float64, error) {
			return values, err
		})
	}
	w.cluster.seen.say(w.run)
	if s := w.o.overshoots(w.job); s != "" {
		w.run.Notice(observe.Info, "rate", s)
	}
	if w.codec != nil {
		w.run.Coded(w.coded())
	}
	w.cutting = &cutting{w: w}
	switch {
	case w.teller != nil:
		w.w.KeepState(w.cutting.reached)
	case w.env.Rank == 0 && w.env.Blob != nil && (w.o.Mode != ps.BSP || w.keepsOwn() || w.slack() > 0): // else what rank 0 reads is what all have
		w.w.KeepState(w.cutting.reached)
		w.run.Cuts(w.cutting.begin)
		defer w.cutting.end()
	}
	defer func() {
		if w.run.Reason() != trivium.Diverged { // that is the end of all, who do not wait to be told, and may be gone
			w.release()
		}
	}()
	w.updates, w.begun = w.run.Progress(time.Now()).Steps, w.run.At().Step
	for step, batch := range w.run.Updates(walk) {
		w.cutting.note()
		w.stepping = true
		t, err := w.step(ctx, step, batch)
		if err != nil {
			w.run.Fail(w.failure(err))
			break
		}
		if t.stop {
			stop(errStopped)
		}
		w.run.Finish(batch.Rows, t.loss, t.weight)
		w.stepping = false
		err = w.cutting.stepped()
		if err == nil && !t.stop {
			err = w.meetToMeasure()
		}
		if err != nil {
			w.run.Fail(w.failure(err))
			break
		}
	}
	w.cutting.end()
	if w.env.Rank == 0 {
		w.tellTables()
	}
	if w.own != nil && w.o.Mode == ps.BSP && w.run.Reason() != trivium.Failed && w.run.Reason() != trivium.Diverged {
		if err := w.settle(); err != nil {
			w.run.Fail(err)
		}
	}
	result, err := w.run.Result(walk)
	if err == nil { // nobody waits for this worker any more
		err = w.w.Finish(hard)
		if w.teller != nil && err == nil {
			err = w.teller.wait(hard)
		}
		w.release()
		err = w.failure(errors.Join(err, w.farewell(hard)))
	}
	return result, err
}

var errStopped = errors.New("a worker was asked to stop")

// failure is err, or what is behind it: the loss of a process.
func (w *worker) failure(err error) error {
	if err == nil {
		return nil
	}
	lost := train.LostOf(w.ctx)
	if _, told := errors.AsType[*train.LostError](err); lost == nil || told { // then it also says what was waited for: table, row, worker and clock
		return err
	}
	return lost
}

// open joins the tables and fills them.
func (w *worker) open() error {
	updater := ""
	if w.o.OptimizerAt == AtServer {
		updater = fresh
		if w.env.Resume != nil {
			updater = resumed
		}
	}
	specs := w.choose(updater)
	if w.o.Mode != ps.ASP {
		w.facts = newFacts(w.job, w.env.Rank, w.env.Workers(), w.o.Mode != ps.BSP)
		specs = append(specs, w.facts.spec(w.o))
	}
	if w.job.Stop.Metric != "" {
		w.evals = &agreement{rank: w.env.Rank, old: make([]int64, agreeCells), row: make([]int64, agreeCells)}
		specs = append(specs, agreeSpec())
	}
	var err error
	if w.client, err = w.host.Open(w.ctx, w.placement, specs, ps.Options{RoundTimeout: w.o.Wait, Log: w.env.Log}); err != nil {
		return err
	}
	if w.w, err = w.client.Worker(w.ctx); err != nil {
		return errors.Join(err, w.client.Close())
	}
	w.observeReads()
	if err := w.openTables(); err != nil {
		return errors.Join(err, w.client.Close())
	}
	w.observeFlight()
	w.observeWaits()
	return w.tellStates()
}

func (w *worker) openTables() (err error) {
	if err := w.tables.open(w.w); err != nil {
		return err
	}
	if w.facts != nil {
		if w.facts.table, err = ps.TableOf[int64](w.w, factsTable); err != nil {
			return err
		}
	}
	if w.evals != nil {
		w.evals.w = w.w
		if w.evals.table, err = ps.TableOf[int64](w.w, agreeTable); err != nil {
			return err
		}
	}
	l := w.run.Layout()
	w.gradient = train.NewGradient(l)
	if w.own != nil {
		return w.own.open(w)
	}
	w.touched = newTouched(w.tables)
	for _, rows := range w.state.RowSteps() {
		w.rowsWere = append(w.rowsWere, slices.Clone(rows))
	}
	if w.o.OptimizerAt == AtWorker {
		w.update = tensor.Aligned[float32](l.Len())
		if !w.o.apart() {
			n, _ := w.busy()
			if w.rules, err = newOwnRule(w.job, w.rule, w.run.CPU.ISA, l, w.state, w.rowsWere, n); err != nil {
				return err
			}
		}
	}
	if err := w.fill(); err != nil {
		return err
	}
	w.client.Compress(w.codec) // what fills the tables goes as it is
	if err := w.restoreDropped(); err != nil {
		return err
	}
	return w.tables.getDense(w.ctx, w.run.Params.Flat)
}

// coded is how many cells the codec encodes; none: why.
func (w *worker) coded() (cells int, why error) {
	longest := int64(0)
	for _, s := range w.tables.specs {
		switch err := w.client.Fits(s.Name); {
		case err == nil:
			cells += int(s.Rows * s.Cols)
		case s.Cols > longest: // that it does not even fit
			longest, why = s.Cols, err
		}
	}
	return cells, why
}

// fill makes the tables the parameters, and the servers' optimizer that of the checkpoint: rank 0 adds, all wait.
func (w *worker) fill() error {
	to := roundValue
	if w.o.OptimizerAt == AtServer && w.env.Resume != nil {
		to = loads(true, w.rule.Slots())
	}
	for round := roundValue; round <= to; round++ {
		if w.env.Rank == 0 {
			w.tables.fill(round, w.run.Params.Flat, w.run.At().Step, &filling{w.state.Slots(), w.state.RowSteps()}, w.gradient.Flat)
			if err := w.tables.inc(0, w.gradient.Flat, nil); err != nil {
				return err
			}
		}
		if err := w.w.Barrier(w.ctx); err != nil {
			return err
		}
	}
	return nil
}

// step makes this worker's part of an update, and reads what the next one begins with. A ctx that ends asks for the end of training.
func (w *worker) step(ctx context.Context, step int64, b *trivium.Batch) (t total, err error) {
	run, interrupted := w.run, ctx.Err() != nil
	w.round = step
	if err := w.program.Round(w.ctx, w.w, *b); err != nil {
		return t, err
	}
	if w.facts != nil {
		if err := w.tell(step, interrupted); err != nil {
			return t, err
		}
	}
	if w.o.Slow.Factor != 0 {
		run.Enter(observe.Compute)
		w.o.Slow.wait(ctx, w.o.Slow.extra(step-1, w.env.Rank, w.env.Workers(), w.took))
		run.Leave()
	}
	run.Enter(observe.Push)
	_, err = w.w.Clock(w.ctx, w.next(step)...)
	run.Leave()
	if err != nil {
		return t, w.broken(err)
	}
	if w.facts != nil { // the wait is in the read of the smallest row
		run.Enter(observe.WaitPhase(w.o.Staleness))
		t, err = w.facts.total(w.ctx, step)
		run.Leave()
		if err != nil {
			return t, err
		}
	}
	if w.o.Mode != ps.BSP {
		t.loss, t.weight = fold(w.sums)
		t.stop = t.stop || w.facts == nil && interrupted
		if step == w.updates { // also where all stop here: it is the end, and no interrupt
			run.Enter(observe.WaitBarrier)
			err := w.settle()
			run.Leave()
			if err != nil {
				return t, err
			}
		}
	}
	if err := run.CheckLoss(t.loss, t.weight, w.gradient); err != nil {
		return t, err
	}
	run.Enter(observe.Pull)
	err = w.tables.getDense(w.ctx, run.Params.Flat)
	run.Leave()
	return t, err
}

// tell adds this worker's facts of an update: under BSP its sums, else only where it wants to stop.
func (w *worker) tell(step int64, interrupted bool) error {
	if w.o.Mode == ps.BSP {
		return w.facts.add(step, w.sums, interrupted)
	}
	if !interrupted || w.toldStop {
		return nil
	}
	w.toldStop = true
	return w.facts.stopAfter(step + int64(w.o.Staleness))
}

// next is what the next round begins with.
func (w *worker) next(step int64) []ps.Wanted {
	w.wanted = w.wanted[:0]
	if w.facts != nil {
		w.wanted = append(w.wanted, w.facts.table.Rows(w.facts.rowOf(step)))
	}
	if len(w.tables.runs) > 0 {
		w.wanted = append(w.wanted, w.tables.dense.Rows(0))
	}
	return w.wanted
}

// broken is what a delta that is no number means: the table has refused it.
func (w *worker) broken(err error) error {
	for _, s := range w.sums {
		if e := w.run.CheckLoss(s.loss, s.weight, w.gradient); e != nil {
			return e
		}
	}
	l, sent := w.run.Layout(), w.gradient.Flat
	if w.update != nil {
		sent = w.update
	}
	for i := range l.Tensors() {
		from, to := l.Range(i)
		if finite.FirstNot(sent[from:to]) >= 0 {
			loss, weight := fold(w.sums)
			return &trivium.DivergedError{Step: w.run.At().Step + 1, Loss: loss / weight, Tensor: l.Spec(i).Name}
		}
	}
	return err
}

// push adds the gradient of so many rows, or the update, as part number part. A loss that is no number is not followed by a gradient: the
// facts tell. Nor is one of no weight, but where the server divides by the weight of all parts: there the rows that it touches are stepped
// with the others', and the update is counted if no part has weight, as in one process. What a codec has kept would be lost then.
func (w *worker) push(part, rows int, weight, loss float64) error {
	counts := w.o.Mode == ps.BSP && w.o.OptimizerAt == AtServer && w.codec == nil && (rows > 0 || len(w.tables.sparse) > 0)
	if !finite.Is(loss) || weight == 0 && !counts {
		return nil
	}
	w.run.Enter(observe.Push)
	defer w.run.Leave()
	if w.o.OptimizerAt == AtWorker {
		return w.tables.inc(part, w.update, w.gradient.Rows)
	}
	if err := w.w.Weight(part, weight); err != nil {
		return err
	}
	return w.tables.inc(part, w.gradient.Flat, w.gradient.Rows)
}

// keep adds the optimizer's state to a checkpoint: the servers have it, or the workers have their own.
func (w *worker) keep(c *checkpoint.Checkpoint) error {
	to := &filling{w.state.Slots(), w.state.RowSteps()}
	if w.own == nil && w.o.OptimizerAt == AtServer {
		if err := w.fetch(to); err != nil {
			return w.failure(err)
		}
		w.settleState(c.Params.Flat, to)
	}
	names := optim.NamesOf(w.rule)
	if w.keepsOwn() {
		all := w.ownState()
		err := w.addStates(w.ctx, nowKey, &all)
		if err == nil {
			if w.o.OptimizerAt == AtWorker {
				to = newFilling(w.state) // this worker's own goes on
			}
			c.Params.Flat = slices.Clone(c.Params.Flat)
			c.Codecs = all.codecs
			names, err = w.saved(all.sums, to, c.Params.Flat, c.Progress.Step)
		}
		if err != nil {
			return w.failure(err)
		}
	}
	c.Optimizer = optimizerState(names, to)
	return nil
}

// fetch reads the state of all servers, and has them let go of it.
func (w *worker) fetch(to *filling) error {
	sum := 0
	for i, name := range w.placement.Servers {
		n, err := again(w.ctx, func() (cells int, err error) {
			r, err := w.ask(w.ctx, i, stateKey, 0, -1)
			if err != nil {
				return 0, err
			}
			defer r.Close()
			err = eachState(r, func(t *told) error {
				cells += t.rows * t.cols
				return w.tables.take(t, to)
			})
			return cells, err
		})
		if err != nil {
			return fmt.Errorf("server: the optimizer's state of %v: %w", name, err)
		}
		sum += n
	}
	if all := w.tables.size(); sum != all { // lanes that end tell nothing
		return fmt.Errorf("server: servers tell the optimizer's state of %d cells, and the model has %d: one of them is ending", sum, all)
	}
	return w.forget(w.ctx, stateDoneKey)
}
