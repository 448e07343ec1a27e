package collective

import (
	"strings"
	"testing"
)

// TestImpossibleAmounts: counts whose sum no int holds, and shards beyond a job's most, are refused. Plans made of them would never end.
func TestImpossibleAmounts(t *testing.T) {
	four := []int{0, 1 << 62, 1 << 62, 1 << 62, 1 << 62} // together 0, in 64 bits
	none := Of([]float32{})
	for _, v := range []struct {
		op   Op
		want string
	}{
		{Op{Kind: AllGather, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: Gather, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: Scatter, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: ReduceScatter, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: AllToAll, Counts: four, Recv: make([]int, 5)}, "a count of 4611686018427387904"},
		{Op{Kind: AllToAll, Counts: make([]int, 5), Recv: four}, "a count of 4611686018427387904"},
		{Op{Kind: AllGather, Counts: []int{0, -1, 1, 0, 0}}, "a count of -1"},
		{Op{Shards: 1 << 40}, "1099511627776 shards"},
	} {
		if _, err := v.op.validate(0, 5, none, none); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v", v.op, err)
		}
	}
}
