package transport

import "slices"

// A sharedBlocks says which parts of a memory are taken. It takes the lowest that fits, so that the same few pages are used again and
// again: they are in the cache, and the rest of the memory is never touched.
type sharedBlocks struct {
	size  uint32        // in units
	taken []sharedBlock // by place
	count uint32        // blocks ever taken: their numbers
}

type sharedBlock struct{ at, n, number uint32 }

// take returns the ref of a free block for n bytes.
func (b *sharedBlocks) take(n int) (uint64, bool) {
	units := (n + sharedUnit - 1) / sharedUnit
	if n <= 0 || units > int(b.size) || len(b.taken) >= sharedReturns {
		return 0, false
	}
	i, at := 0, uint32(0)
	for ; i < len(b.taken) && b.taken[i].at-at < uint32(units); i++ {
		at = b.taken[i].at + b.taken[i].n
	}
	if b.size-at < uint32(units) {
		return 0, false
	}
	b.count++
	b.taken = slices.Insert(b.taken, i, sharedBlock{at, uint32(units), b.count})
	return uint64(b.count)<<32 | uint64(at), true
}

// give takes the block of that ref back; false: there is none.
func (b *sharedBlocks) give(ref uint64) bool {
	i, ok := slices.BinarySearchFunc(b.taken, uint32(ref), func(x sharedBlock, at uint32) int { return int(x.at) - int(at) })
	if !ok || b.taken[i].number != uint32(ref>>32) {
		return false
	}
	b.taken = slices.Delete(b.taken, i, i+1)
	return true
}
