package median_test

import (
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/internal/median"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{5, 1, 2}, 2}, {[]float64{8, 1, 2, 4}, 3}} {
		given := slices.Clone(c.x)
		if got := median.Of(c.x); got != c.want {
			t.Errorf("of %v it is %v, want %v", given, got, c.want)
		}
		if !slices.Equal(c.x, given) {
			t.Errorf("it made %v of %v", c.x, given)
		}
	}
	if got := median.Of([]time.Duration{5, 1}); got != 3 {
		t.Errorf("of durations it is %v, want 3ns", got)
	}
}

// TestOfFew: the median of a few is taken without memory of the heap, as between steps of training.
func TestOfFew(t *testing.T) {
	x := []time.Duration{3, 1, 2}
	if n := testing.AllocsPerRun(100, func() {
		if median.Of(x) != 2 {
			t.Error("it is not 2ns")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
