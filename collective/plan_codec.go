package collective

import (
	"slices"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
)

// coded sums what a codec makes small: every rank encodes its part of each other's share, the owner of a share decodes and adds them in
// the order of the ranks, with its own values as they are, encodes the sum once and sends it to all. The owner takes over what it
// decodes itself, so that all have the same bits. A value is rounded at most twice. Where in is out, the owner's values come first.
//
// Each rank owns a share; or the first owns all, for a third of the messages among three ranks, but then one rank adds everything.
//
// A unit is what is encoded at once: it fits a frame.
func (b *builder) coded(ranks []int, me int, in, out Span, unit int, all bool) {
	p := len(ranks)
	share := func(s Span, i int) Span { return codedShare(s, i, p, all) }
	slot := func(rank int) Span {
		b.plan.slots = append(b.plan.slots, rank)
		return Span{Coded, len(b.plan.slots) - 1, len(b.plan.slots)}
	}
	units := func(s Span, do func(Span)) { codedUnits(s, unit, do) }
	for t := 1; t < p; t++ {
		to := (me + t) % p
		units(share(in, to), func(s Span) {
			c := slot(b.rank)
			b.add(Task{Do: DoEncode, To: c, From: []Span{s}}, true, s)
			b.sendCoded(ranks[to], c)
		})
	}
	mine := share(out, me)
	operands := make([][]Span, p) // by rank, by unit
	for t := 1; t < p; t++ {
		from := mod(me-t, p)
		units(mine, func(Span) {
			c := slot(ranks[from])
			b.recvCoded(ranks[from], c)
			operands[from] = append(operands[from], c)
		})
	}
	units(mine, func(s Span) { operands[me] = append(operands[me], s.in(in.Buf, in.From-out.From)) })
	if in.Buf == out.Buf { // the others' are added where these are
		operands[0], operands[me] = operands[me], operands[0]
	}
	k := 0
	units(mine, func(s Span) {
		from := make([]Span, p)
		for r := range from {
			from[r] = operands[r][k]
		}
		k++
		b.add(Task{Do: DoSumCoded, To: s, From: from}, true, from...)
		b.finish(s)
		b.phase = PhaseGather
		c := slot(b.rank)
		// It writes both the slot and the sum.
		b.add(Task{Do: DoEncodeSum, To: c, From: []Span{s}}, true)
		id := int32(len(b.plan.Tasks) - 1)
		b.after(id, s)
		for t := 1; t < p; t++ {
			b.sendCoded(ranks[(me+t)%p], c)
		}
		b.phase = PhaseReduce
	})
	b.phase = PhaseGather
	for t := 1; t < p; t++ {
		from := mod(me-t, p)
		units(share(out, from), func(s Span) {
			c := slot(ranks[from])
			b.recvCoded(ranks[from], c)
			b.add(Task{Do: DoDecodeInto, Peer: ranks[from], To: s, From: []Span{c}}, true, c)
		})
	}
}

// codedShare is the part of s that the i-th of p ranks owns, or, if all is true, the first alone.
func codedShare(s Span, i, p int, all bool) Span {
	switch {
	case !all:
		return s.share(i, p)
	case i == 0:
		return s
	}
	return Span{s.Buf, s.To, s.To}
}

func codedUnits(s Span, unit int, do func(Span)) {
	for at := s.From; at < s.To; at += unit {
		do(Span{s.Buf, at, min(s.To, at+unit)})
	}
}

// codedOf is what a rank encodes in an allreduce of n values by codec c, save what it owns, and the part that it owns: its sums it encodes for all.
// As the plan does, both follow from the group's costs and hosts.
func (c *core) codedOf(codec compress.Codec, n, rank int) (encodes, owns Span) {
	whole := Span{Src, 0, n}
	switch c.choose(&job{Op: Op{Codec: codec}, dtype: tensor.F32, n: n}) {
	case Hierarchy:
		host, me, equal := place(c.hosts, rank)
		switch {
		case equal:
			whole = whole.share(me, len(c.hosts[host]))
		case me > 0:
			return Span{}, Span{}
		}
		return whole, whole.share(host, len(c.hosts))
	case GatherCast:
		return whole, codedShare(whole, rank, c.size(), true)
	}
	return whole, whole.share(rank, c.size())
}

// Fits says why codec c cannot be used in an allreduce of n values of this group, of which it encodes every rank's share by itself; nil: it
// can.
func (g *Group) Fits(c compress.Codec, n int) (err error) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	for rank := range g.c.size() {
		_, owns := g.c.codedOf(c, n, rank)
		codedUnits(owns, unitOf(c, g.c.opt.MaxFrame), func(s Span) {
			if err == nil {
				err = compress.Fits(c, s.Len())
			}
		})
	}
	return err
}

// Encoded is the range of n values of which codec c, in an allreduce of this group, encodes what this rank contributes, or what its host does:
// Op.Residual keeps nothing of others.
func (g *Group) Encoded(c compress.Codec, n int) (from, to int) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	s, _ := g.c.codedOf(c, n, g.c.self)
	return s.From, s.To
}

// Owned is the range of n values whose sum this rank encodes for all in such an allreduce: of others it keeps nothing in Op.Owner.
func (g *Group) Owned(c compress.Codec, n int) (from, to int) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	_, s := g.c.codedOf(c, n, g.c.self)
	return s.From, s.To
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
