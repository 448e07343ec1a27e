package ps

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// A realJob is a parameter server on a network, in one process: a port for each part.
type realJob struct {
	t       testing.TB
	p       Placement
	net     transport.Network
	ports   []transport.Port
	streams map[Name]transport.Stream
	dir     *Directory
	clients []*Client
	ctx     context.Context // of servers
	stop    context.CancelFunc
	served  sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

func newRealJob(t testing.TB, n transport.Network, o simOptions) *realJob {
	t.Helper()
	j := &realJob{t: t, net: n}
	j.p = Placement{Epoch: 1, Directory: dirName(), Lanes: o.lanes, Exact: o.exact, MinShardCells: o.min, ShardsEach: o.shards, MaxServers: o.most}
	names := []Name{dirName()}
	for i := range o.servers {
		j.p.Servers = append(j.p.Servers, serverName(i))
	}
	for i := range o.clients {
		j.p.Clients = append(j.p.Clients, clientName(i))
	}
	names = append(append(names, j.p.Servers...), j.p.Clients...)
	streams := map[Name]transport.Stream{}
	j.streams = streams
	for _, name := range names {
		p, err := n.Open(t.Context(), name, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j.ports = append(j.ports, p)
		s, err := p.Stream("ps", StreamOptions())
		if err != nil {
			t.Fatal(err)
		}
		streams[name] = s
	}
	for _, p := range j.ports {
		for _, q := range j.ports {
			if p != q {
				if err := p.Know(q.Name(), q.Addr()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var err error
	if j.dir, err = Direct(streams[dirName()], j.p, o.dir); err != nil {
		t.Fatal(err)
	}
	j.ctx, j.stop = context.WithCancel(t.Context())
	for i := range o.servers {
		j.serve(streams[serverName(i)], o.server)
	}
	j.clients = make([]*Client, o.clients)
	var wg sync.WaitGroup
	for i := range o.clients {
		wg.Go(func() {
			c, err := Open(t.Context(), streams[clientName(i)], j.p, o.tables, o.client)
			j.fail(err)
			j.clients[i] = c
		})
	}
	wg.Wait()
	j.check()
	return j
}

// serve runs a server.
func (j *realJob) serve(s transport.Stream, o ServerOptions) {
	j.served.Go(func() { j.fail(Serve(j.ctx, s, j.p, o)) })
}

func (j *realJob) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.errs = append(j.errs, err)
	}
}

func (j *realJob) check() {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := errors.Join(j.errs...); err != nil {
		j.t.Fatal(err)
	}
}

// each runs f as a worker of each client, and waits.
func (j *realJob) each(f func(w *Worker, client int) error) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 3*time.Minute) // to end a hang
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range j.clients {
		wg.Go(func() {
			w, err := c.Worker(ctx)
			if err == nil {
				err = f(w, i)
			}
			if err != nil {
				j.fail(fmt.Errorf("client %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	j.check()
}

func (j *realJob) close() {
	for _, c := range j.clients {
		j.fail(c.Close())
	}
	j.stop()
	j.served.Wait()
	j.fail(j.dir.Close())
	for _, p := range j.ports {
		j.fail(p.Close())
	}
	j.check()
}

func networks(t testing.TB) map[string]transport.Network {
	return map[string]transport.Network{"memory": transport.NewMemory(), "unix": &transport.Unix{Dir: t.TempDir()}, "tcp": &transport.TCP{}}
}

// TestLoops runs Bösen's staleness test over real loops.
func TestLoops(t *testing.T) {
	stride, cols, shards := 1, 300_000, 8 // of the cells that are looked at; a shard of 75,000 is sent from where it lies
	if testing.Short() {
		stride, cols, shards = 101, 140_000, 2 // and so is one of 70,000
	}
	for name, n := range networks(t) {
		for _, mode := range modes() {
			for _, lanes := range []int{1, 3} {
				if testing.Short() && ((lanes == 3) != (name == "unix") || name != "memory" && mode.Staleness == 1) {
					continue // all in the full run
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, modeName(mode), lanes), func(t *testing.T) {
					small, large := mode, mode
					small.Name, small.Rows, small.Cols, small.Cell = "small", 100, 16, Int32
					large.Name, large.Rows, large.Cols = "large", 2, int64(cols)
					j := newRealJob(t, n, simOptions{clients: 3, servers: 2, lanes: lanes, min: 64, shards: shards, tables: []Spec{small, large}})
					defer j.close()
					j.each(func(w *Worker, id int) error {
						a, b := tableOf[int32](w, "small"), tableOf[float32](w, "large")
						row, big, one := make([]int32, 16), make([]float32, cols), make([]float32, cols)
						for i := range one {
							one[i] = 1
						}
						for i := range 8 {
							v, err := a.Get(bg, 7, row)
							if err != nil {
								return err
							}
							for q := range 3 {
								if least := int32(max(0, i-mode.Staleness)); row[q] < least || row[q] < int32(v) || q == id && row[q] != int32(i) || mode.Mode == BSP && row[q] != int32(i) {
									return fmt.Errorf("round %d: cell %d is %d at value clock %d", i, q, row[q], v)
								}
							}
							if v, err = b.Get(bg, 1, big); err != nil {
								return err
							}
							for k := 0; k < len(big); k += stride {
								x := big[k]
								if least := float32(max(0, i-mode.Staleness)) * 3; x < least || x < 3*float32(v) || mode.Mode == BSP && x != float32(3*i) {
									return fmt.Errorf("round %d: large cell %d is %v at value clock %d", i, k, x, v)
								}
							}
							if err := errors.Join(a.Inc(7, int64(id), 1), b.DenseInc(1, 0, one)); err != nil {
								return err
							}
							if _, err := w.Clock(bg); err != nil {
								return err
							}
						}
						if err := w.Barrier(bg); err != nil {
							return err
						}
						if _, err := b.Get(bg, 1, big); err != nil {
							return err
						}
						if mode.Staleness == 0 {
							for k, x := range big {
								if x != 24 {
									return fmt.Errorf("in the end large cell %d is %v", k, x)
								}
							}
						}
						return w.Finish(bg)
					})
				})
			}
		}
	}
}

// An attended stream counts who attends.
type attended struct {
	transport.Stream
	now atomic.Int32
}

func (a *attended) Attend(by int) { a.now.Add(int32(by)) }

// TestLook: a process attends that has lanes and no workers, unless it has one thread of Go.
func TestLook(t *testing.T) {
	for _, c := range []struct {
		name  string
		procs int
		roles []int
		want  int32
	}{
		{"a server", 2, []int{forServer}, 1},
		{"a server with one thread", 1, []int{forServer}, 0},
		{"a server with a worker", 2, []int{forServer, forClient}, 0},
		{"a worker", 2, []int{forClient}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.procs))
			port, err := transport.NewMemory().Open(bg, Name{Role: "server", ID: "0"}, transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer port.Close()
			s, err := port.Stream("ps", StreamOptions())
			if err != nil {
				t.Fatal(err)
			}
			a := &attended{Stream: s}
			h := Share(a, nil)
			defer h.Close()
			var parts []*part
			for _, role := range c.roles {
				p := &part{}
				if err := h.add(role, 0, p); err != nil {
					t.Fatal(err)
				}
				parts = append(parts, p)
			}
			if now := a.now.Load(); now != c.want {
				t.Errorf("%d attend, want %d", now, c.want)
			}
			for _, p := range parts {
				h.remove(p)
			}
			if now := a.now.Load(); now != 0 {
				t.Errorf("%d attend where nothing is left, want 0", now)
			}
		})
	}
}
