package compare

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// A Host is what our rows need of the program that they are measured in: it starts itself as their processes.
type Host struct {
	Topologies processes.Topologies // that its workers know; Trials(them) is among what they are started for
	Models     nn.Models
	Sources    data.Sources
	Optimizers optim.Optimizers
	Metrics    metric.Metrics
	Build      string // names the program's code
	Version    string

	// Launcher starts the processes of a trial; nil: children of this program. Network, with it, is theirs.
	Launcher func() launch.Launcher
	Network  transport.Network
}

// own is a row of ours.
type own struct {
	*row
	host Host
}

// Name implements System.
func (o *own) Name() string { return o.name }

// About implements System.
func (o *own) About() About { return o.about() }

// Detect implements System: this program is here.
func (o *own) Detect(context.Context) (Facts, error) {
	return Facts{"trivium": o.host.Version, "go": runtime.Version()}, nil
}

// job is what the row trains in the place of its task's job.
func (o *own) job(s Spec) (trivium.Job, error) {
	job := s.Task.Job
	job.Batch = s.Effective()
	if o.clocks > 0 {
		job.Batch = s.Workers // a row of each
		if !s.Task.Own {
			job.Optimizer.Rate = sampleRate
		}
	}
	if o.whole {
		if job.Optimizer.Rate == 0 {
			return job, &train.JobError{Err: fmt.Errorf("compare: %s multiplies the learning rate by the workers: the job must say it", o.name)}
		}
		job.Optimizer.Rate *= float64(s.Workers)
	}
	return job, nil
}

// Start implements System.
func (o *own) Start(ctx context.Context, s Spec) (_ Trial, err error) {
	topology, ok := o.host.Topologies.Find(o.topology)
	if !ok {
		return nil, fmt.Errorf("compare: this program has no topology %q", o.topology)
	}
	options, err := o.encoded()
	if err != nil {
		return nil, err
	}
	job, err := o.job(s)
	if err != nil {
		return nil, err
	}
	workers, servers, threads := s.Workers, s.Servers, s.Threads
	if o.alone {
		workers, servers = 1, 0
		if o.allCores {
			threads = len(s.Cores) // none: one a core of the machine
		}
	}
	if topology.Check != nil {
		if err := topology.Check(&job); err != nil {
			return nil, &train.JobError{Err: err}
		}
	}
	order, err := json.Marshal(trialOrder{
		Topology: o.topology, Options: options, Mode: o.mode, Clocks: int64(o.clocks), WarmUp: s.WarmUp, Updates: s.Updates, Seconds: max(1, s.reserve) * s.Seconds,
		Longest: limitShare * s.limit.Seconds(), Snapshots: s.Snapshots, Dir: s.OutDir,
	})
	if err != nil {
		return nil, err
	}
	t := &ownTrial{eventStream: eventStream{events: make(chan Event)}, row: o.row, began: time.Now(), gone: make(chan struct{})}
	t.ctx, t.cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), s.limit, fmt.Errorf("it hangs: no end after %v", s.limit))
	defer func() {
		if err != nil {
			t.cancel()
			err = errors.Join(err, t.put())
		}
	}()
	trials := Trials(o.host.Topologies)
	d := &processes.Driver{
		Run: "compare", Job: &job, Topology: trials, Options: order, Workers: workers, Servers: servers, Threads: threads, Adapt: o.allCores, CPUs: s.Cores,
		Build: o.host.Build, Log: slog.New(slog.DiscardHandler), Output: func(int) io.Writer { return &t.last },
		Grace: 3 * time.Second, Summed: true, // the evaluator has it
	}
	if err := t.connect(d, o.host, s.spaces); err != nil {
		return nil, err
	}
	t.watch(d)
	t.wait.Go(func() { t.train(d) })
	t.wait.Go(func() { // a caller that gives up ends it
		select {
		case <-ctx.Done():
			t.cancel()
		case <-t.gone:
		}
	})
	return t, nil
}

// connect gives the driver its network and launcher.
func (t *ownTrial) connect(d *processes.Driver, h Host, spaces *spaces) (err error) {
	network := h.Network
	if network == nil {
		if t.sockets, err = processes.NewFolder(); err != nil {
			return err
		}
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
		d.Network = processes.Network{Dir: t.sockets.Path, Secret: secret}
		if network, err = d.Network.Open(); err != nil {
			return err
		}
		if !t.row.shared && !t.row.alone {
			d.Network.Listen, d.Network.Apart = "127.0.0.1:0", true
		}
	}
	if h.Launcher != nil {
		t.launcher, d.CPUs = h.Launcher(), nil // that launcher's to decide
	} else {
		t.launcher = launch.NewChildren()
		if spaces != nil {
			t.spaces = spaces
			t.launcher = spaced{t.launcher, spaces, new(atomic.Int64)}
			d.NetworkOf = func(_ transport.Name, index int) (processes.Network, error) {
				n := d.Network
				if n.Listen != "" {
					n.Listen = spaces.at(index) + ":0"
				}
				return n, nil
			}
		}
	}
	d.Launcher = t.launcher
	driver := transport.Name{Job: d.Run, Role: "driver", ID: "0", Incarnation: 1}
	d.Port, err = network.Open(t.ctx, driver, transport.Options{Secret: d.Network.Secret})
	t.port = d.Port
	return err
}

// An ownTrial is one trial of a row of ours.
type ownTrial struct {
	eventStream

	row      *row
	cancel   context.CancelFunc
	began    time.Time
	gone     chan struct{}
	wait     sync.WaitGroup
	once     sync.Once
	sockets  *processes.Folder
	launcher launch.Launcher
	port     transport.Port
	spaces   *spaces
	last     lastLines

	mu        sync.Mutex
	processes []Process
}

// watch turns what the driver hears into events.
func (t *ownTrial) watch(d *processes.Driver) {
	d.Started = func(index, pid int, _ string) {
		p := Process{Role: WorkerRole, Rank: index, PID: pid}
		if index >= d.Workers {
			p.Role, p.Rank = ServerRole, index-d.Workers
		}
		if t.spaces != nil {
			p.Iface = spaceInterface
		}
		t.mu.Lock()
		t.processes = append(t.processes, p)
		t.mu.Unlock()
	}
	d.Ready = func(processes.Facts) (blob.Store, error) {
		t.say(Event{Kind: Ready, Seconds: time.Since(t.began).Seconds()})
		t.say(Event{Kind: Updated}) // taken once they are counted: from then on they may begin
		return nil, nil
	}
	d.Watch = train.Watch{
		Begin: func(train.Progress) {
			t.say(Event{Kind: Warmed})
			t.say(Event{Kind: Begin})
		},
		Progress: func(p train.Progress) {
			t.say(Event{Kind: Updated, Update: p.Step, Seconds: p.Elapsed.Seconds(), Samples: p.Samples})
		},
		Note: func(text string) {
			if text == endNote {
				t.say(Event{Kind: End})
				t.say(Event{Kind: Updated}) // taken once the reading at the end is over: from then on processes may go
			}
		},
	}
}

// train is the trial's life.
func (t *ownTrial) train(d *processes.Driver) {
	defer close(t.events)
	r, err := d.Train(t.ctx)
	if cause := context.Cause(t.ctx); cause != nil && err == nil {
		err = cause
	}
	var report trialReport
	if err == nil {
		if len(d.Report) == 0 {
			err = fmt.Errorf("it ended without a report: %s", r.Reason)
		} else {
			err = json.Unmarshal(d.Report, &report)
		}
	}
	if err == nil && len(report.Clocks) == 0 {
		err = fmt.Errorf("it ended before it was measured: %s", r.Reason)
	}
	if err != nil {
		if cause := context.Cause(t.ctx); cause != nil {
			err = cause
		}
		t.err = &TrialError{Why: err.Error(), Last: t.last.lines(), Err: err}
		return
	}
	for _, k := range report.Snapshots {
		t.say(Event{Kind: Snapshot, Update: k.Update, Seconds: k.Seconds, Path: k.Path})
	}
	done := Event{Kind: Finished, Update: report.Updates, Samples: report.Samples, Clocks: report.Clocks, Warm: report.Warm, Seconds: together(t.row.mode, report.Clocks)}
	done.Phases, done.Stale = t.counted(&report)
	t.say(done)
}

// counted are the phases and the staleness of the workers.
func (t *ownTrial) counted(r *trialReport) (phases, stale map[string]float64) {
	phases = map[string]float64{}
	for i, x := range r.Phases {
		phases[observe.Phase(i).String()] = x
	}
	if t.row.mode.Kind != "ssp" {
		return phases, nil
	}
	stale = map[string]float64{}
	for i, n := range r.Stale {
		if n > 0 {
			stale[fmt.Sprint(i)] = n
		}
	}
	return phases, stale
}

// Processes implements Trial.
func (t *ownTrial) Processes() []Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Process(nil), t.processes...)
}

// Stop implements Trial.
func (t *ownTrial) Stop(context.Context) error {
	var err error
	t.once.Do(func() {
		t.cancel()
		close(t.gone)
		t.wait.Wait()
		err = t.put()
	})
	return err
}

// put puts away what the trial had.
func (t *ownTrial) put() error {
	var errs []error
	if t.launcher != nil {
		errs = append(errs, t.launcher.Close())
	}
	if t.port != nil {
		errs = append(errs, t.port.Close())
	}
	if t.sockets != nil {
		errs = append(errs, t.sockets.Close())
	}
	return errors.Join(errs...)
}

// lastLines keeps the last lines that were written to it.
type lastLines struct {
	mu   sync.Mutex
	kept []string
	part string
}

const keptLines = 20

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.part + string(p)
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			break
		}
		l.kept = append(l.kept, printable(line))
		text = rest
	}
	if len(text) > 1<<12 { // a line without an end
		l.kept, text = append(l.kept, printable(text)), ""
	}
	l.part = text
	if n := len(l.kept) - keptLines; n > 0 {
		l.kept = append(l.kept[:0], l.kept[n:]...)
	}
	return len(p), nil
}

func (l *lastLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := append([]string(nil), l.kept...)
	if l.part != "" {
		out = append(out, printable(l.part))
	}
	return out
}

// printable is a line as it can be shown: at most 400 bytes, without what a terminal would act on.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || r == '\uFFFD' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "."))
	if len(s) > 400 {
		s = strings.ToValidUTF8(s[:400], "") + " …"
	}
	return s
}
