package collective

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A Send is complete when its message is on its way. But the message counts only where it is received: so the receiver says that it has taken
// it, and until then the sender does not vote. A rank that commits, or settles, begins no more receives of before: a message that comes to it,
// or has come, without one has met nobody, and it voids the operation at that tag. As the sender has not voted, nobody has committed.
// What is void is waited for no more.

// completeTransfer notes that a message is on its way, or says to its sender that it has come.
func (c *core) completeTransfer(o *operation) {
	switch o.Kind {
	case Send:
		c.untaken = append(c.untaken, o)
	case Receive:
		c.say(o.Root, kindTaken, transport.Urgent, wire.MakeOp(c.step, o.tag), nil)
	}
}

// taken says that a rank has received what was sent to it at a tag.
func (c *core) taken(from int, op wire.Op) {
	if op.Step() == c.step {
		c.untaken = slices.DeleteFunc(c.untaken, func(o *operation) bool { return o.tag == op.Index() && o.Root == from })
		c.retryVote()
	}
}

// doomed says that the step does not count, whatever is still to be received.
func (c *core) doomed() bool {
	return c.settled.f != nil || slices.ContainsFunc(c.void, func(v voided) bool { return v.step == c.step })
}

// retryVote votes where there may be nothing left to wait for.
func (c *core) retryVote() {
	if c.vote != nil && !c.vote.begun && c.failed == nil {
		c.tryVote()
	}
}

// sentAt is the Send at a tag whose message was not taken yet; nil: there is none.
func (c *core) sentAt(tag uint32) *operation {
	for _, o := range c.untaken {
		if o.tag == tag {
			return o
		}
	}
	return nil
}

// closed says that this rank begins no more operations at a tag of this step.
func (c *core) closed(step uint64, tag uint32) bool {
	return step == c.step && (c.vote != nil || c.isSettled(step, tag))
}

// disown voids what another rank has begun at a tag without this one.
func (c *core) disown(from int, tag uint32) {
	c.trigger(tag, fault{cause: Disagree, rank: from, field: stepOps, rankA: min(c.self, from), rankB: max(c.self, from)})
}

// disownEarly disowns what came before its operation, and finds none any more.
func (c *core) disownEarly() {
	type frame struct {
		from int
		tag  uint32
	}
	var list []frame // first: a conclusion releases frames
	for i := range c.early {
		if ev := &c.early[i]; c.closed(ev.Op.Step(), ev.Op.Index()) {
			list = append(list, frame{c.rankOf(ev.From), ev.Op.Index()})
		}
	}
	step := c.step
	for _, f := range list {
		if c.step == step {
			c.disown(f.from, f.tag)
		}
	}
}

// tickSends blames who takes no message for as long as this rank has waited to vote.
func (c *core) tickSends() {
	t := c.vote
	if t == nil || t.begun || t.over || len(c.untaken) == 0 {
		return
	}
	if at := t.since + c.opt.Deadline; c.now < at {
		c.wake(at)
		return
	}
	for _, o := range slices.Clone(c.untaken) {
		if t.over {
			return
		}
		c.trigger(o.tag, fault{cause: Deadline, rank: o.Root, op: o.title(), evidence: fmt.Sprintf("it has not received the message for %v", c.opt.Deadline)})
	}
}
