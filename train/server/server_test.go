package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A crew is a strategy that runs workers and servers in this process, and returns what rank 0 returns.
type crew struct {
	env              train.Env
	workers, servers int // no servers: the first ranks have the shards
	o                server.Options
	results          []trivium.Result
	errs             []error
}

// Train implements trivium.Strategy.
func (c *crew) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	network := transport.NewMemory()
	var peers, servers []transport.Name
	var ports []transport.Port
	for i := range c.workers + c.servers {
		n := transport.Name{Role: "worker", ID: fmt.Sprint(i)}
		if i < c.workers {
			peers = append(peers, n)
		} else {
			servers = append(servers, n)
		}
		port, err := network.Open(ctx, n, transport.Options{})
		if err != nil {
			return trivium.Result{}, err
		}
		defer port.Close()
		ports = append(ports, port)
	}
	for _, a := range ports {
		for _, b := range ports {
			if a != b {
				if err := a.Know(b.Name(), b.Addr()); err != nil {
					return trivium.Result{}, err
				}
			}
		}
	}
	c.results, c.errs = make([]trivium.Result, c.workers+c.servers), make([]error, c.workers+c.servers)
	working, abort := context.WithCancelCause(ctx)
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
	err := c.errs[0]
	if lost, ok := errors.AsType[*train.LostError](err); ok {
		for _, e := range c.errs {
			if e != nil && e.Error() == lost.Why {
				err = e
			}
		}
	}
	return c.results[0], err
}

func job() *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 2000, Train: "0:1600", Test: "1600:"},
		Batch: 300, Epochs: 8, Seed: 9, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.5},
	}
}

// TestStrategy: one worker behaves as local does, over tables.
func TestStrategy(t *testing.T) {
	traintest.Run(t, func(env train.Env) trivium.Strategy { return server.New(env, server.Options{Mode: ps.BSP, Servers: 2}) })
}

// TestExact: the bits are those of local, for every number of workers and servers.
func TestExact(t *testing.T) {
	for name, j := range traintest.Variants() {
		j.Exact = true
		want, err := local.New(traintest.Env(t, 1, true), local.Options{}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 3, 5} {
			for _, servers := range []int{1, 3} {
				c := &crew{env: traintest.Env(t, 1, true), workers: n, servers: servers, o: server.Options{Mode: ps.BSP}}
				got, err := c.Train(t.Context(), j)
				if err != nil {
					t.Fatalf("%s, %d workers, %d servers: %v", name, n, servers, errors.Join(c.errs...))
				}
				what := fmt.Sprintf("%s, %d workers, %d servers", name, n, servers)
				traintest.Same(t, what, got, want)
				for rank := range n {
					for i, x := range c.results[rank].Params.Flat {
						if math.Float32bits(x) != math.Float32bits(want.Params.Flat[i]) {
							t.Fatalf("%s: rank %d: cell %d is %v, want %v", what, rank, i, x, want.Params.Flat[i])
						}
					}
				}
			}
		}
	}
}

var _ = []any{blob.Dir, checkpoint.Latest, strings.Contains}
