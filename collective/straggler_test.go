package collective_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestStragglers: whom an operation waits for is told again where it is another. A rank that is late itself knows who had begun it before.
func TestStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		starts := []time.Duration{0, 0, 230 * ms, 1050 * ms}
		begin := time.Now()
		var mu sync.Mutex
		var said []string
		o := collective.Options{Straggler: 100 * ms, OnStraggler: func(w collective.Wait) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf("at %v rank %d for %v, not begun: %v", time.Since(begin), w.Rank, w.For, w.NotStarted))
		}}
		w := open(t, inMemory, len(starts), o)
		w.must(func(r int, g *collective.Group) error {
			time.Sleep(starts[r]) // in a bubble of synctest
			x := func() collective.Buffer { return collective.Of(make([]float32, 100)) }
			return g.Start(collective.Op{Plan: collective.Ring}, 0, x(), x()).Wait(t.Context())
		})
		want := []string{
			"at 100ms rank 2 for 100ms, not begun: true", "at 100ms rank 2 for 100ms, not begun: true", // of ranks 0 and 1
			"at 300ms rank 3 for 300ms, not begun: true", "at 300ms rank 3 for 300ms, not begun: true",
			"at 330ms rank 3 for 100ms, not begun: true", // of rank 2
		}
		if !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	})
}
