package graph

import "github.com/trivium-ml/trivium/draw"

// Key is the root of a random node's numbers in one step: they depend on the job's seed, the step, the shard of the batch and the node's
// id, never on time or attempt, so that computing again gives the same. Inside a Scan path holds each enclosing Scan's id and
// index, outermost first.
func Key(seed uint64, step int64, shard, node int, path ...int) uint64 {
	k := mix(seed)
	k = mix(k ^ uint64(step))
	k = mix(k ^ uint64(shard))
	k = mix(k ^ uint64(node))
	for _, i := range path {
		k = mix(k ^ uint64(i))
	}
	return k
}

// Keep says whether Dropout with the given rate keeps element i, in row-major order. Its random number is SplitMix64's (Steele, Lea and
// Flood 2014) with the key as the start, so that any element can be drawn alone.
func Keep(key uint64, i int, rate float64) bool {
	return draw.Mix(key+uint64(i)*draw.Weyl)>>11 >= uint64(rate*(1<<53))
}

func mix(x uint64) uint64 { return draw.Mix(x + draw.Weyl) }
