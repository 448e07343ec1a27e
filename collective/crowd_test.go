package collective_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/trivium-ml/trivium/collective"
)

// TestCrowd: all ranks find the same out about their cores, and go on with their steps.
func TestCrowd(t *testing.T) {
	for _, size := range []int{2, runtime.NumCPU()/2 + 1} {
		w := open(t, inMemory, size, collective.Options{})
		w.must(func(_ int, g *collective.Group) error {
			if err := g.Crowd(t.Context()); err != nil {
				return err
			}
			if got, want := g.Costs().Crowded, runtime.NumCPU() < 2*size; got != want {
				return fmt.Errorf("%d ranks on %d cores: crowded is %v", size, runtime.NumCPU(), got)
			}
			x := []float32{1}
			if err := collective.AllReduceInto(t.Context(), g, x, x, collective.Sum); err != nil {
				return err
			}
			if x[0] != float32(size) {
				return fmt.Errorf("the sum of %d ones is %v", size, x[0])
			}
			return nil
		})
		w.close()
	}
}

// Three ranks that share two cores do with four messages what takes twelve in a ring.
func TestCrowdedChoice(t *testing.T) {
	c := collective.Costs{Alpha: 20e-6, Beta: 0.4e-9, Gamma: 0.1e-9}
	if got := c.Choose(3, 31<<10); got != collective.Pairwise {
		t.Errorf("with cores enough: %v, want pairs", got)
	}
	if got := c.Choose(3, 2<<20); got != collective.Ring {
		t.Errorf("what fits no cache: %v, want a ring", got)
	}
	c.Crowded = true
	if got := c.Choose(3, 31<<10); got != collective.Doubling {
		t.Errorf("crowded: %v, want doubling", got)
	}
}
