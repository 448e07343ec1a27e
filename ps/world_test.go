package ps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// A simJob is a parameter server in a simulated world: worker programs are coroutines, so that they read like real ones and run in an
// order that the seed alone decides.
type simJob struct {
	w        *sim.World
	p        Placement
	co       Options
	do       DirectoryOptions
	dir      sim.Node
	servers  []sim.Node
	clients  []*simClient
	running  int
	stuck    map[int]int // programs of each client that run
	failures []error
	stops    []func()
}

type simClient struct {
	node  sim.Node
	state *ClientState
}

// simOptions say what a job is made of.
type simOptions struct {
	clients, servers, lanes int
	exact                   bool
	min, shards, most       int
	tables                  []Spec
	client                  Options
	server                  ServerOptions
	dir                     DirectoryOptions
	frame                   int // the largest message that servers and the directory may send, in bytes; 0: any
}

func dirName() Name         { return Name{Job: "j", Role: "directory", ID: "0"} }
func serverName(i int) Name { return Name{Job: "j", Role: "server", ID: fmt.Sprint(i)} }
func clientName(i int) Name { return Name{Job: "j", Role: "worker", ID: fmt.Sprint(i)} }

func newSimJob(w *sim.World, o simOptions) *simJob {
	j := &simJob{stuck: map[int]int{}, w: w, co: o.client, do: o.dir}
	j.do.Updaters = o.server.Updaters
	j.p = Placement{Epoch: 1, Directory: dirName(), Lanes: o.lanes, Exact: o.exact, MinShardCells: o.min, ShardsEach: o.shards, MaxServers: o.most}
	for i := range o.servers {
		j.p.Servers = append(j.p.Servers, serverName(i))
	}
	for i := range o.clients {
		j.p.Clients = append(j.p.Clients, clientName(i))
	}
	j.dir = w.Add(dirName(), sim.Host{}, func(sim.Disk) protocol.Machine {
		d, err := NewDirectoryState(j.p, j.do)
		if err != nil {
			panic(err)
		}
		return &worker{m: d, j: j, frame: o.frame}
	})
	for i := range o.servers {
		j.servers = append(j.servers, w.Add(serverName(i), sim.Host{}, func(sim.Disk) protocol.Machine {
			h := &lanes{}
			for l := range max(o.lanes, 1) {
				s, err := NewServerState(j.p, i*max(o.lanes, 1)+l, o.server)
				if err != nil {
					panic(err)
				}
				h.lanes = append(h.lanes, s)
			}
			return &worker{m: h, j: j, frame: o.frame}
		}))
	}
	for i := range o.clients {
		j.addClient(i, o.tables)
	}
	return j
}

func (j *simJob) addClient(i int, tables []Spec) *simClient {
	c := new(simClient)
	c.node = j.w.Add(clientName(i), sim.Host{}, func(sim.Disk) protocol.Machine {
		o := j.co
		o.Session = uint64(1000 + i)
		s, err := NewClientState(j.p, clientName(i), tables, o)
		if err != nil {
			panic(err)
		}
		c.state = s
		return s
	})
	j.clients = append(j.clients, c)
	return c
}

// worker does the Work of Compute commands when they are asked for: a World only lets their time pass. What is sent as too large a frame
// is a failure of the job: a stream would refuse it.
type worker struct {
	m     protocol.Machine
	j     *simJob
	frame int
}

func (w *worker) Step(now time.Duration, in protocol.Event) []protocol.Command {
	out := w.m.Step(now, in)
	for _, c := range out {
		switch c := c.(type) {
		case protocol.Compute:
			if c.Work != nil {
				c.Work()
			}
		case protocol.Send:
			if w.frame == 0 {
				continue
			}
			if _, head, payload := coded(c.Body); len(head)+len(payload) > w.frame {
				w.j.failures = append(w.j.failures, fmt.Errorf("%T to %s is a frame of %d bytes, want at most %d", c.Body, c.To, len(head)+len(payload), w.frame))
				w.frame = 0 // once
			}
		}
	}
	return out
}

// lanes are a server's lanes as one machine.
type lanes struct {
	lanes []*ServerState
	out   []protocol.Command
}

func (h *lanes) Step(now time.Duration, in protocol.Event) []protocol.Command {
	h.out = h.out[:0]
	one := func(k int, in protocol.Event) {
		for _, c := range h.lanes[k].Step(now, in) {
			switch x := c.(type) {
			case protocol.SetTimer:
				x.ID = x.ID<<8 | protocol.TimerID(k)
				c = x
			case protocol.Compute:
				x.ID = x.ID<<8 | uint64(k)
				c = x
			}
			h.out = append(h.out, c)
		}
	}
	switch x := in.(type) {
	case protocol.Message:
		one(int(laneOf(x.Body))%len(h.lanes), in)
	case protocol.Timer:
		one(int(x.ID&255), protocol.Timer{ID: x.ID >> 8})
	case protocol.Computed:
		one(int(x.ID&255), protocol.Computed{ID: x.ID >> 8})
	default:
		for k := range h.lanes {
			one(k, in)
		}
	}
	return h.out
}

// A simDriver drives a client for one worker's program.
type simDriver struct {
	yield  func(ask) bool
	result any
	err    error
}

type ask struct {
	arg   any
	sleep time.Duration
}

func (d *simDriver) Lock()   {}
func (d *simDriver) Unlock() {}

var errStopped = errors.New("the program was stopped")

func (d *simDriver) Call(_ context.Context, arg any) (any, error) {
	if !d.yield(ask{arg: arg}) {
		panic(errStopped)
	}
	return d.result, d.err
}

// A program is what one worker does. Its sleep lets virtual time pass.
type program func(w *Worker, sleep func(time.Duration)) error

// start runs a program as a worker of client i. What it returns is a failure of the job, unless the node is down.
func (j *simJob) start(i int, after time.Duration, f program) { j.startThen(i, after, f, nil) }

func (j *simJob) startThen(i int, after time.Duration, f program, then func(err error)) {
	c := j.clients[i]
	d := new(simDriver)
	j.running++
	j.stuck[i]++
	seq := func(yield func(ask) bool) {
		d.yield = yield
		err := func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					if r != errStopped {
						panic(r)
					}
					err = errStopped
				}
			}()
			ctx := context.Background()
			if _, err := d.Call(ctx, openCall{}); err != nil {
				return err
			}
			w, err := NewWorker(ctx, d)
			if err != nil {
				return err
			}
			return f(w, func(t time.Duration) {
				if t > 0 && !yield(ask{sleep: t}) {
					panic(errStopped)
				}
			})
		}()
		j.running--
		j.stuck[i]--
		if then != nil {
			then(err)
		} else if err != nil && !errors.Is(err, sim.ErrDown) {
			j.failures = append(j.failures, fmt.Errorf("client %d: %w", i, err))
		}
	}
	next, stop := iter.Pull(seq)
	j.stops = append(j.stops, stop)
	var step func()
	step = func() {
		a, ok := next()
		switch {
		case !ok:
		case a.sleep > 0:
			j.w.After(a.sleep, step)
		default:
			j.w.Call(c.node, 0, a.arg, func(r any, err error) {
				d.result, d.err = r, err
				step()
			})
		}
	}
	j.w.After(after, step)
}

// end ends the programs that still run.
func (j *simJob) end() {
	for _, stop := range j.stops {
		stop()
	}
}

// run lets the world go on until all programs ended.
func (j *simJob) run(t testing.TB, within time.Duration) {
	t.Helper()
	defer j.end()
	if err := j.w.Converges(within, func() bool { return j.running == 0 }); err != nil {
		t.Fatalf("after %v: %v; %v", j.w.Now(), err, errors.Join(j.failures...))
	}
	if err := errors.Join(j.failures...); err != nil {
		t.Fatal(err)
	}
}

// lane returns a lane's state.
func (j *simJob) lane(l int) *ServerState {
	n := max(j.p.Lanes, 1)
	return j.w.Machine(j.servers[l/n]).(*worker).m.(*lanes).lanes[l%n]
}

// memory is a Store.
type memory struct {
	objects map[string][]byte
	fail    func(key string) error
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

func (m *memory) Put(_ context.Context, key string, r io.Reader) error {
	p, err := io.ReadAll(r)
	if err == nil && m.fail != nil {
		err = m.fail(key)
	}
	if err == nil {
		m.objects[key] = p
	}
	return err
}

func (m *memory) Get(_ context.Context, key string, from, length int64) (io.ReadCloser, error) {
	p, ok := m.objects[key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return io.NopCloser(io.LimitReader(bytes.NewReader(p[from:]), length)), nil
}

// modes are the consistency models that most cases run under.
func modes() []Spec {
	return []Spec{{Mode: BSP}, {Mode: SSP}, {Mode: SSP, Staleness: 1}, {Mode: SSP, Staleness: 5}, {Mode: ESSP}, {Mode: ESSP, Staleness: 1}, {Mode: ESSP, Staleness: 5}}
}

func modeName(s Spec) string { return fmt.Sprintf("%s:%d", s.Mode, s.Staleness) }

func sorted(x ...int64) []int64 { slices.Sort(x); return x }
