package collective

import (
	"math/bits"
	"slices"
)

// The plans of AllReduce and its relatives. Each is written for a list of ranks, of which this one is at index me, so that they nest;
// in is what a rank contributes, and out where the result goes. Where in is out, the contribution is overwritten.

// ringReduceScatter leaves in out's part me the sum of that part. Each part travels once round the ring and is added to at every
// stop (Patarasu and Yuan 2009).
func (b *builder) ringReduceScatter(ranks []int, me int, in, out Span) {
	p := len(ranks)
	to, from := ranks[(me+1)%p], ranks[(me+p-1)%p]
	landing := out
	if in.Buf == out.Buf && p > 1 {
		landing = b.scratch(out.Len()).in(Scratch, 0)
	}
	for t := range p - 1 {
		give, take := mod(me-t-1, p), mod(me-t-2, p)
		if t == 0 {
			b.send(to, in.share(give, p))
		} else {
			b.send(to, out.share(give, p))
		}
		b.recvCombine(from, out.share(take, p), in.share(take, p), landing.share(take, p), true)
	}
	if p == 1 {
		b.copy(out, in)
	}
}

// ringAllGather sends every part once round the ring.
func (b *builder) ringAllGather(ranks []int, me int, parts []Span) {
	p := len(ranks)
	to, from := ranks[(me+1)%p], ranks[(me+p-1)%p]
	for t := range p - 1 {
		b.send(to, parts[mod(me-t, p)])
		b.recv(from, parts[mod(me-t-1, p)])
	}
}

// directAllGather sends this rank's part to all at once.
func (b *builder) directAllGather(own Span, parts []Span) {
	for t := 1; t < b.size; t++ {
		b.send((b.rank+t)%b.size, own)
	}
	for t := 1; t < b.size; t++ {
		from := mod(b.rank-t, b.size)
		b.recv(from, parts[from])
	}
}

func mod(a, p int) int { return (a%p + p) % p }

func shares(s Span, p int) []Span {
	parts := make([]Span, p)
	for i := range parts {
		parts[i] = s.share(i, p)
	}
	return parts
}

// fold lets the ranks beyond the largest power of two give their vectors to partners. It returns that power, what this rank
// contributes from now on, and whether it still takes part; unfold gives the results back.
func (b *builder) fold(ranks []int, me int, in, out Span) (p int, mine Span, on bool) {
	p = 1 << (bits.Len(uint(len(ranks))) - 1)
	extra := len(ranks) - p
	switch {
	case me >= p:
		b.send(ranks[me-p], in)
		return p, in, false
	case me < extra:
		b.recvCombine(ranks[me+p], out, in, out, false)
		return p, out, true
	}
	return p, in, true
}

func (b *builder) unfold(ranks []int, me, p int, out Span) {
	switch {
	case me >= p:
		b.recv(ranks[me-p], out)
	case me+p < len(ranks):
		b.send(ranks[me+p], out)
	}
}

// halving exchanges halves, then quarters and so on with partners, so that each rank ends with the sum of one part, and collects the
// parts in reverse (Rabenseifner 2004). near begins with neighbours, which is the order of the exact tree.
func (b *builder) halving(ranks []int, me int, in, out Span, near bool) {
	p, own, on := b.fold(ranks, me, in, out)
	if on {
		rounds := bits.Len(uint(p)) - 1
		// What comes lands where the sum will be, or, where that has a value already, in the half that was given away first: nobody
		// sends from there before it is filled again. Where that half was sent from out itself, it may still be on its way.
		var spare Span
		fromOut := own.Buf == out.Buf
		parts := make([][2]Span, 0, rounds) // kept and given, in out
		now := out
		for i := range rounds {
			d := 1 << i
			if !near {
				d = p >> (i + 1)
			}
			lower, upper := now.share(0, 2), now.share(1, 2)
			keep, give := lower, upper
			if me&d != 0 {
				keep, give = upper, lower
			}
			at := keep.From - out.From
			mine := Span{own.Buf, own.From + at, own.From + at + keep.Len()}
			gift := Span{own.Buf, own.From + give.From - out.From, own.From + give.To - out.From}
			land := keep
			if own.Buf == out.Buf {
				if spare.Len() < keep.Len() {
					spare = b.scratch(keep.Len())
				}
				land = Span{spare.Buf, spare.From, spare.From + keep.Len()}
			}
			b.send(ranks[me^d], gift)
			// The exact tree adds the earlier shards to the later ones.
			b.recvCombine(ranks[me^d], keep, mine, land, me&d == 0 == near)
			if i == 0 && !fromOut {
				spare = give
			}
			own, now = out, keep
			parts = append(parts, [2]Span{keep, give})
		}
		if rounds == 0 {
			b.copy(out, own)
		}
		b.finish(now)
		b.phase = PhaseGather
		for i := rounds - 1; i >= 0; i-- {
			d := 1 << i
			if !near {
				d = p >> (i + 1)
			}
			b.send(ranks[me^d], parts[i][0])
			b.recv(ranks[me^d], parts[i][1])
		}
	}
	b.phase = PhaseGather
	b.unfold(ranks, me, p, out)
}

// doubling exchanges whole vectors with ever farther partners. Both partners compute the same sum, so operands have one order: the
// lower rank's first, or, for the exact tree, last. Each round has memory of its own, since a frame may still be on its way out when
// the partner's has come; what comes lands where the sum will be.
func (b *builder) doubling(ranks []int, me int, in, out Span, exact bool) {
	n := in.Len()
	p := 1 << (bits.Len(uint(len(ranks))) - 1)
	extra := len(ranks) - p
	rounds := bits.Len(uint(p)) - 1
	own := in
	switch {
	case me >= p:
		b.send(ranks[me-p], in)
	case me < extra:
		sum := out
		if rounds > 0 {
			sum = b.scratch(n)
		}
		b.recvCombine(ranks[me+p], sum, own, sum, false)
		own = sum
	}
	if me < p {
		for i := range rounds {
			d := 1 << i
			sum := out
			if i < rounds-1 {
				sum = b.scratch(n)
			}
			b.send(ranks[me^d], own)
			b.recvCombine(ranks[me^d], sum, own, sum, me&d != 0 != exact)
			own = sum
		}
		b.copy(out, own)
		b.finish(out)
	}
	b.phase = PhaseGather
	b.unfold(ranks, me, p, out)
}

// treeReduce adds along a binomial tree with its root at index 0; every rank's sum so far is in out.
func (b *builder) treeReduce(ranks []int, me int, in, out Span) {
	p := len(ranks)
	landing := map[int]Span{}
	for d := 1; d < p && me&d == 0; d <<= 1 {
		if me+d < p && (d > 1 || in.Buf == out.Buf) {
			landing[d] = b.scratch(out.Len())
		}
	}
	b.segments(out, func(s Span) {
		at := s.From - out.From
		piece := func(x Span) Span { return Span{x.Buf, x.From + at, x.From + at + s.Len()} }
		own := piece(in)
		for d := 1; d < p; d <<= 1 {
			if me&d != 0 {
				b.sendOne(ranks[me-d], own)
				return
			}
			if me+d < p {
				land := s
				if l, ok := landing[d]; ok {
					land = piece(l)
				}
				b.recvOne(ranks[me+d], land)
				b.combine(s, own, land)
				own = s
			}
		}
		if own != s {
			b.copy(s, own)
		}
	})
}

// treeCast sends out down the same tree.
func (b *builder) treeCast(ranks []int, me int, out Span) {
	p := len(ranks)
	low := me & -me // the distance to the parent, and above all children's
	if me == 0 {
		low = 1 << bits.Len(uint(p-1))
	}
	b.segments(out, func(s Span) {
		if me != 0 {
			b.recvOne(ranks[me-low], s)
		}
		for d := low >> 1; d > 0; d >>= 1 {
			if me+d < p {
				b.sendOne(ranks[me+d], s)
			}
		}
	})
}

// pairwise sends every rank its part of all others, which are added in the order of the ranks, and collects the sums round a ring.
func (b *builder) pairwiseReduceScatter(ranks []int, me int, in, out Span) {
	p := len(ranks)
	mine := out.share(me, p)
	operands := make([]Span, p)
	for t := 1; t < p; t++ {
		b.send(ranks[(me+t)%p], in.share((me+t)%p, p))
	}
	for t := 1; t < p; t++ {
		from := mod(me-t, p)
		operands[from] = b.scratch(mine.Len())
		b.recv(ranks[from], operands[from])
	}
	operands[me] = in.share(me, p)
	if p == 1 {
		b.copy(mine, operands[0])
		return
	}
	b.segments(mine, func(s Span) {
		from := make([]Span, p)
		for i, o := range operands {
			from[i] = Span{o.Buf, o.From + s.From - mine.From, o.From + s.To - mine.From}
		}
		b.combine(s, from...)
	})
}

// gatherCast is the oracle.
func (b *builder) gatherCast(n int, in, out Span) {
	if b.rank != 0 {
		b.send(0, in)
		b.phase = PhaseGather
		b.recv(0, out)
		return
	}
	from := []Span{in}
	for r := 1; r < b.size; r++ {
		s := b.scratch(n)
		b.recv(r, s)
		from = append(from, s)
	}
	if b.size == 1 {
		b.copy(out, in)
	} else {
		b.combine(out, from...)
	}
	b.finish(out)
	b.phase = PhaseGather
	for r := 1; r < b.size; r++ {
		b.send(r, out)
	}
}

// hierarchy sums within each host, between hosts, and hands the sums back. Hosts of equal size let every rank carry its part between
// hosts; else one rank of each does. What is carried is s of out, and between puts the sum over the ranks across in its place, among which this
// one is that of its host.
func (b *builder) hierarchy(hosts [][]int, in, out Span, between func(across []int, host int, s Span)) {
	host, me, equal := place(hosts, b.rank)
	ranks := hosts[host]
	across := make([]int, len(hosts))
	if equal {
		b.ringReduceScatter(ranks, me, in, out)
		for h := range hosts {
			across[h] = hosts[h][me]
		}
		between(across, host, out.share(me, len(ranks)))
		b.phase = PhaseGather
		b.ringAllGather(ranks, me, shares(out, len(ranks)))
		return
	}
	b.treeReduce(ranks, me, in, out)
	if me == 0 {
		for h := range hosts {
			across[h] = hosts[h][0]
		}
		between(across, host, out)
	}
	b.phase = PhaseGather
	b.treeCast(ranks, me, out)
}

// place is the host that a rank is on, its index among that host's ranks, and whether all hosts have as many.
func place(hosts [][]int, rank int) (host, me int, equal bool) {
	equal = true
	for h, ranks := range hosts {
		if i := slices.Index(ranks, rank); i >= 0 {
			host, me = h, i
		}
		equal = equal && len(ranks) == len(hosts[0])
	}
	return host, me, equal
}
