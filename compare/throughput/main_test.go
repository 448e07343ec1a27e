package main

import "testing"

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{5, 1, 2}, 2}, {[]float64{8, 1, 2, 4}, 3}} {
		if got := median(c.values); got != c.want {
			t.Errorf("of %v it is %v, want %v", c.values, got, c.want)
		}
	}
}
