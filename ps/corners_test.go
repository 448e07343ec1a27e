package ps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/transport"
)

// TestWeightsOfNothing: where a round's weights add up to 0 there is no mean, and what is counted counts.
func TestWeightsOfNothing(t *testing.T) {
	for _, mode := range []Mode{BSP, SSP, ESSP} {
		tables := []Spec{{Name: "n", Rows: 1, Cols: 4, Cell: Int64, Mode: mode}, {Name: "x", Rows: 1, Cols: 4, Mode: mode}}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: tables})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			n, x := tableOf[int64](w, "n"), tableOf[float32](w, "x")
			if err := w.Weight(0, 0); err != nil {
				return err
			}
			if err := n.Inc(0, 0, 1); err != nil {
				return err
			}
			if err := x.Inc(0, 0, 1); err != nil {
				return err
			}
			for range 3 {
				if err := w.Barrier(bg); err != nil {
					return err
				}
			}
			counts, means := make([]int64, 4), make([]float32, 4)
			if _, err := n.Get(bg, 0, counts); err != nil {
				return err
			}
			if _, err := x.Get(bg, 0, means); err != nil {
				return err
			}
			if counts[0] != 1 || means[0] != 0 {
				return fmt.Errorf("%s: counted %v, added %v; want 1, 0", mode, counts, means)
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}

// TestWeightsOfAll: a round's sums are divided by the weights of all clients, also of those that added nothing at the server in question, or
// nothing at all.
func TestWeightsOfAll(t *testing.T) {
	for _, servers := range []int{1, 3} {
		tables := []Spec{{Name: "x", Rows: 3, Cols: 4, Mode: BSP}}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 3, servers: servers, min: 1, shards: 1, tables: tables})
		for i := range 3 {
			j.start(i, 0, func(w *Worker, _ func(time.Duration)) error {
				x := tableOf[float32](w, "x")
				for range 2 {
					if err := w.Weight(0, float64(i+1)); err != nil {
						return err
					}
					if i < 2 { // each adds to a row that another server has; the third has a weight alone
						if err := x.Inc(int64(i), 0, 6); err != nil {
							return err
						}
					}
					if err := w.Barrier(bg); err != nil {
						return err
					}
				}
				cells := make([]float32, 3*4)
				if _, err := x.GetRows(bg, []int64{0, 1, 2}, cells); err != nil {
					return err
				}
				if cells[0] != 2 || cells[4] != 2 || cells[8] != 0 {
					return fmt.Errorf("%d servers: the rows begin with %v, %v and %v; want 2, 2 and 0", servers, cells[0], cells[4], cells[8])
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Minute)
	}
}

// TestLastHeard: the error of a call that waits in vain says when the server was last heard, not when it was last asked.
func TestLastHeard(t *testing.T) {
	w := sim.New(1, sim.Options{})
	j := newSimJob(w, simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "n", Rows: 1, Cols: 4}}, client: Options{RoundTimeout: time.Minute}})
	var got error
	j.startThen(0, 0, func(w *Worker, sleep func(time.Duration)) error {
		if err := w.Barrier(bg); err != nil {
			return err
		}
		sleep(10 * time.Second)
		_, err := tableOf[float32](w, "n").Get(bg, 0, make([]float32, 4))
		return err
	}, func(err error) { got = err })
	if err := w.Run(sim.Plan{{Kind: sim.Crash, At: 5 * time.Second, For: time.Hour, Nodes: []sim.Node{j.servers[0]}}}, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if got == nil || !strings.Contains(got.Error(), "no answer from j/server/0 (last heard 1m10") && !strings.Contains(got.Error(), "(last heard 1m9") {
		t.Error(got)
	}
	j.end()
}

// oneProcess is a job that is one process.
func oneProcess(t *testing.T) (*Host, Placement) {
	t.Helper()
	self := transport.Name{Job: "j", Role: "all", ID: "0"}
	return share(t, transport.NewMemory(), self), Placement{Directory: self, Servers: []transport.Name{self}, Clients: []transport.Name{self}}
}

// TestWhoOwes: who waits in vain for rounds to be held names the server that does not say so, where all are as far.
func TestWhoOwes(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{
		clients: 2, servers: 2, tables: []Spec{{Name: "n", Rows: 1, Cols: 4, Mode: ASP}}, client: Options{RoundTimeout: time.Minute},
	})
	var got error
	j.startThen(0, 0, func(w *Worker, sleep func(time.Duration)) error {
		sleep(10 * time.Second)
		return w.Finish(bg)
	}, func(err error) { got = err })
	j.startThen(1, 0, func(_ *Worker, sleep func(time.Duration)) error { sleep(time.Hour); return nil }, func(error) {})
	if err := j.w.Run(sim.Plan{{Kind: sim.Crash, At: 5 * time.Second, For: time.Hour, Nodes: []sim.Node{j.servers[1]}}}, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if got == nil || !strings.Contains(got.Error(), "ps: finish by worker 0 of j/worker/0 at clock 0: no answer from j/server/1") {
		t.Error(got)
	}
	j.end()
}

// single calls f with the directory and the client of a job that is one process.
func single(t *testing.T, o Options, f func(ctx context.Context, d *Directory, s Store, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		host, p := oneProcess(t)
		d, err := host.Direct(p, DirectoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		store, served := newMemory(), make(chan error, 1)
		go func() { served <- host.Serve(ctx, p, ServerOptions{Store: store}) }()
		c, err := host.Open(ctx, p, []Spec{{Name: "n", Rows: 1, Cols: 4}}, o)
		if err != nil {
			t.Fatal(err)
		}
		f(ctx, d, store, c)
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestOpenAgain: who gave up to take part may try again, also if it was let in meanwhile.
func TestOpenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		host, p := oneProcess(t)
		tables := []Spec{{Name: "n", Rows: 1, Cols: 4}}
		if _, err := host.Direct(p, DirectoryOptions{}); err != nil {
			t.Fatal(err)
		}
		short, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if _, err := host.Open(short, p, tables, Options{}); err == nil { // no server: the directory lets it in, and cannot tell it
			t.Fatal("it takes part without a server")
		}
		served := make(chan error, 1)
		go func() { served <- host.Serve(ctx, p, ServerOptions{}) }()
		long, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		c, err := host.Open(long, p, tables, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestMessageThatIsTooLarge: what no frame has room for ends the host with a reason, where its receiver would wait for it.
func TestMessageThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		hosts := map[string]*Host{}
		var names []transport.Name
		var server transport.Port
		for _, id := range []string{"server", "client"} {
			name := transport.Name{Job: "j", Role: "all", ID: id}
			port, err := network.Open(bg, name, transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer port.Close()
			stream, err := port.Stream("ps", transport.StreamOptions{MaxFrame: 400})
			if err != nil {
				t.Fatal(err)
			}
			if server != nil {
				if err := port.Know(server.Name(), server.Addr()); err != nil {
					t.Fatal(err)
				}
			}
			hosts[id], names, server = Share(stream, nil), append(names, name), port
			defer hosts[id].Close()
		}
		p := Placement{Directory: names[0], Servers: names[:1], Clients: names[1:]}
		if _, err := hosts["server"].Direct(p, DirectoryOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := hosts["client"].Open(bg, p, []Spec{{Name: strings.Repeat("n", 200), Rows: 1, Cols: 4}, {Name: strings.Repeat("m", 200), Rows: 1, Cols: 4}}, Options{})
		if !errors.Is(err, transport.ErrTooLarge) {
			t.Errorf("error %v, want one that says what is too large", err)
		}
	})
}

// TestLargeStates: a snapshot of workers that keep more than there is room for fails, and says why.
func TestLargeStates(t *testing.T) {
	for size, want := range map[int]string{maxStates: "", maxStates + 1: "the workers of j/all/0 keep 524289 bytes, and at most 524288"} {
		single(t, Options{}, func(ctx context.Context, d *Directory, s Store, c *Client) {
			w, err := c.Worker(ctx)
			if err != nil {
				t.Fatal(err)
			}
			w.KeepState(func() []byte { return make([]byte, size) })
			limited, end := context.WithTimeout(ctx, time.Minute)
			defer end()
			done := make(chan error, 1)
			go func() {
				_, err := d.Snapshot(limited, s)
				done <- err
			}()
			for {
				select {
				case err := <-done:
					if text := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(text, want) {
						t.Errorf("%d bytes: %v", size, err)
					}
				default:
					time.Sleep(time.Millisecond)
					if _, err := w.Clock(ctx); err != nil {
						t.Fatal(err)
					}
					continue
				}
				break
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWorkersThatWereNotMade: rounds wait for all workers that were promised, and a client that ends without them says so.
func TestWorkersThatWereNotMade(t *testing.T) {
	single(t, Options{Workers: 2}, func(ctx context.Context, _ *Directory, _ Store, c *Client) {
		w, err := c.Worker(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n, err := TableOf[float32](w, "n")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Inc(0, 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(ctx); err != nil { // the other may come yet
			t.Fatal(err)
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "it has 1 workers of the 2 that Options.Workers names") {
			t.Error(err)
		}
	})
}

// TestFinishedBeforeTheOthersWereMade: a snapshot has what a worker kept that finished before the others of its client were made.
func TestFinishedBeforeTheOthersWereMade(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{Workers: 2})
	x.w.state = func() []byte { return []byte("all of it") }
	x.call(finishCall{x.w})
	x.call(workerCall{})
	id, _ := x.call(clockCall{w: x.c.workers[1]})
	if a := x.answers[id]; a.Err != nil {
		t.Fatal(a.Err)
	}
	c := *x.s.config
	c.Version, c.Cut = 2, Cut{ID: 1, At: 2}
	x.client(protocol.Message{From: dirName(), Body: &install{config: &c}})
	var told *progress
	for _, out := range x.c.Step(0, protocol.Call{ID: 9, Arg: clockCall{w: x.c.workers[1]}}) {
		if out, ok := out.(protocol.Send); ok && out.To == dirName() {
			told = out.Body.(*progress)
		}
	}
	if told == nil || len(told.states) != 2 || string(told.states[0]) != "all of it" {
		t.Errorf("the client tells %v", told)
	}
}

// TestWorkerMadeDuringACut: a snapshot waits for what a worker keeps that was made while it was under way, before its round.
func TestWorkerMadeDuringACut(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
	told := func(in protocol.Event) (states []string) {
		for _, out := range x.c.Step(0, in) {
			if out, ok := out.(protocol.Send); ok && out.To == dirName() {
				for _, s := range out.Body.(*progress).states {
					states = append(states, string(s))
				}
			}
		}
		return states
	}
	c := *x.s.config
	c.Version, c.Cut = 2, Cut{ID: 1, At: 1}
	x.client(protocol.Message{From: dirName(), Body: &install{config: &c}})
	x.call(workerCall{})
	for i, w := range x.c.workers {
		w.state = func() []byte { return fmt.Append(nil, i) }
	}
	clock := func(k int) protocol.Call { return protocol.Call{ID: 9, Arg: clockCall{w: x.c.workers[k]}} }
	if s := told(clock(0)); s != nil {
		t.Errorf("before the second worker comes to the cut the client tells %q", s)
	}
	if s := told(clock(1)); !slices.Equal(s, []string{"0", "1"}) {
		t.Errorf("the client tells %q", s)
	}
	x.call(workerCall{}) // it begins at the cut, and had done nothing there
	if s := told(protocol.Timer{ID: timerRetry}); !slices.Equal(s, []string{"0", "1"}) {
		t.Errorf("what may be lost is told again as %q", s)
	}
}

// TestSlowIsNotStuck: RoundTimeout counts from when last a round was completed that a call waits for, and not from when it began to wait.
func TestSlowIsNotStuck(t *testing.T) {
	tables := []Spec{{Name: "loose", Rows: 1, Cols: 4, Staleness: 3}, {Name: "tight", Rows: 1, Cols: 4}}
	calls := map[string]func(w *Worker) error{
		"barrier": func(w *Worker) error { return w.Barrier(bg) },
		`read "tight"`: func(w *Worker) error {
			_, err := tableOf[float32](w, "tight").Get(bg, 0, make([]float32, 4))
			return err
		},
	}
	for name, call := range calls {
		for _, rounds := range []int{5, 2} { // of the slow one, which then does nothing for an hour
			j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: tables})
			var got error
			var ended time.Duration
			j.startThen(0, 0, func(w *Worker, _ func(time.Duration)) error {
				for range 4 {
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return call(w)
			}, func(err error) { got, ended = err, j.w.Now() })
			j.startThen(1, 0, func(w *Worker, sleep func(time.Duration)) error {
				for range rounds {
					sleep(6 * time.Minute)
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				sleep(time.Hour)
				return nil
			}, func(error) {})
			if err := j.w.Run(nil, 3*time.Hour); err != nil {
				t.Fatal(err)
			}
			j.end()
			switch at := ended.Round(time.Minute); {
			case rounds == 5 && got != nil,
				rounds == 2 && (got == nil || !strings.Contains(got.Error(), name) || !strings.Contains(got.Error(), "is at 2, held by j/worker/1: no progress in 10m0s") || at != 22*time.Minute):
				t.Errorf("%s, %d rounds of the slow one: after %v: %v", name, rounds, at, got)
			}
		}
	}
}

// TestSlowSibling: under ASP, where nobody waits for other clients, a worker does not pile up rounds that a slower one of its own client has not
// ended: they are not sent, and count as what is under way.
func TestSlowSibling(t *testing.T) {
	const rounds, cols, inflight = 100, 1000, 20_000
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{
		clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: cols, Mode: ASP}}, client: Options{Workers: 2, Inflight: inflight},
	})
	at, most := [2]Clock{}, Clock(0)
	for k := range 2 {
		j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, one := tableOf[float32](w, "t"), make([]float32, cols)
			for i := range one {
				one[i] = 1
			}
			if k == 1 {
				sleep(time.Minute)
			}
			for range rounds {
				if err := tab.DenseInc(0, 0, one); err != nil {
					return err
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
				at[k] = w.Now()
				most = max(most, at[0]-at[1])
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
	if limit := Clock(inflight/(4*cols) + 1); most > limit {
		t.Errorf("a worker is %d rounds ahead of the other, and %d are as much as may be under way", most, limit)
	}
	for _, s := range j.lane(0).tables[0].shards {
		for i, x := range s.(*shard[float32]).live.cells {
			if x != 2*rounds {
				t.Fatalf("cell %d is %v, want %v", i, x, 2*rounds)
			}
		}
	}
}

// TestStuckSibling: who waits for a worker of its own client is told so.
func TestStuckSibling(t *testing.T) {
	for _, made := range []int{1, 2} {
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{
			clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 1000, Mode: ASP}}, client: Options{Workers: 2, Inflight: 9000},
		})
		var got error
		for k := range made {
			j.startThen(0, 0, func(w *Worker, sleep func(time.Duration)) error {
				if k == 1 {
					sleep(time.Hour)
					return nil
				}
				for {
					if err := tableOf[float32](w, "t").Inc(0, 0, 1); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
			}, func(err error) {
				if k == 0 {
					got = err
				}
			})
		}
		if err := j.w.Run(nil, time.Hour/2); err != nil {
			t.Fatal(err)
		}
		j.end()
		want := "wait for worker 1, which is at clock 0: no progress in 10m0s"
		if made == 1 {
			want = "waits for workers that were not made: 1 of the 2 that Options.Workers names are there: no progress in 10m0s"
		}
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want it to say %q", got, want)
		}
	}
}
