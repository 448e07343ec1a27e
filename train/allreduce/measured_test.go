package allreduce

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestMeasuredIsBounded: sums of ever new sizes do not fill the memory, and those of the first are counted on.
func TestMeasuredIsBounded(t *testing.T) {
	var m measured
	for k := range 10_000 {
		m.add(collective.Measurement{Ranks: 2, Bytes: 1000, Predicted: 1})
		m.add(collective.Measurement{Ranks: 2, Bytes: 2000 + k, Predicted: 1})
	}
	if len(m.ops) > mostMeasured {
		t.Errorf("%d sums are kept", len(m.ops))
	}
	if h := m.ops[operation{ranks: 2, bytes: 1000, predicted: 1}]; h == nil || h.Count != 10_000 {
		t.Errorf("the first one: %+v", h)
	}
}

// TestTook: no sum is said to take no time.
func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "too short to measure", 400: "too short to measure", 1600: "2µs", 1500 * time.Microsecond: "1.5ms"} {
		if got := took(d); got != want {
			t.Errorf("%d ns: %q, want %q", d, got, want)
		}
	}
}
