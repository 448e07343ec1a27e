package collective

import (
	"errors"
	"math"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// received takes an event that came from rank from. If it reports true it keeps the event, and releases it later.
func (c *core) received(from int, ev *transport.Event) (keep bool) {
	if ev.Kind != kindBye { // which says how many others there are
		c.came[from]++
	}
	switch ev.Kind {
	case kindData:
		keep = c.data(from, ev)
	case kindVote:
		c.voted(from, ev)
	case kindReport:
		c.reported(from, ev)
	case kindStarted, kindSought:
		c.startedAt(from, ev)
	case kindNone:
		c.none(from, ev.Op)
	case kindTaken:
		c.taken(from, ev.Op)
	case kindOutcome:
		c.informed(from, ev)
	case kindBye:
		r := wire.NewReader("collective goodbye", ev.Head)
		if n := r.Uvarint("frames", math.MaxInt64); r.Done() == nil {
			c.bye[from] = int(n)
		}
	}
	if c.left(from) {
		c.miss(from)
	}
	return keep
}

func (c *core) data(from int, ev *transport.Event) bool {
	step, tag := ev.Op.Step(), ev.Op.Index()
	o := c.taker(step, tag, from)
	switch {
	case c.failed != nil || step < c.step || c.far(step) || c.voided(step, tag) != nil || c.isSettled(step, tag) && c.settled.has(tag, ev.Fingerprint):
		c.landed(o, from, ev)
		return false
	case o == nil && c.closed(step, tag):
		c.disown(from, tag)
		return false
	}
	if o == nil {
		if c.copied+weight(ev) > earlyBytes {
			c.early = append(c.early, *ev) // the sender waits for its credit
			return true
		}
		c.copied += weight(ev)
		c.early = append(c.early, c.copyOf(ev))
		return false
	}
	if o.open() {
		c.match(o, from)
	}
	if o.err != nil || o.job == nil || o.left == nil {
		c.landed(o, from, ev)
		return false
	}
	o.heard[from] = true
	i := o.task(from, ev)
	if i >= 0 && o.left[i] == taskPosted { // whatever it is, it has taken the post away; or it came before that
		if !ev.Posted {
			c.take(from, ev.Key)
		}
		o.left[i] = taskArmed
	}
	if i < 0 || ev.Fingerprint != o.printBy(from) {
		c.disagree(o, from, len(ev.Payload))
		return false
	}
	switch o.left[i] {
	case taskDone:
		return false // the sender repeats itself
	case taskArmed:
		if !c.land(o, i, &o.plan.Tasks[i], ev) {
			c.disagree(o, from, len(ev.Payload))
			return false
		}
		c.run(o)
		return false
	}
	if o.holds(i) {
		return false
	}
	o.held = append(o.held, heldFrame{i, c.copyOf(ev)})
	return false
}

// catchUp takes what came for o before it was begun; of a receive from any, what the rank sent that it has taken the message of.
func (c *core) catchUp(o *operation) {
	var came []transport.Event // out of early first: one that does not fit ends the operation, and looks there for what is its
	keep := c.early[:0]
	for _, ev := range c.early {
		if ev.Op == wire.MakeOp(c.step, o.tag) && (!o.any || c.rankOf(ev.From) == o.Root) {
			came = append(came, ev)
		} else {
			keep = append(keep, ev)
		}
	}
	clear(c.early[len(keep):])
	c.early = keep
	c.count()
	for i := range came {
		if !c.data(c.rankOf(came[i].From), &came[i]) {
			c.release(came[i])
		}
	}
}

// task is the task that receives a frame; -1: none.
func (o *operation) task(from int, ev *transport.Event) int32 {
	list := o.plan.frames[from]
	if chunk := int(ev.Chunk & 0xffff); chunk < len(list) {
		return list[chunk]
	}
	return -1
}

// end ends o, and what its end releases.
func (c *core) end(o *operation, err error) *operation {
	if o.finish {
		return o
	}
	o.finish, o.err = true, err
	if err == nil {
		c.completeTransfer(o)
	}
	if err == nil && o.plan != nil && !o.plan.sent {
		c.recycle(o)
	}
	if o.done != nil {
		close(o.done)
		*c.ended++
	}
	if err == nil && c.opt.Record != nil && o.plan != nil {
		c.opt.Record(c.measured(o))
	}
	c.retryVote()
	return o
}

// abort gives o up: nothing lands in its memory any more.
func (c *core) abort(o *operation, err error) {
	if o.finish {
		if o.err == nil {
			o.err = err // its Wait has returned; Commit will say so
		}
		if c.failed != nil {
			c.restore(o) // else where the vote says that the step does not count: it may be out already, and that of all
		}
		return
	}
	c.restore(o)
	if o.err != nil {
		return // landing
	}
	o.err = err
	for _, h := range o.held {
		c.release(h.ev)
	}
	o.held = nil
	if o.left != nil && c.take != nil {
		for i := range o.plan.Tasks {
			t := &o.plan.Tasks[i]
			switch {
			case o.left[i] != taskPosted:
			case c.take(t.Peer, c.key(o.tag, t.Chunk)) || c.gone[t.Peer]:
				o.left[i] = taskArmed
			default:
				o.landing++
			}
		}
	}
	if o.landing == 0 {
		c.end(o, err)
		return
	}
	c.wake(c.now + c.opt.tellAfter())
}

// landed says that a frame of an operation that was given up, if it was, has come to rest.
func (c *core) landed(o *operation, from int, ev *transport.Event) {
	if o == nil || o.landing == 0 {
		return
	}
	if i := o.task(from, ev); i >= 0 && o.left[i] == taskPosted {
		o.left[i] = taskArmed
		if o.landing--; o.landing == 0 {
			c.end(o, o.err)
		}
	}
}

// landsNoMore says that the link to a rank is lost: of an operation that was given up only what is landing from others is waited for.
func (c *core) landsNoMore(o *operation, from int) {
	for i := range o.plan.Tasks {
		if o.left[i] == taskPosted && o.plan.Tasks[i].Peer == from {
			o.left[i] = taskArmed
			o.landing--
		}
	}
	if o.landing == 0 {
		c.end(o, o.err)
	}
}

// holds says whether the frame of task i came before its turn.
func (o *operation) holds(i int32) bool {
	return slices.ContainsFunc(o.held, func(h heldFrame) bool { return h.task == i })
}

// earlyBytes are copied at most, of frames of operations that have not been started here, and of sub-groups that have not been made. What
// is beyond keeps its sender's credit.
const earlyBytes = 256 << 20

// copyOf is ev with memory of its own. A frame that comes before its turn must not keep the sender's credit: what has its turn may be
// waiting behind it.
func (c *core) copyOf(ev *transport.Event) transport.Event {
	k := transport.Event{From: ev.From, Err: errCopied, Kind: ev.Kind, Priority: ev.Priority, Fingerprint: ev.Fingerprint, Key: ev.Key}
	k.Head = slices.Clone(ev.Head) // data has none
	if n := len(ev.Payload); n > 0 {
		k.Payload = c.memory(n)[:n]
		copy(k.Payload, ev.Payload)
	}
	return k
}

// errCopied marks events whose payload is memory of the core. It is no error: the field is empty in frames.
var errCopied = errors.New("collective: copied")

// count sums up what early holds.
func (c *core) count() {
	c.copied = 0
	for i := range c.early {
		c.copied += weight(&c.early[i])
	}
}

// weight is the memory that a copy of ev takes.
func weight(ev *transport.Event) int { return int(unsafe.Sizeof(*ev)) + len(ev.Head) + len(ev.Payload) }
