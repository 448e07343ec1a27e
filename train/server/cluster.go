package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// tableStream is what the parts of package ps talk on.
const tableStream = "ps"

// doneStream is where workers that also serve hear that the others are done.
const doneStream = "ps done"

// stateStream is where a server tells its optimizer's state: each has its own, since a remote.Client listens to one.
func stateStream(server int) string { return fmt.Sprintf("ps state %d", server) }

// A cluster is this process's place among workers and servers, with what it serves.
type cluster struct {
	env       *train.Env
	job       *trivium.Job
	mode      ps.Mode
	lanes     int // of each server; 0: one
	seen      look
	placement ps.Placement
	host      *ps.Host          // of this process's own parts
	done      transport.Stream  // nil where servers have processes of their own
	server    int               // the shards that this process has; -1: none
	steps     *keeper           // of those shards
	cuts      *cutStore         // what they wrote of a snapshot
	dialling  sync.Mutex        // of told
	told      []*remote.Client  // of what servers tell; nil: not asked yet
	memory    []*cluster        // of a worker that is alone: its servers
	closers   []func() error    // last first
	serving   sync.WaitGroup    //
	stop      func()            // ends serving
	failed    chan error        // serving ended by itself
	figures   *observe.Recorder // the worker's, or of a process that only serves; nil: nobody wants to know
}

// newCluster finds a process's place; figures are its worker's, and bytes those of its model.
func newCluster(ctx context.Context, env *train.Env, o Options, job *trivium.Job, figures *observe.Recorder, bytes int) (_ *cluster, err error) {
	c := &cluster{env: env, job: job, mode: o.Mode, lanes: o.Lanes, server: -1, failed: make(chan error, 8), figures: figures}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	servers := env.Servers
	if env.Port == nil { // alone: the servers are in this process, on a network of its own
		return c, c.alone(ctx, o.Servers)
	}
	if len(servers) == 0 {
		if o.Servers > len(env.Peers) {
			return c, &train.JobError{Err: fmt.Errorf("server: %d servers beside %d workers: each of these holds at most one part", o.Servers, len(env.Peers))}
		}
		servers = serving(env, o.Servers)
	}
	if o.looks(env, job.Exact) {
		if c.seen, err = c.look(ctx, servers, bytes); err != nil {
			return c, fmt.Errorf("server: how fast the links are: %w", err)
		}
		c.lanes = c.seen.lanes
	}
	return c, c.open(ctx, servers)
}

// serving are n workers that hold shards, as few of them as can be on each host.
func serving(env *train.Env, n int) []transport.Name {
	if len(env.Hosts) == 0 {
		return env.Peers[:n]
	}
	var list []transport.Name
	for k := 0; len(list) < n; k++ {
		for _, ranks := range env.Hosts {
			if k < len(ranks) && len(list) < n {
				list = append(list, env.Peers[ranks[k]])
			}
		}
	}
	return list
}

// open opens this process's streams, and serves its shards if it has any.
func (c *cluster) open(ctx context.Context, servers []transport.Name) error {
	self := c.env.Port.Name()
	c.placement = ps.Placement{
		Epoch: ps.Epoch(max(c.env.Epoch, 1)), Directory: servers[0], Servers: servers, Clients: c.env.Peers, Exact: c.job.Exact,
		Lanes: max(1, c.lanes), ShardsEach: max(1, c.lanes), // a shard each: nothing moves in this version
	}
	for i, n := range servers {
		if n == self {
			c.server = i
		}
	}
	s, err := c.env.Port.Stream(tableStream, ps.StreamOptions())
	if err != nil {
		return err
	}
	c.closers = append(c.closers, s.Close)
	if len(c.env.Servers) == 0 && len(c.env.Peers) > 1 {
		if c.done, err = c.env.Port.Stream(doneStream, transport.StreamOptions{}); err != nil {
			return err
		}
		c.closers = append(c.closers, c.done.Close)
	}
	c.host = ps.Share(s, c.env.Log)
	c.closers = append(c.closers, c.host.Close)
	c.record()
	if c.server < 0 {
		return nil
	}
	return c.begin(ctx)
}

// begin serves this process's shards, the optimizer's state, and on the first server the directory, until close.
func (c *cluster) begin(ctx context.Context) error {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = cancel
	var err error
	if c.steps, err = newKeeper(c.job, c.env.Optimizers, c.mode != ps.BSP, len(c.placement.Clients)); err != nil {
		return err
	}
	states, err := c.env.Port.Stream(stateStream(c.server), transport.StreamOptions{MaxFrame: remote.Piece + 1<<16})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, states.Close)
	c.cuts = &cutStore{state: func() ([]byte, error) { return appendState(nil, c.host) }}
	c.serving.Go(func() { _ = remote.Serve(serving, c.cuts, states, remote.Options{Log: c.env.Log}) }) // ends with its context
	c.serving.Go(func() {
		err := c.host.Serve(serving, c.placement, ps.ServerOptions{Log: c.env.Log, Updaters: c.steps.updaters(), Store: c.cuts, Bytes: memoryBytes(), Trace: c.trace()})
		if serving.Err() == nil {
			if err == nil {
				err = errors.New("the tables are served no more")
			}
			c.failed <- fmt.Errorf("server: %w", err)
		}
	})
	if c.server == 0 {
		d, err := c.host.Direct(c.placement, ps.DirectoryOptions{Log: c.env.Log, Updaters: c.steps.updaters()})
		if err != nil {
			return err
		}
		c.closers = append(c.closers, d.Close)
		c.cuts.snapshot(d)
	}
	return nil
}

// memoryBytes is what there is for tables, lest one that is too large end the process without a word: the machine's memory, or its control
// group's part of it; 0: that is not known here.
func memoryBytes() int64 {
	f, _ := host.Describe(host.Options{}) // what could not be read is zero
	return f.Memory()
}

// serve is the life of a process that only serves: until ctx ends, which the driver makes it once the workers are done.
func (c *cluster) serve(ctx context.Context) (trivium.Result, error) {
	select {
	case <-ctx.Done():
	case err := <-c.failed:
		return trivium.Result{Reason: trivium.Failed}, err
	}
	return served(ctx)
}

// served is what a process that only serves returns when ctx has ended.
func served(ctx context.Context) (trivium.Result, error) {
	if lost := train.LostOf(ctx); lost != nil {
		return trivium.Result{Reason: trivium.Failed}, lost
	}
	return trivium.Result{Reason: trivium.Finished}, nil
}

// alone makes a network within this process, with one worker.
func (c *cluster) alone(ctx context.Context, servers int) error {
	network := transport.NewMemory()
	var names []transport.Name
	var envs []*train.Env
	var ports []transport.Port
	c.env.Peers = []transport.Name{{Role: "worker", ID: "0"}}
	for i := range servers {
		names = append(names, transport.Name{Role: "server", ID: fmt.Sprint(i)})
	}
	for i, n := range append(c.env.Peers, names...) {
		port, err := network.Open(ctx, n, transport.Options{Log: c.env.Log})
		if err != nil {
			return err
		}
		c.closers = append(c.closers, port.Close)
		ports = append(ports, port)
		env := &train.Env{Role: observe.Server, Rank: i - 1, Peers: c.env.Peers, Servers: names, Port: port, Optimizers: c.env.Optimizers, Log: c.env.Log}
		if i == 0 {
			c.env.Port = port
			env = c.env
		}
		envs = append(envs, env)
	}
	for i, a := range ports {
		for j, b := range ports {
			if i != j {
				if err := a.Know(b.Name(), b.Addr()); err != nil {
					return err
				}
			}
		}
	}
	for i := range servers {
		s := &cluster{env: envs[1+i], job: c.job, mode: c.mode, lanes: c.lanes, server: -1, failed: c.failed}
		c.memory = append(c.memory, s)
		if err := s.open(ctx, names); err != nil {
			return err
		}
	}
	return c.open(ctx, names)
}

// The frames of a farewell.
const (
	frameDone  = iota + 1 // the sender is done
	frameHeard            // the answer
)

// A frame that a broken link has swallowed is sent again, as often as somebody may hear it: who has all that it waits for ends without another
// word.
const (
	farewellRetry = time.Second
	farewellTries = 10
)

// farewell tells those workers that also serve that this one is done; one that serves itself waits until all are.
func (c *cluster) farewell(ctx context.Context) error {
	if c.done == nil {
		return nil
	}
	self := c.env.Port.Name()
	deaf, busy := map[transport.Name]bool{}, map[transport.Name]bool{}
	for _, n := range c.placement.Servers {
		if n != self {
			deaf[n] = true
		}
	}
	if c.server >= 0 {
		for _, n := range c.env.Peers {
			if n != self {
				busy[n] = true
			}
		}
	}
	say := func(n transport.Name, kind uint8) { // what is not said now is asked for again
		short, cancel := context.WithTimeout(ctx, farewellRetry)
		defer cancel()
		if err := c.done.Send(short, n, transport.Frame{Kind: kind}); err != nil && c.env.Log != nil {
			c.env.Log.Debug("server: a worker is not told that this one is done", "worker", n, "error", err)
		}
	}
	for tries := 0; len(deaf)+len(busy) > 0; {
		if tries++; tries > farewellTries {
			clear(deaf)
		}
		for n := range deaf {
			say(n, frameDone)
		}
		for short, cancel := context.WithTimeout(ctx, farewellRetry); ; {
			ev, err := c.done.Recv(short)
			if err != nil {
				cancel()
				if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
				break
			}
			switch {
			case ev.What != transport.Received:
			case ev.Kind == frameDone:
				delete(busy, ev.From)
				say(ev.From, frameHeard)
			default:
				delete(deaf, ev.From)
			}
			ev.Release()
			if len(deaf)+len(busy) == 0 {
				cancel()
				return nil
			}
		}
	}
	return nil
}

// Put implements ps.Store.
func (*cluster) Put(context.Context, string, io.Reader) error { return errReadOnly }

// Get implements ps.Store: what the servers tell, from the first that has it.
func (c *cluster) Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
	for i := range c.placement.Servers {
		r, err := c.ask(ctx, i, key, from, length)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}
	return nil, fmt.Errorf("server: no server has %s: %w", key, fs.ErrNotExist)
}

// ask reads what one server tells.
func (c *cluster) ask(ctx context.Context, server int, key string, from, length int64) (io.ReadCloser, error) {
	if server == c.server {
		return c.cuts.Get(ctx, key, from, length)
	}
	x, err := c.dial(server)
	if err != nil {
		return nil, err
	}
	return x.Get(ctx, key, from, length)
}

// forget has all servers let go of what was read: of the snapshot (doneKey), or of the state (stateDoneKey).
func (c *cluster) forget(ctx context.Context, key string) error {
	for i, name := range c.placement.Servers {
		err := sayDone(ctx, key, func(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
			return c.ask(ctx, i, key, from, length)
		})
		if err != nil {
			return fmt.Errorf("server: %v is not told that its part of a checkpoint is read: %w", name, err)
		}
	}
	return nil
}

// dial connects to what another server tells, once.
func (c *cluster) dial(server int) (*remote.Client, error) {
	c.dialling.Lock()
	defer c.dialling.Unlock()
	if c.told == nil {
		c.told = make([]*remote.Client, len(c.placement.Servers))
	}
	if c.told[server] != nil {
		return c.told[server], nil
	}
	s, err := c.env.Port.Stream(stateStream(server), transport.StreamOptions{MaxFrame: remote.Piece + 1<<16})
	if err != nil {
		return nil, err
	}
	x := remote.NewClient(s, c.placement.Servers[server])
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = x.Run(ctx) }) // ends with its context
	c.closers = append(c.closers, func() error {
		cancel()
		wait.Wait()
		return s.Close()
	})
	c.told[server] = x
	return x, nil
}

// close ends what this process serves and waits for it.
func (c *cluster) close() {
	var errs []error
	for _, m := range c.memory {
		m.close()
	}
	if c.stop != nil {
		c.stop()
	}
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	c.serving.Wait()
	if err := errors.Join(errs...); err != nil && c.env.Log != nil {
		c.env.Log.Warn("server: not all was put away", "error", err)
	}
}
