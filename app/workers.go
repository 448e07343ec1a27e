package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/compare"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// Child is what Main does first: where this process was started as a worker of a job, it lives a worker's life and returns its exit
// code and true. Programs that call Run in place of Main, such as tests, call it themselves.
func Child(o Options) (code int, ok bool) {
	child, ok, err := launch.Enter(os.Args)
	if !ok {
		return 0, false
	}
	signal.Ignore(os.Interrupt, syscall.SIGHUP) // a Ctrl-C and a hangup reach all processes of a terminal; the one that started us decides
	if err == nil {
		asked, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer cancel()
		err = work(context.Background(), child, o, nil, asked.Done())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return Failed, true
	}
	return Done, true
}

// An inside is what the workers have in common that are goroutines of this process.
type inside struct {
	network transport.Network

	opening sync.Mutex
	splits  *data.Splits // that all read; nil: not opened yet
	err     error        // why it cannot be
}

// open opens the data for the first worker that wants it, and for the others.
func (in *inside) open(ctx context.Context, env train.Env, job *trivium.Job) (*data.Splits, error) {
	in.opening.Lock()
	defer in.opening.Unlock()
	if in.splits == nil && in.err == nil {
		env.Walk, env.Unsummed = nil, false // all rows are some worker's
		splits, err := train.OpenData(ctx, env, job)
		if err != nil && ctx.Err() != nil {
			return nil, err // this worker was told to end; the others hear it too
		}
		in.splits, in.err = splits, err
	}
	return in.splits, in.err
}

// Close closes the data once all workers have ended.
func (in *inside) Close() error {
	if in.splits == nil {
		return nil
	}
	return in.splits.Close()
}

// work is a worker's life, in a process of its own (in is nil), which may be asked to end, or in a goroutine.
func work(ctx context.Context, child launch.Child, o Options, in *inside, asked <-chan struct{}) error {
	var a processes.Assignment
	if err := json.Unmarshal(child.Config, &a); err != nil {
		return fmt.Errorf("%s: the assignment: %w", child.Name, err)
	}
	b, err := thisBuild()
	if err != nil {
		return err
	}
	if o.Models == nil {
		o.Models = nn.Standard()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-child.Stop:
			cancel()
		case <-stopped:
		}
	}()
	po := processes.Options{
		Models: o.Models, Sources: o.Sources, Optimizers: o.Optimizers, Metrics: o.Metrics, Topologies: started, Build: b.Binary, Asked: asked,
		Log: slog.New(slog.NewTextHandler(child.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if in != nil {
		po.Network, po.Open = in.network, in.open
	} else {
		narrow(&a)
		po.Narrow = processes.Narrow(ctx, &a)
	}
	return processes.Work(ctx, &a, po)
}

// narrow keeps a process of the server topology to its own threads where the processes of this machine are more than its cores: a worker
// waits as often as it computes, and a process that may run on all cores spends those waits looking for work on each.
func narrow(a *processes.Assignment) {
	topology := a.Topology
	if topology == compare.TrialName {
		topology = compare.InnerTopology(a.Options)
	}
	if topology == served && a.Network.Near() && a.Workers+a.Servers > runtime.NumCPU() {
		runtime.GOMAXPROCS(max(1, a.Threads))
	}
}

// trainWithWorkers is train for a topology of several workers.
func (s *session) trainWithWorkers(ctx context.Context, t *training) error {
	if t.resume != nil { // the workers load it themselves
		t.resume.Params, t.resume.Optimizer, t.resume.Codecs = trivium.Params{}, nil, nil
		debug.FreeOSMemory()
	}
	if t.ship && t.splits == nil {
		if err := t.open(ctx, s); err != nil {
			return err
		}
	}
	closeData := func() {
		if t.splits != nil {
			_ = t.splits.Close() // it was only read
			t.splits = nil
			debug.FreeOSMemory() // a coordinator lives on, and may make no garbage for long
		}
	}
	defer closeData()
	cpu := tensor.NewCPU(1, t.job.Exact) // to describe the model; the workers have their own
	defer cpu.Close()
	about, err := t.head(cpu.ISA)
	if err != nil {
		return err
	}
	o := newObservation(about)
	assemble := t.assemble
	if assemble == nil {
		assemble = func(ctx context.Context) (*team, error) { return s.assemble(ctx, t) }
	}
	team, err := assemble(ctx)
	if err != nil {
		return err
	}
	defer team.close()
	if err := o.serve(t.listen, t.show); err != nil {
		return errors.Join(misused(err), o.abandon())
	}
	stop := o.run()
	t.show.start()
	made, began := false, false // the run directory; training
	topology, _ := shared.Find(t.topology)
	driver := processes.Driver{
		Run: about.Name, Job: t.job, Topology: topology, Options: t.options, Workers: t.workers, Servers: t.servers, Threads: about.Threads, Adapt: t.threads == 0, CheckpointEvery: t.every,
		Notes: about.Versions, Port: team.port, Network: team.network, NetworkOf: team.networkOf, Launcher: team.launcher, Build: about.Versions["binary"],
		Observe: o.hub, Log: team.log, Output: s.outputs(t.workers), Data: t.splits,
		Watch: t.watch(o, func() {
			began = true
			o.figures(observe.Driver, t.restarted)
		}),
		Ready: func(f processes.Facts) (blob.Store, error) {
			closeData() // the workers have their rows
			if err := t.know(facts{f.Checksum, f.Rows, f.Notes}); err != nil {
				return nil, err
			}
			if err := t.build(s, f.Schema, f.Label, cpu); err != nil { // before anything is written
				return nil, &train.JobError{Err: err}
			}
			o.head.DataChecksum, o.head.Notes = f.Checksum, append(o.head.Notes, f.Notes...)
			store, err := o.open(t)
			if err != nil {
				return nil, &train.JobError{Err: err}
			}
			made = true
			t.model = nil
			return store, nil
		},
	}
	if t.resume != nil {
		driver.ResumeFrom, driver.Resume = blob.Dir(filepath.Dir(t.from)), filepath.Base(t.from)
	}
	result, err := driver.Train(ctx)
	t.show.finish()
	stop()
	err = t.verdict(s, result, err)
	var coded *codedError
	if !made || !began && errors.As(err, &coded) && coded.code == Misused { // the job was refused
		return errors.Join(err, o.abandon())
	}
	t.conclude(o, result, err)
	return err
}

// outputs is where the words go that are no messages, of each of so many workers and of the servers after them: their standard error, which
// says what went wrong with the process.
func (s *session) outputs(workers int) func(index int) io.Writer {
	return func(index int) io.Writer {
		if index >= workers {
			return &prefixed{w: s.err, prefix: fmt.Sprintf("server %d: ", index-workers)}
		}
		return &prefixed{w: s.err, prefix: fmt.Sprintf("worker %d: ", index)}
	}
}

// A prefixed writer puts its prefix before what it is given: whole lines, from one goroutine.
type prefixed struct {
	w      io.Writer
	prefix string
}

func (p *prefixed) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// A team is what the workers of a job are started with.
type team struct {
	port     transport.Port
	network  processes.Network
	launcher launch.Launcher
	log      *slog.Logger
	sockets  *processes.Folder // nil: there are none
	inside   *inside           // nil: each worker has a process of its own

	networkOf func(worker transport.Name, index int) (processes.Network, error) // nil: network is that of all
}

func newSecret() []byte {
	p := make([]byte, 32)
	_, _ = rand.Read(p) // never fails
	return p
}

// keepOpen is a launcher that somebody else closes.
type keepOpen struct{ launch.Launcher }

func (keepOpen) Close() error { return nil }

// newFolder makes a folder for the sockets of one job's processes, or of one machine's.
func newFolder() (*processes.Folder, error) {
	f, err := processes.NewFolder()
	return f, misconfigured(err)
}

func (s *session) assemble(ctx context.Context, t *training) (_ *team, err error) {
	m := &team{log: slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelError}))} // the verdict says the rest
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	var network transport.Network
	if t.processes {
		if m.sockets, err = newFolder(); err != nil {
			return nil, err
		}
		m.network = processes.Network{Dir: m.sockets.Path, Secret: newSecret()}
		if network, err = m.network.Open(); err != nil {
			return nil, err
		}
		m.launcher = launch.NewChildren()
	} else {
		network = transport.NewMemory()
		m.inside = &inside{network: network}
		o := Options{Models: s.models, Sources: s.sources, Optimizers: s.optimizers, Metrics: s.metrics, Name: s.name}
		m.launcher = launch.NewGoroutines(func(ctx context.Context, c launch.Child) error { return work(ctx, c, o, m.inside, nil) })
	}
	driver := transport.Name{Job: "run", Role: "driver", ID: "0", Incarnation: 1} // the network is its own
	m.port, err = network.Open(ctx, driver, m.network.Options(m.log))
	return m, err
}

func (m *team) close() {
	var errs []error
	if m.launcher != nil {
		errs = append(errs, m.launcher.Close())
	}
	if m.port != nil {
		errs = append(errs, m.port.Close())
	}
	if m.sockets != nil {
		errs = append(errs, m.sockets.Close())
	}
	if m.inside != nil {
		errs = append(errs, m.inside.Close())
	}
	if err := errors.Join(errs...); err != nil {
		m.log.Warn("not all was put away", "error", err)
	}
}
