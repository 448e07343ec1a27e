package collective

import (
	"math"
	"testing"
	"time"
)

// Between two measured sizes time grows linearly; below the first it stays; beyond the last it grows as the formula, or as between two long
// vectors; for another number of ranks only the formula counts.
func TestTimes(t *testing.T) {
	c := Costs{Alpha: 10e-6, Beta: 1e-9, Gamma: 0.1e-9, Ranks: 2}
	halving := c.Times.of(Halving, 2)
	c.Times[halving] = [len(timedBytes)]float64{0: 30e-6, 3: 100e-6}
	plain := c
	plain.Ranks = 0
	grow := plain.Predict(Halving, 2, 1<<20, 1) - plain.Predict(Halving, 2, 1<<16, 1)
	for _, v := range []struct {
		bytes int
		want  time.Duration
	}{
		{4, 30 * time.Microsecond},
		{1 << 10, 30 * time.Microsecond},
		{1<<10 + (1<<16-1<<10)/2, 65 * time.Microsecond},
		{1 << 16, 100 * time.Microsecond},
		{1 << 20, 100*time.Microsecond + grow},
	} {
		if got := c.Predict(Halving, 2, v.bytes, 1); (got - v.want).Abs() > time.Microsecond {
			t.Errorf("%d bytes: %v, want %v", v.bytes, got, v.want)
		}
	}
	c.Times[halving] = [len(timedBytes)]float64{7: 1e-3, 9: 4e-3}
	if got := c.Predict(Halving, 2, 1<<24, 1); (got - 16*time.Millisecond).Abs() > time.Microsecond {
		t.Errorf("16 MiB after 1 and 4: %v, want 16 ms", got)
	}
	if got, want := c.Predict(Halving, 4, 1<<20, 1), plain.Predict(Halving, 4, 1<<20, 1); got != want {
		t.Errorf("of 4 ranks: %v, want the formula's %v", got, want)
	}
	if got, want := c.Predict(Ring, 2, 1<<20, 1), plain.Predict(Ring, 2, 1<<20, 1); got != want {
		t.Errorf("ring: %v, want the formula's %v", got, want)
	}
}

// A disturbance does not choose the plan, a clear difference does; of two ranks, whose bits are the same by any plan, a smaller one.
func TestTimesAndChoice(t *testing.T) {
	measured := func(ranks int, slow Algorithm, by float64) Costs {
		c := Costs{Alpha: 20e-6, Beta: 0.4e-9, Gamma: 0.1e-9, Ranks: ranks}
		for line, a := range timed {
			for col, n := range timedBytes {
				c.Times[line][col] = c.formula(a, ranks, float64(n), 1)
				if a == slow {
					c.Times[line][col] *= by
				}
			}
		}
		return c
	}
	for _, v := range []struct {
		ranks int
		slow  Algorithm
		by    float64
		want  Algorithm
	}{{4, Shared, 1, Halving}, {4, Halving, 1.3, Halving}, {4, Halving, 3, Ring}, {2, Shared, 1, Halving}, {2, Halving, 1.05, Halving}, {2, Halving, 1.3, Ring}} {
		c := measured(v.ranks, v.slow, v.by)
		if got := c.Choose(v.ranks, 1<<22); got != v.want {
			t.Errorf("%d ranks, %v %v times as slow: %v is chosen, want %v", v.ranks, v.slow, v.by, got, v.want)
		}
	}
	var often, once [len(timed)][len(timedBytes)]bool // cells that were measured a few times alone
	for line := range once {
		for col := range once[line] {
			once[line][col] = true
		}
	}
	c := measured(4, Halving, 3)
	c.smooth(often)
	if got := c.Choose(4, 1<<22); got != Ring {
		t.Errorf("measured often, and smoothed: %v", got)
	}
	c.smooth(once)
	if got := c.Choose(4, 1<<22); got != Halving {
		t.Errorf("after smoothing: %v", got)
	}
	two := measured(4, Doubling, 5)
	two.Ranks = 2
	for line, a := range timed {
		for col, n := range timedBytes {
			two.Times[line][col] = two.formula(a, 2, float64(n), 1)
		}
	}
	two.Times[0][3] *= 5
	two.smooth(once)
	if want := two.Times[1][3] + float64(timedBytes[3])/2*two.Gamma; !(math.Abs(two.Times[0][3]-want) <= 1e-9) {
		t.Errorf("doubling between two: %v, want %v", two.Times[0][3], want)
	}
}
