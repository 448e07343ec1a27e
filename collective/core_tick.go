package collective

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/transport"
)

// tick does what is due, and says when it is next.
func (c *core) tick() {
	c.due = never
	for _, in := range slices.Clone(c.incidents) { // a conclusion may end the step
		if !in.over {
			if at := c.until(in); c.now >= at {
				c.conclude(in, true)
			} else {
				c.wake(at)
			}
		}
	}
	for _, o := range slices.Clone(c.ops) { // the last that ends may end the step
		if !o.finish {
			c.tickOp(o)
		}
	}
	c.tickSends()
	if t := c.vote; t != nil && t.begun && !t.over {
		if at := t.since + c.opt.Deadline; c.now < at {
			c.wake(at)
		} else {
			from := c.voter(t)
			c.triggerWhole(fault{cause: Deadline, rank: from, op: "commit", evidence: fmt.Sprintf("no vote from it for %v", c.now-t.since)})
		}
	}
}

func (c *core) tickOp(o *operation) {
	if o.err != nil { // landing: give up
		if c.now >= o.started+c.opt.Deadline {
			c.end(o, o.err)
		} else {
			c.wake(c.now + c.opt.tellAfter())
		}
		return
	}
	if at := o.started + c.opt.tellAfter(); !o.told {
		if c.now < at {
			c.wake(at)
		} else if o.told = true; (o.Kind == Send || o.Kind == Receive) && !o.open() {
			c.out = append(c.out, c.tell(o, o.Root))
		} else {
			for r := range c.names {
				if r != c.self && !c.away(r) {
					c.out = append(c.out, c.tell(o, r))
				}
			}
			if o.open() {
				c.starve(o.tag)
			}
		}
	}
	if at := o.looked + c.opt.Straggler; c.opt.OnStraggler != nil {
		if c.now < at {
			c.wake(at)
		} else {
			o.looked = c.now
			c.wake(c.now + c.opt.Straggler)
			if w := c.waiting(o); !o.slow || w.Rank != o.slowest { // that one has come, and another one is missing
				o.slow, o.slowest = true, w.Rank
				c.opt.OnStraggler(w)
			}
		}
	}
	if at := o.started + c.opt.Deadline; c.now < at {
		c.wake(at)
	} else {
		w := c.waiting(o)
		c.trigger(o.tag, fault{cause: Deadline, rank: w.Rank, op: o.title(), evidence: fmt.Sprintf("nothing from it for %v", c.opt.Deadline)})
	}
}

func (c *core) tell(o *operation, to int) outFrame {
	kind, print := kindStarted, o.print
	if o.open() {
		kind, print = kindSought, o.printFrom(to, c.self)
	}
	c.went[to]++
	return outFrame{to: to, f: transport.Frame{Kind: kind, Priority: transport.Control, Fingerprint: print, Key: c.key(o.tag, noData)}}
}

// waiting names the rank that o waits for: one that has not started it, if there is one.
func (c *core) waiting(o *operation) Wait {
	w := Wait{Step: c.step, Tag: o.tag, Op: o.title(), For: c.now - o.started}
	rank, phase := o.waits()
	if o.open() {
		rank, _ = c.sender(o.tag)
		phase = PhaseMove
	}
	w.Rank, w.Phase = max(rank, 0), phase.String()
	if o.told && c.now >= o.started+2*c.opt.tellAfter() && o.Kind != Send && o.Kind != Receive {
		for r, heard := range o.heard {
			if !heard && r != c.self {
				w.Rank, w.NotStarted = r, true
				break
			}
		}
	}
	return w
}

// startedAt compares an operation that takes long with ours, which may have ended: where there is nothing to send, it has met nobody. A rank that
// commits, or has settled later tags, does not begin it any more, and voids it, also where it has heard of it before: the vote of the other, which is
// still to come, says so to all.
func (c *core) startedAt(from int, ev *transport.Event) {
	step, tag := ev.Op.Step(), ev.Op.Index()
	sought := ev.Kind == kindSought
	o := c.find(step, tag)
	switch {
	case o != nil || step < c.step || c.far(step) || c.isSettled(step, tag) && c.settled.has(tag, ev.Fingerprint):
	case sought && c.closed(step, tag) && !c.settled.has(tag, 0): // others may send
		c.control(from, kindNone, ev.Op, nil)
	case c.closed(step, tag):
		c.disown(from, tag)
	case len(c.unmet) < mostUnknown:
		c.unmet = append(c.unmet, unmet{ev.Op, from, ev.Fingerprint, sought})
	}
	if o == nil || o.err != nil || o.job == nil || o.left == nil && !o.open() {
		return
	}
	if o.left != nil {
		o.heard[from] = true
	}
	if ev.Fingerprint != o.print {
		c.disagree(o, from, 0)
	}
}

// stuck fails the group because of a rank that takes nothing of what was sent to it, for as long as an operation may last: all are complete here,
// and none has a deadline any more.
func (c *core) stuck(r int) {
	if !c.left(r) {
		c.triggerWhole(fault{cause: Deadline, rank: r, evidence: fmt.Sprintf("it has not taken what was sent to it for %v", c.opt.Deadline)})
	}
}

// skip says that this rank does without what another one has begun.
func (c *core) skip(u unmet, does string) {
	if u.sought { // others may send
		c.control(u.from, kindNone, u.op, nil)
		return
	}
	c.trigger(u.op.Index(), fault{cause: Deadline, rank: c.self, evidence: fmt.Sprintf("it %s without what rank %d has begun", does, u.from)})
}
