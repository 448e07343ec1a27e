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

// At is number i, in row-major order, of what a Variable starts with, before in.Scale: drawn of a seed's stream alone, whoever draws the
// others, and the same on every processor. A uniform one is one of 2²⁴.
func (in Init) At(seed, stream, i uint64) float64 {
	switch in.Kind {
	case InitConstant:
		return in.A
	case InitUniform:
		return in.A + (in.B-in.A)*(float64(draw.Unit(seed, stream, i))+1)/2
	case InitNormal:
		return in.A + float64(in.B*draw.Normal(seed, stream, i)) // rounded before it is added, on arm64 too
	case InitTruncated:
		return in.A + float64(in.B*draw.Truncated(seed, stream, i))
	}
	return 0
}
