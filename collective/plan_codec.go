package collective

import (
	"slices"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
)

// coded sums what a codec makes small: every rank encodes its part of each other's share, the owner of a share decodes and adds them in
// the order of the ranks, with its own values as they are, encodes the sum once and sends it to all. The owner takes over what it
// decodes itself, so that all have the same bits. A value is rounded at most twice.
//
// Each rank owns a share; or rank 0 owns all, for a third of the messages among three ranks, but then one rank adds everything.
//
// A unit is what is encoded at once: it fits a frame.
func (b *builder) coded(n, unit int, all bool) {
	ranks := b.size
	share := func(s Span, rank int) Span { return codedShare(s, rank, ranks, all) }
	slots := 0
	slot := func() Span { slots++; return Span{Coded, slots - 1, slots} }
	units := func(s Span, do func(Span)) { codedUnits(s, unit, do) }
	in, out := Span{Src, 0, n}, Span{Dst, 0, n}
	for t := 1; t < ranks; t++ {
		to := (b.rank + t) % ranks
		units(share(in, to), func(s Span) {
			c := slot()
			b.add(Task{Do: DoEncode, To: c, From: []Span{s}}, true, s)
			b.sendCoded(to, c)
		})
	}
	mine := share(out, b.rank)
	operands := make([][]Span, ranks) // by rank, by unit
	for t := 1; t < ranks; t++ {
		from := mod(b.rank-t, ranks)
		units(mine, func(Span) {
			c := slot()
			b.recvCoded(from, c)
			operands[from] = append(operands[from], c)
		})
	}
	units(mine, func(s Span) { operands[b.rank] = append(operands[b.rank], s.in(Src, 0)) })
	k := 0
	units(mine, func(s Span) {
		from := make([]Span, ranks)
		for r := range from {
			from[r] = operands[r][k]
		}
		k++
		b.add(Task{Do: DoSumCoded, To: s, From: from}, true, from...)
		b.finish(s)
		b.phase = PhaseGather
		c := slot()
		// It writes both the slot and the sum.
		b.add(Task{Do: DoEncodeSum, To: c, From: []Span{s}}, true)
		id := int32(len(b.plan.Tasks) - 1)
		b.after(id, s)
		for t := 1; t < ranks; t++ {
			b.sendCoded((b.rank+t)%ranks, c)
		}
		b.phase = PhaseReduce
	})
	b.phase = PhaseGather
	for t := 1; t < ranks; t++ {
		from := mod(b.rank-t, ranks)
		units(share(out, from), func(s Span) {
			c := slot()
			b.recvCoded(from, c)
			b.add(Task{Do: DoDecodeInto, Peer: from, To: s, From: []Span{c}}, true, c)
		})
	}
}

// codedShare is the part of s that rank owns, or, if all is true, rank 0 alone.
func codedShare(s Span, rank, ranks int, all bool) Span {
	switch {
	case !all:
		return s.share(rank, ranks)
	case rank == 0:
		return s
	}
	return Span{s.Buf, s.To, s.To}
}

func codedUnits(s Span, unit int, do func(Span)) {
	for at := s.From; at < s.To; at += unit {
		do(Span{s.Buf, at, min(s.To, at+unit)})
	}
}

// Fits says why codec c cannot be used in an allreduce of n values of this group, of which it encodes every rank's share by itself; nil: it
// can. As the plan does, it follows from the group's costs.
func (g *Group) Fits(c compress.Codec, n int) (err error) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	all := g.codedByOne(c, n)
	for rank := range g.c.size() {
		codedUnits(codedShare(Span{Src, 0, n}, rank, g.c.size(), all), unitOf(c, g.c.opt.MaxFrame), func(s Span) {
			if err == nil {
				err = compress.Fits(c, s.Len())
			}
		})
	}
	return err
}

// Owned is the range of n values whose sum this rank encodes for all in such an allreduce: of others it keeps nothing in Op.Owner.
func (g *Group) Owned(c compress.Codec, n int) (from, to int) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	s := codedShare(Span{Src, 0, n}, g.c.self, g.c.size(), g.codedByOne(c, n))
	return s.From, s.To
}

func (g *Group) codedByOne(c compress.Codec, n int) bool {
	return g.c.choose(&job{Op: Op{Codec: c}, dtype: tensor.F32, n: n}) == GatherCast
}

func (b *builder) sendCoded(to int, c Span) {
	b.add(Task{Do: DoSendCoded, Peer: to, Chunk: b.sent[to], To: c}, false, c)
	b.sent[to]++
}

func (b *builder) recvCoded(from int, c Span) {
	b.add(Task{Do: DoRecvCoded, Peer: from, Chunk: b.got[from], To: c}, true)
	b.got[from]++
}

// after lets the task id, the last one, also write s.
func (b *builder) after(id int32, s Span) {
	t := &b.plan.Tasks[id]
	b.near(s, func(list []access, _, _ int) []access {
		for _, a := range list {
			before := &b.plan.Tasks[a.task]
			if a.from < s.To && s.From < a.to && a.task != id && !slices.Contains(before.next, id) {
				before.next = append(before.next, id)
				t.after++
			}
		}
		return append(list, access{id, true, s.From, s.To})
	})
}

// unitOf is how many elements are encoded at once, so that they fit a frame of so many bytes: a power of two.
func unitOf(c compress.Codec, frame int) int {
	unit := 1 << 20
	for unit > 1 && (c.MaxLen(unit) > frame || compress.Fits(c, unit) != nil && compress.Fits(c, unit/2) == nil) {
		unit /= 2
	}
	return unit
}
