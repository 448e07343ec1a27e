package ps

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestNeverClocks: over real loops, a worker that takes part and never clocks ends the reads and barriers of all others within the
// deadline, with an error that names table, row, worker and clock.
func TestNeverClocks(t *testing.T) {
	const deadline = 5 * time.Second // long enough that on a busy machine the servers have said who holds a round
	for name, n := range networks(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			spec := Spec{Name: "weights", Rows: 4, Cols: 8, Mode: SSP, Staleness: 1}
			j := newRealJob(t, n, simOptions{clients: 4, servers: 2, min: 2, tables: []Spec{spec}, client: Options{RoundTimeout: deadline}})
			defer j.close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var wait sync.WaitGroup
			for i, c := range j.clients {
				w, err := c.Worker(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if i == 3 {
					continue // it is there, and does nothing
				}
				wait.Go(func() {
					tab := tableOf[float32](w, "weights")
					for range 2 {
						if err := tab.Inc(2, 1, 1); err != nil {
							j.fail(err)
						}
						if _, err := w.Clock(ctx); err != nil {
							j.fail(fmt.Errorf("client %d: clock: %w", i, err))
						}
					}
					begun := time.Now()
					var err error
					what := `read "weights" row 2`
					if i == 2 {
						what, err = "barrier", w.Barrier(ctx)
					} else {
						_, err = tab.Get(ctx, 2, make([]float32, 8))
					}
					if took := time.Since(begun); took > 4*deadline {
						j.fail(fmt.Errorf("client %d: the error took %v", i, took))
					}
					for _, want := range []string{what, fmt.Sprintf("worker 0 of %s", clientName(i)), "at clock", "is at 0", "held by " + clientName(3).String(), deadline.String()} {
						if err == nil || !strings.Contains(err.Error(), want) {
							j.fail(fmt.Errorf("client %d: error %w, want it to name %q", i, err, want))
						}
					}
				})
			}
			wait.Wait()
			j.check()
		})
	}
}

// TestPartition: a client that no longer reaches the servers, for ever, adds nothing more; its calls end at the deadline, and so do those of
// the others, who are told whom they wait for.
func TestPartition(t *testing.T) {
	const cut, deadline = 50 * time.Millisecond, 3 * time.Second
	for _, mode := range modes() {
		spec := mode
		spec.Name, spec.Rows, spec.Cols, spec.Cell = "weights", 2, 4, Int64
		j := newSimJob(sim.New(7, sim.Options{}), simOptions{clients: 3, servers: 2, min: 4, tables: []Spec{spec}, client: Options{RoundTimeout: deadline}})
		errs, ends := make([]error, 3), make([]time.Duration, 3)
		for k := range 3 {
			j.startThen(k, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab, row := tableOf[int64](w, "weights"), make([]int64, 4)
				for {
					if _, err := tab.Get(bg, 1, row); err != nil {
						return err
					}
					if err := tab.Inc(0, int64(k), 1); err != nil {
						return err
					}
					sleep(time.Millisecond)
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
			}, func(err error) { errs[k], ends[k] = err, j.w.Now() })
		}
		plan := sim.Plan{{Kind: sim.Partition, At: cut, For: time.Hour, Nodes: []sim.Node{j.clients[0].node}}}
		if err := j.w.Run(plan, cut+time.Second); err != nil {
			t.Fatal(err)
		}
		held := func() (rounds [2]Clock) {
			for l := range rounds {
				rounds[l] = j.lane(l).clients[0].next
			}
			return rounds
		}
		before := held()
		if err := j.w.Run(nil, cut+4*deadline); err != nil {
			t.Fatal(err)
		}
		if after := held(); after != before || before[0] == 0 {
			t.Errorf("%s: %v rounds are held of it, and %v later", modeName(spec), before, after)
		}
		for k, want := range []string{"j/server/", "held by j/worker/0", "held by j/worker/0"} {
			if err := errs[k]; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), deadline.String()) || ends[k] > cut+2*deadline {
				t.Errorf("%s: client %d ends at %v with %v, want %q", modeName(spec), k, ends[k], err, want)
			}
		}
		j.end()
	}
}
