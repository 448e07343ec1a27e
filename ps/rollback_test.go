package ps

import (
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

// TestRolledBack: a server is killed and comes back without what it held, as there are no replicas. Whoever reads, clocks, waits in a barrier, or
// was elsewhere meanwhile gets an error that names it, the tables, and the clocks; so does who wants a snapshot. Nobody goes on, and nobody waits
// for the deadline, with the directory or without it.
func TestRolledBack(t *testing.T) {
	for _, mode := range append(modes(), Spec{Mode: ASP}) {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, alone %v", modeName(mode), alone), func(t *testing.T) { rollBack(t, mode, alone) })
		}
	}
}

func rollBack(t *testing.T, mode Spec, alone bool) {
	const killed, back = 2 * time.Second, 2010 * time.Millisecond
	spec := mode
	spec.Name, spec.Rows, spec.Cols, spec.Cell = "weights", 4, 4, Int64
	store := newMemory()
	link := sim.Link{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond, Loss: 0.05, Duplicate: 0.1, Reorder: 0.1, Datagram: true}
	j := newSimJob(sim.New(3, sim.Options{Link: link}), simOptions{
		clients: 3, servers: 2, min: 2, tables: []Spec{spec}, client: Options{RoundTimeout: time.Hour}, server: ServerOptions{Store: store},
	})
	defer j.end()
	type end struct {
		at    time.Duration
		acked Clock
		err   error
	}
	ends := make([]*end, 3)
	for k := range 3 {
		j.startThen(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, row := tableOf[int64](w, "weights"), make([]int64, 4)
			for {
				for r := range int64(4) {
					if err := tab.Inc(r, int64(k), 1); err != nil {
						return err
					}
				}
				sleep(time.Millisecond)
				if k == 2 && j.w.Now() > killed-100*time.Millisecond { // it computes while the server is away
					sleep(time.Second)
				}
				var err error
				if k == 1 {
					err = w.Barrier(bg)
				} else {
					_, err = w.Clock(bg)
				}
				if err != nil {
					return err
				}
				if _, err := tab.Get(bg, int64(k), row); err != nil {
					return err
				}
			}
		}, func(err error) { ends[k] = &end{j.w.Now(), j.clients[k].state.lanes[1].held, err} })
	}
	plan := sim.Plan{{Kind: sim.Crash, At: killed, For: back - killed, Nodes: []sim.Node{j.servers[1]}}}
	if alone {
		plan = append(plan, sim.Fault{Kind: sim.Crash, At: killed, For: time.Hour, Nodes: []sim.Node{j.dir}})
	}
	var snapshot error
	j.w.Call(j.dir, 5*time.Second, snapshotCall{store}, func(_ any, err error) { snapshot = err })
	if err := j.w.Run(plan, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for k, e := range ends {
		if e == nil {
			t.Errorf("client %d goes on", k)
			continue
		}
		got, ok := errors.AsType[*RolledBackError](e.err)
		if !ok || got.Server != serverName(1) || got.Lane != 1 || got.Client != clientName(k) || !slices.Equal(got.Tables, []string{"weights"}) {
			t.Errorf("client %d: %v", k, e.err)
			continue
		}
		if got.Acked != e.acked || got.Acked < 10 || got.Held != 0 || got.Clock != 0 {
			t.Errorf("client %d: %+v, and %d rounds were acknowledged", k, *got, e.acked)
		}
		for _, want := range []string{"j/server/1", clientName(k).String(), fmt.Sprintf("below clock %d", e.acked), "below 0", `"weights"`, "snapshot"} {
			if !strings.Contains(e.err.Error(), want) {
				t.Errorf("client %d: %v, want it to say %q", k, e.err, want)
			}
		}
		if k < 2 && e.at > back+3*time.Second || e.at < back {
			t.Errorf("client %d hears of it at %v", k, e.at)
		}
	}
	if _, ok := errors.AsType[*RolledBackError](snapshot); !ok && !alone {
		t.Errorf("snapshot: %v", snapshot)
	}
}

// TestRolledBackToSnapshot: the directory and a server begin anew from a snapshot beside clients that were told of later rounds. These are told
// that they are gone.
func TestRolledBackToSnapshot(t *testing.T) {
	spec := Spec{Name: "weights", Rows: 1, Cols: 40, Cell: Int64, Staleness: 2}
	store := newMemory()
	j := newSimJob(sim.New(5, sim.Options{}), simOptions{
		clients: 2, servers: 2, min: 2, tables: []Spec{spec}, client: Options{RoundTimeout: time.Hour}, server: ServerOptions{Store: store},
	})
	defer j.end()
	errs := make([]error, 2)
	for k := range 2 {
		j.startThen(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			for {
				sleep(time.Millisecond)
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
		}, func(err error) { errs[k] = err })
	}
	var cut SnapshotResult
	j.w.Call(j.dir, 10*time.Millisecond, snapshotCall{store}, func(r any, err error) {
		if err != nil {
			t.Fatal(err)
		}
		cut = r.(SnapshotResult)
		m, err := ReadManifest(bg, store, cut.Key)
		if err != nil {
			t.Fatal(err)
		}
		j.do.Restore, j.do.Session = m, 2
	})
	plan := sim.Plan{{Kind: sim.Crash, At: 50 * time.Millisecond, For: 10 * time.Millisecond, Nodes: []sim.Node{j.dir, j.servers[0], j.servers[1]}}}
	if err := j.w.Run(plan, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for k, err := range errs {
		e, ok := errors.AsType[*RolledBackError](err)
		if !ok || e.Clock != cut.Clock && e.Clock != 0 || e.Heard <= cut.Clock || e.Acked <= cut.Clock || e.Held != 0 {
			t.Errorf("client %d: %v, want one that names clock %d", k, err, cut.Clock)
		}
	}
}

// TestRolledBackLane: a lane whose watermark is behind what a client was told says so, and an old message that says as little does not.
func TestRolledBackLane(t *testing.T) {
	var log []Entry
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4, Cell: Int64, Mode: ASP}, Options{})
	x.s.o.Trace.Logged = func(_ int, e Entry) { log = append(log, e) }
	old, err := NewServerState(x.s.p, 0, ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old.Step(0, protocol.Message{From: dirName(), Body: &install{config: x.s.config}})
	var first []protocol.Body // what the lane says of the first round
	carry := func(up []protocol.Body) (down []protocol.Body) {
		for _, b := range up {
			down = append(down, x.lane(clientName(0), b)...)
		}
		return down
	}
	for range 5 {
		_, up := x.call(clockCall{w: x.w})
		down := carry(up)
		x.now += time.Second
		down = append(down, x.lane(clientName(0), x.probe())...)
		if first == nil {
			first = down
		}
		for _, b := range down {
			x.client(protocol.Message{From: serverName(0), Body: b})
		}
	}
	l := x.c.lanes[0]
	if l.held != 5 {
		t.Fatalf("%d rounds are acknowledged", l.held)
	}
	for _, b := range first { // late, and doubled
		if m, ok := b.(*clocks); ok {
			n := *m
			n.gap = 1
			b = &n
		}
		for _, b := range carry(x.client(protocol.Message{From: serverName(0), Body: b})) {
			x.client(protocol.Message{From: serverName(0), Body: b})
		}
	}
	if x.c.err != nil {
		t.Fatalf("after old messages: %v", x.c.err)
	}
	for _, e := range log[:3] { // as a server that read the log so far
		if !old.Replay(Entry{Index: old.index + 1, from: e.from, body: e.body}) {
			t.Fatal("an entry is not taken")
		}
	}
	x.s = old
	_, up := x.call(clockCall{w: x.w})
	for len(up) > 0 { // the round, of which the lane says that there is a gap, and what the client asks then
		var next []protocol.Body
		for _, b := range carry(up) {
			next = append(next, x.client(protocol.Message{From: serverName(0), Body: b})...)
		}
		up = next
	}
	e, ok := errors.AsType[*RolledBackError](x.c.err)
	if !ok || e.Held != 3 || e.Acked != 5 || e.Server != serverName(0) || e.Client != clientName(0) {
		t.Fatalf("error %v, want one of 3 rounds where 5 were acknowledged", x.c.err)
	}
	for _, arg := range []any{clockCall{w: x.w}, workerCall{}, finishCall{x.w}, createCall{Spec{Name: "u", Rows: 1, Cols: 1}}} {
		id, _ := x.call(arg)
		if _, ok := errors.AsType[*RolledBackError](x.answers[id].Err); !ok {
			t.Errorf("%T afterwards: %v", arg, x.answers[id].Err)
		}
	}
}

// probe is what the client would ask the lane now.
func (x *carried) probe() *probe {
	c, l := x.c, x.c.lanes[0]
	return &probe{lane: l.lane, client: c.number, session: c.session, epoch: c.config.Epoch, gen: l.gen, stamp: c.clock, held: l.held, m: l.m}
}

// TestRolledBackOfOthers: only a lane of the client's, and the directory, end it so, and only in its session.
func TestRolledBackOfOthers(t *testing.T) {
	for _, m := range []struct {
		from Name
		b    behind
		ends bool
	}{
		{clientName(1), behind{session: 1}, false},
		{serverName(0), behind{session: 2}, false},
		{serverName(0), behind{session: 1, lane: 1}, false},
		{serverName(1), behind{session: 1}, false},
		{serverName(0), behind{session: 1}, true},
		{dirName(), behind{session: 1}, true},
	} {
		x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
		x.client(protocol.Message{From: m.from, Body: &m.b})
		if ended := x.c.err != nil; ended != m.ends {
			t.Errorf("of %s, %v: %v", m.from, &m.b, x.c.err)
		}
	}
}

// TestRolledBackRealLoop: over real loops, a server whose process is another now.
func TestRolledBackRealLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := transport.NewMemory()
		j := newRealJob(t, n, simOptions{clients: 2, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 4}}})
		defer j.close()
		errs := make(chan error, 2)
		for _, c := range j.clients {
			w, err := c.Worker(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					if err := w.Barrier(bg); err != nil {
						errs <- err
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
		}
		time.Sleep(time.Second)
		if err := j.ports[1].Close(); err != nil { // the server's
			t.Fatal(err)
		}
		j.served.Wait()
		j.errs = nil // that its port is closed
		p, err := n.Open(bg, serverName(0), transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j.ports[1] = p
		for _, q := range j.ports {
			if q != p {
				if err := p.Know(q.Name(), q.Addr()); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, err := p.Stream("ps", StreamOptions())
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		j.serve(s, ServerOptions{})
		for range 2 {
			err := <-errs
			if _, ok := errors.AsType[*RolledBackError](err); !ok {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("it takes %v", took)
		}
		if _, err := j.dir.Snapshot(bg, newMemory()); err == nil || !strings.Contains(err.Error(), `ps: j/server/0 has lost what it held of "t": all`) {
			t.Errorf("a snapshot: %v", err)
		} else if _, ok := errors.AsType[*RolledBackError](err); !ok {
			t.Error(err)
		}
	})
}

// TestRolledBackIsTold: the directory asks a server whose link is back what it has, and tells all clients, also those that do not reach it.
func TestRolledBackIsTold(t *testing.T) {
	j := newSimJob(sim.New(2, sim.Options{}), simOptions{clients: 2, servers: 2, min: 2, tables: []Spec{{Name: "t", Rows: 4, Cols: 4}}})
	defer j.end()
	for k := range 2 {
		j.startThen(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			if err := w.Barrier(bg); err != nil {
				return err
			}
			sleep(time.Hour) // it computes
			return nil
		}, func(error) {})
	}
	plan := sim.Plan{
		{Kind: sim.Bridge, At: 500 * time.Millisecond, For: time.Hour, Nodes: []sim.Node{j.dir, j.servers[0]}}, // only the directory reaches it
		{Kind: sim.Crash, At: time.Second, For: 10 * time.Millisecond, Nodes: []sim.Node{j.servers[0]}},
	}
	if err := j.w.Run(plan, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	for k, c := range j.clients {
		if e, ok := errors.AsType[*RolledBackError](c.state.err); !ok || e.Server != serverName(0) || e.Acked != 1 {
			t.Errorf("client %d: %v", k, c.state.err)
		}
	}
}
