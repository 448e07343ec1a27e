package main

import (
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		sorted []time.Duration
		want   time.Duration
	}{{[]time.Duration{3}, 3}, {[]time.Duration{1, 5}, 3}, {[]time.Duration{1, 2, 5}, 2}, {[]time.Duration{1, 2, 4, 8}, 3}} {
		if got := median(c.sorted); got != c.want {
			t.Errorf("of %v it is %v, want %v", c.sorted, got, c.want)
		}
	}
}
