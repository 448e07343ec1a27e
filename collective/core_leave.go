package collective

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// lost says that the link to a rank broke.
func (c *core) lost(from int, err error) {
	if c.gone[from] {
		return
	}
	c.gone[from] = true
	for _, o := range slices.Clone(c.ops) { // the last that ends may end the step
		if o.err != nil && !o.finish {
			c.landsNoMore(o, from)
		}
	}
	if c.left(from) {
		return
	}
	c.triggerWhole(fault{cause: Lost, rank: from, evidence: fmt.Sprintf("the link to it broke: %v", err)})
	for _, in := range slices.Clone(c.incidents) { // a conclusion may end the step
		c.conclude(in, false)
	}
}

// hasLeft is the evidence against a rank that has closed its group.
const hasLeft = "it has left the group"

// left says that a rank has closed its group, and all that it sent has come.
func (c *core) left(r int) bool { return c.bye[r] >= 0 && c.came[r] >= c.bye[r] }

// away says that nothing comes from a rank any more.
func (c *core) away(r int) bool { return c.gone[r] || c.left(r) }

// leave says goodbye to the others: nothing is sent afterwards.
func (c *core) leave() {
	c.told = slices.Clone(c.went)
	for r, n := range c.told {
		if r != c.self {
			c.sayBye(r, n)
		}
	}
}

func (c *core) sayBye(to, frames int) {
	c.control(to, kindBye, 0, wire.AppendUvarint(nil, uint64(frames)))
}

// absent notes that a member of a sub-group has left the whole group; it had not made this one unless it said goodbye.
func (c *core) absent(n transport.Name) {
	if r := c.rankOf(n); r >= 0 && c.bye[r] < 0 {
		c.bye[r] = 0
		c.miss(r)
	}
}

// miss fails the group where it needs a rank that has left, and has nobody wait for what that one would say.
func (c *core) miss(r int) {
	if c.needs(r) {
		c.triggerWhole(fault{cause: Lost, rank: r, evidence: hasLeft})
	}
	for _, in := range slices.Clone(c.incidents) { // a conclusion may end the step
		c.conclude(in, false)
	}
}

// needs says whether something of this step is missing from a rank that has left.
func (c *core) needs(from int) bool {
	for _, o := range c.ops {
		if !o.finish && o.err == nil && o.left != nil && o.needs(from) {
			return true
		}
		if o.open() {
			if _, vain := c.sender(o.tag); vain { // it was the last that might send
				return true
			}
		}
	}
	if slices.ContainsFunc(c.untaken, func(o *operation) bool { return o.Root == from }) {
		return true
	}
	if t := c.vote; t != nil && t.begun {
		for r := range max(rounds(c.size()), 2) {
			if bit, ok := c.mayVote(from, r); ok && t.have&bit == 0 {
				return true
			}
		}
	}
	return false
}

// needs says whether o still waits for a frame from a rank that has left, or has one for it: then that rank has not completed it.
func (o *operation) needs(r int) bool {
	for i := range o.plan.Tasks {
		if o.left[i] == taskDone || o.left[i] == taskSending || o.plan.Tasks[i].Peer != r {
			continue
		}
		switch o.plan.Tasks[i].Do {
		case DoRecv, DoRecvCoded, DoHear, DoHearAll:
			if !o.holds(int32(i)) {
				return true
			}
		case DoSend, DoSendCoded, DoRing, DoRingAll:
			return true
		}
	}
	return false
}
