package ps

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestCase2Counts: 100 requests of every worker to every server; each counts exactly. (ps-lite)
func TestCase2Counts(t *testing.T) {
	const workers, servers = 3, 3
	spec := Spec{Name: "t", Rows: servers * 4, Cols: 2, Cell: Int64, Mode: ASP}
	j := newSimJob(sim.New(2, sim.Options{}), simOptions{clients: workers, servers: servers, min: 2, tables: []Spec{spec}})
	for k := range workers {
		j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
			tab, row := tableOf[int64](w, "t"), make([]int64, 2)
			for i := range 100 {
				for r := range spec.Rows {
					if err := tab.Inc(r, 1, 1); err != nil {
						return err
					}
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
				for r := range spec.Rows {
					if _, err := tab.Get(bg, r, row); err != nil {
						return err
					}
					if row[1] < int64(i+1) {
						return fmt.Errorf("round %d: row %d counts %d", i, r, row[1])
					}
				}
			}
			if err := w.Barrier(bg); err != nil {
				return err
			}
			for r := range spec.Rows {
				if _, err := tab.Get(bg, r, row); err != nil {
					return err
				}
				if row[1] != 100*workers {
					return fmt.Errorf("row %d counts %d, want %d", r, row[1], 100*workers)
				}
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
}

// TestCase8Stragglers compares when the last of 12 rounds ends with the figures of the recursion start(p, c) = max(finish(p, c-1),
// max over q of finish(q, c-s-1)), on links without latency.
func TestCase8Stragglers(t *testing.T) {
	rotating := func(p, c int) time.Duration {
		if c%4 == p {
			return 4 * time.Second
		}
		return time.Second
	}
	slow := func(p, _ int) time.Duration {
		if p == 0 {
			return 2 * time.Second
		}
		return time.Second
	}
	for _, c := range []struct {
		mode Spec
		cost func(p, c int) time.Duration
		want int
	}{
		{Spec{Mode: BSP}, rotating, 48},
		{Spec{Mode: SSP, Staleness: 1}, rotating, 25},
		{Spec{Mode: SSP, Staleness: 2}, rotating, 22},
		{Spec{Mode: SSP, Staleness: 3}, rotating, 21},
		{Spec{Mode: ESSP, Staleness: 1}, rotating, 25},
		{Spec{Mode: ASP}, rotating, 21},
		{Spec{Mode: BSP}, slow, 24},
		{Spec{Mode: SSP, Staleness: 3}, slow, 24},
		{Spec{Mode: ASP}, slow, 24},
	} {
		s := c.mode
		s.Name, s.Rows, s.Cols = "t", 1, 10
		j := newSimJob(sim.New(8, sim.Options{Link: sim.Link{Delay: time.Nanosecond}}), simOptions{clients: 4, servers: 1, tables: []Spec{s}})
		last := time.Duration(0)
		for p := range 4 {
			j.start(p, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab, row := tableOf[float32](w, "t"), make([]float32, 10)
				for i := range 12 {
					if _, err := tab.Get(bg, 0, row); err != nil {
						return err
					}
					sleep(c.cost(p, i))
					last = max(last, j.w.Now())
					if err := tab.Inc(0, int64(p), 1); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
		if got := last.Round(time.Millisecond); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: the last round ends at %v, want %d s", modeName(s), got, c.want)
		}
	}
}

// TestCase15Finish: workers with 10 and 7 rounds; after Finish nobody waits. (Multiverso FinishTrain)
func TestCase15Finish(t *testing.T) {
	for _, mode := range modes() {
		spec := mode
		spec.Name, spec.Rows, spec.Cols = "t", 1, 4
		j := newSimJob(sim.New(15, sim.Options{}), simOptions{clients: 2, servers: 2, min: 1, tables: []Spec{spec}})
		for k, rounds := range []int{10, 7} {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				tab, row := tableOf[float32](w, "t"), make([]float32, 4)
				for i := range rounds {
					if _, err := tab.Get(bg, 0, row); err != nil {
						return err
					}
					if want := float32(min(i, 7)); mode.Mode == BSP && row[1-k] != want {
						return fmt.Errorf("round %d: the other's cell is %v, want %v", i, row[1-k], want)
					}
					if err := tab.Inc(0, int64(k), 1); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
	}
}

// TestCutOfFinishedWorkers: a worker that finished before the others of its client is in a snapshot of a later round with what it kept when it
// finished, and a snapshot of a round that it is beyond is put off.
func TestCutOfFinishedWorkers(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}}.withDefaults()
	c, err := NewClientState(p, clientName(0), nil, Options{Session: 1, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	told := func(in protocol.Event) (bodies []protocol.Body) {
		for _, out := range c.Step(0, in) {
			if m, ok := out.(protocol.Send); ok && m.To == dirName() {
				bodies = append(bodies, m.Body)
			}
		}
		return bodies
	}
	calls := uint64(0)
	call := func(arg any) []protocol.Body {
		calls++
		return told(protocol.Call{ID: calls, Arg: arg})
	}
	version := uint64(0)
	cut := func(x Cut) []protocol.Body {
		version++
		config := &Config{Version: version, Place: p.hash(), Clients: []Member{{Name: clientName(0), Session: 1, State: Active}}, Cut: x}
		return told(protocol.Message{From: dirName(), Body: &install{config: config}})
	}
	cut(Cut{})
	call(workerCall{})
	call(workerCall{})
	a, b := c.workers[0], c.workers[1]
	a.state = func() []byte { return fmt.Append(nil, "a at ", a.clock) }
	for range 3 {
		call(clockCall{w: a})
	}
	call(finishCall{a})
	if got := cut(Cut{1, 2}); len(got) != 1 || !got[0].(*accept).refused || got[0].(*accept).hi < 3 {
		t.Errorf("a cut at 2, where a worker ended at 3, is answered by %v", got)
	}
	cut(Cut{2, 9})
	got := call(finishCall{b})
	if len(got) != 1 || len(got[0].(*progress).states) != 2 || string(got[0].(*progress).states[0]) != "a at 3" {
		t.Errorf("told %v, want what the first kept", got)
	}
}
