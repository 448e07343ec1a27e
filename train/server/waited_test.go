package server_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestWaited: a run has for how long each worker has waited for which: for one that is always slow all of it, for those that are so in their
// turns each its own. It is what the phases of waiting have, in virtual time to the nanosecond.
func TestWaited(t *testing.T) {
	const unit, factor, steps, ms = 2 * time.Millisecond, 4, 21, time.Millisecond
	always, rotating := server.Slow{Worker: 1, Factor: factor, Unit: unit}, server.Slow{Rotate: true, Factor: factor, Unit: unit}
	for _, c := range []struct {
		o    server.Options
		want [3][]time.Duration // by rank; nil: for nobody
	}{
		{server.Options{Mode: ps.BSP, Slow: always}, [3][]time.Duration{{0, 126 * ms, 0}, nil, {0, 126 * ms, 0}}},
		{server.Options{Mode: ps.SSP, Staleness: 3, Slow: always}, [3][]time.Duration{{0, 126 * ms, 0}, nil, {0, 126 * ms, 0}}},
		{server.Options{Mode: ps.ESSP, Staleness: 3, Slow: always}, [3][]time.Duration{{0, 126 * ms, 0}, nil, {0, 126 * ms, 0}}},
		{server.Options{Mode: ps.BSP, Slow: rotating}, [3][]time.Duration{{0, 42 * ms, 42 * ms}, {42 * ms, 0, 42 * ms}, {42 * ms, 42 * ms, 0}}},
	} {
		j := job()
		j.Epochs, j.Steps, j.Batch, j.EvalEvery = 100, steps, 30, 1<<40 // the rows take no time
		shared(t.Context(), train.Env{}, j)                             // outside of virtual time, which does not pass while it is opened
		synctest.Test(t, func(t *testing.T) {
			hub := observe.NewHub(observe.Options{Start: time.Now()})
			timedOf(t, &crew{env: train.Env{Observe: hub}, workers: 3, servers: 2, o: c.o}, j)
			seen := 0
			for _, report := range hub.Latest() {
				f := &report.Frame
				if f.Source.Role != observe.Worker {
					if f.Waited != nil {
						t.Errorf("%s waits: %v", f.Source, f.Waited)
					}
					continue
				}
				seen++
				none := !slices.ContainsFunc(f.Waited, func(d time.Duration) bool { return d != 0 }) // or waits that took no time
				if want := c.want[f.Source.Rank]; !slices.Equal(f.Waited, want) && !(none && want == nil) {
					t.Errorf("%s, %+v: %s waited %v, want %v", c.o.Mode, c.o.Slow, f.Source, f.Waited, want)
				}
				var sum time.Duration
				for _, d := range f.Waited {
					sum += d
				}
				phases := f.Counter(observe.PhaseTime(observe.WaitBarrier)) + f.Counter(observe.PhaseTime(observe.WaitStale))
				if uint64(sum) != phases {
					t.Errorf("%s, %+v: %s waited %v, and %v by its phases", c.o.Mode, c.o.Slow, f.Source, sum, time.Duration(phases))
				}
			}
			if seen != 3 {
				t.Errorf("%d workers, want 3", seen)
			}
		})
	}
}
