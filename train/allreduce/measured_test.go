package allreduce

import (
	"testing"

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
