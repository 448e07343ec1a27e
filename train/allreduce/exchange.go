package allreduce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// An exchange is one worker's end of what travels in an update.
type exchange struct {
	run     *train.Run
	stream  transport.Stream
	g       *collective.Group // nil: there is one worker
	rank    int
	workers int
	wants   func() bool             // this worker was asked to stop
	lost    func() *train.LostError // what this worker has been told is lost; nil: nothing
	pieces  *train.Tree             // adds the pieces of a part; nil: it has one

	accumulated int // pieces of a part
	piece       trivium.Batch

	own   trivium.Gradient // of this worker's rows
	total trivium.Gradient // of all workers' rows; own, if there is one worker
	rows  int              // of this worker, in the update at hand

	buckets  []bucket
	launched time.Duration // when the first was
	mu       sync.Mutex    // guards what follows: tensors become final on several threads
	launcher *collective.Launcher
	courtesy courtesy
	ready    func(tensor int)
	sparse   *sparseRows // nil: no tensor is row-sparse
	exact    *exactSums  // nil: not in exact mode
	mean     *mean       // nil: no local SGD
	sharding *sharding   // nil: every worker keeps all of the optimizer's state
	coded    bool        // a codec encodes some bucket
	dropped  []float32   // the sum of all workers' residuals when it was last asked for; nil: nothing is kept
	kept     [][]byte    // at rank 0: the residuals of each worker, of the same time

	// The facts lie right before the gradient's first cell, and travel in the bucket that has it, which is the last: then rides is true.
	ownFacts, totalFacts []float32
	rides                bool
	uncoded              error         // why the codec that was asked for encodes nothing
	auto                 *auto         // where it does; nil: wherever it fits
	least                time.Duration // that an exchange took so far: what is beyond it is waiting for the others

	measured    measured
	late        late
	over        bool // a failure is known to all
	facts, sums [numFacts]float64
	tag         uint32 // of the facts; the buckets' are below
	base        uint32 // added to all tags of the update at hand: see conclude
}

// The facts that travel with the gradient.
const (
	factLoss = iota
	factWeight
	factStop // how many workers were asked to stop
	factFail // how many could not compute their gradient
	factSeen // rows since the last average, under local SGD
	numFacts
)

// lossScale brings losses that only a float64 holds into the range of the float32 in which they ride: a run that diverges should have
// parameters to blame before its loss is infinite.
const lossScale = 0x1p-40

// totals are what all workers know after an update's exchange.
type totals struct {
	loss, weight float64
	stop         bool
}

func newExchange(ctx context.Context, env *train.Env, o Options, run *train.Run, wants func() bool, lost func() *train.LostError) (*exchange, error) {
	l := run.Layout()
	x := &exchange{run: run, rank: env.Rank, workers: env.Workers(), wants: wants, lost: lost}
	x.own, x.ownFacts = gradient(l)
	if o.Accumulate > 1 {
		x.pieces, x.accumulated = train.NewTree(l, run.CPU), o.Accumulate
	}
	if x.workers == 1 {
		x.total = x.own
		if !run.Job.Exact {
			x.buckets = []bucket{{Bucket: collective.Bucket{To: l.Len()}}} // which goes nowhere
			return x, x.restore(run)
		}
		return x, nil
	}
	x.total, x.totalFacts = gradient(l)
	x.late.run, x.late.rank = run, x.rank
	defer x.late.end()
	codec, choose, err := compress.ParseAuto(o.Compress)
	if err != nil {
		return nil, err
	}
	env.CountTraffic(run.Recorder)
	if x.stream, err = env.Port.Stream("allreduce", transport.StreamOptions{}); err != nil {
		return nil, err
	}
	x.measured.gathers, x.measured.costs = o.ShardOptimizer, o.measures()
	view := collective.View{Epoch: env.Epoch, Peers: env.Peers, Self: env.Rank, Hosts: env.Hosts}
	x.g, err = collective.New(x.stream, view, collective.Options{Deadline: o.Wait, Record: x.measured.add, OnStraggler: x.late.hear})
	if err != nil {
		return nil, errors.Join(err, x.stream.Close())
	}
	if env.MayShareMemory && (x.workers == 2 || o.measures()) {
		if err := x.shareMemory(ctx, env.Log); err != nil {
			return nil, errors.Join(x.failed(ctx, err), x.g.Close(), x.stream.Close())
		}
	}
	if !o.measures() && x.workers&(x.workers-1) != 0 && 4*l.Len() <= crowdMost {
		if err := x.g.Crowd(ctx); err != nil {
			return nil, errors.Join(x.failed(ctx, err), x.g.Close(), x.stream.Close())
		}
	}
	if env.Narrow != nil { // else another thread, for what travels meanwhile, takes a core from the worker that computes there
		env.Narrow()
	}
	if o.measures() { // with the threads that training has
		_, err := x.g.Calibrate(ctx)
		if err == nil && choose {
			x.auto, err = x.weigh(ctx, l, codec, o.ShardOptimizer)
		}
		if err != nil {
			return nil, errors.Join(x.failed(ctx, err), x.g.Close(), x.stream.Close())
		}
		x.measured.reset()
	}
	if x.auto != nil && !x.auto.pays() {
		codec = nil // the run is one without, to its last bit
	}
	if run.Job.Exact {
		x.exact = newExactSums(x, l)
	} else {
		x.cut(l, codec, o.ShardOptimizer || run.Job.Optimizer.Name == "lbfgs") // which compares losses to the last digit
	}
	if o.ShardOptimizer {
		if err := x.shard(run); err != nil {
			return nil, errors.Join(err, x.g.Close(), x.stream.Close())
		}
	}
	if x.tag = 2; x.launcher != nil {
		x.tag = uint32(max(x.launcher.Len(), 2))
	}
	for i := range l.Tensors() {
		if spec := l.Spec(i); spec.RowSparse && spec.Tie == "" {
			x.sparse = newSparseRows(l, x.workers, x.exact == nil)
			x.measured.gathers = x.measured.gathers || x.sparse.lists != nil
			break
		}
	}
	if x.exact == nil && o.Every <= 1 { // else no gradient travels to which what is saved could be added
		if err := x.restore(run); err != nil {
			return nil, errors.Join(err, x.g.Close(), x.stream.Close())
		}
	}
	return x, nil
}

// shareMemory lets workers read each other's gradients where they lie, if the system can. More than two would add them in another order than
// workers that share none, and a job has the same bits whatever connects its workers, unless measurements choose.
func (x *exchange) shareMemory(ctx context.Context, log *slog.Logger) error {
	dir := ""
	if x.rank == 0 { // the other hears from it where the socket is, which is needed no longer then
		made, err := os.MkdirTemp("", "trivium-")
		if err == nil {
			defer os.RemoveAll(made)
			dir = made
		}
	}
	err := x.g.Share(ctx, dir)
	if unshared, ok := errors.AsType[*collective.UnsharedError](err); ok {
		if log != nil {
			log.Debug("the workers share no memory", "cause", unshared)
		}
		return nil
	}
	return err
}

// crowdMost is the size of a gradient up to which three workers, five or six are asked whether they share their cores: few messages, one
// after the other, are better then than many at once. Beyond, it is the bytes that take the time, of which all plans send as many.
const crowdMost = 128 << 10

// gradient returns a zero gradient, and the memory from its facts to its end.
func gradient(l *trivium.Layout) (g trivium.Gradient, facts []float32) {
	const line = 16 // cells of a cache line: the gradient begins at one
	cells := tensor.Aligned[float32](line + l.Len())
	g = trivium.Gradient{Layout: l, Flat: cells[line:], Rows: make([][]int32, l.Tensors())}
	for i := range g.Rows {
		if l.Spec(i).RowSparse {
			g.Rows[i] = []int32{}
		}
	}
	return g, cells[line-numFacts:]
}

// sum makes x.total the gradient sum of an update, of which batch is this worker's part, and returns what all know of it.
func (x *exchange) sum(ctx context.Context, batch *trivium.Batch) (totals, error) {
	var step uint64
	if x.g != nil {
		step = x.g.Step()
	}
	run := x.run
	x.facts = [numFacts]float64{}
	run.Enter(observe.Compute)
	loss, weight, failure := x.compute(batch)
	run.Leave()
	if failure != nil {
		failure = fmt.Errorf("train: update %d: %w", run.At().Step+1, failure)
		x.facts[factFail] = 1
		x.silence()
	}
	x.facts[factLoss], x.facts[factWeight] = loss, weight
	if x.wants() {
		x.facts[factStop] = 1
	}
	x.sums = x.facts
	if x.g == nil {
		for i := range x.buckets {
			x.sendStrays(&x.buckets[i])
		}
	} else if err := x.travel(ctx, step); err != nil {
		return totals{}, err
	}
	loss, weight = x.sums[factLoss], x.sums[factWeight]
	if x.sums[factFail] > 0 {
		return totals{}, x.share(ctx, failure)
	}
	return totals{loss, weight, x.sums[factStop] > 0}, nil
}

// compute writes to x.own the gradient sum of this worker's rows; its buckets leave as they become final.
func (x *exchange) compute(batch *trivium.Batch) (loss, weight float64, err error) {
	run := x.run
	x.late.computes(true)
	defer x.late.computes(false)
	if x.launcher != nil {
		x.launcher.Reset()
	}
	switch x.rows = batch.Rows; {
	case x.exact != nil:
		err = x.exact.compute(run, batch, x.ready)
	case run.Job.Exact:
		loss, weight, err = run.Sum(run.Params, batch, x.own)
	case batch.Rows == 0:
		x.own.Zero()
	case x.pieces != nil:
		loss, weight, err = x.accumulate(batch)
	default:
		loss, weight, err = run.ModelGrad(run.Params, *batch, x.own, x.ready)
	}
	return loss, weight, err
}

// travel sends what has not been sent, and returns when all have everything. What it takes longer than the shortest so far is waiting
// for the others: wait-barrier. Of the rest, half is push and half pull: as much is sent to be added as comes back added.
func (x *exchange) travel(ctx context.Context, step uint64) error {
	run := x.run
	begin := run.Now()
	run.Enter(observe.Push)
	err := x.trade(ctx, step)
	x.late.end()
	run.Leave()
	if err != nil {
		return x.failed(ctx, err)
	}
	if x.launched > 0 && x.launched < begin {
		run.Overlap(observe.Push, begin-x.launched)
	}
	x.launched = 0
	took := run.Now() - begin
	if x.least == 0 || took < x.least {
		x.least = took
	}
	run.Move(observe.Push, observe.WaitBarrier, took-x.least)
	run.Move(observe.Push, observe.Pull, x.least/2)
	return nil
}

// trade sends what has not been sent, and returns when this worker has everything: see conclude.
func (x *exchange) trade(ctx context.Context, step uint64) error {
	if x.exact != nil {
		if x.sparse != nil {
			for _, g := range x.exact.sums {
				x.sparse.fill(g)
			}
		}
		x.exact.start(x)
	}
	x.mu.Lock()
	x.launcher.Rest()
	x.mu.Unlock()
	if x.rides {
		for i, v := range x.facts {
			x.ownFacts[i] = float32(v)
		}
		x.ownFacts[factLoss] = float32(x.facts[factLoss] * lossScale)
		b := &x.buckets[len(x.buckets)-1]
		x.sendStrays(b)
		x.g.Start(b.op, x.base+uint32(len(x.buckets)-1), b.dst, b.src)
	} else {
		x.g.Start(collective.Op{Label: "loss"}, x.base+x.tag, collective.Of(x.sums[:]), collective.Of(x.facts[:]))
	}
	if x.sparse != nil {
		if err := x.sparse.travel(ctx, x); err != nil {
			return err
		}
	}
	err := x.conclude(context.WithoutCancel(ctx), step) // a lost worker ends it: see closeOn
	yield()                                             // who waits for this processor has the others' last frames in hand, and a long step follows here
	return err
}

// failed says in one way, at all workers, why an exchange failed.
func (x *exchange) failed(ctx context.Context, err error) error {
	if lost := train.LostOf(ctx); lost != nil {
		return lost
	}
	blame, ok := errors.AsType[*collective.Blame](err)
	err = fmt.Errorf("allreduce: %s: %w", x.where(blame), err)
	if ok && blame.Cause == collective.Lost {
		// Who has heard of a loss a moment before us has closed its group (closeOn), and is not what is lost.
		if lost := x.lost(); lost != nil && lost.Peer != blame.Name {
			return lost
		}
		return &train.LostError{Peer: blame.Name, Why: err.Error()}
	}
	return err
}

// withdraw ends the run at all workers because of what went wrong at this one, between two updates: it takes part in what the others do next,
// an evaluation or an update, to say so.
func (x *exchange) withdraw(ctx context.Context) (trivium.Result, error) {
	r, failure := x.run.Result(ctx)
	if x.g == nil {
		return r, failure
	}
	if x.run.Agrees() {
		_, failure = x.agree(ctx, nil, failure)
		return r, failure
	}
	x.facts = [numFacts]float64{factFail: 1}
	var err error
	if x.mean != nil {
		err = x.mean.travel(ctx)
	} else {
		x.launcher.Reset()
		x.silence()
		err = x.trade(ctx, x.g.Step()) // outside of a step: no time is booked
	}
	if err == nil {
		failure = x.share(ctx, failure)
	}
	return r, failure
}

// closeOn closes the group when ctx ends because a worker is lost and the group has not noticed: whatever is under way fails. The caller
// calls done, which waits for that.
func (x *exchange) closeOn(ctx context.Context) (done func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		if x.g != nil && train.LostOf(ctx) != nil {
			_ = x.g.Close()
		}
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}

func (x *exchange) close() {
	if x.g != nil {
		if x.rank == 0 {
			x.measured.tell(x.run.Recorder, x.run.At().Step)
		}
		_ = x.g.Close() // the others hear it or see the link end
		x.late.end()
		_ = x.stream.Close()
	}
}

// accumulate computes the gradient piece by piece.
func (x *exchange) accumulate(batch *trivium.Batch) (loss, weight float64, err error) {
	n := min(x.accumulated, batch.Rows)
	return x.pieces.Sum(n, x.own, func(k int, g trivium.Gradient, ready func(int)) (float64, float64, error) {
		batch.SliceInto(&x.piece, k*batch.Rows/n, (k+1)*batch.Rows/n)
		return x.run.ModelGrad(x.run.Params, x.piece, g, ready)
	}, x.ready)
}
