package allreduce

import (
	"testing"

	"github.com/trivium-ml/trivium/collective"
)

// TestBuckets: a gradient is cut so that something travels early, and is not where the workers fill their cores. Neither loses a cell.
func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		lens         []int
		free, filled int
	}{
		{[]int{7840, 10}, 1, 1},
		{[]int{78400, 100, 1000, 10}, 1, 1},
		{[]int{200704, 256, 32768, 128, 1280, 10}, 2, 1},
		{[]int{802816, 1024, 524288, 512, 5120, 10}, 3, 1},
		{[]int{5 << 20, 10}, 6, 2},
	} {
		all := 0
		for _, n := range c.lens {
			all += n
		}
		for _, filled := range []bool{false, true} {
			x, want := exchange{filled: filled}, c.free
			if filled {
				want = c.filled
			}
			list := collective.Cut(c.lens, 4, 4<<20)
			list = join(list, x.bucketMost(list))
			seen, at := map[int]bool{}, all
			for _, b := range list {
				if b.To != at || b.From >= b.To {
					t.Errorf("%v, filled %v: %v does not end at cell %d", c.lens, filled, b, at)
				}
				at = b.From
				for _, i := range b.Tensors {
					seen[i] = true
				}
			}
			if at != 0 || len(seen) != len(c.lens) || len(list) != want {
				t.Errorf("%v, filled %v: %d buckets with %d tensors from cell %d on, want %d", c.lens, filled, len(list), len(seen), at, want)
			}
		}
	}
}
