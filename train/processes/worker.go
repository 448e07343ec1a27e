package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// Options are what a worker's program brings to any job.
type Options struct {
	Models     nn.Models
	Sources    data.Sources
	Optimizers optim.Optimizers
	Metrics    metric.Metrics
	Topologies Topologies
	Build      string       // names the program's code: all processes of a job must have the same
	Log        *slog.Logger // nil discards

	// Asked is closed when this process is asked to end, as by SIGTERM. It tells its driver, which has all end after the update at hand.
	Asked <-chan struct{}

	Narrow func() // train.Env's

	// Open opens the data, and who gave it closes it: workers of one process read the same. nil: this worker opens its own, and closes it.
	Open func(ctx context.Context, env train.Env, job *trivium.Job) (*data.Splits, error)

	// Network is taken in place of the Assignment's by workers in the driver's own process, which need it. What that process takes of its
	// machine is then the driver's to measure.
	Network transport.Network
}

// A Topology is a strategy that many processes run.
type Topology struct {
	Name  string
	Check func(job *trivium.Job) error // what it cannot do; nil: it can do all
	New   func(env train.Env, options json.RawMessage) (trivium.Strategy, error)

	Bare   bool // it reads no data and trains nothing
	Shards bool // each worker walks the epochs of its own rows, so that their progress adds up
	// Round is the number of rows, of so many, that lie between two meetings of the workers; nil: the job's batch.
	Round func(job *trivium.Job, options json.RawMessage, rows int64) int

	// Apart says whether workers need not be after the same update: each counts all rows of its own, so that the job's are the mean. nil: they are.
	Apart func(options json.RawMessage) bool
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

	stop     context.CancelFunc      // asks training to end
	lose     context.CancelCauseFunc // fails it
	reported []byte
	ship     shipment
	went     chan struct{}   // closed by kindBegin: all workers are ready
	end      chan struct{}   // closed by kindEnd, or by the loss of the driver
	over     <-chan struct{} // closed when Work's context ends
	words    *words
	once     struct{ went, end sync.Once }
	view     struct {
		sync.Mutex
		members *cluster.Membership
	}
	meta      *meta.Client
	following sync.WaitGroup
}

// Work is the life of a worker: it trains its part of a's job, and returns when its driver says so. What went wrong with the job is
// told to the driver; the error is of the process alone, such as that its driver is gone. The end of ctx ends it at once, and the others miss it.
func Work(ctx context.Context, a *Assignment, o Options) (err error) {
	w := &worker{a: a, o: o, log: o.Log, went: make(chan struct{}), end: make(chan struct{}), words: newWords()}
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
	w.over = ctx.Done()
	var training context.Context
	training, w.stop, w.lose = train.Member(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	defer w.stop()
	wait.Go(func() { w.listen(ctx) })
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	if err := w.send(ctx, kindHello, hello{o.Build, hostname, os.Getpid()}); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("processes: the driver stands still, and has not answered in time: %w", errors.Unwrap(err))
		}
		return err
	}
	wait.Go(func() { w.live(ctx) })
	defer w.words.finish() // where training panics: a panic is printed, and ends the process, once what is deferred is done
	wait.Go(w.talk)
	wait.Go(func() {
		select {
		case <-o.Asked:
			// The driver asks all, this one too: one that went by itself would be missed.
			if err := w.insist(transport.Frame{Kind: kindAsked, Priority: transport.Data}); err != nil {
				w.log.Warn("not told to the driver", "kind", kindAsked, "error", err)
			}
		case <-ctx.Done():
		}
	})
	r, err := w.train(training)
	w.ship.close() // what still comes must not hold up the listener
	w.hush()
	w.report(r, err)
	// Not before the others are done too, however long rank 0 evaluates: they would miss this worker. The loss of the driver is an end.
	select {
	case <-w.end:
	case <-ctx.Done():
	}
	w.leave()
	return nil
}

const (
	maxMessage = 8 << 20  // bytes on the job stream
	maxReport  = 32 << 20 // bytes of a strategy's report: bench net's has some 200 for each of the 65,280 links between 256 machines
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

// live tells the driver, until ctx ends, that this process still runs: it may have nothing else to say while it opens its data.
func (w *worker) live(ctx context.Context) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.send(ctx, kindAlive, nil); err != nil {
			return // the link's loss is told by itself
		}
	}
}

const aliveEvery = 250 * time.Millisecond

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
		w.lose(&train.LostError{Peer: w.a.Driver, Why: ev.Err.Error()})
		w.once.end.Do(func() { close(w.end) })
		return
	}
	switch ev.Kind {
	case kindBegin:
		w.once.went.Do(func() { close(w.went) })
	case kindStop:
		w.stop()
	case kindAbort:
		var s said
		if err := control.Decode("abort", ev.Payload, &s); err != nil {
			s.Text = err.Error()
		}
		w.lose(&train.LostError{Peer: w.a.Driver, Why: s.Text})
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
		name := transport.Name{Job: w.a.Driver.Job, Role: d.Role, ID: d.ID, Incarnation: d.Incarnation}
		w.view.Lock()
		m := w.view.members
		w.view.Unlock()
		if m != nil {
			m.Died(name, errors.New(d.Why))
		}
	}
}

// report tells the driver how training ended. That something cannot be told is told too: the driver waits for a result as long as this
// process lives.
func (w *worker) report(r trivium.Result, err error) {
	if err == nil {
		if err = w.sendReport(); err != nil {
			r.Reason = trivium.Failed
		}
	}
	out := result{Reason: r.Reason, Steps: r.Steps, Epochs: r.Epochs, Samples: r.Samples, Metrics: r.Metrics}
	out.failed(err)
	if err = w.sendResult(out); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errEnd) { // it may be too large
		err = w.sendResult(result{
			Reason: trivium.Failed, Steps: r.Steps, Epochs: r.Epochs, Samples: r.Samples, Fault: faultOther, Error: control.Text(err.Error()),
		})
	}
	if err != nil {
		w.log.Warn("the result was not told", "error", err)
	}
}

func (w *worker) sendResult(r result) error {
	f, err := message(kindResult, r)
	if err != nil {
		return err
	}
	return w.insist(f)
}

// sendReport sends what the strategy reports, in pieces: it may be larger than a message.
func (w *worker) sendReport() error {
	if w.a.Index != 0 {
		return nil
	}
	if n := len(w.reported); n > maxReport {
		return fmt.Errorf("processes: the strategy reports %d bytes, want at most %d", n, maxReport)
	}
	for piece := range slices.Chunk(w.reported, maxMessage/2) {
		if err := w.insist(transport.Frame{Kind: kindReport, Priority: transport.Data, Payload: piece}); err != nil {
			return fmt.Errorf("processes: the strategy's report: %w", err)
		}
	}
	return nil
}

// failed notes why training ended, in the driver's terms. A nil error is no failure.
func (out *result) failed(err error) {
	if err == nil {
		return
	}
	out.Error = control.Text(err.Error()) // it may quote a file's name or contents
	var diverged *trivium.DivergedError
	var misuse *train.JobError
	var mistake *data.Error
	var lost *train.LostError
	var evicted *cluster.OutError
	var told *remote.LostError
	switch {
	case errors.As(err, &diverged):
		out.Fault, out.Step, out.Loss = faultDiverged, diverged.Step, diverged.Loss
		out.Tensor, out.Largest = diverged.Tensor, diverged.Largest
	case errors.As(err, &lost):
		out.Fault, out.Lost = faultUnreachable, lost.Peer.Role+"/"+lost.Peer.ID
	case errors.As(err, &evicted): // the others took this worker for dead
		out.Fault, out.Lost = faultUnreachable, evicted.Self.Role+"/"+evicted.Self.ID
	case errors.As(err, &told): // a server that had a part of the parameters, or the driver, which keeps the checkpoints
		out.Fault, out.Lost = faultUnreachable, told.Server.Role+"/"+told.Server.ID
	case errors.As(err, &misuse), errors.As(err, &mistake):
		out.Fault = faultMisuse
	case errors.Is(err, errApart), errors.Is(err, cluster.ErrNoQuorum), errors.Is(err, transport.ErrLinkLost), errors.Is(err, io.EOF):
		out.Fault = faultUnreachable
	default:
		out.Fault = faultOther
	}
}
