package ps

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNeverClocks: over real loops, a worker that takes part and never clocks ends the reads and barriers of all others within the
// deadline, with an error that names table, row, worker and clock.
func TestNeverClocks(t *testing.T) {
	const deadline = time.Second // long enough that on a busy machine the servers have said who holds a round
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
					if took := time.Since(begun); took > 20*deadline {
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
