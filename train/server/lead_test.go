package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestLead: a worker's lead is over the slowest worker, however old the rows are that it reads: one that is alone or the slowest has none
// but of the round that it has just ended, and the others lead a slow one by as many as they may.
func TestLead(t *testing.T) {
	for _, workers := range []int{1, 3} {
		j := small(job())
		j.Epochs, j.Steps, j.EvalEvery = 100, 24, 1<<40
		shared(t.Context(), train.Env{}, j) // outside of virtual time, which does not pass while it is opened
		// Updates of so long are watched one by one.
		o := server.Options{Mode: ps.SSP, Staleness: 3, Slow: server.Slow{Worker: workers - 1, Factor: 3, Unit: 200 * time.Millisecond}}
		most := map[int]float64{} // by rank
		synctest.Test(t, func(t *testing.T) {
			hub := observe.NewHub(observe.Options{Start: time.Now()})
			watch := train.Watch{Progress: func(p train.Progress) {
				if p.Step == j.Steps { // rounds of no updates are behind that one, so that all have made theirs
					return
				}
				hub.Collect(true)
				for _, report := range hub.Latest() {
					if f := &report.Frame; f.Source.Role == observe.Worker {
						if x, ok := f.Gauge(observe.WorkerLead); ok {
							most[f.Source.Rank] = max(most[f.Source.Rank], x)
						}
					}
				}
			}}
			timedOf(t, &crew{env: train.Env{Observe: hub, Watch: watch}, workers: workers, servers: 2, o: o}, j)
		})
		if len(most) != workers {
			t.Errorf("%d of %d workers have a lead: %v", len(most), workers, most)
		}
		for rank, x := range most {
			if slowest := rank == workers-1; slowest && x > 1 || !slowest && x != 3 {
				t.Errorf("of %d workers, number %d leads the slowest by %v at most, want 3, and the slowest by 1", workers, rank, x)
			}
		}
	}
}
