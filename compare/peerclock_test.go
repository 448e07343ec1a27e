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
	writes time.Duration // it writes one, once it is told to
	late   time.Duration // its lines are handed on so much later, all at once
	early  bool          // it writes them before it answers
	lacks  bool          // it does not know the command to save, and ignores it

	copies func(u int64, seconds float64) (int64, float64) // what it says of a copy; update 0: nothing. nil: the truth
}

// run is its life.
func (c clockedPeer) run(in io.Reader, out io.WriteCloser, dir string, rank int) {
	defer out.Close()
	var text strings.Builder
	say := func(v any) { _ = json.NewEncoder(&text).Encode(v) }
	flush := func() {
		if text.Len() == 0 {
			return
		}
		_, _ = io.WriteString(out, text.String())
		text.Reset()
	}
	say(map[string]any{"event": "ready"})
	flush()
	var done int64
	var kept []int64
	seconds, begins := 0.0, c.begins
	save := func() {
		for _, u := range kept {
			time.Sleep(c.writes)
			at := c.says * float64(u) * c.update.Seconds()
			if c.copies != nil {
				u, at = c.copies(u, at)
			}
			if u > 0 {
				say(map[string]any{"event": "snapshot", "update": u, "seconds": at, "path": filepath.Join(dir, snapshotName(u))})
			}
		}
		kept = nil
	}
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
			if rank == 0 {
				time.Sleep(time.Duration(len(o.Snapshots)) * c.stop)
				kept = append(kept, o.Snapshots...)
			}
			if c.early {
				save()
			}
			time.Sleep(c.late)
			say(map[string]any{"event": "update", "update": done, "seconds": seconds})
		case "save":
			if !c.lacks {
				save()
				say(map[string]any{"event": "saved"})
			}
		default:
			say(map[string]any{"event": "done"})
		}
	}
}

// TestPeerClock: a peer's clock is held against that of this program. One that leaves out what belongs to training fails the trial, and the
// sentence says both times; one that stands still where it may is believed. What it takes to write its copies is in no clock and in no time that is
// measured: one that writes them before it is told to fails, and so does one that does not know that command.
// The clocks of the copies, which say when the target was met, are that clock: of each that was asked for, and in the order of their updates.
func TestPeerClock(t *testing.T) {
	const ms = time.Millisecond
	copies := func(say func(int64, float64) (int64, float64)) clockedPeer {
		return clockedPeer{update: 10 * ms, says: 1, copies: say}
	}
	const still, soon, never = "it trains while its clock stands still", "saves parameters before it is told to", "and has not answered in 30.6s"
	for name, c := range map[string]struct {
		peer    clockedPeer
		seconds float64 // that the rule wants
		refused string  // what is said of it; empty: it is believed
	}{
		"exact":                     {clockedPeer{update: 10 * ms, says: 1}, 5, ""},
		"compiles first":            {clockedPeer{update: 10 * ms, says: 1, begins: 40 * time.Second}, 5, ""},
		"copies and writes":         {clockedPeer{update: 10 * ms, says: 1, stop: 40 * ms, writes: 50 * ms}, 5, ""},
		"writes for long":           {clockedPeer{update: 10 * ms, says: 1, stop: 40 * ms, writes: 3 * time.Second}, 5, ""},
		"writes too early":          {clockedPeer{update: 10 * ms, says: 1, writes: ms, early: true}, 5, soon},
		"does not know save":        {clockedPeer{update: 10 * ms, says: 1, lacks: true}, 5, never},
		"hands its lines on late":   {clockedPeer{update: 10 * ms, says: 1, late: 900 * ms}, 5, ""},
		"slow, and all of it":       {clockedPeer{update: 3 * time.Second, says: 1, stop: 90 * ms, late: 900 * ms}, 5, ""},
		"says half":                 {clockedPeer{update: 10 * ms, says: 0.5}, 5, still},
		"says half, of three":       {clockedPeer{update: 10 * ms, says: 0.5}, 3, still},
		"says three quarters":       {clockedPeer{update: 10 * ms, says: 0.75}, 5, still},
		"milliseconds for seconds":  {clockedPeer{update: 10 * ms, says: 0.001}, 5, still},
		"says nine tenths of a lot": {clockedPeer{update: time.Second, says: 0.9}, 60, still},

		"copies in milliseconds":    {copies(func(u int64, at float64) (int64, float64) { return u, at / 1000 }), 5, "these are not one clock"},
		"copies in microseconds":    {copies(func(u int64, at float64) (int64, float64) { return u, at * 1e6 }), 5, "at the end of that run, which comes later"},
		"copies backwards":          {copies(func(u int64, at float64) (int64, float64) { return u, 5.001 - at }), 5, "its clock runs backwards, or stands still"},
		"copies at one time":        {copies(func(u int64, at float64) (int64, float64) { return u, 5 }), 5, "its clock runs backwards, or stands still"},
		"copies of the next update": {copies(func(u int64, at float64) (int64, float64) { return u + 1, at }), 5, "of update 5, which it was not told to keep"},
		"copies twice":              {copies(func(u int64, at float64) (int64, float64) { return 4, at }), 5, "saved parameters of update 4 twice"},
		"copies all but the last":   {copies(func(u int64, at float64) (int64, float64) { return u % 500, at }), 5, "saved no parameters of update 500, the last of a run"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := &peerTrial{
					eventStream: eventStream{events: make(chan Event)}, began: time.Now(), lines: make(chan peerSays),
					driven: make(chan struct{}), copies: map[int64]peerCopy{}, lead: WorkerRole, mode: Mode{Kind: "sync"},
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
				at, saved := map[string]time.Time{}, 0
				for e, err := range x.Events() {
					last, failed, at[e.Kind] = e, err, time.Now()
					if e.Kind == Snapshot {
						saved++
					}
				}
				for _, p := range x.list {
					_ = p.in.Close()
				}
				x.cancel(nil)
				x.wait.Wait()
				if c.refused == "" { // of six copies, that of the run's last update is for the clock alone
					want := 10 * 2 / c.peer.update.Seconds()
					if got := float64(last.Samples) / last.Seconds; failed != nil || got < 0.99*want || got > 1.01*want {
						t.Errorf("%v; %.0f samples/s, want %.0f", failed, got, want)
					}
					stood := at[End].Sub(at[Begin]).Seconds() - last.Seconds
					if most := (6*c.peer.stop + 3*c.peer.late + ms).Seconds(); saved != 5 || stood > most {
						t.Errorf("%d copies; measured %.3f s longer than its clock says, which stood still for %.3f s at most", saved, stood, most)
					}
					return
				}
				if failed == nil || !strings.Contains(fmt.Sprint(failed), c.refused) {
					t.Errorf("%v; want %s", failed, c.refused)
				}
			})
		})
	}
}
