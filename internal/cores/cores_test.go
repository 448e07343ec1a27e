package cores

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeeper: a process keeps to its cores while its threads wait little for them, goes free in the moment in which they wait too long, and tries
// again after a while, which grows where that was too soon.
func TestKeeper(t *testing.T) {
	const long = 10 * time.Minute
	for _, c := range []struct {
		name  string
		n     int
		share func(at time.Duration) float64 // of the time, for all threads together, what they wait while they are kept
		last  time.Duration
		want  string // when it was free and kept again
	}{
		{"alone", 1, func(time.Duration) float64 { return 0.29 }, long, "free 10m0s"},
		{"four cores alone", 4, func(time.Duration) float64 { return 1.19 }, long, "free 10m0s"},
		{"a moment", 1, func(at time.Duration) float64 {
			if at > time.Minute && at < time.Minute+time.Second {
				return 0.5
			}
			return 0.05
		}, long, "free 1m0.2s, keep 1m5.2s, free 10m0s"},
		{"two moments, far apart", 1, func(at time.Duration) float64 {
			if at%(2*time.Minute) > 100*time.Second && at%(2*time.Minute) < 101*time.Second {
				return 0.5
			}
			return 0.05
		}, 4 * time.Minute, "free 1m40.2s, keep 1m45.2s, free 3m40.2s, keep 3m45.2s, free 4m0s"},
		{
			"somebody", 2, func(time.Duration) float64 { return 0.61 }, 2 * time.Minute,
			"free 200ms, keep 5.2s, free 5.4s, keep 15.4s, free 15.6s, keep 35.6s, free 35.8s, keep 1m15.8s, free 1m16s, free 2m0s",
		},
		{"moments that are not far apart, and are then", 1, func(at time.Duration) float64 {
			if at > 9*time.Second && at < 10*time.Second || at > 22*time.Second && at < 23*time.Second || at > 30*time.Second && at < 31*time.Second {
				return 0.5
			}
			return 0.05
		}, time.Minute, "free 9.2s, keep 14.2s, free 22.2s, keep 27.2s, free 30.2s, keep 40.2s, free 1m0s"},
		{"not told", 1, func(at time.Duration) float64 {
			if at > time.Second {
				return -1
			}
			return 0
		}, long, "free 1.2s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.last)
			defer cancel()
			begin, last, sum := time.Now(), time.Duration(0), time.Hour
			var got []string
			note := func(what string) func() {
				return func() { got = append(got, fmt.Sprint(what, " ", time.Since(begin))) }
			}
			k := keeper{n: c.n, keep: note("keep"), free: note("free"), waited: func() (time.Duration, bool) {
				at := time.Since(begin)
				share := c.share(at)
				sum += time.Duration(share * float64(at-last))
				last = at
				return sum, share >= 0
			}}
			k.run(ctx)
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		})
	}
}

// TestFreeMost: where somebody else is always there, a process tries every five minutes.
func TestFreeMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var kept []time.Time
		sum := time.Duration(0)
		k := keeper{n: 1, free: func() {}, keep: func() { kept = append(kept, time.Now()) }, waited: func() (time.Duration, bool) {
			sum += time.Second
			return sum, true
		}}
		k.run(ctx)
		if n := len(kept); n < 10 || kept[n-1].Sub(kept[n-2]) != freeMost+watchEvery {
			t.Errorf("%d times: %v", n, kept)
		}
	})
}
