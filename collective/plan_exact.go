package collective

import "math/bits"

// A Subtree is a range [From, To) of virtual shards that one rank owns and adds up by itself.
type Subtree struct{ From, To int }

// Subtrees are the largest subtrees, in order, of the shards [rank·shards/size, (rank+1)·shards/size) that rank owns. The tree is the
// one that adds neighbours first, then neighbouring pairs, and so on, a short last group joining at the end: its root is cut at the
// largest power of two below the number of shards, and so on down.
func Subtrees(rank, size, shards int) []Subtree {
	from, to := rank*shards/size, (rank+1)*shards/size
	var list []Subtree
	var walk func(a, z int)
	walk = func(a, z int) {
		switch {
		case a >= to || z <= from || a == z:
		case from <= a && z <= to:
			list = append(list, Subtree{a, z})
		default:
			m := a + cut(z-a)
			walk(a, m)
			walk(m, z)
		}
	}
	walk(0, shards)
	return list
}

// cut is the largest power of two below n.
func cut(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

// exact adds along the tree of the shards. Each rank contributes its subtrees' sums; where every rank has one, and their number is a
// power of two, halving or doubling that begins with neighbours is that tree. Otherwise each rank gets its part of all subtrees.
func (b *builder) exact(shards, n int, small bool) {
	all := make([][]Subtree, b.size)
	one := b.size&(b.size-1) == 0 && shards%b.size == 0 && shards/b.size&(shards/b.size-1) == 0
	for r := range all {
		all[r] = Subtrees(r, b.size, shards)
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
	part := map[Subtree]Span{}
	for k, s := range all[b.rank] {
		part[s] = in.in(Src, k*n).share(b.rank, b.size)
	}
	for t := 1; t < b.size; t++ {
		from := mod(b.rank-t, b.size)
		for _, s := range all[from] {
			part[s] = b.scratch(mine.Len())
		}
		b.segments(mine, func(seg Span) {
			for _, s := range all[from] {
				b.recvOne(from, seg.in(Scratch, part[s].From-mine.From))
			}
		})
	}
	b.segments(mine, func(seg Span) {
		var eval func(a, z int, top bool) Span
		eval = func(a, z int, top bool) Span {
			if s, ok := part[Subtree{a, z}]; ok {
				return Span{s.Buf, s.From + seg.From - mine.From, s.From + seg.To - mine.From}
			}
			m := a + cut(z-a)
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
		if shards > 0 {
			if s := eval(0, shards, true); s != seg {
				b.copy(seg, s)
			}
		}
	})
	b.finish(mine)
	b.phase = PhaseGather
	b.ringAllGather(ranks, b.rank, shares(out, b.size))
}

func everyone(size int) []int {
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}
