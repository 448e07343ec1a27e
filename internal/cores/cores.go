// Package cores keeps a process to cores of its own, as launchers of MPI do (mpirun --bind-to core).
//
// Left alone, the system puts two processes that wake each other on one core, because what the one has written is in that core's cache, and
// another core idles until a balancer looks, and again a moment later. Between two workers that wait for each other all the time, small
// messages take twice as long so.
//
// But a process that is kept to a core is kept from the others too: where somebody else computes there, it gets half a core though another
// may be free, and less if it often waits. So it watches how long its threads wait for a core, and goes free for a while where that is much.
package cores

import (
	"context"
	"time"
)

const (
	watchEvery = 200 * time.Millisecond
	// waitedMost is how long threads may wait for each core in that time. Two workers of an allreduce that have their machine for themselves wait
	// for 2 to 8 % of all time, and for 30 to 60 % where others compute there.
	waitedMost = watchEvery * 3 / 10
	// freeLeast is how long a process goes free, and after each time in which it was kept for less than it was free before, twice as long, up to
	// freeMost.
	freeLeast = 5 * time.Second
	freeMost  = 5 * time.Minute
)

// A keeper keeps a process to n cores, on which it is already, and lets it go free.
type keeper struct {
	n          int
	waited     func() (time.Duration, bool) // see there
	keep, free func()
}

// run ends when ctx does, or the system does not tell any more how long threads wait. The process is free then.
func (k *keeper) run(ctx context.Context) {
	defer k.free()
	for rest := time.Duration(0); ; {
		since := time.Now()
		if !k.outlast(ctx) {
			return
		}
		k.free()
		if kept := time.Since(since); kept > rest {
			rest = freeLeast
		} else {
			rest = min(2*rest, freeMost)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
		k.keep()
	}
}

// outlast returns when the threads have waited for their cores too long; false: ctx has ended, or the system does not tell.
func (k *keeper) outlast(ctx context.Context) bool {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	before, told := k.waited()
	for told {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		var now time.Duration
		if now, told = k.waited(); now-before > time.Duration(k.n)*waitedMost {
			return told
		}
		before = now
	}
	return false
}
