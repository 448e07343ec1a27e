package collective

import "github.com/trivium-ml/trivium/shards"

// exact adds along the tree of the shards. Each rank contributes its subtrees' sums; where every rank has one, and their number is a
// power of two, halving or doubling that begins with neighbours is that tree. Otherwise each rank gets its part of all subtrees. Whoever has
// the sum of all shards of a part finishes it, and so no NaN of a partial sum is left.
func (b *builder) exact(leaves, n int, small bool) {
	all := make([][]shards.Subtree, b.size)
	one := b.size&(b.size-1) == 0 && leaves%b.size == 0 && leaves/b.size&(leaves/b.size-1) == 0
	for r := range all {
		all[r] = shards.Owned(r, b.size, leaves)
		one = one && len(all[r]) == 1
	}
	ranks := everyone(b.size)
	in, out := Span{Src, 0, n}, Span{Dst, 0, n}
	switch {
	case one && small:
		b.doubling(ranks, b.rank, in, out, true)
		return
	case one:
		b.halving(ranks, b.rank, in, out, true)
		return
	}
	mine := out.share(b.rank, b.size)
	for t := 1; t < b.size; t++ { // a segment of each subtree in turn: what they add up to is still in a cache when its last part comes
		to := (b.rank + t) % b.size
		b.segments(in.share(to, b.size), func(seg Span) {
			for k := range all[b.rank] {
				b.sendOne(to, seg.in(Src, k*n))
			}
		})
	}
	part := map[[2]int]Span{}
	for k, s := range all[b.rank] {
		part[[2]int{s.From, s.To}] = in.in(Src, k*n).share(b.rank, b.size)
	}
	for t := 1; t < b.size; t++ {
		from := mod(b.rank-t, b.size)
		for _, s := range all[from] {
			part[[2]int{s.From, s.To}] = b.scratch(mine.Len())
		}
		b.segments(mine, func(seg Span) {
			for _, s := range all[from] {
				b.recvOne(from, seg.in(Scratch, part[[2]int{s.From, s.To}].From-mine.From))
			}
		})
	}
	b.segments(mine, func(seg Span) {
		var eval func(a, z int, top bool) Span
		eval = func(a, z int, top bool) Span {
			if s, ok := part[[2]int{a, z}]; ok {
				return Span{s.Buf, s.From + seg.From - mine.From, s.From + seg.To - mine.From}
			}
			m := a + shards.Cut(z-a)
			left, right := eval(a, m, false), eval(m, z, false)
			out := right
			switch {
			case top:
				out = seg
			case right.Buf == Src: // two subtrees of one rank are never both sides: they would be one
				out = left
			}
			b.combine(out, right, left)
			return out
		}
		if leaves > 0 {
			if s := eval(0, leaves, true); s != seg {
				b.copy(seg, s)
			}
		}
	})
	b.finish(mine)
	b.phase = PhaseGather
	b.directAllGather(mine, shares(out, b.size))
}

func everyone(size int) []int {
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}
