package shards_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/shards"
)

// TestOf: the ranks' shards are all shards, in order; none has more than the largest of equal shares, and where there are as many shards as
// ranks, none is without.
func TestOf(t *testing.T) {
	for n := 1; n <= 70; n++ {
		for size := 1; size <= 20; size++ {
			next := 0
			for r := range size {
				from, to := shards.Of(r, size, n)
				if from != next || to < from || to-from > (n+size-1)/size || n >= size && from == to {
					t.Fatalf("%d shards: rank %d of %d has %d to %d, after %d", n, r, size, from, to, next)
				}
				next = to
			}
			if next != n {
				t.Fatalf("%d shards, %d ranks: %d have an owner", n, size, next)
			}
		}
	}
}

// TestOwnedAreFew: of the default 16 shards no division among so many ranks, of which none has more than it must, has fewer sums: by trying
// all.
func TestOwnedAreFew(t *testing.T) {
	const n = 16
	for size := 1; size <= n; size++ {
		got := 0
		for r := range size {
			got += len(shards.Owned(r, size, n))
		}
		most := (n + size - 1) / size
		fewest := make([]int, n+1) // sums of the shards before, by as many ranks as have been looked at
		for i := range fewest[1:] {
			fewest[1+i] = n + 1
		}
		for range size {
			next := make([]int, n+1)
			for to := range next {
				next[to] = n + 1
				for from := max(0, to-most); from < to; from++ {
					next[to] = min(next[to], fewest[from]+len(shards.Subtrees(n, from, to)))
				}
			}
			fewest = next
		}
		if got != fewest[n] {
			t.Errorf("%d ranks: %d sums, and %d would do", size, got, fewest[n])
		}
	}
}

// TestSubtrees: they are the parts of the tree that is cut where Cut says, the largest that fit; and their nodes are those of the tree of the
// next power of two.
func TestSubtrees(t *testing.T) {
	for n := 1; n <= 40; n++ {
		leaves := 1
		for leaves < n {
			leaves *= 2
		}
		for from := 0; from <= n; from++ {
			for to := from; to <= n; to++ {
				var want [][2]int
				var walk func(a, z int)
				walk = func(a, z int) {
					switch {
					case a >= to || z <= from:
					case from <= a && z <= to:
						want = append(want, [2]int{a, z})
					default:
						walk(a, a+shards.Cut(z-a))
						walk(a+shards.Cut(z-a), z)
					}
				}
				walk(0, n)
				var got [][2]int
				for _, s := range shards.Subtrees(n, from, to) {
					got = append(got, [2]int{s.From, s.To})
					first, after := s.Node, s.Node+1 // of its leaves
					for first < leaves {
						first, after = 2*first, 2*after
					}
					if first-leaves != s.From || min(after-leaves, n) != s.To {
						t.Fatalf("%d shards: node %d is not %d to %d", n, s.Node, s.From, s.To)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%d shards, %d to %d: %v, want %v", n, from, to, got, want)
				}
			}
		}
	}
}

func ExampleOwned() {
	for rank := range 3 {
		fmt.Println(shards.Owned(rank, 3, 16))
	}
	// Output:
	// [{0 4 4}]
	// [{4 8 5} {8 10 12}]
	// [{10 12 13} {12 16 7}]
}
