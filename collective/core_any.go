package collective

import (
	"slices"

	"github.com/trivium-ml/trivium/wire"
)

// AnyRank as the Root of a Receive takes the message of whichever rank sends at its tag; [Handle.From] says which it was. A rank may
// begin several such receives at one tag, and no others there. Each takes one message, whole: the first that comes goes to the first
// that was begun. A rank sends at a tag once in a step, so a message waits for one of each other rank at most. What goes on at the tag
// is one operation of all of them: the messages have one type and length, no other rank receives there, and what voids one receive
// voids them all. Where more of them wait than ranks may still send, since the others have committed, or settled, or left, they fail.
// A message that is not received, here as from a named rank, fails the step: see [Send].
const AnyRank = -1

// open says that o is a receive from any rank for which no frame has come. From then on it is one from the rank that sent it.
func (o *operation) open() bool { return o.any && o.Root == AnyRank && o.err == nil && !o.finish }

// from is the rank whose message a receive has taken, if it has.
func (o *operation) from() int {
	if o.job == nil || o.Kind != Receive {
		return AnyRank
	}
	return o.Root
}

// at are the operations at a tag: several where they receive from any.
func (c *core) at(tag uint32) []*operation {
	from, found := c.index(tag)
	if !found {
		return nil
	}
	to := from + 1
	for to < len(c.ops) && c.ops[to].tag == tag {
		to++
	}
	return c.ops[from:to]
}

// taker is the operation that a frame of a rank is for: of receives from any the one that has taken its message, or else the first
// that is open.
func (c *core) taker(step uint64, tag uint32, from int) *operation {
	o := c.find(step, tag)
	if o == nil || !o.any {
		return o
	}
	var first *operation
	for _, x := range c.at(tag) {
		if x.Root == from {
			return x
		}
		if first == nil && x.open() {
			first = x
		}
	}
	return first
}

// seek begins a receive from any, with the message that has come first and was not taken.
func (c *core) seek(o *operation) {
	for i := range c.early {
		if ev := &c.early[i]; ev.Op == wire.MakeOp(c.step, o.tag) {
			c.match(o, c.rankOf(ev.From))
			c.catchUp(o)
			return
		}
	}
}

// match makes o, which is open, a receive from a rank.
func (c *core) match(o *operation, from int) {
	op := o.Op
	op.Root = from
	// The plan may be too long: its sender was refused it too.
	err := c.check(o, op, o.dst, o.src)
	o.desc.from, o.desc.to = c.self, c.self // as before
	if err != nil {
		c.trigger(o.tag, fault{cause: Refused, rank: c.self, op: o.title(), evidence: err.Error()})
		return
	}
	c.prepare(o)
	c.run(o)
}

// printFrom is the fingerprint of what a rank sends to an open receive.
func (o *operation) printFrom(from, self int) uint32 {
	j := o.own
	j.Root = from
	j.describe(self, j.desc.plan)
	return j.print
}

// none says that a rank sends nothing at a tag: it begins no more operations there.
func (c *core) none(from int, op wire.Op) {
	if o := c.find(op.Step(), op.Index()); o == nil || !o.any || c.sendsNone(from, op) {
		return
	}
	c.mute = append(c.mute, unmet{op: op, from: from})
	c.starve(op.Index())
}

func (c *core) sendsNone(from int, op wire.Op) bool {
	return slices.Contains(c.mute, unmet{op: op, from: from})
}

// starve voids the receives from any at a tag where one of them waits in vain.
func (c *core) starve(tag uint32) {
	if rank, vain := c.sender(tag); vain {
		c.trigger(tag, fault{cause: Deadline, rank: rank, op: c.find(c.step, tag).title(), evidence: "no rank is left that may send to it"})
	}
}

// sender is the rank that the receives from any at a tag wait for: the lowest that may still send there. They wait in vain where there
// are fewer such ranks than receives: then it is the lowest that does not send, or this one, which wants more than all send.
func (c *core) sender(tag uint32) (rank int, vain bool) {
	sent := make([]bool, c.size())
	wait := 0
	for _, o := range c.at(tag) {
		switch {
		case o.open():
			wait++
		case o.Root >= 0:
			sent[o.Root] = true
		}
	}
	rank, last := -1, c.self
	for r := range slices.Backward(c.names) {
		switch {
		case r == c.self || sent[r]:
		case c.left(r) || c.sendsNone(r, wire.MakeOp(c.step, tag)):
			last = r
		default:
			rank = r
			wait--
		}
	}
	if vain = wait > 0; vain || rank < 0 {
		rank = last
	}
	return rank, vain
}
