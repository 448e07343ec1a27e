// Package pstest holds what a parameter server must do on any network, as a test that opens one and runs programs on it.
//
// [Run] is given the network. It starts a directory, servers and clients with their loops, in one process, and lets workers read and
// write while every read is held against what was written: the bound, read my writes, that value clocks never fall, and that under BSP
// all see the same.
//
//	func TestServerOnTCP(t *testing.T) { pstest.Run(t, func(t testing.TB) transport.Network { return &transport.TCP{} }) }
package pstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/transport"
)

// A Job is a parameter server with its clients, each on a port of its own, or all servers and the directory in the clients' processes.
type Job struct {
	Placement ps.Placement
	Clients   []*ps.Client
	Directory *ps.Directory

	t     testing.TB
	hosts []*ps.Host
	ports []transport.Port
	stop  context.CancelFunc
	wg    sync.WaitGroup
	mu    sync.Mutex
	errs  []error
}

// Options say what a Job is made of.
type Options struct {
	Clients, Servers, Lanes int
	Colocated               bool // servers and directory share the clients' ports
	Tables                  []ps.Spec
	Client                  ps.Options
	Server                  ps.ServerOptions
}

func name(role string, i int) protocol.Name {
	return protocol.Name{Job: "pstest", Role: role, ID: fmt.Sprint(i)}
}

// Open starts a job. Close ends it.
func Open(t testing.TB, n transport.Network, o Options) *Job {
	t.Helper()
	j := &Job{t: t}
	j.Placement = ps.Placement{Epoch: 1, Directory: name("directory", 0), Lanes: o.Lanes}
	server := "server"
	if o.Colocated {
		server, j.Placement.Directory = "worker", name("worker", 0)
	}
	for i := range o.Servers {
		j.Placement.Servers = append(j.Placement.Servers, name(server, i))
	}
	for i := range o.Clients {
		j.Placement.Clients = append(j.Placement.Clients, name("worker", i))
	}
	hosts := map[protocol.Name]*ps.Host{}
	for _, x := range append(append([]protocol.Name{j.Placement.Directory}, j.Placement.Servers...), j.Placement.Clients...) {
		if hosts[x] != nil {
			continue
		}
		p, err := n.Open(t.Context(), x, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stream("ps", ps.StreamOptions())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range j.ports {
			if err := errors.Join(p.Know(q.Name(), q.Addr()), q.Know(p.Name(), p.Addr())); err != nil {
				t.Fatal(err)
			}
		}
		j.ports = append(j.ports, p)
		hosts[x] = ps.Share(s, nil)
		j.hosts = append(j.hosts, hosts[x])
	}
	var err error
	if j.Directory, err = hosts[j.Placement.Directory].Direct(j.Placement, ps.DirectoryOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	j.stop = cancel
	for _, x := range j.Placement.Servers {
		j.wg.Go(func() { j.fail(hosts[x].Serve(ctx, j.Placement, o.Server)) })
	}
	j.Clients = make([]*ps.Client, o.Clients)
	var wg sync.WaitGroup
	for i, x := range j.Placement.Clients {
		wg.Go(func() {
			c, err := hosts[x].Open(ctx, j.Placement, o.Tables, o.Client)
			j.Clients[i] = c
			j.fail(err)
		})
	}
	wg.Wait()
	j.check()
	return j
}

func (j *Job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.errs = append(j.errs, err)
	}
}

func (j *Job) check() {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := errors.Join(j.errs...); err != nil {
		j.t.Fatal(err)
	}
}

// Each runs f as a worker of each client at once, and waits.
func (j *Job) Each(f func(ctx context.Context, w *ps.Worker, client int) error) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 3*time.Minute) // to end a hang
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range j.Clients {
		wg.Go(func() {
			w, err := c.Worker(ctx)
			if err == nil {
				err = f(ctx, w, i)
			}
			if err != nil {
				j.fail(fmt.Errorf("client %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	j.check()
}

// Close ends the job and fails the test if anything failed.
func (j *Job) Close() {
	j.t.Helper()
	for _, c := range j.Clients {
		j.fail(c.Close())
	}
	j.fail(j.Directory.Close())
	j.stop()
	j.wg.Wait()
	for _, h := range j.hosts {
		j.fail(h.Close())
	}
	for _, p := range j.ports {
		j.fail(p.Close())
	}
	j.check()
}

// Run runs the kit on networks that open makes, a new one for each test.
func Run(t *testing.T, open func(t testing.TB) transport.Network) {
	for _, mode := range []ps.Spec{{Mode: ps.BSP}, {Mode: ps.SSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ESSP, Staleness: 1}, {Mode: ps.ASP}} {
		for _, colocated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s:%d/colocated=%v", mode.Mode, mode.Staleness, colocated), func(t *testing.T) {
				j := Open(t, open(t), Options{Clients: 3, Servers: 2, Lanes: 2, Colocated: colocated, Tables: tables(mode)})
				defer j.Close()
				j.Each(func(ctx context.Context, w *ps.Worker, client int) error { return program(ctx, w, client, mode) })
			})
		}
	}
}

const (
	clients = 3
	rounds  = 10
)

// large is how many cells the large table has: what one lane has of them is large enough to be kept where it arrived.
func large() int {
	if testing.Short() {
		return 100_000
	}
	return 300_000
}

// tables are a small one, a lazy sparse one, and a row that takes several frames.
func tables(mode ps.Spec) []ps.Spec {
	a, b, c := mode, mode, mode
	a.Name, a.Rows, a.Cols, a.Cell = "small", 50, clients, ps.Int64
	b.Name, b.Cols, b.Cell, b.Sparse = "sparse", 1000, ps.Float64, true
	c.Name, c.Rows, c.Cols = "large", 1, int64(large())
	return []ps.Spec{a, b, c}
}

// program adds to its column of each table what tells the rounds apart, and checks each read.
func program(ctx context.Context, w *ps.Worker, me int, mode ps.Spec) error {
	small, err := ps.TableOf[int64](w, "small")
	if err != nil {
		return err
	}
	sparse, err := ps.TableOf[float64](w, "sparse")
	if err != nil {
		return err
	}
	big, err := ps.TableOf[float32](w, "large")
	if err != nil {
		return err
	}
	row, vector, one := make([]int64, clients), make([]float32, large()), make([]float32, large())
	for i := range one {
		one[i] = 1
	}
	cells := make([]float64, clients)
	cols := []int64{1, 500, 999}
	stride := 1 // of the cells that are looked at
	if testing.Short() {
		stride = 101
	}
	seen := ps.Clock(0)
	for c := range ps.Clock(rounds) {
		v, err := small.Get(ctx, int64(c)%5, row)
		if err != nil {
			return err
		}
		if mode.Mode != ps.ASP && v < c-ps.Clock(mode.Staleness) {
			return fmt.Errorf("bound: value clock %d at clock %d", v, c)
		}
		if v, err = small.Get(ctx, 49, row); err != nil {
			return err
		}
		if v < seen {
			return fmt.Errorf("monotone: value clock %d after %d", v, seen)
		}
		seen = v
		for q, x := range row { // column q has had stamp + 1 in each round
			if err := sum("small", q == me, mode.Mode, float64(x), c, v, func(n ps.Clock) float64 { return float64(n * (n + 1) / 2) }); err != nil {
				return err
			}
		}
		if v, err = sparse.GetCells(ctx, 7, cols, cells); err != nil {
			return err
		}
		for q, x := range cells {
			if err := sum("sparse", q == me, mode.Mode, x, c, v, func(n ps.Clock) float64 { return float64(n) }); err != nil {
				return err
			}
		}
		if v, err = big.Get(ctx, 0, vector); err != nil {
			return err
		}
		for i := 0; i < len(vector); i += stride {
			x := vector[i]
			if x < clients*float32(v) || x > clients*rounds || mode.Mode == ps.BSP && x != clients*float32(c) {
				return fmt.Errorf("large: cell %d is %v at clock %d, value clock %d", i, x, c, v)
			}
		}
		if err := errors.Join(small.Inc(49, int64(me), int64(c)+1), sparse.Inc(7, cols[me], 1), big.DenseInc(0, 0, one)); err != nil {
			return err
		}
		var next []ps.Wanted
		if c%3 > 0 { // of two tables, as every round but the last reads them
			next = append(next, small.Rows(49, int64(c+1)%5), big.Rows(0))
		}
		if _, err := w.Clock(ctx, next...); err != nil {
			return err
		}
	}
	if err := w.Barrier(ctx); err != nil {
		return err
	}
	if mode.Staleness == 0 {
		if _, err := big.Get(ctx, 0, vector); err != nil {
			return err
		}
		for i, x := range vector {
			if x != clients*rounds {
				return fmt.Errorf("large: in the end cell %d is %v, want %d", i, x, clients*rounds)
			}
		}
	}
	return w.Finish(ctx)
}

// sum checks one column: it holds some first rounds of its writer, of the reader's own all, and at least those below the value clock.
func sum(what string, own bool, mode ps.Mode, x float64, c, v ps.Clock, first func(n ps.Clock) float64) error {
	from, to := v, ps.Clock(rounds)
	if own || mode == ps.BSP {
		from, to = c, c
	}
	for n := from; n <= to; n++ {
		if x == first(n) {
			return nil
		}
	}
	return fmt.Errorf("%s: own %v: %v is no sum of the first %d to %d rounds, at clock %d", what, own, x, from, to, c)
}
