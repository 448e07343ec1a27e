package compare

import (
	"math"
	"testing"
)

// TestCase9Judge: the published cases of the exact test.
func TestCase9Judge(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		u, p float64
		want Outcome
	}{
		{[]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 0, 2.0 / 252, Faster},
		{[]float64{6, 7, 8, 9, 10}, []float64{1, 2, 3, 4, 5}, 0, 2.0 / 252, Slower},
		{[]float64{1, 2, 3, 4, 8}, []float64{5, 6, 7, 9, 10}, 3, 14.0 / 252, NoDifference},
		{[]float64{1, 2, 3}, []float64{11, 12, 13}, 0, 2.0 / 20, NoDifference},
		// Most of the one are below the other, and yet three more of its kind would have made another median: the interval has 1.
		{[]float64{1, 1.1, 1.2, 1.3, 9, 9.1, 9.2}, []float64{8.9, 8.95, 9.3, 9.4, 10, 11, 12}, 6, 60.0 / 3432, NoDifference},
		{[]float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}, 8, 1, NoDifference},
		{nil, []float64{1}, 0, 1, NoDifference},
	} {
		v := Judge(c.a, c.b)
		if v.U != c.u || !(math.Abs(v.P-c.p) <= 1e-12) || v.Outcome != c.want {
			t.Errorf("%v against %v: U %v, p %v, %s; want %v, %v, %s", c.a, c.b, v.U, v.P, v.Outcome, c.u, c.p, c.want)
		}
	}
	if v := Judge([]float64{1, 2, 3, 4, 5, 6, 7}, []float64{8, 9, 10, 11, 12, 13, 14}); !(math.Abs(v.P-2.0/3432) <= 1e-15) {
		t.Errorf("seven against seven: p %v, want 2/3432", v.P)
	}
}

// TestMannWhitneyDumb compares the count of ways with a walk through all of them, ties included.
func TestMannWhitneyDumb(t *testing.T) {
	for _, c := range [][2][]float64{
		{{1, 2, 2}, {2, 3, 4}}, {{5, 1, 1, 7}, {1, 5, 9}}, {{3}, {1, 2}}, {{1, 4, 2, 8, 5}, {7, 1, 4, 2}},
	} {
		u, p := mannWhitney(c[0], c[1])
		all := append(append([]float64{}, c[0]...), c[1]...)
		stat := func(mask int) float64 {
			var u float64
			for i, x := range all {
				for j, y := range all {
					if mask>>i&1 == 1 && mask>>j&1 == 0 {
						if x > y {
							u++
						} else if x == y {
							u += 0.5
						}
					}
				}
			}
			return min(u, float64(len(c[0])*len(c[1]))-u)
		}
		mine := stat(1<<len(c[0]) - 1)
		count, as := 0.0, 0.0
		for mask := range 1 << len(all) {
			n := 0
			for i := range all {
				n += mask >> i & 1
			}
			if n != len(c[0]) {
				continue
			}
			count++
			if stat(mask) <= mine {
				as++
			}
		}
		if u != mine || !(math.Abs(p-as/count) <= 1e-12) {
			t.Errorf("%v: U %v, p %v; want %v, %v", c, u, p, mine, as/count)
		}
	}
}

func TestHolm(t *testing.T) {
	v := []Verdict{
		{Outcome: Faster, Ratio: 2, Low: 1.5, High: 3, P: 0.01},
		{Outcome: Slower, Ratio: 0.5, Low: 0.4, High: 0.6, P: 0.04},
		{Outcome: Faster, Ratio: 2, Low: 1.5, High: 3, P: 0.03},
		{Outcome: NoDifference, Ratio: 2, Low: 1.9, High: 2.1, P: 0.001}, // of three repeats against many: no p makes a verdict of it
	}
	got := Holm(v)
	for i, want := range []struct {
		p float64
		o Outcome
	}{{0.03, Faster}, {0.06, NoDifference}, {0.06, NoDifference}, {0.004, NoDifference}} {
		if !(math.Abs(got[i].P-want.p) <= 1e-12) || got[i].Outcome != want.o {
			t.Errorf("verdict %d: p %v, %s; want %v, %s", i, got[i].P, got[i].Outcome, want.p, want.o)
		}
	}
}
