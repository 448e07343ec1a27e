package processes

import (
	"runtime"
	"testing"
)

// TestNarrow: only workers that are all on this machine, and leave none of its cores free, keep to their threads.
func TestNarrow(t *testing.T) {
	cores := runtime.NumCPU()
	far := Network{Listen: "0.0.0.0:0"}
	for _, c := range []struct {
		a    Assignment
		want int // threads; 0: as many as before
	}{
		{Assignment{Workers: cores + 1}, 1},
		{Assignment{Workers: cores + 1, Threads: 2}, 2},
		{Assignment{Workers: cores + 1, Network: Network{Listen: "127.0.0.1:0", Apart: true}}, 1},
		{Assignment{Workers: cores + 1, Network: far}, 0},
		{Assignment{Workers: cores - 1}, 0},
	} {
		before := runtime.GOMAXPROCS(0)
		narrow := Narrow(t.Context(), &c.a)
		if (narrow != nil) != (c.want > 0) {
			t.Errorf("%d workers of %d threads on %d cores, %+v: it keeps to them: %v", c.a.Workers, c.a.Threads, cores, c.a.Network, narrow != nil)
			continue
		}
		if narrow == nil {
			continue
		}
		narrow()
		if got := runtime.GOMAXPROCS(before); got != c.want {
			t.Errorf("%d workers of %d threads on %d cores: %d threads", c.a.Workers, c.a.Threads, cores, got)
		}
	}
}
