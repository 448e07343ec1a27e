package collective

import (
	"fmt"
	"slices"
)

// A settled step is what a core keeps of operations that have been settled.
type settled struct {
	below uint32      // tags from here on are new
	sum   uint32      // of what the vote compares
	ops   []settledOp // by tag
	f     *fault      // of one of them, which has failed at another rank
}

// A settledOp is complete here. Another rank may not have settled it, and may even have begun another one in its place.
type settledOp struct{ tag, print uint32 }

// has says whether one with this tag was settled, and with this print; 0: any.
func (s *settled) has(tag, print uint32) bool {
	i, found := slices.BinarySearchFunc(s.ops, tag, func(d settledOp, t uint32) int { return int(d.tag) - int(t) })
	return found && (print == 0 || s.ops[i].print == print)
}

// settle forgets the operations of the step, which are complete and no longer read.
func (c *core) settle() error {
	if c.failed != nil {
		return c.failed
	}
	if f := c.settled.f; f != nil {
		return f.toError(c.names)
	}
	for _, o := range c.ops {
		if o.err != nil {
			return o.err
		}
		if !o.finish {
			return fmt.Errorf("collective: settle: %s (tag %d) was started meanwhile", o.title(), o.tag)
		}
	}
	for _, o := range c.ops {
		c.settled.below = max(c.settled.below, o.tag+1)
		c.settled.sum += o.seal()
		c.settled.ops = append(c.settled.ops, settledOp{o.tag, o.print})
		c.recycle(o)
		c.forget(o)
		if len(c.spare) < 64 {
			c.spare = append(c.spare, o.left)
		}
		o.left, o.mem, o.remote, o.plan = nil, [numBufs][]byte{}, nil, nil // a Handle may live on
	}
	clear(c.ops)
	c.ops = c.ops[:0]
	if c.arena != nil {
		c.arena.settle()
	}
	for _, u := range slices.Clone(c.unmet) { // begun nowhere from now on, as where it commits; a conclusion may end the step
		if c.isSettled(u.op.Step(), u.op.Index()) {
			c.skip(u, "settles")
		}
	}
	c.disownEarly()
	return nil
}

// isSettled says whether the operation is one of those.
func (c *core) isSettled(step uint64, tag uint32) bool {
	return step == c.step && tag < c.settled.below
}

// unsettle ends what builds on operations of which one has failed elsewhere.
func (c *core) unsettle(f *fault) {
	if c.settled.f == nil {
		c.settled.f = f
	}
	err := c.settled.f.toError(c.names)
	for _, o := range slices.Clone(c.ops) { // the last that ends may end the step
		c.abort(o, err)
	}
}

// seal is what an operation adds to the sum that the vote compares.
func (o *operation) seal() uint32 {
	if o.job == nil || o.Kind == Send || o.Kind == Receive { // these concern two ranks
		return 0
	}
	x := uint64(o.print)<<20 | uint64(o.tag) // mixed as MurmurHash3 does: a rank may have begun the same operations at each other's tags
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return uint32(x ^ x>>33)
}
