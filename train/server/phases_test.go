package server_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

// timed trains three workers, of which number 1 may be slow, and returns what each has counted. A nil network is one in memory.
func timed(t *testing.T, network transport.Network, o server.Options, j *trivium.Job, watch train.Watch) []func(observe.Counter) time.Duration {
	t.Helper()
	return timedOf(t, &crew{env: train.Env{Watch: watch}, workers: 3, servers: 1, o: o, network: network}, j)
}

// timedOf trains so a crew of at most three, which may have a hub.
func timedOf(t *testing.T, x *crew, j *trivium.Job) []func(observe.Counter) time.Duration {
	t.Helper()
	if x.env.Observe == nil {
		x.env.Observe = observe.NewHub(observe.Options{Start: time.Now()})
	}
	hub := x.env.Observe
	cpu := tensor.NewCPU(1, j.Exact) // a pool of more looks at the clock while it waits for work, which virtual time does not get past
	defer cpu.Close()
	x.env.Run, x.env.CPU = "r", cpu
	if _, err := x.Train(t.Context(), j); err != nil {
		t.Fatal(errors.Join(x.errs...))
	}
	hub.Collect(true)
	all := make([]func(observe.Counter) time.Duration, 3)
	for _, report := range hub.Latest() {
		if f := report.Frame; f.Source.Role == observe.Worker {
			all[f.Source.Rank] = func(k observe.Counter) time.Duration { return time.Duration(f.Counters[k]) }
		}
	}
	return all
}

// TestPhases is cases 2 and 3 of the design's chapter on observation: the wait for a slow worker is wait-barrier where staleness is 0 and
// wait-stale where it is not, under ASP there is none, and it is no part of the pull. What is counted as overlapped is never in the
// step's parts too. In virtual time all of it is exact.
func TestPhases(t *testing.T) {
	const unit, factor, steps = 2 * time.Millisecond, 4, 20
	slow := server.Slow{Worker: 1, Factor: factor, Unit: unit}
	for _, c := range []struct {
		o       server.Options
		waiting observe.Phase
		waits   bool
	}{
		{server.Options{Mode: ps.BSP}, observe.WaitBarrier, true},
		{server.Options{Mode: ps.SSP}, observe.WaitBarrier, true},
		{server.Options{Mode: ps.ESSP}, observe.WaitBarrier, true},
		{server.Options{Mode: ps.SSP, Staleness: 3}, observe.WaitStale, true},
		{server.Options{Mode: ps.ESSP, Staleness: 3}, observe.WaitStale, true},
		{server.Options{Mode: ps.ASP}, observe.WaitStale, false},
	} {
		j := job()
		j.Epochs, j.Steps, j.Batch, j.EvalEvery = 100, steps, 30, 1<<40 // the rows take no time
		shared(t.Context(), train.Env{}, j)                             // outside of virtual time, which does not pass while it is opened
		c.o.Slow = slow
		var all []func(observe.Counter) time.Duration
		synctest.Test(t, func(t *testing.T) { all = timed(t, nil, c.o, j, train.Watch{}) })
		for rank, get := range all {
			sum := time.Duration(0)
			for _, p := range observe.Phases() {
				sum += get(observe.PhaseTime(p))
				if over := get(observe.OverlapTime(p)); over > get(observe.WallTime) {
					t.Errorf("%s:%d, rank %d: %v of %s overlapped in %v", c.o.Mode, c.o.Staleness, rank, over, p, get(observe.WallTime))
				}
			}
			if wall := get(observe.WallTime); sum != wall || sum == 0 {
				t.Errorf("%s:%d, rank %d: the parts sum to %v, the steps took %v", c.o.Mode, c.o.Staleness, rank, sum, wall)
			}
			other := observe.WaitBarrier
			if c.waiting == other { // and there is nobody left to wait for at the end
				other = observe.WaitStale
			}
			// The slow worker's steps but the last that the others may lead by, less what they computed meanwhile. For those last ones
			// who is done waits at the end, for the parameters that all leave behind.
			all := time.Duration(steps*factor*unit - steps*unit)
			want := all - time.Duration(c.o.Staleness)*factor*unit
			if !c.waits {
				want = 0
			}
			if rank == slow.Worker {
				all, want = 0, 0
			}
			if !c.waits { // a server without rounds to answer in owes its acknowledgements for so long
				all += 2 * time.Millisecond
			}
			if x := get(observe.PhaseTime(other)); x != all-want {
				t.Errorf("%s:%d, rank %d: %v of %s, want %v", c.o.Mode, c.o.Staleness, rank, x, other, all-want)
			}
			if x := get(observe.PhaseTime(c.waiting)); x != want {
				t.Errorf("%s:%d, rank %d: %v of %s, want %v", c.o.Mode, c.o.Staleness, rank, x, c.waiting, want)
			}
			for _, p := range []observe.Phase{observe.Pull, observe.Other} { // in this network nothing takes time, and all that does is in a phase
				if x := get(observe.PhaseTime(p)); x != 0 {
					t.Errorf("%s:%d, rank %d: %v of %s", c.o.Mode, c.o.Staleness, rank, x, p)
				}
			}
		}
	}
}

// met is counts whose rounds wait for all others, by a table that is tighter than the run, and then take so long.
type met struct {
	counts
	takes [3]time.Duration // by rank
}

func (m *met) Tables() []ps.Spec {
	tables := m.counts.Tables()
	tables[0].Mode = ps.BSP
	return tables
}

func (m *met) Round(ctx context.Context, w *ps.Worker, b trivium.Batch) error {
	if _, err := m.t.Get(ctx, 0, make([]int64, 4)); err != nil {
		return err
	}
	time.Sleep(m.takes[m.rank]) // in a bubble of synctest: it computes
	return m.counts.Round(ctx, w, b)
}

// TestPhasesOfPrograms: what the reads of a program's own rounds wait for others is booked as that, and not as computing, and is not what a
// slow worker takes a multiple of. In virtual time all of it is exact.
func TestPhasesOfPrograms(t *testing.T) {
	const steps, ms = 20, time.Millisecond
	l, err := trivium.NewLayout(trivium.Spec{Name: "seen", Shape: []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		slow     server.Slow
		takes    [3]time.Duration // a round of each worker
		computes [3]time.Duration // and an update, of which the longest is 8 ms
	}{
		{server.Slow{Worker: 1, Factor: 4, Unit: 2 * ms}, [3]time.Duration{}, [3]time.Duration{2 * ms, 8 * ms, 2 * ms}},
		{server.Slow{Worker: 1, Factor: 3}, [3]time.Duration{8 * ms, 2 * ms, 2 * ms}, [3]time.Duration{8 * ms, 6 * ms, 2 * ms}},
	} {
		models := nn.Models{"met": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			return &met{counts{l: l}, c.takes}, nil
		}}
		j := job()
		j.Model, j.Epochs, j.Steps, j.Batch, j.EvalEvery = "met", 100, steps, 30, 1<<40
		shared(t.Context(), train.Env{}, j) // outside of virtual time, which does not pass while it is opened
		x := &crew{env: train.Env{Models: models}, workers: 3, servers: 1, o: server.Options{Mode: ps.SSP, Staleness: 3, Slow: c.slow}}
		var all []func(observe.Counter) time.Duration
		synctest.Test(t, func(t *testing.T) { all = timedOf(t, x, j) })
		for rank, get := range all {
			if got, want := get(observe.PhaseTime(observe.Compute)), steps*c.computes[rank]; got != want {
				t.Errorf("%+v, rank %d: %v of compute, want %v", c.slow, rank, got, want)
			}
			// The first update waits for nobody.
			if got, least := get(observe.PhaseTime(observe.WaitBarrier)), (steps-1)*(8*ms-c.computes[rank]); got < least {
				t.Errorf("%+v, rank %d: %v of wait-barrier, want %v and more", c.slow, rank, got, least)
			}
			if got := get(observe.PhaseTime(observe.Pull)); got != 0 { // in this network nothing takes time
				t.Errorf("%+v, rank %d: %v of pull", c.slow, rank, got)
			}
		}
	}
}

// TestCase4Parts: over 1,000 updates, on real sockets, the parts sum to the wall, and that is what an outer clock shows.
func TestCase4Parts(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: 1,000 updates, three times")
	}
	for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ASP, OptimizerAt: server.AtWorker}} {
		j := job()
		j.Epochs, j.Steps, j.EvalEvery = 1000, 1000, 1<<40
		var outside, between float64
		for range 5 {
			if outside, between = unbooked(t, o, j); outside < 0.05 && between < 0.01 {
				break
			}
		}
		// What the code does not book it does not book in any run; on a busy machine the thread may be taken off just there, but not
		// at half of the updates, nor for so long in each of five runs.
		if !(between >= 0 && between < 0.01) {
			t.Errorf("%s: %.1f %% of the time from one update's begin to the next one's is in neither", o.Mode, 100*between)
		}
		if !(outside >= 0 && outside < 0.05) {
			t.Errorf("%s: of what an outer clock shows, the steps have not %.0f %%", o.Mode, 100*outside)
		}
	}
}

// unbooked trains and returns how much of the time that an outer clock shows is in no update's time, as a part of it: of the whole run, and
// of the time from one update's begin to the next one's, in the median.
func unbooked(t *testing.T, o server.Options, j *trivium.Job) (outside, between float64) {
	t.Helper()
	var begin, end time.Time
	watch := train.Watch{Begin: func(train.Progress) { begin = time.Now() }, Progress: func(p train.Progress) {
		if p.Step == j.Steps {
			end = time.Now()
		}
	}}
	hub, steps := observe.NewHub(observe.Options{Start: time.Now()}), traintest.Steps{}
	hub.Attach("steps", steps)
	all := timedOf(t, &crew{env: train.Env{Watch: watch, Observe: hub}, workers: 3, servers: 1, o: o, network: &transport.TCP{}}, j)
	for rank, get := range all {
		sum := time.Duration(0)
		for _, p := range observe.Phases() {
			sum += get(observe.PhaseTime(p))
		}
		if wall := get(observe.WallTime); sum != wall || sum == 0 || int64(get(observe.Steps)) != j.Steps {
			t.Errorf("%s, rank %d: in %d steps the parts sum to %v, the steps took %v", o.Mode, rank, get(observe.Steps), sum, wall)
		}
	}
	wall, outer := all[0](observe.WallTime), end.Sub(begin)
	if outer <= 0 || wall > outer {
		t.Fatalf("%s: the steps took %v, by an outer clock %v", o.Mode, wall, outer)
	}
	var parts []float64
	for _, worker := range steps {
		parts = append(parts, traintest.Between(worker)...)
	}
	if len(parts) < 100 { // the last ones of each worker are kept where nobody collects them meanwhile
		t.Fatalf("%s: of three workers' 1,000 updates %d were kept beside their next one", o.Mode, len(parts))
	}
	slices.Sort(parts)
	between = parts[len(parts)/2]
	t.Logf("%s: the steps took %v, by an outer clock %v; between two of them %.2f %% of %d in the median", o.Mode, wall, outer, 100*between, len(parts))
	return 1 - wall.Seconds()/outer.Seconds(), between
}
