// Package shards is exact mode's division of an update: into virtual shards, whose sums are added along one tree that belongs to the job and
// not to the machines. It says which shards each rank owns, and of which parts of the tree a rank knows the sums by itself.
//
// The tree adds neighbours first, then neighbouring pairs, and so on; a short last group joins at the end. So its root is cut at the largest
// power of two below the number of shards, and so on down ([Cut]).
package shards

import "math/bits"

// Of returns the shards [from, to) of n that rank owns. All ranks agree, as it depends on these numbers alone.
//
// No rank owns more than ⌈n/size⌉, which is what the slowest would have anyway. Within that, ranks meet where few subtrees are cut, since a
// rank's sum of each of its [Subtrees] travels: of 16 shards, 5 sums for three ranks where equal shares have 7, and 5 for five in place of 9.
func Of(rank, size, n int) (from, to int) {
	if size >= n { // one each, or none
		return rank * n / size, (rank + 1) * n / size
	}
	most, least := (n+size-1)/size, (n/size+1)/2 // of a rank; half a share does for the others
	for r := range rank + 1 {
		others := size - 1 - r
		from, to = to, meet(max(to+least, n-others*most), min(to+most, n-others*least))
	}
	return from, to
}

// meet returns the number from low to high at which the fewest subtrees are cut: the one with the most trailing zeros.
func meet(low, high int) int {
	for z := bits.Len(uint(high)); ; z-- {
		if at := high >> z << z; at >= low {
			return at
		}
	}
}

// A Subtree is the shards [From, To) of the tree. Its Node is its number: the root has 1, and those below node i have 2i and 2i+1, as if
// the number of shards were the next power of two.
type Subtree struct{ From, To, Node int }

// Subtrees are the largest subtrees of n shards that lie in [from, to), in order: what the owner of these sums by itself.
func Subtrees(n, from, to int) []Subtree {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	var list []Subtree
	for from < to {
		size, node := 1, leaves+from
		// One may end beyond n: the tree's last ones are short.
		for node%2 == 0 && (from+2*size <= to || to == n && from+2*size > n) {
			size, node = 2*size, node/2
		}
		list = append(list, Subtree{from, min(from+size, to), node})
		from += size
	}
	return list
}

// Owned are the Subtrees of what rank owns.
func Owned(rank, size, n int) []Subtree {
	from, to := Of(rank, size, n)
	return Subtrees(n, from, to)
}

// Cut is where a subtree of n ≥ 2 shards is cut: the largest power of two below n.
func Cut(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }
