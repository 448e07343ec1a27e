package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/observe/relay"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// Options are what a worker's program brings to any job.
type Options struct {
	Models     nn.Models
	Sources    data.Sources
	Topologies Topologies
	Build      string       // names the program's code: all processes of a job must have the same
	Log        *slog.Logger // nil discards

	Narrow func() // train.Env's

	Network transport.Network // given: taken in place of the Assignment's, which workers in the driver's own process need
}

// A Topology is a strategy that many processes run.
type Topology struct {
	Name  string
	Check func(job *trivium.Job) error // what it cannot do; nil: it can do all
	New   func(env train.Env, options json.RawMessage) (trivium.Strategy, error)

	Bare   bool // it reads no data and trains nothing
	Shards bool // each worker walks the epochs of its own rows, so that their progress adds up
}

// Topologies are those that a program knows.
type Topologies []Topology

// Find returns the topology of that name.
func (t Topologies) Find(name string) (Topology, bool) {
	for _, x := range t {
		if x.Name == name {
			return x, true
		}
	}
	return Topology{}, false
}

// A worker is this process's part of a job.
type worker struct {
	a      *Assignment
	o      Options
	job    *trivium.Job
	log    *slog.Logger
	port   transport.Port
	stream transport.Stream // the job's

	stop     context.CancelCauseFunc // of training
	reported []byte
	ship     shipment
	went     chan struct{} // closed by kindBegin: all workers are ready
	end      chan struct{} // closed by kindEnd, or by the loss of the driver
	once     struct{ went, end sync.Once }
	view     struct {
		sync.Mutex
		members *cluster.Membership
	}
	meta      *meta.Client
	following sync.WaitGroup
}

// Work is the life of a worker: it trains its part of a's job, and returns when its driver says so. What went wrong with the job is
// told to the driver; the error is of the process alone, such as that its driver is gone.
func Work(ctx context.Context, a *Assignment, o Options) (err error) {
	w := &worker{a: a, o: o, log: o.Log, went: make(chan struct{}), end: make(chan struct{})}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.ship = newShipment()
	network := o.Network
	if network == nil {
		if network, err = a.Network.Open(); err != nil {
			return err
		}
	}
	if w.port, err = network.Open(ctx, a.Name(), a.Network.Options(w.log)); err != nil {
		return fmt.Errorf("processes: %v: %w", a.Name(), err)
	}
	defer func() { err = errors.Join(err, w.port.Close()) }()
	if err := w.port.Know(a.Driver, a.DriverAddr); err != nil {
		return err
	}
	if w.stream, err = w.port.Stream(jobStream, transport.StreamOptions{MaxFrame: maxMessage}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	training, stop := context.WithCancelCause(ctx)
	w.stop = stop
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	defer stop(nil)
	wait.Go(func() { w.listen(ctx) })
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	if err := w.send(ctx, kindHello, hello{o.Build, hostname, os.Getpid()}); err != nil {
		return err
	}
	r, err := w.train(training)
	w.ship.close() // what still comes must not hold up the listener
	w.report(ctx, r, err)
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-w.end:
	case <-ctx.Done():
	case <-timer.C:
	}
	w.leave() // not before the others are done too: they would miss this worker
	return nil
}

const (
	maxMessage = 8 << 20          // bytes on the job stream
	endWait    = 30 * time.Second // for the driver to take the result
)

// send sends a message to the driver.
func (w *worker) send(ctx context.Context, kind uint8, v any) error {
	f, err := message(kind, v)
	if err != nil {
		return err
	}
	if err := w.stream.Send(ctx, w.a.Driver, f); err != nil {
		return fmt.Errorf("processes: to the driver: %w", err)
	}
	return nil
}

// tell is send for what may be lost: the run does not depend on it.
func (w *worker) tell(kind uint8, v any) {
	ctx, cancel := context.WithTimeout(context.Background(), tellWait)
	defer cancel()
	if err := w.send(ctx, kind, v); err != nil {
		w.log.Warn("not told to the driver", "error", err)
	}
}

const tellWait = 5 * time.Second

// listen takes the driver's messages until ctx ends.
func (w *worker) listen(ctx context.Context) {
	for {
		ev, err := w.stream.Recv(ctx)
		if err != nil {
			return
		}
		if ev.From == w.a.Driver {
			w.hear(&ev)
		}
		ev.Release()
	}
}

func (w *worker) hear(ev *transport.Event) {
	if ev.What == transport.LinkLost {
		w.stop(&train.LostError{Peer: w.a.Driver, Why: ev.Err.Error()})
		w.once.end.Do(func() { close(w.end) })
		return
	}
	switch ev.Kind {
	case kindBegin:
		w.once.went.Do(func() { close(w.went) })
	case kindStop:
		w.stop(nil)
	case kindAbort:
		var s said
		if err := control.Decode("abort", ev.Payload, &s); err != nil {
			s.Text = err.Error()
		}
		w.stop(&train.LostError{Peer: w.a.Driver, Why: s.Text})
	case kindEnd:
		w.once.end.Do(func() { close(w.end) })
	case kindRows:
		w.ship.take(ev.Payload)
	case kindDied:
		var d died
		if err := control.Decode("died", ev.Payload, &d); err != nil {
			w.log.Warn("message refused", "error", err)
			return
		}
		name := transport.Name{Job: w.a.Run, Role: d.Role, ID: d.ID, Incarnation: d.Incarnation}
		w.view.Lock()
		m := w.view.members
		w.view.Unlock()
		if m != nil {
			m.Died(name, errors.New(d.Why))
		}
	}
}

// train runs the strategy, once all workers are there.
func (w *worker) train(ctx context.Context) (trivium.Result, error) {
	none := trivium.Result{Reason: trivium.Failed}
	var err error
	if w.job, err = trivium.DecodeJob(w.a.Job); err != nil {
		return none, &train.JobError{Err: err}
	}
	topology, ok := w.o.Topologies.Find(w.a.Topology)
	if !ok {
		return none, &train.JobError{Err: fmt.Errorf("processes: this program has no topology %q", w.a.Topology)}
	}
	env, done, err := w.env(ctx, topology.Bare || w.a.Serves())
	defer done()
	if err != nil {
		return none, err
	}
	if err := w.ready(ctx, env.Splits); err != nil {
		return none, err
	}
	select {
	case <-w.went:
	case <-ctx.Done():
		return train.NotBegun(ctx, context.Cause(ctx))
	}
	if err := w.join(ctx, &env); err != nil {
		return none, err
	}
	strategy, err := topology.New(env, w.a.Options)
	if err != nil {
		return none, &train.JobError{Err: err}
	}
	r, err := strategy.Train(ctx, w.job)
	if x, ok := strategy.(Reporter); ok && err == nil {
		w.reported, err = x.Report()
	}
	return r, err
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
	return w.send(ctx, kindReady, ready{splits.Checksum, splits.Train.Rows(), schema, splits.Notes})
}

// env makes what this process brings: threads, data, the driver's store. done is to be called in any case.
func (w *worker) env(ctx context.Context, bare bool) (env train.Env, done func(), err error) {
	var closers []func()
	done = func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}
	a := w.a
	cpu := tensor.NewCPU(a.Threads, w.job.Exact)
	closers = append(closers, cpu.Close)
	hub := observe.NewHub(observe.Options{Start: a.Start}) // its events are told to the driver
	env = train.Env{
		Run: a.Run, CPU: cpu, Models: w.o.Models, Sources: w.o.Sources, Port: w.port, Notes: a.Notes, Observe: hub, Log: w.log,
		Checkpoints: train.Checkpoints{Every: a.CheckpointEvery}, Watch: w.watch(), Narrow: w.o.Narrow,
	}
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
	}
	hub.Attach("driver", relay.NewSender(func(p []byte) error { return w.observed(p) }))
	figures := hub.Recorder(observe.Source{Run: a.Run, Strategy: a.Topology, Role: observe.Process, Rank: a.Index})
	hub.Poll(host.NewReader(host.Options{}).Into(figures.Set()))
	wait.Go(func() { _ = hub.Run(running) }) // ends with its context

	if bare {
		return env, done, nil
	}
	if a.Shipped {
		env.Splits, err = w.ship.wait(ctx)
		env.Sharded = true
	} else {
		env.Splits, err = train.OpenData(ctx, env, w.job)
	}
	if err != nil {
		if ctx.Err() != nil {
			return env, done, context.Cause(ctx)
		}
		return env, done, &train.JobError{Err: err}
	}
	closers = append(closers, func() { _ = env.Splits.Close() }) // it was only read
	if env.Splits.Train == nil {
		return env, done, &train.JobError{Err: errors.New("processes: there are no rows to train on")}
	}
	return env, done, nil
}

func (w *worker) observed(payload []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), tellWait)
	defer cancel()
	return w.stream.Send(ctx, w.a.Driver, transport.Frame{Kind: kindObservation, Payload: payload})
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

// join becomes a member of the job's group, waits until all workers are, and fills in env's place. From then on the loss of a member
// ends training. What it opens, leave closes.
func (w *worker) join(ctx context.Context, env *train.Env) error {
	views, err := w.port.Stream(viewStream, transport.StreamOptions{})
	if err != nil {
		return err
	}
	metas, err := w.port.Stream(metaStream, transport.StreamOptions{})
	if err != nil {
		return err
	}
	w.meta = meta.NewClient(metas, w.a.Driver)
	self := cluster.Member{Name: w.port.Name(), Addr: w.port.Addr()}
	m, err := cluster.Join(ctx, w.meta, views, self, cluster.Policy{
		StartWorkers: w.a.Workers + w.a.Servers, MaxWorkers: w.a.Workers + w.a.Servers, Forget: w.port.Forget,
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	w.view.Lock()
	w.view.members = m
	w.view.Unlock()
	first := make(chan cluster.View, 1)
	w.following.Go(func() { w.follow(m, first) })
	select {
	case v, ok := <-first:
		if !ok {
			return context.Cause(ctx)
		}
		return w.place(v, env)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends what join began.
func (w *worker) leave() {
	w.view.Lock()
	m := w.view.members
	w.view.Unlock()
	var errs []error
	if m != nil {
		errs = append(errs, m.Close())
		w.following.Wait()
	}
	if w.meta != nil {
		errs = append(errs, w.meta.Close())
	}
	if err := errors.Join(errs...); err != nil {
		w.log.Warn("left without a word", "error", err)
	}
}

// place fills in this worker's place among the members of v: ranks are the workers' numbers, whatever order they joined in.
func (w *worker) place(v cluster.View, env *train.Env) error {
	env.Rank, env.Epoch, env.Peers = w.a.Index, v.Epoch, make([]transport.Name, w.a.Workers)
	env.Servers = make([]transport.Name, w.a.Servers)
	if w.a.Serves() {
		env.Rank -= w.a.Workers
	}
	for _, m := range v.Members {
		among := env.Peers
		if m.Name.Role == "server" {
			among = env.Servers
		}
		i, err := strconv.Atoi(m.Name.ID)
		if err != nil || i < 0 || i >= len(among) {
			return fmt.Errorf("processes: %v is a member of the job's group, and no worker of it", m.Name)
		}
		among[i] = m.Name
		if err := w.port.Know(m.Name, m.Addr); err != nil {
			return err
		}
	}
	return nil
}

// follow hands on the first view that has all workers, and ends training when a later one lacks one.
func (w *worker) follow(m *cluster.Membership, first chan<- cluster.View) {
	defer close(first)
	var whole *cluster.View
	for v, err := range m.Views() {
		switch {
		case err != nil:
			w.stop(err)
			return
		case whole == nil && len(v.Members) == w.a.Workers+w.a.Servers && v.Self >= 0:
			whole = &v
			first <- v
		case whole != nil:
			for _, old := range whole.Members {
				if !contains(v.Members, old.Name) {
					w.stop(&train.LostError{Peer: old.Name, Why: fmt.Sprintf("it is not in view %d any more", v.Epoch)})
					return
				}
			}
		}
	}
}

func contains(members []cluster.Member, n transport.Name) bool {
	for _, m := range members {
		if m.Name == n {
			return true
		}
	}
	return false
}

// report tells the driver how training ended.
func (w *worker) report(ctx context.Context, r trivium.Result, err error) {
	out := result{Reason: r.Reason, Steps: r.Steps, Epochs: r.Epochs, Samples: r.Samples, Metrics: r.Metrics, Report: w.reported}
	var diverged *trivium.DivergedError
	var misuse *train.JobError
	var mistake *data.Error
	var lost *train.LostError
	switch {
	case err == nil:
	case errors.As(err, &diverged):
		out.Fault, out.Tensor, out.Loss = faultDiverged, diverged.Tensor, diverged.Loss
	case errors.As(err, &lost), errors.Is(err, transport.ErrLinkLost), errors.Is(err, io.EOF):
		out.Fault = faultUnreachable
		if lost != nil {
			out.Lost = lost.Peer.Role + "/" + lost.Peer.ID
		}
	case errors.As(err, &misuse), errors.As(err, &mistake):
		out.Fault = faultMisuse
	default:
		out.Fault = faultOther
	}
	if err != nil {
		out.Error = err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWait)
	defer cancel()
	if err := w.send(ctx, kindResult, out); err != nil {
		w.log.Warn("the result was not told", "error", err)
	}
}
