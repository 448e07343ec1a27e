package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// TrialName is the topology of a worker process that is measured.
const TrialName = "trial"

// A trialOrder is what a measured worker is told: the topology that it is to run, and how.
type trialOrder struct {
	Topology  string          `json:"topology"`
	Options   json.RawMessage `json:"options,omitempty"`
	Mode      Mode            `json:"mode"`
	Clocks    int64           `json:"clocks,omitempty"` // an epoch has so many updates, however large the batch
	WarmUp    float64         `json:"warm_up"`          // seconds at least, after warmUpdates
	Updates   int64           `json:"updates"`          // at least
	Seconds   float64         `json:"seconds"`          // at least, at the speed of the warm-up's end
	Longest   float64         `json:"longest"`          // seconds from the warm-up's start on, if need be with fewer updates; 0: no bound
	Snapshots []int64         `json:"snapshots"`
	Dir       string          `json:"dir"`
}

// A trialReport is what rank 0 tells when all is done.
type trialReport struct {
	Updates   int64     `json:"updates"` // measured
	Samples   int64     `json:"samples"` // in them, of all workers
	Clocks    []float64 `json:"clocks"`  // seconds of each worker's clock
	Snapshots []kept    `json:"snapshots"`
	Warm      int64     `json:"warm"` // updates of the warm-up

	Phases []float64 `json:"phases"` // seconds of all workers, by observe.Phase
	Stale  []float64 `json:"stale"`  // reads of all workers, by how many clocks they were behind; the last: so many or more
}

// staleBuckets are more than any bound that is measured.
const staleBuckets = 16

// Trials is the topology in which worker processes are measured: they run one of inner several times, in the same process and on the
// same links. The first runs warm up, on parameters that are then gone; before the last there is a barrier, and then the clock starts.
func Trials(inner processes.Topologies) processes.Topology {
	return processes.Topology{
		Name: TrialName, Round: round,
		New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
			t := &trial{env: env}
			if err := json.Unmarshal(options, &t.order); err != nil {
				return nil, fmt.Errorf("compare: the order of a trial: %w", err)
			}
			var ok bool
			if t.inner, ok = inner.Find(t.order.Topology); !ok {
				return nil, fmt.Errorf("compare: this program has no topology %q", t.order.Topology)
			}
			return t, nil
		},
	}
}

// round is processes.Topology's: rows with clocks meet so often an epoch, however large the batch.
func round(job *trivium.Job, options json.RawMessage, rows int64) int {
	var o trialOrder
	if err := json.Unmarshal(options, &o); err != nil || o.Clocks == 0 {
		return job.Batch
	}
	return perClock(rows, o.Clocks)
}

// perClock is how many rows lie between two clocks, of which an epoch has so many.
func perClock(rows, clocks int64) int { return int((rows + clocks - 1) / clocks) }

// InnerTopology is the topology that an order of a trial names.
func InnerTopology(options json.RawMessage) string {
	var o trialOrder
	_ = json.Unmarshal(options, &o) // then it names none
	return o.Topology
}

// A trial is one process's part of it.
type trial struct {
	env    train.Env
	order  trialOrder
	inner  processes.Topology
	job    *trivium.Job
	group  *collective.Group // of all processes; nil: there is one
	peers  *collective.Group // of the workers
	clock  stopwatch
	kept   []kept
	report trialReport

	closers []func() error // last first
}

// A stopwatch stands still between Stop and Start.
type stopwatch struct {
	running bool
	since   time.Time
	sum     time.Duration
}

func (w *stopwatch) start() { w.running, w.since = true, time.Now() }

func (w *stopwatch) stop() {
	if w.running {
		w.sum += time.Since(w.since)
		w.running = false
	}
}

// Train implements trivium.Strategy.
func (t *trial) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	t.job = job
	defer func() { // the others hear it, or see the links end
		for _, f := range slices.Backward(t.closers) {
			_ = f()
		}
	}()
	if err := t.join(); err != nil {
		return ended(ctx, err)
	}
	began := time.Now()
	perUpdate, warm, err := t.warmUp(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	n, err := t.agree(ctx, t.order.measured(perUpdate, time.Since(began)))
	if err != nil {
		return ended(ctx, err)
	}
	t.report.Warm = warm
	return t.measure(ctx, n)
}

// measured is how many updates a trial makes after the warm-up, in which so much time has gone, and an update took perUpdate in the end.
func (o *trialOrder) measured(perUpdate float64, gone time.Duration) int64 {
	if perUpdate <= 0 {
		return o.Updates
	}
	return atMost(max(o.Updates, int64(math.Ceil(o.Seconds/perUpdate))), o.Longest, gone, perUpdate)
}

// atMost is n, or as many updates as there is time for within so many seconds.
func atMost(n int64, seconds float64, gone time.Duration, perUpdate float64) int64 {
	if seconds == 0 {
		return n
	}
	return min(n, max(1, int64((seconds-gone.Seconds())/perUpdate)))
}

// ended is what a trial returns that did not come to its end: an interrupt is no failure, but the loss of another process is, and it is
// told as what it is. That one may have left because of what went wrong there, such as a loss that is no number: its own words count for more
// than that the others miss it, also where these come first.
func ended(ctx context.Context, err error) (trivium.Result, error) {
	if blame, ok := errors.AsType[*collective.Blame](err); ok && blame.Cause == collective.Lost {
		err = &train.LostError{Peer: blame.Name, Why: err.Error()}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return trivium.Result{Reason: trivium.Failed}, cause
	}
	return train.NotBegun(ctx, err)
}

// Report implements processes.Reporter.
func (t *trial) Report() ([]byte, error) { return json.Marshal(t.report) }

// serves reports whether this process trains nothing.
func (t *trial) serves() bool { return t.env.Role == observe.Server }

// join makes the group in which all processes, servers too, agree and meet.
func (t *trial) join() error {
	peers := slices.Concat(t.env.Peers, t.env.Servers)
	if len(peers) < 2 || t.env.Port == nil {
		return nil
	}
	self := t.env.Rank
	if t.serves() {
		self += len(t.env.Peers)
	}
	var err error
	if t.group, err = t.open("trial", peers, self); err != nil || t.serves() {
		return err
	}
	t.peers, err = t.open("trial workers", t.env.Peers, self)
	return err
}

func (t *trial) open(stream string, peers []transport.Name, self int) (*collective.Group, error) {
	s, err := t.env.Port.Stream(stream, transport.StreamOptions{})
	if err != nil {
		return nil, err
	}
	t.closers = append(t.closers, s.Close)
	// Servers wait at the barrier for as long as the workers train.
	g, err := collective.New(s, collective.View{Epoch: t.env.Epoch, Peers: peers, Self: self}, collective.Options{
		Deadline: 2 * trialLimit, Straggler: 2 * trialLimit,
	})
	if err != nil {
		return nil, err
	}
	t.closers = append(t.closers, g.Close)
	return g, nil
}

// agree returns rank 0's number.
func (t *trial) agree(ctx context.Context, n int64) (int64, error) {
	if t.group == nil {
		return n, nil
	}
	x := []float64{0}
	if t.group.Rank() == 0 {
		x[0] = float64(n)
	}
	err := t.group.AllReduce64(ctx, x)
	return int64(x[0]), err
}

func (t *trial) barrier(ctx context.Context) error {
	if t.group == nil {
		return nil
	}
	return t.group.Barrier(ctx)
}

// warmUp trains until both the updates and the time of the rule are over, and returns how long an update took in the end.
func (t *trial) warmUp(ctx context.Context) (perUpdate float64, updates int64, err error) {
	n := int64(warmUpdates)
	if t.job.Batch == trivium.FullBatch {
		n = warmFull
	}
	for phase, spent := 1, 0.0; n > 0; phase++ {
		var clock stopwatch
		watch := train.Watch{Begin: func(train.Progress) { clock.start() }}
		between := train.Between{After: func(_ context.Context, step int64, _ func(context.Context) (trivium.Params, error)) error {
			if step == n {
				clock.stop()
			}
			return nil
		}}
		if err := t.run(ctx, fmt.Sprintf("warm-up %d ", phase), n+1, between, &watch, false); err != nil {
			return 0, 0, err
		}
		took := clock.sum.Seconds()
		perUpdate = took / float64(n)
		updates += n + 1 // what follows the last of them is not timed
		spent += took
		left := t.order.WarmUp - spent
		if left < 0.05*t.order.WarmUp { // near enough
			left = 0
		}
		if n, err = t.agree(ctx, int64(math.Ceil(left/perUpdate))); err != nil {
			return 0, 0, err
		}
	}
	return perUpdate, updates, nil
}

// run trains n updates from the job's initial parameters. Streams have names of their own in each run.
func (t *trial) run(ctx context.Context, prefix string, n int64, between train.Between, watch *train.Watch, observed bool) error {
	env := t.env
	env.AtEnd, env.Blob, env.Between, env.Watch = true, nil, between, *watch
	if !observed {
		env.Observe = nil
	}
	if env.Port != nil {
		env.Port = prefixed{env.Port, prefix}
	}
	if env.Splits != nil { // nothing is evaluated within a trial
		env.Splits = &data.Splits{Train: env.Splits.Train, Transform: env.Splits.Transform, Checksum: env.Splits.Checksum}
	}
	job := *t.job
	job.Steps, job.Epochs, job.Stop, job.EvalEvery = n, 0, trivium.EarlyStop{}, 0
	strategy, err := t.inner.New(env, t.order.Options)
	if err != nil {
		return err
	}
	if t.serves() {
		return t.serve(ctx, strategy, &job)
	}
	if _, err = strategy.Train(ctx, &job); err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return t.barrier(ctx)
}

// serve is run for a process that only serves: until the workers are through.
func (t *trial) serve(ctx context.Context, strategy trivium.Strategy, job *trivium.Job) error {
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := strategy.Train(serving, job)
		done <- err
	}()
	met := make(chan error, 1)
	go func() { met <- t.barrier(ctx) }()
	select {
	case err := <-done: // it should not end before the workers
		cancel()
		if err == nil {
			err = errors.New("compare: the server ended before the workers")
		}
		return err
	case err := <-met:
		cancel()
		return errors.Join(err, <-done)
	}
}

// endNote is how the driver hears that the clock stands still.
const endNote = "trial: the clock stands still"

// measure is the run that counts: n updates from the barrier on, and one more, so that no worker's end is in another's time.
func (t *trial) measure(ctx context.Context, n int64) (trivium.Result, error) {
	due := map[int64]bool{}
	for _, s := range t.order.Snapshots {
		due[s] = s <= n
	}
	first := t.env.Rank == 0
	watch := t.env.Watch
	begin, note := watch.Begin, watch.Note
	// Where workers wait for nobody, rank 0 may be long through, or late: what all of them took is counted until all are, at the barrier.
	apart := t.order.Mode == Async
	said := func() {
		if first && !t.serves() && note != nil {
			note(endNote)
		}
	}
	var between train.Between
	between.After = func(ctx context.Context, step int64, latest func(context.Context) (trivium.Params, error)) error {
		if step == n {
			t.clock.stop()
			if !apart {
				said()
			}
		}
		if !first || !due[step] {
			return nil
		}
		return t.keep(ctx, step, latest)
	}
	var failed error
	watch.Begin = func(p train.Progress) {
		if begin != nil {
			begin(p)
		}
		if t.peers != nil {
			failed = t.peers.Barrier(ctx)
		}
		t.clock.start()
	}
	watch.Evaluated, watch.Note = nil, nil
	// What is observed stays here until the end: to send every step would cost the trial its time.
	hub := observe.NewHub(observe.Options{})
	t.env.Observe = hub
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = hub.Run(watching) }() // ends with its context
	err := errors.Join(t.run(ctx, "", n+1, between, &watch, true), failed)
	if err == nil && apart {
		said()
	}
	cancel()
	<-done
	if err != nil {
		return ended(ctx, err)
	}
	return t.finish(ctx, n, hub)
}

// finish writes the snapshots and adds up what the workers counted.
func (t *trial) finish(ctx context.Context, n int64, hub *observe.Hub) (trivium.Result, error) {
	workers := max(1, len(t.env.Peers))
	sums := make([]float64, workers+observe.NumPhases+staleBuckets)
	if !t.serves() {
		sums[t.env.Rank] = t.clock.sum.Seconds()
		count(hub, sums[workers:workers+observe.NumPhases], sums[workers+observe.NumPhases:])
	}
	if t.group != nil {
		if err := t.group.AllReduce64(ctx, sums); err != nil {
			return ended(ctx, err)
		}
	}
	r := &t.report
	r.Updates, r.Clocks, r.Phases, r.Stale = n, sums[:workers], sums[workers:workers+observe.NumPhases], sums[workers+observe.NumPhases:]
	if t.env.Rank == 0 && !t.serves() {
		job := *t.job
		if c := t.order.Clocks; c > 0 {
			job.Batch = perClock(t.env.Splits.Train.Rows(), c)
		}
		r.Samples = samplesOf(&job, t.env.Splits.Train.Rows(), n)
		if err := t.write(); err != nil {
			return ended(ctx, err)
		}
	}
	return trivium.Result{Reason: trivium.Finished, Steps: n, Samples: r.Samples}, nil
}

// count adds up what hub collected of this worker.
func count(hub *observe.Hub, phases, stale []float64) {
	for _, r := range hub.Latest() {
		f := &r.Frame
		for _, p := range observe.Phases() {
			phases[p] += time.Duration(f.Counter(observe.PhaseTime(p))).Seconds()
		}
		for b, n := range f.Distributions[observe.Staleness].Buckets {
			lo, _ := observe.BucketBounds(b)
			stale[min(lo, staleBuckets-1)] += float64(n)
		}
	}
}

// samplesOf is what n updates consume.
func samplesOf(job *trivium.Job, rows, n int64) int64 {
	if job.Batch == trivium.FullBatch {
		return n * rows
	}
	b := int64(job.Batch)
	each := rows / b
	if job.Last == trivium.LastDrop {
		return n * b
	}
	per := each
	if rows%b > 0 {
		per++
	}
	epochs := n / per
	return epochs*rows + min(n%per*b, rows)
}

// A prefixed port gives its streams names of their own.
type prefixed struct {
	transport.Port
	prefix string
}

func (p prefixed) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	return p.Port.Stream(p.prefix+name, o)
}
