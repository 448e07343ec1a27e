package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// An incident is a failure on which the ranks are agreeing: each tells all others what it knows, and when all have spoken, or the time
// is up, each draws the same conclusion from the same reports.
//
// Where a rank is lost the others soon want to know, and one that is slow to answer must not hold them up, nor make them conclude from
// different reports. There the lowest rank that is left, the judge, concludes, after lostWait at the latest, and tells the others, who
// take its verdict as it is.
//
// A second fault may come before all have heard of the first, and the judge itself may be lost when it has told some of its verdict. So whoever
// takes a verdict passes it on, and whoever hears of a loss says so anew, and takes no verdict from the lost rank any more: a judge that has
// heard so of all who are left knows whether one of them has a verdict, which then is its own. What was concluded of single operations before
// goes the same way, ahead of every report and verdict; nobody concludes more of them once it has spoken of a failure of the group.
//
// Where a rank is lost as it votes, some may have all votes, and others wait for one that does not come. Who has committed says so with what it
// knows, and so does the judge: the others take the step as committed before they fail. While a rank that has not spoken may have committed, all
// wait for it as long as voidWait: a step should not count at one rank and be blamed at another because of a busy processor.
type incident struct {
	whole   bool
	step    uint64
	tag     uint32
	reports []*report     // by rank, the latest
	own     fault         // of which this rank has spoken
	lost    []bool        // who is taken for lost, here or by one that has spoken
	begun   time.Duration // or when the last of them was
	over    bool
}

// How long an incident waits for a rank that says nothing. Whoever lives answers within a round trip, and whose link is lost is not
// waited for: so the time passes only where a rank is stopped, or its processor has no time for it.
const (
	lostWait  = 5 * time.Millisecond  // the judge's
	judgeWait = 50 * time.Millisecond // that of the others for the judge
	// voidWait is where all conclude. Who does so without a rank that is only slow may conclude something else than it does: so this is
	// longer than a busy machine keeps a process waiting. 50 ms were not.
	voidWait = time.Second
)

// trigger voids one operation of this step.
func (c *core) trigger(tag uint32, f fault) {
	f.step, f.tag, f.witness = c.step, tag, c.self
	c.open(false, c.step, tag, f)
}

// triggerWhole fails the group.
func (c *core) triggerWhole(f fault) {
	f.witness = c.self
	c.open(true, 0, 0, f)
}

// disagree voids o: a frame from a rank does not fit it.
func (c *core) disagree(o *operation, from, length int) {
	c.trigger(o.tag, fault{
		cause: Disagree, rank: from, op: o.title(), field: "splits", rankA: min(c.self, from), rankB: max(c.self, from),
		evidence: fmt.Sprintf("a frame of %d bytes from rank %d is not what was expected", length, from),
	})
}

func (c *core) open(whole bool, step uint64, tag uint32, f fault) {
	if c.failed != nil {
		return
	}
	in := c.incident(whole, step, tag)
	if in.over {
		return
	}
	more := f.cause == Lost && c.lose(in, f.rank)
	switch {
	case in.reports[c.self] == nil:
		in.own = f
		c.speak(in)
	case more:
		c.speak(in)
	}
	c.conclude(in, false)
}

// lose takes a rank for lost, and reports whether that is new. The others have time again to say so.
func (c *core) lose(in *incident, r int) bool {
	if in.lost[r] {
		return false
	}
	in.lost[r], in.begun = true, c.now
	return true
}

// mostUnknown is the number of failures at most of operations that are not under way here. What a member tells of them is kept until the
// step is over: the size of its frames, so 256 MiB.
const mostUnknown = 4096

// incidentOf is that of the group, or of an operation; nil: there is none.
func (c *core) incidentOf(whole bool, step uint64, tag uint32) *incident {
	for _, in := range c.incidents {
		if in.whole == whole && (whole || in.step == step && in.tag == tag) {
			return in
		}
	}
	return nil
}

func (c *core) incident(whole bool, step uint64, tag uint32) *incident {
	if in := c.incidentOf(whole, step, tag); in != nil {
		return in
	}
	in := &incident{whole: whole, step: step, tag: tag, reports: make([]*report, c.size()), lost: make([]bool, c.size()), begun: c.now}
	c.incidents = append(c.incidents, in)
	c.wake(in.begun + lostWait)
	return in
}

// speak makes this rank's report and sends it to all.
func (c *core) speak(in *incident) {
	m := &report{whole: in.whole, step: in.step, tag: in.tag, waits: -1, fault: in.own}
	for r, lost := range in.lost {
		if lost {
			m.lost = append(m.lost, r)
		}
	}
	o := c.find(in.step, in.tag)
	if o == nil && in.step == c.step {
		o = c.sentAt(in.tag) // and settled
	}
	if in.whole {
		o = nil
		for _, x := range c.ops {
			if !x.finish {
				o = x
				break
			}
		}
		m.step, m.counts = c.step, c.counts
		if t := c.vote; t != nil && t.begun {
			m.status, m.waits = complete, c.voter(t)
		}
	}
	if o != nil && o.job != nil {
		m.tag = o.tag
		if o.print != 0 {
			m.desc = &o.desc
		}
		m.status = running
		if o.finish && o.err == nil {
			m.status = complete
		}
		var phase Phase
		if m.waits, phase = o.waits(); m.waits >= 0 {
			m.fault.phase = phase.String()
		}
		m.fault.op = o.title()
	} else if !in.whole && c.isSettled(in.step, in.tag) && c.settled.has(in.tag, 0) {
		m.status = complete
	}
	m.fault.step, m.fault.tag = m.step, m.tag
	m.cut(textRoom(c.opt.MaxFrame))
	in.reports[c.self] = m
	if in.whole {
		c.tellConcluded()
	}
	c.controlAll(kindReport, wire.MakeOp(m.step, m.tag), m.append(nil))
	c.wake(c.until(in))
}

// tellConcluded tells all what has been concluded here that somebody may not know.
func (c *core) tellConcluded() {
	if f := c.denied; f != nil {
		c.controlAll(kindOutcome, wire.MakeOp(c.step, 0), (&outcome{ofStep, *f}).append(nil))
	}
	for _, v := range c.void {
		c.controlAll(kindOutcome, wire.MakeOp(v.step, v.tag), (&outcome{ofOperation, *v.f}).append(nil))
	}
}

func (c *core) reported(from int, ev *transport.Event) {
	m, err := readReport(ev.Head, c.size())
	if err != nil || c.failed != nil || !m.whole && (m.step < c.step || c.far(m.step)) {
		return
	}
	if !m.whole && len(c.incidents) >= len(c.ops)+mostUnknown && c.incidentOf(false, m.step, m.tag) == nil {
		if m.fault.cause != 0 { // others only answer it
			c.triggerWhole(fault{cause: Refused, rank: from, evidence: fmt.Sprintf("it tells of the failure of more than %d operations that are not under way", mostUnknown)})
		}
		return
	}
	if m.counts {
		c.adopt(m.step)
	}
	in := c.incident(m.whole, m.step, m.tag)
	if in.over {
		return
	}
	in.reports[from] = m
	more := false
	for _, r := range m.lost {
		more = c.lose(in, r) || more
	}
	switch {
	case in.reports[c.self] == nil:
		in.own = fault{witness: c.self}
		c.speak(in)
	case more:
		c.speak(in)
	}
	if c.conclude(in, false); !in.over {
		c.wake(c.until(in)) // sooner, where this one has not voted
	}
}

// silent says that rank r is not waited for.
func (c *core) silent(in *incident, r int) bool {
	return c.away(r) || in.lost[r]
}

// heard says that rank r is not waited for any more: it has spoken, and knows of all losses. Of one that has left nobody need hear more: what it
// had concluded has come.
func (c *core) heard(in *incident, r int) bool {
	m := in.reports[r]
	if m == nil {
		return c.silent(in, r)
	}
	for q, lost := range in.lost {
		if lost && !c.left(q) && !slices.Contains(m.lost, q) {
			return c.silent(in, r)
		}
	}
	return true
}

// judge is the rank whose verdict all take; -1: each draws its own.
func (c *core) judge(in *incident) int {
	if !in.whole || !slices.Contains(in.lost, true) {
		return -1
	}
	for r := range c.names {
		if !c.silent(in, r) {
			return r
		}
	}
	return c.self // all say of one another that they are lost
}

// until is how long this rank waits for others in an incident.
func (c *core) until(in *incident) time.Duration {
	switch judge := c.judge(in); {
	case judge < 0, judge == c.self && c.mayCount(in):
		return in.begun + voidWait
	case judge == c.self:
		return in.begun + lostWait
	case c.mayCount(in):
		return in.begun + voidWait + judgeWait
	}
	return in.begun + judgeWait
}

// spoken says whether this rank has told the others, in a failure of the group on which they have not agreed yet, how far it is. It stays there,
// unless it hears of one that has committed: what is concluded from its words must hold for it too.
func (c *core) spoken() bool {
	in := c.incidentOf(true, 0, 0)
	return in != nil && !in.over && in.reports[c.self] != nil
}

// mayCount says whether a rank that has not spoken may have committed the step: that takes the votes of all, and all that have spoken have voted.
func (c *core) mayCount(in *incident) bool {
	if c.vote == nil || !c.vote.begun || star(c.size()) && c.self == 0 { // who collects the votes is the first to commit
		return false
	}
	for _, m := range in.reports {
		if m != nil && (m.step != c.step || m.status != complete) {
			return false
		}
	}
	return true
}

// conclude draws the verdict once all have spoken who can and it is this rank's to draw, or at once.
func (c *core) conclude(in *incident, force bool) {
	if in.over || c.failed != nil || !in.whole && c.spoken() {
		return
	}
	if !force {
		if judge := c.judge(in); judge >= 0 && judge != c.self {
			return
		}
		for r := range in.reports {
			if !c.heard(in, r) {
				return
			}
		}
	}
	c.convict(in, in.verdict())
}

// informed takes what another rank has concluded.
func (c *core) informed(from int, ev *transport.Event) {
	o, err := readOutcome(ev.Head, c.size())
	if err != nil || c.failed != nil {
		return
	}
	step, tag := ev.Op.Step(), ev.Op.Index()
	in := c.incidentOf(true, 0, 0)
	if in != nil && in.lost[from] { // we have told the others that we take nothing from it
		return
	}
	switch o.of {
	case ofStep:
		if t := c.vote; t != nil && t.begun && step == t.step+1 {
			t.fault = o.fault
			c.decided()
		}
		return
	case ofOperation:
		if in = c.incidentOf(false, step, tag); step < c.step || c.far(step) || in == nil && len(c.incidents) >= len(c.ops)+mostUnknown {
			return
		}
		in = c.incident(false, step, tag)
	case ofGroup:
		c.adopt(step)
		in = c.incident(true, 0, 0)
	}
	if in.over {
		return
	}
	if o.fault.rank == c.self {
		o.fault.err = in.own.err
	}
	c.convict(in, &o.fault)
}

// convict acts on the verdict.
func (c *core) convict(in *incident, f *fault) {
	in.over = true
	if in.whole {
		var after wire.Op // the step that counts; 0: this rank knows of none
		if c.counts {
			after = wire.MakeOp(c.step, 0)
		}
		c.tellConcluded()
		c.controlAll(kindOutcome, after, (&outcome{ofGroup, *f}).append(nil))
		c.fail(f.toError(c.names))
		return
	}
	c.void = append(c.void, voided{in.step, in.tag, f})
	if c.isSettled(in.step, in.tag) {
		c.unsettle(f)
	}
	if in.step == c.step {
		for _, o := range slices.Clone(c.at(in.tag)) { // the last that ends may end the step
			c.abort(o, f.toError(c.names))
		}
	}
	keep := c.early[:0]
	for _, ev := range c.early {
		if ev.Op == wire.MakeOp(in.step, in.tag) {
			c.release(ev)
		} else {
			keep = append(keep, ev)
		}
	}
	clear(c.early[len(keep):])
	c.early = keep
	c.count()
	c.retryVote()
}

// fail ends the group: nothing works any more in this view.
func (c *core) fail(err error) {
	c.failed = err
	for _, o := range c.ops {
		c.abort(o, err)
	}
	for _, ev := range c.early {
		c.release(ev)
	}
	c.early = nil
	c.count()
	if t := c.vote; t != nil && !t.over {
		c.endVote(t, err)
	}
}

// cancel voids o because this rank's context ended.
func (c *core) cancel(o *operation, err error) {
	if o.finish || o.err != nil {
		return
	}
	c.trigger(o.tag, fault{cause: Canceled, rank: c.self, op: o.title(), evidence: err.Error(), err: err})
}

// cancelCommit voids what is under way. Where our vote is out nothing is, and it stays: a failure of the group would race with that of an
// operation which is complete here, and void at others because of us.
func (c *core) cancelCommit(t *tally, err error) {
	if t.over || t.begun {
		return
	}
	for _, o := range slices.Clone(c.ops) {
		c.cancel(o, err)
	}
	for _, o := range slices.Clone(c.untaken) {
		if t.over {
			return
		}
		c.trigger(o.tag, fault{cause: Canceled, rank: c.self, op: o.title(), evidence: err.Error(), err: err})
	}
}

// abandonCommit fails the group. Where our vote is out the others may have committed, or not: they say so, in voidWait at most. Else t ends now:
// they are told, and not waited for.
func (c *core) abandonCommit(t *tally, err error) {
	if t.over {
		return
	}
	c.triggerWhole(fault{cause: Canceled, rank: c.self, op: "commit", evidence: err.Error(), err: err})
	if t.begun {
		return
	}
	for _, in := range c.incidents {
		if in.whole {
			c.conclude(in, true)
		}
	}
	if !t.over { // it was not the group's vote
		c.endVote(t, err)
	}
}

func dropOld(list []*incident, step uint64) []*incident {
	keep := list[:0]
	for _, in := range list {
		if in.whole || in.step >= step {
			keep = append(keep, in)
		}
	}
	clear(list[len(keep):])
	return keep
}
