package collective

// Ranks of one host that share memory read each other's contributions where they lie. Each rank writes to its own part of the memory
// alone, its arena; a frame of a few bytes, the bell, says that something is there to be read, and where.

// cardBytes is what a bell carries: where in the sender's arena its contribution and its result lie.
const cardBytes = 16

// cardRing says, beside where the contribution lies, that it is a ring of blocks.
const cardRing = 1 << 63

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
	each := func(do func(s Span)) {
		for at := 0; at < n; at += block {
			do(Span{Src, at, min(n, at+block)})
		}
	}
	each(func(s Span) {
		mine := s.share(me, b.size)
		for _, part := range []Span{{Src, s.From, mine.From}, {Src, mine.To, s.To}} { // nobody else reads the own slice
			if part.Len() > 0 && !srcIn {
				b.add(Task{Do: DoCopy, To: part.in(given(me), 0), From: []Span{part}}, true, part)
			}
		}
		b.tell(s.in(given(me), 0))
	})
	each(func(s Span) {
		b.hear(func(r int) Span { return s.in(given(r), 0) })
		mine := s.share(me, b.size)
		operands := make([]Span, b.size)
		for r := range operands {
			operands[r] = mine.in(given(r), 0)
		}
		operands[me] = mine
		sum := mine.in(sums(me), 0)
		b.combine(sum, operands...)
		if sum.Len() > 0 {
			b.add(Task{Do: DoFinish, To: sum}, true)
		}
		b.tell(sum)
	})
	b.phase = PhaseGather
	each(func(s Span) {
		slices := func(r int) Span { return s.share(r, b.size).in(sums(r), 0) }
		b.hear(slices)
		for t := range b.size {
			from := (me + t) % b.size
			slice := slices(from)
			if from == me && dstIn {
				continue
			}
			if slice.Len() > 0 {
				b.add(Task{Do: DoCopy, To: slice.in(Dst, 0), From: []Span{slice}}, true, slice)
			}
		}
	})
}

// sharedWhole sums all contributions at every rank, in the order of the ranks: it reads more than shared, and waits once less for the
// others. Between two ranks it does not even read more than shared does in order to copy the result.
//
// Of a long vector, a rank gives a block only when it has summed the one ringAhead before. Whoever has heard of block k so knows that the
// giver has read all blocks up to k-ringAhead, and writes block k+ringAhead where k-ringAhead was: a contribution takes a ring of blocks
// (Plan.Ring), however long the vector is, and is read soon after it was written. A rank whose contribution lies in the arena as a whole
// keeps to this too, for the others' sake.
func (b *builder) sharedWhole(n, block int, srcIn bool) {
	var blocks []Span
	for at := 0; at < n; at += block {
		blocks = append(blocks, Span{Src, at, min(n, at+block)})
	}
	ahead := len(blocks)
	if ahead > 2*ringAhead {
		ahead = ringAhead
		b.plan.Ring = 2 * ringAhead * block
	}
	give := func(k int) {
		if k >= len(blocks) {
			return
		}
		s := blocks[k]
		var summed Span
		if k >= ahead {
			summed = blocks[k-ahead].in(Dst, 0)
		}
		if !srcIn {
			b.add(Task{Do: DoCopy, To: s.in(given(b.rank), 0), From: []Span{s}}, true, s, summed)
		}
		b.tell(s.in(given(b.rank), 0), summed)
	}
	for k := range ahead {
		give(k)
	}
	for k, s := range blocks {
		b.hear(func(r int) Span { return s.in(given(r), 0) })
		operands := make([]Span, b.size)
		for r := range operands {
			operands[r] = s.in(given(r), 0)
		}
		operands[b.rank] = s
		b.combine(s.in(Dst, 0), operands...)
		b.add(Task{Do: DoFinish, To: s.in(Dst, 0)}, true)
		give(k + ahead)
	}
}

// ringAhead is how many blocks a rank gives beyond the last that it has summed.
const ringAhead = 2

// starRanks is up to how many ranks bells and votes go through rank 0: 2(P−1) messages instead of P(P−1), or P·log₂P. Ranks of one host
// have few cores, and a message of a few bytes costs them some 20 µs of work.
const starRanks = 8

func star(size int) bool { return 2 < size && size <= starRanks }

// tell rings the bell: what this rank wrote can be read. Every tell is followed by a hear, in the same order.
func (b *builder) tell(written ...Span) {
	for t := 1; t < b.size; t++ {
		if to := (b.rank + t) % b.size; !star(b.size) || b.rank != 0 && to == 0 {
			b.ring(DoRing, to, written...)
		}
	}
}

func (b *builder) ring(do Do, to int, read ...Span) {
	b.add(Task{Do: do, Peer: to, Chunk: b.sent[to]}, false, read...)
	b.sent[to]++
}

// hear waits until what all others tell, of(rank) each, can be read.
func (b *builder) hear(of func(rank int) Span) {
	if star(b.size) && b.rank != 0 {
		all := make([]Span, 0, b.size)
		for r := range b.size {
			if r != b.rank {
				all = append(all, of(r))
			}
		}
		b.bell(DoHearAll, 0, all...)
		return
	}
	all := []Span{of(b.rank)}
	for t := 1; t < b.size; t++ {
		from := (b.rank + t) % b.size
		b.bell(DoHear, from, of(from))
		all = append(all, of(from))
	}
	if star(b.size) {
		for to := 1; to < b.size; to++ {
			b.ring(DoRingAll, to, all...)
		}
	}
}

// bell waits for one, after which the spans can be read.
func (b *builder) bell(do Do, from int, spans ...Span) {
	b.add(Task{Do: do, Peer: from, Chunk: b.got[from]}, false)
	id := int32(len(b.plan.Tasks) - 1)
	for _, s := range spans {
		b.near(s, func(list []access, _, _ int) []access { return append(list, access{id, true, s.From, s.To}) })
	}
	b.got[from]++
}

// wholeBytes is how much each rank reads of others at most, where all sum everything.
const wholeBytes = 1 << 20

// whole says whether every rank sums all contributions. Where the buffers of this rank lie must not matter: the ranks would differ.
func whole(bytes, size int) bool { return size == 2 || bytes*(size-1) <= wholeBytes }
