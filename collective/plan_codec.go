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
// A unit is what is encoded at once: it fits a frame. What is plain travels with the first, of which the first rank owns the sum.
func (b *builder) coded(ranks []int, me int, in, out Span, unit, plain int, all bool) {
	p := len(ranks)
	share := func(s Span, i int) Span { return codedShare(s, i, p, plain, all) }
	slot := func(rank int) Span {
		b.plan.slots = append(b.plan.slots, rank)
		return Span{Coded, len(b.plan.slots) - 1, len(b.plan.slots)}
	}
	units := func(s Span, do func(Span)) { codedUnits(s, unit, plain, do) }
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

// head is how many values of s are among the first so many of the operation, which no codec encodes.
func (s Span) head(plain int) int { return min(max(plain-s.From, 0), s.Len()) }

// codedShare is the part of s that the i-th of p ranks owns, or, if all is true, the first alone.
func codedShare(s Span, i, p, plain int, all bool) Span {
	part := Span{s.Buf, s.From + s.head(plain), s.To}
	switch {
	case !all:
		part = part.share(i, p)
	case i > 0:
		part.From = s.To
	}
	if i == 0 {
		part.From = s.From
	}
	return part
}

func codedUnits(s Span, unit, plain int, do func(Span)) {
	for s.Len() > 0 {
		end := min(s.To, s.From+s.head(plain)+unit)
		do(Span{s.Buf, s.From, end})
		s.From = end
	}
}

// codedOf is what a rank encodes in an allreduce of n elements as op has it, save what it owns, and the part that it owns: its sums it encodes
// for all. As the plan does, both follow from the group's costs and hosts.
func (c *core) codedOf(op Op, n, rank int) (encodes, owns Span) {
	whole := Span{Src, 0, n}
	switch c.choose(&job{Op: op, dtype: tensor.F32, n: n}) {
	case Hierarchy:
		host, me, equal := place(c.hosts, rank)
		switch {
		case equal:
			whole = whole.share(me, len(c.hosts[host]))
		case me > 0:
			return Span{}, Span{}
		}
		return whole, codedShare(whole, host, len(c.hosts), op.Plain, false)
	case GatherCast:
		return whole, codedShare(whole, rank, c.size(), op.Plain, true)
	}
	return whole, codedShare(whole, rank, c.size(), op.Plain, false)
}

// Fits says why op's codec cannot be used in an allreduce of n elements of this group, of which it encodes every rank's share by itself; nil: it
// can.
func (g *Group) Fits(op Op, n int) (err error) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	for rank := range g.c.size() {
		_, owns := g.c.codedOf(op, n, rank)
		codedUnits(owns, op.unit(g.c.opt.MaxFrame), op.Plain, func(s Span) {
			if n := s.Len() - s.head(op.Plain); err == nil && n > 0 {
				err = compress.Fits(op.Codec, n)
			}
		})
	}
	return err
}

// Encoded is the range of the values of which op's codec, in an allreduce of n elements of this group, encodes what this rank contributes, or
// what its host does: Op.Residual, which begins after what is plain, keeps nothing of others.
func (g *Group) Encoded(op Op, n int) (from, to int) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	s, _ := g.c.codedOf(op, n, g.c.self)
	return max(0, s.From-op.Plain), max(0, s.To-op.Plain)
}

// Owned is the range of the values whose sum this rank encodes for all in such an allreduce: of others it keeps nothing in Op.Owner.
func (g *Group) Owned(op Op, n int) (from, to int) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	_, s := g.c.codedOf(op, n, g.c.self)
	return max(0, s.From-op.Plain), max(0, s.To-op.Plain)
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

// unit is how many elements are encoded at once, so that they fit a frame of so many bytes with what is plain: a power of two.
func (op *Op) unit(frame int) int {
	c, unit := op.Codec, 1<<20
	frame -= op.plainBytes()
	for unit > 1 && (c.MaxLen(unit) > frame || compress.Fits(c, unit) != nil && compress.Fits(c, unit/2) == nil) {
		unit /= 2
	}
	return unit
}
