package server_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestStragglers has what a mode is to be worth with slow workers. Three compute one unit an update. Where each in its turn takes four, ssp:3
// makes at least 1.6 times the rounds of bsp in a time: 2.0 is the most there can be. Where one always takes three, it decides when a run
// ends, and ssp:3 is within 5 % of bsp; while all have work, asp's workers make at least 1.6 times the rounds together, of 2.33 at most. After
// as many rows the losses are within 2 %. Virtual time has no other waits than those for workers.
func TestStragglers(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: five runs of 120 updates")
	}
	const unit, steps = 120 * time.Millisecond, 120 // updates of so long are watched one by one
	// run returns the rounds a second of the whole run, those of a worker on average until the first has hardly any left, and the loss.
	run := func(o server.Options, slow server.Slow) (whole, busy, loss float64) {
		t.Helper()
		o.Slow = slow
		j := job()
		j.Epochs, j.Steps, j.EvalEvery, j.Optimizer.Rate = 1000, steps, 1<<40, 0.1
		shared(t.Context(), train.Env{}, j) // outside of virtual time, which does not pass while it is opened
		synctest.Test(t, func(t *testing.T) {
			hub := observe.NewHub(observe.Options{Start: time.Now()})
			var begin time.Time
			watch := train.Watch{Begin: func(train.Progress) { begin = time.Now() }, Progress: func(p train.Progress) {
				took := time.Since(begin).Seconds()
				switch p.Step {
				case steps:
					whole = steps / took
				case steps - 1:
					hub.Collect(true)
					for _, report := range hub.Latest() {
						if f := &report.Frame; f.Source.Role == observe.Worker {
							busy += float64(f.Counter(observe.Steps)) / 3 / took
						}
					}
				}
			}}
			x := &crew{env: train.Env{Observe: hub, Watch: watch}, workers: 3, servers: 1, o: o}
			timedOf(t, x, j)
			loss = x.results[0].Metrics["test.loss"]
		})
		t.Logf("%s:%d, %+v: %.3f rounds a second, %.3f while all have work, test loss %.4f", o.Mode, o.Staleness, slow, whole, busy, loss)
		return whole, busy, loss
	}
	bsp, ssp, asp := server.Options{Mode: ps.BSP}, server.Options{Mode: ps.SSP, Staleness: 3}, server.Options{Mode: ps.ASP}

	rotating := server.Slow{Rotate: true, Factor: 4, Unit: unit}
	a, _, _ := run(bsp, rotating)
	b, _, _ := run(ssp, rotating)
	if gain := b / a; !(gain >= 1.6 && gain < 2.05) {
		t.Errorf("each slow in its turn: ssp:3 makes %.3f times the rounds of bsp, want 1.6 to 2.0", gain)
	}

	permanent := server.Slow{Worker: 2, Factor: 3, Unit: unit}
	a, _, want := run(bsp, permanent)
	b, _, loose := run(ssp, permanent)
	_, all, looser := run(asp, permanent)
	if gain := b / a; !(math.Abs(gain-1) < 0.05) {
		t.Errorf("one always slow: ssp:3 makes %.3f times the rounds of bsp, want as many, within 5 %%", gain)
	}
	if gain := all / a; !(gain >= 1.6 && gain < 2.4) {
		t.Errorf("one always slow: asp's workers make %.3f times the rounds of bsp, want 1.6 to 2.33", gain)
	}
	for mode, loss := range map[string]float64{"ssp:3": loose, "asp": looser} {
		if !(math.Abs(loss/want-1) < 0.02) {
			t.Errorf("one always slow: the test loss of %s is %.4f, of bsp %.4f: want it within 2 %%", mode, loss, want)
		}
	}
}
