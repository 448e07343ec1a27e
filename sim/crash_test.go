package sim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestCrashesOverlap: who ends and starts the programs of a node hears of each end and start once, whatever faults overlap, and whether
// they end by themselves or by Heal.
func TestCrashesOverlap(t *testing.T) {
	for _, c := range []struct {
		plan string
		heal time.Duration // 0: never
		want []string
	}{
		{"10ms crash 0 for 30ms; 20ms vanish 0 for 10ms", 0, []string{"10ms up false", "40ms up true"}},
		{"10ms crash 0 for 20ms; 20ms wipe 0 for 30ms", 0, []string{"10ms up false", "50ms up true"}},
		{"10ms crash 0 for 30ms", 20 * time.Millisecond, []string{"10ms up false", "20ms up true"}},
	} {
		t.Run(c.plan, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := sim.New(1, sim.Options{}).Network()
				n.Node(name("a"))
				var mu sync.Mutex
				var told []string
				begun := time.Now()
				n.Crashed = func(_ sim.Node, up bool) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, fmt.Sprintf("%v up %v", time.Since(begun), up))
				}
				if c.heal > 0 {
					time.AfterFunc(c.heal, n.Heal)
				}
				if err := n.Run(t.Context(), plan(t, c.plan)); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(told, c.want) {
					t.Errorf("told %q, want %q", told, c.want)
				}
			})
		})
	}
}
