package server_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

// A crew is a strategy that runs workers and servers in this process, and returns what rank 0 returns.
type crew struct {
	env              train.Env
	workers, servers int // no servers: the first ranks have the shards; no workers: one that is no peer of anyone
	o                server.Options
	network          transport.Network // nil: in memory
	results          []trivium.Result
	errs             []error
}

// Train implements trivium.Strategy.
func (c *crew) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	c.env.Splits = shared(ctx, c.env, job)
	if c.workers == 0 {
		r, err := server.New(c.env, c.o).Train(ctx, job)
		c.errs = []error{err}
		return r, err
	}
	network := c.network
	if network == nil {
		network = transport.NewMemory()
	}
	ports, names, err := openPorts(ctx, network, c.workers+c.servers)
	for _, p := range ports {
		defer p.Close()
	}
	if err != nil {
		return trivium.Result{}, err
	}
	peers, servers := names[:c.workers:c.workers], names[c.workers:]
	c.results, c.errs = make([]trivium.Result, c.workers+c.servers), make([]error, c.workers+c.servers)
	working, interrupt, abort := train.Member(ctx)
	defer interrupt()
	defer abort(nil)
	serving, end := context.WithCancel(context.Background())
	defer end()
	var wait, served sync.WaitGroup
	for i := range c.workers + c.servers {
		env := c.env
		env.Rank, env.Peers, env.Servers, env.Port, env.Epoch = i, peers, servers, ports[i], 7
		if i > 0 {
			env.Blob, env.Watch = nil, train.Watch{}
			env.CPU = tensor.NewCPU(1, job.Exact)
			defer env.CPU.Close()
		}
		run := func(ctx context.Context) {
			c.results[i], c.errs[i] = server.New(env, c.o).Train(ctx, job)
			if _, all := errors.AsType[*trivium.DivergedError](c.errs[i]); all && c.o.Mode == ps.BSP {
				return // each finds that by itself
			}
			if c.errs[i] != nil {
				abort(&train.LostError{Peer: ports[i].Name(), Why: c.errs[i].Error()})
			}
		}
		if i < c.workers {
			wait.Go(func() { run(working) })
		} else {
			env.Rank, env.Role = i-c.workers, observe.Server
			served.Go(func() { run(serving) })
		}
	}
	wait.Wait()
	end()
	served.Wait()
	err = c.errs[0]
	if lost, ok := errors.AsType[*train.LostError](err); ok {
		for _, e := range c.errs {
			if e != nil && e.Error() == lost.Why {
				err = e
			}
		}
	}
	return c.results[0], err
}

// openPorts opens so many ports, all of whom know one another. Beside an error there are those that were opened before.
func openPorts(ctx context.Context, network transport.Network, n int) (ports []transport.Port, names []transport.Name, err error) {
	for i := range n {
		p, err := network.Open(ctx, transport.Name{Role: "worker", ID: fmt.Sprint(i)}, transport.Options{})
		if err != nil {
			return ports, names, err
		}
		ports, names = append(ports, p), append(names, p.Name())
	}
	for _, a := range ports {
		for _, b := range ports {
			if a != b {
				if err := a.Know(b.Name(), b.Addr()); err != nil {
					return ports, names, err
				}
			}
		}
	}
	return ports, names, nil
}

// memoryPorts opens them in memory, for as long as the test runs.
func memoryPorts(t *testing.T, n int) ([]transport.Port, []transport.Name) {
	t.Helper()
	ports, names, err := openPorts(t.Context(), transport.NewMemory(), n)
	for _, p := range ports {
		t.Cleanup(func() { _ = p.Close() })
	}
	if err != nil {
		t.Fatal(err)
	}
	return ports, names
}

func job() *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 2000, Train: "0:1600", Test: "1600:"},
		Batch: 300, Epochs: 8, Seed: 9, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.5},
	}
}

// opened are the data that tests share: to make them anew takes longer than many a test. Processes and TestStrategy open their own.
var opened struct {
	sync.Mutex
	splits map[string]*data.Splits
}

// shared is the job's data, opened once for all tests, or nil, where env has its own, or where there are none.
func shared(ctx context.Context, env train.Env, j *trivium.Job) *data.Splits {
	if env.Splits != nil || env.Sources != nil {
		return env.Splits
	}
	opened.Lock()
	defer opened.Unlock()
	key := fmt.Sprintf("%+v", j.Data)
	if opened.splits[key] == nil {
		s, err := data.Open(ctx, j.Data, data.Options{Sources: traintest.Sources()})
		if err != nil {
			return nil // the strategy says what is wrong
		}
		if opened.splits == nil {
			opened.splits = map[string]*data.Splits{}
		}
		opened.splits[key] = s
	}
	return opened.splits[key]
}

// alone trains with local, on the same data.
func alone(t testing.TB, env train.Env, j *trivium.Job) trivium.Result {
	t.Helper()
	env.Splits = shared(t.Context(), env, j)
	r, err := local.New(env, local.Options{}).Train(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// small returns the job with a quarter of the rows where tests are to be short: in as many updates.
func small(j *trivium.Job) *trivium.Job {
	if testing.Short() {
		j.Data.Rows, j.Data.Train, j.Data.Test, j.Batch = 500, "0:400", "400:", j.Batch/4
	}
	return j
}

// paced trains with workers that keep one pace, as on cores of their own: virtual time sees to that. On a busy machine one is left
// behind as far as the mode lets it be, and ASP lets it be left forever. Unless c says how slow they are, a round is a millisecond.
func (c *crew) paced(t *testing.T, j *trivium.Job) (got trivium.Result, err error) {
	t.Helper()
	if c.o.Slow == (server.Slow{}) {
		c.o.Slow = server.Slow{Factor: 1, Unit: time.Millisecond}
	}
	c.env.Splits = shared(t.Context(), c.env, j)
	synctest.Test(t, func(t *testing.T) {
		c.env.CPU = tensor.NewCPU(1, j.Exact) // a pool of more looks at the clock while it waits for work
		defer c.env.CPU.Close()
		got, err = c.Train(t.Context(), j)
	})
	if err != nil {
		err = errors.Join(c.errs...)
	}
	return got, err
}

// paced trains so with three workers and two servers.
func paced(t *testing.T, o server.Options, j *trivium.Job) trivium.Result {
	t.Helper()
	got, err := (&crew{workers: 3, servers: 2, o: o}).paced(t, j)
	if err != nil {
		t.Fatalf("%s %+v: %v", j.Optimizer.Name, o, err)
	}
	return got
}
