package collective

// Ranks of one host that share memory read each other's contributions where they lie. Each rank writes to its own part of the memory
// alone, its arena; a frame of a few bytes, the bell, says that something is there to be read, and where.

// cardBytes is what a bell carries: where in the sender's arena its contribution and its result lie.
const cardBytes = 16

// given and sums are the memories of a rank that others read: its contribution, and its part of the result.
func given(rank int) Buf { return numBufs + Buf(2*rank) }
func sums(rank int) Buf  { return numBufs + Buf(2*rank) + 1 }

// maxShared is how many ranks have memories that a Buf can name.
const maxShared = (256 - int(numBufs)) / 2

// shared sums a slice of all contributions in the order of the ranks, and then takes the others' slices. Long vectors go in blocks, so
// that what one rank has written is still in a cache when the others read it. A contribution that lies in the arena already is not
// copied (srcIn), nor the sum of the own slice (dstIn).
func (b *builder) shared(n, block int, srcIn, dstIn bool) {
	me := b.rank
	// Bells of the first kind follow the copies, of the second the sums.
	ring := func(s Span) {
		for t := 1; t < b.size; t++ {
			to := (me + t) % b.size
			b.add(Task{Do: DoRing, Peer: to, Chunk: b.sent[to]}, false, s)
			b.sent[to]++
		}
	}
	hear := func(from int, s Span) {
		b.add(Task{Do: DoHear, Peer: from, Chunk: b.got[from]}, false)
		id := int32(len(b.plan.Tasks) - 1)
		b.near(s, func(list []access, _, _ int) []access { return append(list, access{id, true, s.From, s.To}) })
		b.got[from]++
	}
	each := func(do func(s Span)) {
		for at := 0; at < n; at += block {
			do(Span{Src, at, min(n, at+block)})
		}
	}
	each(func(s Span) {
		if !srcIn {
			b.add(Task{Do: DoCopy, To: s.in(given(me), 0), From: []Span{s}}, true, s)
		}
		ring(s.in(given(me), 0))
	})
	each(func(s Span) {
		for t := 1; t < b.size; t++ {
			from := (me + t) % b.size
			hear(from, s.in(given(from), 0))
		}
		mine := s.share(me, b.size)
		operands := make([]Span, b.size)
		for r := range operands {
			operands[r] = mine.in(given(r), 0)
		}
		sum := mine.in(sums(me), 0)
		b.combine(sum, operands...)
		if sum.Len() > 0 {
			b.add(Task{Do: DoFinish, To: sum}, true)
		}
		ring(sum)
	})
	b.phase = PhaseGather
	each(func(s Span) {
		for t := range b.size {
			from := (me + t) % b.size
			slice := s.share(from, b.size).in(sums(from), 0)
			if from != me {
				hear(from, slice)
			} else if dstIn {
				continue
			}
			if slice.Len() > 0 {
				b.add(Task{Do: DoCopy, To: slice.in(Dst, 0), From: []Span{slice}}, true, slice)
			}
		}
	})
}
