package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/observe/relay"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// train runs the strategy. One that is asked to end before it begins is interrupted, whatever it was doing.
func (w *worker) train(ctx context.Context) (trivium.Result, error) {
	strategy, done, err := w.begin(ctx)
	defer done()
	switch why := context.Cause(ctx); {
	case err == nil:
	case errors.Is(why, context.Canceled):
		return trivium.Result{Reason: trivium.Interrupted}, nil
	case why != nil:
		return trivium.Result{Reason: trivium.Failed}, why
	default:
		return trivium.Result{Reason: trivium.Failed}, err
	}
	r, err := strategy.Train(ctx, w.job)
	if x, ok := strategy.(Reporter); ok && err == nil {
		w.reported, err = x.Report()
	}
	return r, err
}

// begin returns the strategy, once all workers are there. done is to be called in any case.
func (w *worker) begin(ctx context.Context) (s trivium.Strategy, done func(), err error) {
	done = func() {}
	if w.job, err = trivium.DecodeJob(w.a.Job); err != nil {
		return nil, done, &train.JobError{Err: err}
	}
	topology, ok := w.o.Topologies.Find(w.a.Topology)
	if !ok {
		return nil, done, &train.JobError{Err: fmt.Errorf("processes: this program has no topology %q", w.a.Topology)}
	}
	env, done, err := w.env(ctx, topology)
	if err != nil {
		return nil, done, err
	}
	if err := w.ready(ctx, env.Splits); err != nil {
		return nil, done, err
	}
	select {
	case <-w.went:
	case <-ctx.Done():
	}
	select {
	case <-w.went: // so have all, whatever came since: one that went no further would be missed
	default:
		return nil, done, context.Cause(ctx)
	}
	if err := w.join(train.UntilLost(ctx), &env); err != nil {
		return nil, done, err
	}
	if s, err = topology.New(env, w.a.Options); err != nil {
		return nil, done, &train.JobError{Err: err}
	}
	return s, done, nil
}

// A Reporter is a strategy that has more to tell than a Result: the driver gets what it returns at rank 0.
type Reporter interface{ Report() ([]byte, error) }

// ready tells the driver what this worker will train on.
func (w *worker) ready(ctx context.Context, splits *data.Splits) error {
	if splits == nil {
		return w.send(ctx, kindReady, ready{})
	}
	schema, err := json.Marshal(splits.Train.Schema())
	if err != nil {
		return err
	}
	r := ready{Label: control.Text(splits.LabelColumn()), Checksum: splits.Checksum, Rows: splits.Train.Rows(), Schema: schema}
	for _, note := range splits.Notes { // which name files
		r.Notes = append(r.Notes, control.Text(note))
	}
	return w.send(ctx, kindReady, r)
}

// env makes what this process brings: threads, data, the driver's store. done is to be called in any case.
func (w *worker) env(ctx context.Context, topology Topology) (env train.Env, done func(), err error) {
	var closers []func()
	done = func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}
	a := w.a
	cpu := tensor.NewCPU(a.Threads, w.job.Exact)
	if a.Adapt && a.Workers == 1 {
		cpu.Adapt()
	}
	closers = append(closers, cpu.Close)
	hub := observe.NewHub(observe.Options{Start: a.Start}) // its events are told to the driver
	env = train.Env{
		Run: a.Run, CPU: cpu, Models: w.o.Models, Sources: w.o.Sources, Optimizers: w.o.Optimizers, Metrics: w.o.Metrics, Port: w.port, Notes: a.Notes, Observe: hub, Log: w.log,
		Checkpoints: train.Checkpoints{Every: a.CheckpointEvery}, Watch: w.watch(), Narrow: w.o.Narrow, Near: w.o.Network == nil && a.Network.Near(),
		MayShareMemory: w.o.Network == nil && a.Network.Listen == "",
		Walk:           w.walk(topology), Unsummed: a.Summed || a.Index > 0, // the first worker's is the run's
	}
	env.Budget = a.budget()
	var wait sync.WaitGroup
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	closers = append(closers, wait.Wait, cancel)
	store := func(name string) (*remote.Client, error) {
		s, err := w.port.Stream(name, transport.StreamOptions{MaxFrame: remote.Piece + 1<<16})
		if err != nil {
			return nil, err
		}
		c := remote.NewClient(s, a.Driver)
		wait.Go(func() { _ = c.Run(running) }) // ends with its context
		return c, nil
	}
	if a.Saves && a.Index == 0 { // rank 0 saves for all
		if env.Blob, err = store(blobStream); err != nil {
			return env, done, err
		}
	}
	if a.Serves() {
		env.Role = observe.Server
	} else if a.Resume != "" {
		from, err := store(resumeStream)
		if err != nil {
			return env, done, err
		}
		if env.Resume, err = checkpoint.Load(ctx, from, a.Resume); err != nil {
			return env, done, err
		}
		env.OwnResume = true
	}
	hub.Attach("driver", relay.NewSender(func(p []byte) error { return w.observed(p) }))
	if w.o.Network == nil { // else it is the driver's process, whose figures are taken once, by the driver
		figures := hub.Recorder(observe.Source{Run: a.Run, Strategy: a.Topology, Role: observe.Process, Rank: a.Index})
		hub.Poll(host.NewReader(host.Options{}).Into(figures.Set()))
	}
	wait.Go(func() { _ = hub.Run(running) }) // ends with its context

	if topology.Bare || a.Serves() {
		return env, done, nil
	}
	switch {
	case a.Shipped:
		env.Splits, err = w.ship.wait(ctx)
		env.Sharded = topology.Shards
	case w.o.Open != nil:
		env.Splits, err = w.o.Open(ctx, env, w.job)
	default:
		env.Splits, err = train.OpenData(ctx, env, w.job)
	}
	if err != nil {
		return env, done, &train.JobError{Err: err}
	}
	if a.Shipped || w.o.Open == nil {
		closers = append(closers, func() { _ = env.Splits.Close() }) // it was only read
	}
	if env.Splits.Train == nil {
		return env, done, &train.JobError{Err: errors.New("processes: there are no rows to train on")}
	}
	return env, done, nil
}

// budget is the memory for the rows of a file at one worker: those that are on one machine share what it has.
func (a *Assignment) budget() int64 {
	facts, _ := host.Describe(host.Options{}) // what could not be read is zero
	memory := facts.Memory()
	if a.Network.Near() {
		memory /= int64(max(1, a.Workers))
	}
	return data.BudgetOf(memory)
}

// walk is how this worker is expected to walk the training rows, so that it generates no others; nil: it may want any, or the look for the
// checksum meets all that it wants.
func (w *worker) walk(t Topology) func(rows int64) data.BatchOptions {
	a, job := w.a, w.job
	if a.Workers == 1 && !a.Summed || job.Data.Order != "index" {
		return nil
	}
	return func(rows int64) data.BatchOptions {
		o := data.BatchOptions{Batch: job.Batch, Last: job.Last, Part: a.Index, Parts: a.Workers}
		switch {
		case t.Shards:
			o.Batch, o.Last = trivium.FullBatch, trivium.LastKeep
		case t.Round != nil:
			o.Batch = t.Round(job, a.Options, rows)
		}
		if job.Exact {
			n := job.VirtualShards()
			from, to := shards.Of(a.Index, a.Workers, n)
			if o.Part, o.Parts, o.Span = from, n, to-from; from == to {
				o.Part, o.Span = 0, -1
			}
		}
		return o
	}
}

// observed hands what is observed to the driver: the hub's goroutine waits where that takes nothing, since an error would end its observation.
func (w *worker) observed(payload []byte) error {
	return w.insist(transport.Frame{Kind: kindObservation, Payload: payload})
}

// watch tells the driver what a command shows.
func (w *worker) watch() train.Watch {
	at := func(kind uint8) func(train.Progress) {
		return func(p train.Progress) { w.tell(kind, positionOf(p)) }
	}
	return train.Watch{
		Begin:    at(kindBegin),
		Progress: at(kindProgress),
		Evaluated: func(p train.Progress, m map[string]float64) {
			q := positionOf(p)
			q.Metrics = m
			w.tell(kindEvaluated, q)
		},
		Checkpointed: func(p train.Progress, name string) {
			q := positionOf(p)
			q.Name = name
			w.tell(kindCheckpointed, q)
		},
		Note:   func(text string) { w.tell(kindSaid, said{Text: text}) },
		Notice: func(level observe.Level, text string) { w.tell(kindSaid, said{true, level, text}) },
	}
}
