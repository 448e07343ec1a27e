package compare

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A clockedPeer is a worker in virtual time that is driven by lines.
type clockedPeer struct {
	update time.Duration // that one takes
	says   float64       // of its time; 1: all
	begins time.Duration // what comes before its clock starts, in its first run
	stop   time.Duration // its clock stands still for a snapshot
	writes time.Duration // and it writes one
	late   time.Duration // its lines are handed on so much later, all at once
}

// run is its life.
func (c clockedPeer) run(in io.Reader, out io.WriteCloser, dir string, rank int) {
	defer out.Close()
	var text strings.Builder
	say := func(v any) { _ = json.NewEncoder(&text).Encode(v) }
	flush := func() {
		_, _ = io.WriteString(out, text.String())
		text.Reset()
	}
	say(map[string]any{"event": "ready"})
	flush()
	var done int64
	seconds, begins := 0.0, c.begins
	for lines := json.NewDecoder(in); ; flush() {
		var o peerCommand
		if lines.Decode(&o) != nil {
			return
		}
		switch o.Do {
		case "reset":
			done, seconds = 0, 0
			say(map[string]any{"event": "ready"})
		case "run":
			time.Sleep(begins)
			begins = 0
			time.Sleep(time.Duration(o.Updates) * c.update)
			done += o.Updates
			seconds += c.says * (time.Duration(o.Updates) * c.update).Seconds()
			for _, u := range o.Snapshots {
				if rank == 0 {
					time.Sleep(c.stop + c.writes)
					say(map[string]any{"event": "snapshot", "update": u, "seconds": c.says * float64(u) * c.update.Seconds(), "path": filepath.Join(dir, snapshotName(u))})
				}
			}
			time.Sleep(c.late)
			say(map[string]any{"event": "update", "update": done, "seconds": seconds})
		default:
			say(map[string]any{"event": "done"})
		}
	}
}

// TestPeerClock: a peer's clock is held against that of this program. One that leaves out what belongs to training fails the trial, and the
// sentence says both times; one that stands still where it may is believed.
func TestPeerClock(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		peer    clockedPeer
		seconds float64 // that the rule wants
		refused bool
	}{
		"exact":                     {clockedPeer{update: 10 * ms, says: 1}, 5, false},
		"compiles first":            {clockedPeer{update: 10 * ms, says: 1, begins: 40 * time.Second}, 5, false},
		"copies and writes":         {clockedPeer{update: 10 * ms, says: 1, stop: 40 * ms, writes: 50 * ms}, 5, false},
		"hands its lines on late":   {clockedPeer{update: 10 * ms, says: 1, late: 900 * ms}, 5, false},
		"slow, and all of it":       {clockedPeer{update: 3 * time.Second, says: 1, stop: 90 * ms, late: 900 * ms}, 5, false},
		"says half":                 {clockedPeer{update: 10 * ms, says: 0.5}, 5, true},
		"says half, of three":       {clockedPeer{update: 10 * ms, says: 0.5}, 3, true},
		"says three quarters":       {clockedPeer{update: 10 * ms, says: 0.75}, 5, true},
		"milliseconds for seconds":  {clockedPeer{update: 10 * ms, says: 0.001}, 5, true},
		"says nine tenths of a lot": {clockedPeer{update: time.Second, says: 0.9}, 60, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := &peerTrial{
					began: time.Now(), events: make(chan Event), lines: make(chan peerSays), driven: make(chan struct{}), lead: WorkerRole, mode: Mode{Kind: "sync"},
				}
				x.ctx, x.cancel = context.WithCancelCause(t.Context())
				for rank := range 2 {
					toPeer, in := io.Pipe()
					out, fromPeer := io.Pipe()
					// What was never started has ended for Wait, too.
					p := &peerProcess{Process: Process{Role: WorkerRole, Rank: rank}, cmd: exec.Command(""), in: in, stdout: out, exited: make(chan struct{}), out: t.TempDir()}
					x.list = append(x.list, p)
					x.wait.Go(func() { x.listen(p, out) })
					x.wait.Go(func() { c.peer.run(toPeer, fromPeer, p.out, rank) })
				}
				x.wait.Go(func() {
					x.drive(Spec{Workers: 2, Batch: 10, Updates: 20, Snapshots: []int64{4, 8, 12, 16, 20}, Seconds: c.seconds, WarmUp: 2, limit: time.Hour})
				})
				var last Event
				var failed error
				for e, err := range x.Events() {
					last, failed = e, err
				}
				for _, p := range x.list {
					_ = p.in.Close()
				}
				x.cancel(nil)
				x.wait.Wait()
				if !c.refused {
					want := 10 * 2 / c.peer.update.Seconds()
					if got := float64(last.Samples) / last.Seconds; failed != nil || got < 0.99*want || got > 1.01*want {
						t.Errorf("%v; %.0f samples/s, want %.0f", failed, got, want)
					}
					return
				}
				if want := "it trains while its clock stands still"; failed == nil || !strings.Contains(fmt.Sprint(failed), want) {
					t.Errorf("%v; want %s", failed, want)
				}
			})
		})
	}
}
