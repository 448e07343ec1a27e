//go:build unix

package server_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestRate: how far a job of several processes is, and so its rate, is that of all workers. Here rank 0 is the slow one: what it has done
// itself, times their number, would be an eighth of the others' part. Their steps are long beside what they compute on a busy machine.
func TestRate(t *testing.T) {
	const most = 200 // updates of rank 0: by then the others have done theirs long since
	j := job()
	j.Epochs = 1 << 20
	d := driver(t, j, server.Options{Mode: ps.ASP, Slow: server.Slow{Factor: 8, Unit: 20 * time.Millisecond}})
	d.Topology.Apart = true
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var seen atomic.Bool
	d.Watch.Progress = func(p train.Progress) {
		own := p.Step/6*1600 + p.Step%6*300 // rows of rank 0's updates, of all workers
		switch {
		case p.Step < 10:
		case p.Samples > 3*own/2 && p.SamplesPerSec() > 1.4*float64(own)/p.Elapsed.Seconds():
			seen.Store(true)
			stop()
		case p.Step > most:
			stop()
		}
	}
	r, err := d.Train(ctx)
	if err != nil || r.Reason != trivium.Interrupted {
		t.Fatalf("%+v, %v", r, err)
	}
	if own := r.Steps/6*1600 + r.Steps%6*300; seen.Load() && r.Samples <= 3*own/2 {
		t.Errorf("in the end %d rows are counted, of %d updates of the slow worker", r.Samples, r.Steps)
	}
	if !seen.Load() {
		t.Errorf("after %d updates of the slow worker no more rows were counted than its own, times the workers", r.Steps)
	}
}
