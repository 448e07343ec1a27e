package processes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/relay"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// A Driver starts the workers of a job, watches them, hears what they say, and holds what they share: the group's metadata and the
// place for checkpoints. It takes no part in training.
type Driver struct {
	Run             string // names the run
	Job             *trivium.Job
	Topology        Topology
	Options         json.RawMessage   // of the topology
	Workers         int               // with Servers at most cluster.MaxWorkers
	Servers         int               // processes that only serve, beside the workers: they come after these, and end when these have
	Threads         int               // of each worker; 0: one a core
	Adapt           bool              // a single worker's steps take as many of them as make them fastest
	CheckpointEvery int64             // updates
	Resume          string            // the checkpoint in ResumeFrom to go on from; empty: from the start
	ResumeFrom      blob.Store        //
	Notes           map[string]string // go into checkpoints

	Port      transport.Port                                          // where the workers reach this process
	Network   Network                                                 // how they open theirs
	NetworkOf func(worker transport.Name, index int) (Network, error) // given: in place of Network, for workers that differ in it
	Launcher  launch.Launcher
	CPUs      []int        // the cores that the workers share; nil: all
	Build     string       // that the workers must have too
	Data      *data.Splits // given: its rows are shipped to the workers, which then open no data: each gets its shard, or all rows (Topology.Shards). Train lets go of it before Ready

	// Summed says that the caller has the data's checksum. No worker takes that of rows that it generates then, and makes those that it trains
	// on alone.
	Summed bool

	// Ready is called when all workers have opened their data, and it is the same. It returns the place for checkpoints, or nil, and may
	// refuse the job.
	Ready func(Facts) (blob.Store, error)

	Observe *observe.Hub // what the workers observe arrives here; nil: nowhere
	Watch   train.Watch
	Output  func(index int) io.Writer         // gets the lines that a worker prints to its standard error; nil: they are discarded
	Started func(index, pid int, host string) // a worker said hello
	Log     *slog.Logger                      // nil discards

	Hello   time.Duration // limit for a worker to start; 0: 1 min
	Open    time.Duration // limit for the data to be opened by all; 0: 30 min
	Silence time.Duration // a process that says nothing for so long is lost, as when it was stopped; 0: 20 s
	Finish  time.Duration // limit for workers to finish what they are at and save it, when the job is interrupted; 0: 2 min
	Grace   time.Duration // limit for workers to end without that; 0: 10 s

	Report []byte // set by Train: what rank 0's strategy reports

	stream   transport.Stream
	workers  []*part
	lost     *WorkerError // the first that failed or vanished
	hearsay  bool         // lost is what another worker says of it
	ofServer bool         // which is a server
	stopped  bool
	limit    time.Duration // how long they may then take to end
	told     struct {      // to end: who says hello later hears it too
		kind uint8
		v    any
	}
	trained bool // all workers have ended: servers are told to
}

// Facts are what the workers know of the data.
type Facts struct {
	Schema   trivium.Schema
	Label    string // the column of the labels; empty: they are none
	Rows     int64  // for training, in all
	Checksum string
	Notes    []string
}

// A part is one worker, as the driver knows it.
type part struct {
	index    int
	serves   bool
	name     transport.Name
	process  *launch.Process
	host     string
	pid      int
	hello    bool
	ready    *ready
	at       position
	metrics  map[string]float64 // of its last evaluation
	report   []byte             // so far
	result   *result
	gone     bool
	heard    time.Time // by the transport, at the last tick
	quiet    int       // ticks of the driver since it said something
	cut      bool      // the link to it is lost
	receiver *relay.Receiver
}

// A WorkerError says how a worker failed or vanished.
type WorkerError struct {
	Index int    // of the process: servers come after the workers
	Name  string // such as "server 0"; empty: the worker of that index
	Lost  bool   // it is gone, or lost another; else it says itself what is wrong
	Step  int64  // updates of the job by then, as far as is known: no fewer than its checkpoints have
	Text  string // its own words, or how it ended
	cause error  // as if it had happened here: a train.JobError, a trivium.DivergedError
}

func (e *WorkerError) Error() string {
	name := cmp.Or(e.Name, fmt.Sprintf("worker %d", e.Index))
	if e.Lost {
		return fmt.Sprintf("%s is lost after update %d: %s", name, e.Step, e.Text)
	}
	return fmt.Sprintf("%s: %s", name, e.Text)
}

func (e *WorkerError) Unwrap() error { return e.cause }

// Train runs the job. The result is that of worker 0, without the parameters: they are in the checkpoint that it saved. When ctx ends,
// the workers finish the update at hand and save.
func (d *Driver) Train(ctx context.Context) (r trivium.Result, err error) {
	if err := d.prepare(); err != nil {
		return trivium.Result{Reason: trivium.Failed}, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	if err := d.serve(running, &wait); err != nil {
		return trivium.Result{Reason: trivium.Failed}, err
	}
	defer d.killAll()
	exits := make(chan int)
	if err := d.launch(running, exits, &wait); err != nil {
		return trivium.Result{Reason: trivium.Failed}, err
	}
	events := make(chan transport.Event)
	wait.Go(func() { d.receive(running, events) })
	d.loop(ctx, running, events, exits, &wait)
	return d.verdict()
}

func (d *Driver) prepare() error {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	for _, x := range []struct {
		d *time.Duration
		v time.Duration
	}{{&d.Hello, time.Minute}, {&d.Open, 30 * time.Minute}, {&d.Silence, 20 * time.Second}, {&d.Finish, 2 * time.Minute}, {&d.Grace, 10 * time.Second}} {
		if *x.d == 0 {
			*x.d = x.v
		}
	}
	if d.Workers < 1 || d.Workers > cluster.MaxWorkers { // they are one group
		return &train.JobError{Err: fmt.Errorf("processes: want 1 to %d workers, found %d", cluster.MaxWorkers, d.Workers)}
	}
	if most := cluster.MaxWorkers - d.Workers; d.Servers < 0 || d.Servers > most {
		return &train.JobError{Err: fmt.Errorf("processes: want 0 to %d servers beside %d workers, found %d", most, d.Workers, d.Servers)}
	}
	if d.Data != nil && d.Topology.Shards {
		if err := train.CheckShards(d.Data.Train.Rows(), d.Workers); err != nil {
			return &train.JobError{Err: err}
		}
	}
	if d.Topology.Check != nil {
		if err := d.Topology.Check(d.Job); err != nil {
			return &train.JobError{Err: err}
		}
	}
	return nil
}

// serve opens the driver's streams and serves metadata and checkpoints.
func (d *Driver) serve(ctx context.Context, wait *sync.WaitGroup) error {
	var err error
	if d.stream, err = d.Port.Stream(jobStream, transport.StreamOptions{MaxFrame: maxMessage}); err != nil {
		return err
	}
	metas, err := d.Port.Stream(metaStream, transport.StreamOptions{})
	if err != nil {
		return err
	}
	wait.Go(func() {
		if err := meta.Serve(ctx, meta.NewMemory(meta.Options{}), metas); err != nil {
			d.Log.Error("the group's metadata is served no more", "error", err)
		}
		_ = metas.Close() // nobody listens any more
	})
	wait.Go(func() {
		<-ctx.Done()
		_ = d.stream.Close()
	})
	if d.Resume != "" {
		return d.serveStore(ctx, wait, resumeStream, d.ResumeFrom)
	}
	return nil
}

func (d *Driver) serveStore(ctx context.Context, wait *sync.WaitGroup, stream string, store blob.Store) error {
	s, err := d.Port.Stream(stream, transport.StreamOptions{MaxFrame: remote.Piece + 1<<16})
	if err != nil {
		return err
	}
	wait.Go(func() {
		_ = remote.Serve(ctx, store, s, remote.Options{Log: d.Log}) // ends with its context
		_ = s.Close()
	})
	return nil
}

// launch starts the workers. Their exits go to exits until ctx ends.
func (d *Driver) launch(ctx context.Context, exits chan<- int, wait *sync.WaitGroup) error {
	job, err := d.Job.Encode()
	if err != nil {
		return err
	}
	a := Assignment{
		Run: d.Run, Workers: d.Workers, Servers: d.Servers, Job: job, Topology: d.Topology.Name, Options: d.Options, Threads: d.Threads, Adapt: d.Adapt,
		CheckpointEvery: d.CheckpointEvery, Resume: d.Resume, Notes: d.Notes, Shipped: d.Data != nil, Summed: d.Summed,
		Driver: d.Port.Name(), DriverAddr: d.Port.Addr(), Network: d.Network, Start: time.Now(), Saves: d.Ready != nil,
	}
	if d.Observe != nil {
		a.Start = d.Observe.Start()
	}
	for i := range d.Workers + d.Servers {
		a.Index = i
		if d.NetworkOf != nil {
			if a.Network, err = d.NetworkOf(a.Name(), i); err != nil {
				return fmt.Errorf("processes: %s %s: %w", a.Name().Role, a.Name().ID, err)
			}
		}
		config, err := json.Marshal(&a)
		if err != nil {
			return err
		}
		p := &part{index: i, serves: a.Serves(), name: a.Name()}
		if d.Observe != nil {
			p.receiver = relay.NewReceiver(d.Observe)
		}
		spec := launch.Spec{Name: p.name.Role + "/" + p.name.ID, Config: config, CPUs: d.CPUs}
		if d.Output != nil {
			spec.Stderr = d.Output(i)
		}
		if p.process, err = d.Launcher.Start(ctx, spec); err != nil {
			return fmt.Errorf("processes: %s does not start: %w", p.title(), err)
		}
		d.workers = append(d.workers, p)
		wait.Go(func() {
			select {
			case <-p.process.Exited():
				select {
				case exits <- i:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		})
	}
	return nil
}

func (d *Driver) receive(ctx context.Context, events chan<- transport.Event) {
	for {
		ev, err := d.stream.Recv(ctx)
		if err != nil {
			return
		}
		select {
		case events <- ev:
		case <-ctx.Done():
			ev.Release()
			return
		}
	}
}

// stillFor is after how long without a turn of its loop a driver knows that it stood still itself, as between a Ctrl-Z and fg.
const stillFor = 5 * time.Second

// loop is the driver's life, until all workers have a result or are gone.
func (d *Driver) loop(ctx, running context.Context, events <-chan transport.Event, exits <-chan int, wait *sync.WaitGroup) {
	deadline := time.NewTimer(d.Hello)
	defer deadline.Stop()
	tick := time.NewTicker(d.tick())
	defer tick.Stop()
	interrupt := ctx.Done()
	turn := time.Now()
	stood := func() bool { return time.Since(turn) > stillFor && d.phase() == starting && !d.stopped }
	for !d.over() {
		phase, stopped, lost := d.phase(), d.stopped, d.lost != nil
		if stood() { // who started meanwhile is still to be heard
			deadline.Reset(d.Hello)
		}
		turn = time.Now()
		select {
		case ev := <-events:
			d.hear(running, &ev, wait)
			ev.Release()
		case i := <-exits:
			d.exited(running, d.workers[i])
		case <-tick.C:
			d.attend()
			d.listen()
		case <-interrupt:
			interrupt = nil
			d.stop(running, kindStop, nil)
		case <-deadline.C:
			if stood() {
				continue
			}
			d.late()
			return
		}
		if next := d.phase(); next != phase && !d.stopped && d.lost == nil {
			if next == opening {
				deadline.Reset(d.Open)
			} else {
				deadline.Stop()
				d.begin(running, wait)
			}
		}
		if d.lost != nil { // the others cannot go on
			d.stop(running, kindAbort, said{Text: d.lost.Error()})
		}
		if d.stopped && !stopped || d.lost != nil && !lost {
			d.limit = d.Grace
			if d.lost == nil && phase == training {
				d.limit = d.Finish
			}
			deadline.Reset(d.limit)
		}
		d.release(running, deadline)
	}
	d.broadcast(running, kindEnd, nil)
	d.farewell(exits)
}

// title is what messages call the process.
func (p *part) title() string { return p.name.Role + " " + p.name.ID }

// verdict is the result of the job.
func (d *Driver) verdict() (trivium.Result, error) {
	first := d.workers[0]
	r := trivium.Result{Reason: trivium.Failed, Epochs: first.at.passed(), Metrics: first.metrics} // of one that is lost, as it said last
	if first.result != nil {
		x := first.result
		d.Report = first.report
		r = trivium.Result{Reason: x.Reason, Steps: x.Steps, Epochs: x.Epochs, Metrics: x.Metrics}
	}
	r.Samples = first.at.Samples
	if d.Topology.Shards {
		r.Samples = 0
		for _, p := range d.workers {
			r.Samples += p.at.Samples
		}
	}
	if d.apart() {
		r.Samples = d.mean()
	}
	if d.lost != nil {
		if r.Reason != trivium.Diverged {
			r.Reason = trivium.Failed
		}
		if p := d.workers[d.lost.Index]; p.result != nil && !d.lost.Lost { // of one that was given up, what it says afterwards is no reason
			r.Reason = p.result.Reason
		}
		r.Steps = max(r.Steps, d.lost.Step)
		d.lost.Step = r.Steps // worker 0's own word is newer than what it told of its progress
		return r, d.lost
	}
	return r, nil
}
