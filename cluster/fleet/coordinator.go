package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

// A Spec is a job as it is submitted.
type Spec struct {
	Name    string          `json:"name"`          // in words
	Run     string          `json:"run,omitempty"` // how its submitter names what it makes; empty: Work.Called says it later
	Need    Need            `json:"need"`
	Build   string          `json:"build"`             // of the submitter's program
	Payload json.RawMessage `json:"payload,omitempty"` // what to run: for Options.Run alone
	Data    string          `json:"data,omitempty"`    // the id of data that was sent before
	Resume  string          `json:"resume,omitempty"`  // the id of a packed checkpoint that was sent before

	// Restarts is how often the job goes back to its place in the queue after a machine, a process or its coordinator was lost. It is
	// begun with what it left in its folder, on whatever machines there are then.
	Restarts int `json:"restarts,omitempty"`
}

// A Work is a job that may run.
type Work struct {
	Job      Job
	Nodes    []Lent          // of each worker
	Launcher launch.Launcher // starts the i-th worker on the i-th node
	Dir      string          // the job's own; who submitted it gets its contents
	Data     string          // the file of data that came with the job; empty: none did
	Resume   string          // likewise, of a packed checkpoint to go on from; what is left in its folder goes with the next coordinator
	Log      io.Writer       // what the submitter reads
	Called   func(string)    // says how the run is called that the job makes, as soon as that is known; nil: nobody asks
	Reached  func(Progress)  // says how far the job is; nil: nobody asks

	// Identity makes a certificate for a process of the job.
	Identity func(trust.Name) (*trust.Identity, error)
}

// An Outcome is how a job ended.
type Outcome struct {
	Code int    // exit code that its command would have had; 0: done
	Why  string // in one line; empty where it is done
}

// Options of a coordinator. All are required but Addr and Log.
type Options struct {
	Dir       string        // of its state: made if it is not there
	Build     string        // of this program: nodes and submitters must have the same
	Issuer    *trust.Issuer // New sets its Accept: no two machines have one name
	Authority *trust.Authority
	Meta      cluster.Meta
	Port      transport.Port                             // where nodes reach it
	Addr      string                                     // under which they reach it; empty: Port.Addr
	Run       func(ctx context.Context, w *Work) Outcome // runs a job. ctx ends when it is cancelled: it then ends in good order
	Log       *slog.Logger
}

// A Coordinator takes machines and jobs, and runs the ones on the others.
type Coordinator struct {
	o       Options
	log     *slog.Logger
	nodes   *lentNodes
	stream  transport.Stream
	members *cluster.Membership // under mu; nil: it has not joined
	out     bool                // under mu: the machines went on without it
	began   time.Time

	mu      sync.Mutex
	queue   jobQueue
	live    map[string]*running
	logs    map[string]*jobLog
	sent    map[string]time.Time // when files came that no job has yet, by id
	names   map[string]time.Time // when machines that may not be lent yet were let in at the door, by id
	changed chan struct{}        // 1: the queue is to be looked at
	left    time.Time            // when last a job ended, or something of what one left was sent to who fetches it
	lingers time.Duration        // how long after that the end of this coordinator waits: fetchWait, but where a test says otherwise
	wait    sync.WaitGroup       // what hears machines
	jobs    sync.WaitGroup
}

// A running job.
type running struct {
	cancel    context.CancelFunc
	cancelled bool
	progress  *Progress // nil: not known yet
}

// GroupName is the group of the machines of a cluster, as cluster.Policy names it.
const GroupName = "fleet"

// New returns a coordinator with the jobs that Dir knows. Those that ran when it ended are lost, or wait again (Spec.Restarts); those that
// waited still do.
func New(o Options) (*Coordinator, error) {
	c := &Coordinator{
		o: o, log: o.Log, live: map[string]*running{}, logs: map[string]*jobLog{}, sent: map[string]time.Time{}, names: map[string]time.Time{},
		changed: make(chan struct{}, 1), began: time.Now(), lingers: fetchWait,
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "jobs"), 0o700); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	var err error
	if c.stream, err = o.Port.Stream(StreamName, transport.StreamOptions{MaxFrame: MaxMessage}); err != nil {
		return nil, err
	}
	c.nodes = newLentNodes(c.stream, o.Build, c.log)
	o.Issuer.Accept = c.accept
	return c, nil
}

// Run takes machines and jobs until ctx ends; then it cancels what runs, and waits for it, and for who comes for what it left, or fetches
// what another job did: until Run returns, the Handler is to be served. It ends so too, but waits for nobody, where the machines went on
// without it, since it stood still for longer than they bear: the error is then a cluster.OutError, and a new coordinator may follow.
func (c *Coordinator) Run(ctx context.Context) error {
	group, err := c.o.Port.Stream(GroupName+" members", transport.StreamOptions{})
	if err != nil {
		return err
	}
	self := cluster.Member{Name: c.o.Port.Name(), Addr: cmp.Or(c.o.Addr, c.o.Port.Addr()), Info: map[string]string{"role": "coordinator"}}
	members, err := cluster.Join(ctx, c.o.Meta, group, self, Policy(c.o.Port, c.log))
	switch {
	case ctx.Err() != nil && err != nil: // ended before it began
		return nil
	case err != nil:
		return fmt.Errorf("fleet: the group of machines: %w", err)
	}
	c.mu.Lock()
	c.members = members
	c.mu.Unlock()
	inner, cancel := context.WithCancelCause(ctx)
	hearing, deaf := context.WithCancel(context.WithoutCancel(ctx)) // the machines are heard until the last job has ended
	defer func() {
		cancel(nil)
		c.jobs.Wait()
		if ctx.Err() != nil {
			c.linger()
		}
		deaf()
		_ = members.Close() // its end is what is wanted
		c.wait.Wait()
	}()
	c.wait.Go(func() { cancel(c.nodes.Run(hearing)) })
	c.wait.Go(func() {
		err := c.follow(members)
		c.mu.Lock()
		c.out = err != nil
		c.mu.Unlock()
		cancel(fmt.Errorf("fleet: the machines went on without this coordinator: %w", err))
	})
	sweep := time.NewTicker(sentWait / 10)
	defer sweep.Stop()
	for {
		c.schedule(inner)
		select {
		case <-sweep.C:
			c.dropLate(time.Now().Add(-sentWait))
		case <-c.changed:
		case <-c.nodes.Changed():
		case <-inner.Done():
			if ctx.Err() != nil {
				return nil
			}
			return context.Cause(inner)
		}
	}
}

// fetchWait is how long who follows a job may take to come for what it left, and what is fetched may stand still.
const fetchWait = time.Second

// linger waits for those who followed the jobs that ended last, and for those who fetch.
func (c *Coordinator) linger() {
	for {
		c.mu.Lock()
		wait := c.lingers - time.Since(c.left)
		c.mu.Unlock()
		if wait <= 0 {
			return
		}
		time.Sleep(min(wait, fetchWait))
	}
}

// Policy is that of the group of machines: as many as a group may have, of which each may come and go. The port forgets those that went.
// Machines may be silent for longer than the workers of a job, who judge one another: one that is convicted too early costs its jobs, and the
// coordinator all jobs, while little depends on knowing at once that an idle machine is gone. The budget is half of what leases live, so that a
// group whose members are all gone is founded anew as soon as their leases have ended.
func Policy(port transport.Port, log *slog.Logger) cluster.Policy {
	return cluster.Policy{
		MaxWorkers: cluster.MaxWorkers, Budget: budget, LeaseTTL: 2 * budget, Group: GroupName, Forget: port.Forget, Log: log,
	}
}

const budget = 2500 * time.Millisecond

// follow takes away the machines that the group has convicted, until the membership ends.
func (c *Coordinator) follow(members *cluster.Membership) error {
	var before []cluster.Member
	for v, err := range members.Views() {
		if err != nil {
			return err
		}
		for _, m := range before {
			if !slices.ContainsFunc(v.Members, func(x cluster.Member) bool { return x.Name == m.Name }) {
				c.nodes.Lost(m.Name, fmt.Errorf("it is not in view %d of the group any more", v.Epoch))
			}
		}
		before = v.Members
	}
	return nil
}

// poke has the queue looked at.
func (c *Coordinator) poke() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// schedule starts the jobs that there is room for.
func (c *Coordinator) schedule(ctx context.Context) {
	lent := c.nodes.List()
	rooms := roomsOf(lent)
	c.mu.Lock()
	defer c.mu.Unlock()
	for ctx.Err() == nil {
		j := c.queue.Start(rooms, time.Now())
		if j == nil {
			return
		}
		c.save()
		w := &Work{Job: *j, Dir: c.jobDir(j.ID), Identity: c.identity}
		for _, id := range j.Nodes {
			w.Nodes = append(w.Nodes, lent[slices.IndexFunc(lent, func(l Lent) bool { return l.ID == id })])
		}
		w.Data, w.Resume = c.sentFile(j.Spec.Data), c.sentFile(j.Spec.Resume)
		jobCtx, cancel := context.WithCancel(ctx)
		c.live[j.ID] = &running{cancel: cancel}
		c.jobs.Go(func() {
			defer cancel()
			c.run(jobCtx, w)
		})
	}
}

// run runs one job.
func (c *Coordinator) run(ctx context.Context, w *Work) {
	id := w.Job.ID
	c.log.Info("job started", "job", id, "nodes", w.Job.Nodes, "threads", w.Job.Threads)
	l := c.logOf(id)
	w.Log = io.Discard
	if l != nil {
		w.Log = l
	}
	w.Called = func(run string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue.Find(id).Run = run // it is there: this job has not ended
		c.save()
	}
	w.Reached = func(p Progress) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r := c.live[id]; r != nil { // else the job has ended
			r.progress = &p
		}
	}
	w.Launcher = c.nodes.Launcher(w.Job.Nodes)
	out := c.attempt(ctx, w)
	if err := w.Launcher.Close(); err != nil {
		c.log.Error("processes of a job are left", "job", id, "error", err)
	}
	c.mu.Lock()
	state := Done
	switch {
	case out.Code == 0: // also where the end of it came when it was done
	case c.live[id].cancelled:
		state = Cancelled
	case ctx.Err() != nil:
		if state, out.Why = Forgotten, "the coordinator ended"; !errors.Is(context.Cause(ctx), context.Canceled) {
			out.Why, out.Code = context.Cause(ctx).Error(), codeLost
		}
	default:
		state = Failed
	}
	delete(c.live, id)
	j := c.queue.Find(id)
	again := (state == Forgotten || state == Failed && out.Code == codeLost) && c.queue.Again(j, out.Why)
	if again {
		c.left = time.Now() // who follows it asks what becomes of it
		c.save()
	} else {
		c.end(j, state, out.Code, out.Why)
	}
	restart := j.restart()
	c.mu.Unlock()
	switch {
	case again && state != Forgotten:
		fmt.Fprintf(w.Log, "%s waits for machines to go on: %s\n", id, restart)
		c.log.Info("job goes back into the queue: "+restart, "job", id, "why", out.Why)
		c.poke()
		return
	case !again:
		c.dropSent(w.Job.Spec.sent()...)
	}
	if l != nil {
		if err := l.Close(); err != nil {
			c.log.Warn("the log of a job is incomplete", "job", id, "error", err)
		}
	}
	c.log.Info("job ended", "job", id, "state", state, "why", out.Why)
	c.poke()
}

// end ends a job, and drops the oldest of those that have ended. The caller holds the lock.
func (c *Coordinator) end(j *Job, s State, code int, why string) {
	c.queue.End(j, s, code, why, time.Now())
	c.left = time.Now()
	for _, gone := range c.queue.Forget() {
		delete(c.logs, gone)
		if err := os.RemoveAll(c.jobDir(gone)); err != nil {
			c.log.Warn("an old job stays", "job", gone, "error", err)
		}
	}
	c.save()
}

// attempt is Options.Run. A panic is the job's: the coordinator has others.
func (c *Coordinator) attempt(ctx context.Context, w *Work) (out Outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = Outcome{Code: codeFailed, Why: fmt.Sprintf("panic: %v", p)}
			fmt.Fprintf(w.Log, "panic: %v\n%s", p, debug.Stack())
		}
	}()
	return c.o.Run(ctx, w)
}

func (c *Coordinator) identity(n trust.Name) (*trust.Identity, error) {
	return c.o.Authority.Identity(n, nil, time.Now())
}

func (c *Coordinator) jobDir(id string) string { return filepath.Join(c.o.Dir, "jobs", id) }

// logOf returns a job's log, or nil where it cannot be written: then the job runs without.
func (c *Coordinator) logOf(id string) *jobLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.logs[id]
}

// Submit puts a job into the queue. The files that came for one that it refuses are removed.
func (c *Coordinator) Submit(s Spec) (Job, error) {
	if err := c.claim(s.sent()); err != nil {
		return Job{}, err
	}
	j, err := c.submit(s)
	if err != nil {
		c.dropSent(s.sent()...)
	}
	return j, err
}

func (c *Coordinator) submit(s Spec) (Job, error) {
	switch {
	case s.Build != c.o.Build:
		return Job{}, fmt.Errorf("it comes from another program (build %s, the cluster's is %s): submit with the one that the cluster runs", short(s.Build), short(c.o.Build))
	case (s.Need.Workers < 1 && !s.Need.Each) || s.Need.Workers < 0 || s.Need.Workers > cluster.MaxWorkers:
		return Job{}, fmt.Errorf("workers: want 1 to %d, found %d", cluster.MaxWorkers, s.Need.Workers)
	case s.Restarts < 0:
		return Job{}, fmt.Errorf("restarts: want 0 or more, found %d", s.Restarts)
	case s.Need.Threads < 0:
		return Job{}, fmt.Errorf("threads: want 0 or more, found %d", s.Need.Threads)
	}
	lent := c.nodes.List()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.queue.waiting(); n >= maxWaiting {
		return Job{}, fmt.Errorf("%d jobs wait already: come again when some have run, or cancel some", n)
	}
	j := c.queue.Add(s, time.Now())
	err := os.MkdirAll(c.jobDir(j.ID), 0o700)
	var l *jobLog
	if err == nil {
		l, err = newJobLog(filepath.Join(c.jobDir(j.ID), logName))
	}
	if err != nil {
		c.end(j, Failed, codeFailed, err.Error())
		return *j, err
	}
	c.logs[j.ID] = l
	c.queue.first(roomsOf(lent)) // so that its submitter is told at once why it waits
	c.save()
	c.poke()
	return *j, nil
}

const (
	maxWaiting = 1000 // jobs: each change of one writes all down
	logName    = "log"
)

// The exit codes of commands whose jobs this package ends itself.
const (
	codeFailed      = 1
	codeLost        = 3
	codeInterrupted = 6
)

// Cancel ends a job: one that waits at once, one that runs in good order.
func (c *Coordinator) Cancel(id string) (Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.queue.Find(id)
	if j == nil {
		return Job{}, errNoJob(id)
	}
	switch j.State {
	case Queued:
		_ = c.logs[id].Close() // it is empty, or has what it printed before it was lost
		c.dropSent(j.Spec.sent()...)
		why := "it had not begun"
		if j.Restarts > 0 {
			why = "it had not begun again"
		}
		c.end(j, Cancelled, codeInterrupted, why)
		c.poke()
	case Running:
		r := c.live[id]
		r.cancelled = true
		r.cancel()
	}
	return *j, nil
}

type errNoJob string

func (e errNoJob) Error() string {
	return fmt.Sprintf("there is no job %q; the verb status lists them", string(e))
}
