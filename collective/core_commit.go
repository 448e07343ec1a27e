package collective

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A tally is the votes of one step, in which each rank hears, directly or through others, that all have completed every operation; or the
// first fault of all. A few ranks tell rank 0, which tells them all; many do a dissemination barrier.
type tally struct {
	step  uint64
	have  uint32        // rounds whose vote has come; at rank 0 of a few, ranks
	fault fault         // the first, in the order of faults, of those that came
	begun bool          // our vote is out
	since time.Duration // it is, or Commit was called
	seen  opsSeen
	round int // the next to be heard
	sent  int // rounds sent
	done  chan struct{}
	over  bool
	err   error
}

func (c *core) tally(step uint64) *tally {
	for _, t := range c.votes {
		if t.step == step {
			return t
		}
	}
	t := &tally{step: step, seen: opsSeen{math.MaxUint32, 0, c.size(), c.size()}}
	c.votes = append(c.votes, t)
	return t
}

// opsSeen are the smallest and the largest sum over a rank's operations of a step, and the lowest ranks that have them: ranks may have
// completed operations that never met, such as a broadcast from a root and a gather to it.
type opsSeen struct {
	lo, hi         uint32
	loRank, hiRank int
}

func (s *opsSeen) merge(o opsSeen) {
	if o.lo < s.lo || o.lo == s.lo && o.loRank < s.loRank {
		s.lo, s.loRank = o.lo, o.loRank
	}
	if o.hi > s.hi || o.hi == s.hi && o.hiRank < s.hiRank {
		s.hi, s.hiRank = o.hi, o.hiRank
	}
}

func (t *tally) note(f fault) {
	if f.cause != 0 && (t.fault.cause == 0 || f.before(&t.fault)) {
		t.fault = f
	}
}

// commit votes once all operations have ended.
func (c *core) commit(step uint64, done chan struct{}) *tally {
	switch {
	case c.failed != nil:
		return &tally{over: true, err: c.failed}
	case step != c.step:
		return &tally{over: true, err: fmt.Errorf("collective: commit of step %d: the group is at step %d", step, c.step)}
	case c.vote != nil:
		return &tally{over: true, err: fmt.Errorf("collective: step %d is being committed already", step)}
	}
	t := c.tally(step)
	t.done, t.since, c.vote = done, c.now, t
	for _, u := range c.unmet { // begun nowhere from now on: the deadline would say the same, only later
		if u.op.Step() == step {
			c.skip(u, "commits")
		}
	}
	c.disownEarly()
	c.wake(c.now + c.opt.Deadline)
	if !t.over {
		c.tryVote()
	}
	return t
}

func (c *core) tryVote() {
	t := c.vote
	if t.over || t.begun {
		return
	}
	for _, o := range c.ops {
		if !o.finish {
			return
		}
	}
	for r := range c.names {
		if !c.away(r) {
			continue
		}
		c.triggerWhole(fault{cause: Lost, rank: r, evidence: hasLeft}) // without our vote it cannot have committed this step
	}
	if t.over || c.spoken() {
		return // nor will anybody: the group ends with what we have told the others
	}
	if len(c.untaken) > 0 && !c.doomed() {
		return
	}
	t.begun, t.since = true, c.now
	for _, v := range c.void {
		if v.step == c.step {
			t.note(*v.f)
		}
	}
	sum := c.settled.sum
	for _, o := range c.ops {
		sum += o.seal()
	}
	t.seen.merge(opsSeen{sum, sum, c.self, c.self})
	c.wake(c.now + c.opt.Deadline)
	c.advance()
}

// advance sends the next rounds as far as votes have come.
func (c *core) advance() {
	t := c.vote
	if c.spoken() {
		return // we have told the others that we wait for votes, and they conclude from that
	}
	if star(c.size()) {
		c.advanceStar(t)
		return
	}
	n := rounds(c.size())
	for !t.over {
		if t.sent == t.round && t.sent < n {
			c.sendVote((c.self+1<<t.round)%c.size(), t, t.round)
			t.sent++
		}
		if t.round == n {
			c.decided()
			return
		}
		if t.have&(1<<t.round) == 0 {
			return
		}
		t.round++
	}
}

// advanceStar is advance where rank 0 collects the votes: in round 0 it hears, in round 1 it is heard.
func (c *core) advanceStar(t *tally) {
	switch {
	case c.self != 0:
		if t.sent == 0 {
			t.sent = 1
			c.sendVote(0, t, 0)
		}
		if t.have != 0 && !t.over {
			c.decided()
		}
	case t.have == 1<<c.size()-2: // all but itself
		for r := 1; r < c.size(); r++ {
			c.sendVote(r, t, 1)
		}
		c.decided()
	}
}

// voter is the rank whose vote this one waits for; it has those of all that are in t.have.
func (c *core) voter(t *tally) int {
	switch {
	case !star(c.size()):
		return mod(c.self-1<<t.round, c.size())
	case c.self != 0:
		return 0
	}
	for r := 1; r < c.size(); r++ {
		if t.have&(1<<r) == 0 {
			return r
		}
	}
	return 0
}

// mayVote says whether a vote of that round can come from rank from, and which bit of tally.have it is.
func (c *core) mayVote(from, round int) (bit uint32, ok bool) {
	switch {
	case !star(c.size()):
		return 1 << round, round < rounds(c.size()) && from == mod(c.self-1<<round, c.size())
	case c.self == 0:
		return 1 << from, from != 0 && round == 0
	}
	return 1, from == 0 && round == 1
}

// sendVote sends it behind the data, whose connection the other end is reading as a rule: a control frame would wake another reader.
func (c *core) sendVote(to int, t *tally, round int) {
	v := vote{round: round, fault: t.fault, seen: t.seen}
	c.say(to, kindVote, transport.Urgent, wire.MakeOp(t.step, 0), v.append(nil))
}

func (c *core) voted(from int, ev *transport.Event) {
	v, err := readVote(ev.Head, c.size())
	if err != nil {
		return
	}
	step := ev.Op.Step()
	bit, ok := c.mayVote(from, v.round)
	if !ok || step < c.step || c.far(step) {
		return // of a step that is over, or from nobody who may send it
	}
	t := c.tally(step)
	t.have |= bit
	t.note(v.fault)
	t.seen.merge(v.seen)
	if t == c.vote && t.begun {
		c.advance()
	}
}

// decided ends the step.
func (c *core) decided() {
	t := c.vote
	f := t.fault
	if f.cause == 0 && t.seen.lo != t.seen.hi {
		a, b := t.seen.loRank, t.seen.hiRank
		x, y := t.seen.lo, t.seen.hi
		if a > b {
			a, b, x, y = b, a, y, x
		}
		f = fault{cause: Disagree, step: t.step, field: stepOps, rankA: a, rankB: b, a: fmt.Sprintf("%#08x", x), b: fmt.Sprintf("%#08x", y)}
	}
	var err error
	c.denied = nil
	if f.cause != 0 {
		// The error of our own context, if it was ours that ended.
		for _, v := range c.void {
			if v.step == t.step && v.tag == f.tag && v.f.err != nil {
				f = *v.f
			}
		}
		if in := c.incidentOf(false, t.step, f.tag); in != nil && f.err == nil && f.cause == Canceled && f.rank == c.self { // others have concluded before us
			f.err = in.own.err
		}
		c.denied, err = &f, f.toError(c.names)
	}
	c.memories = append(c.memories, c.cooling[:min(len(c.cooling), max(0, 16-len(c.memories)))]...)
	clear(c.cooling)
	c.cooling = c.cooling[:0]
	for _, o := range c.ops {
		if err != nil {
			c.restore(o)
		}
		c.forget(o)
		if m := o.mem[Scratch]; m != nil && o.landing == 0 && len(c.cooling) < 16 {
			c.cooling = append(c.cooling, m)
		}
		if o.err == nil && len(c.spare) < 64 {
			c.spare = append(c.spare, o.left)
		}
		o.left, o.mem, o.remote, o.plan = nil, [numBufs][]byte{}, nil, nil // a Handle may live on
	}
	clear(c.ops)
	c.ops = c.ops[:0]
	c.settled = settled{ops: c.settled.ops[:0]}
	c.step++
	c.counts = err == nil
	if c.arena != nil {
		c.arena.clear() // nobody reads it any more: every rank has voted
	}
	keep := c.void[:0]
	for _, v := range c.void {
		if v.step >= c.step {
			keep = append(keep, v)
		}
	}
	c.void = keep
	c.unmet = slices.DeleteFunc(c.unmet, func(u unmet) bool { return u.op.Step() < c.step })
	c.mute, c.untaken = c.mute[:0], nil
	live := c.early[:0]
	for _, ev := range c.early {
		if ev.Op.Step() >= c.step {
			live = append(live, ev)
		} else {
			c.release(ev)
		}
	}
	clear(c.early[len(live):])
	c.early = live
	c.count()
	c.incidents = dropOld(c.incidents, c.step)
	c.vote = nil
	c.endVote(t, err)
}

// adopt ends the step, of which a rank whose step is now the next has committed: it had the votes of all, and so has ours.
func (c *core) adopt(step uint64) {
	if t := c.vote; t != nil && t.begun && step == t.step+1 {
		c.decided()
	}
}

func (c *core) endVote(t *tally, err error) {
	t.over, t.err = true, err
	if t.done != nil {
		close(t.done)
		*c.ended++
	}
	for i, v := range c.votes {
		if v == t {
			c.votes = append(c.votes[:i], c.votes[i+1:]...)
			break
		}
	}
}

func (c *core) control(to int, kind uint8, op wire.Op, head []byte) {
	c.say(to, kind, transport.Control, op, head)
}

// say sends a frame without data, unless nothing comes from its receiver any more.
func (c *core) say(to int, kind uint8, p transport.Priority, op wire.Op, head []byte) {
	if c.away(to) {
		return
	}
	c.went[to]++
	c.out = append(c.out, outFrame{to: to, f: transport.Frame{
		Kind: kind, Priority: p, Key: transport.Key{Epoch: c.epoch, Op: op, Chunk: uint32(c.id)<<16 | noData}, Head: head,
	}})
}

func (c *core) controlAll(kind uint8, op wire.Op, head []byte) {
	for r := range c.names {
		if r != c.self {
			c.control(r, kind, op, head)
		}
	}
}
