package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// pair opens a group of two ranks in this process.
func pair(t *testing.T) [2]*Group { return [2]*Group(several(t, 2)) }

// several opens a group of so many.
func several(t *testing.T, size int) []*Group {
	t.Helper()
	m := transport.NewMemory()
	ports := make([]transport.Port, size)
	v := View{Epoch: 1}
	for r := range ports {
		p, err := m.Open(t.Context(), transport.Name{Role: "worker", ID: fmt.Sprint(r)}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ports[r] = p
		v.Peers = append(v.Peers, p.Name())
	}
	groups := make([]*Group, size)
	for r, p := range ports {
		s, err := p.Stream("collective", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range ports {
			if other != p {
				if err := s.Know(other.Name(), other.Addr()); err != nil {
					t.Fatal(err)
				}
			}
		}
		v.Self = r
		if groups[r], err = New(s, v, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for r := range ports {
			_ = groups[r].Close()
			_ = ports[r].Close()
		}
	})
	return groups
}

// A Commit whose context has ended returns, also where a frame of an operation that is void has begun to land and never ends: then the
// vote cannot begin. The other rank gets the same blame.
func TestCommitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := pair(t)
		g := groups[0]
		h := g.Start(Op{}, 0, Of(make([]float32, 10)), Of(make([]float32, 10)))
		g.h.do(func() { h.o.err, h.o.landing = errors.New("void"), 1 }) // as abort leaves it
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var wg sync.WaitGroup
		var other error
		wg.Go(func() { other = groups[1].Commit(t.Context(), 0) })
		begin := time.Now()
		err := g.Commit(ctx, 0)
		took := time.Since(begin)
		wg.Wait()
		var b *Blame
		if !errors.As(err, &b) || b.Rank != 0 || b.Cause != Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("rank 0: %v", err)
		}
		if !errors.As(other, &b) || b.Rank != 0 || b.Cause != Canceled {
			t.Errorf("rank 1: %v", other)
		}
		if took > 2*voidWait+10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A second Commit of a step is refused, and the first one ends as ever.
func TestCommitTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := pair(t)
		var wg sync.WaitGroup
		var errs [2]error
		wg.Go(func() { errs[0] = groups[0].Commit(t.Context(), 0) })
		synctest.Wait()
		if err := groups[0].Commit(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "step 0 is being committed already") {
			t.Errorf("the second Commit: %v", err)
		}
		wg.Go(func() { errs[1] = groups[1].Commit(t.Context(), 0) })
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Error(err)
		}
	})
}

// Where a frame lands for ever in a group that has failed, its operation ends at its deadline, with the group's error.
func TestLandsAfterTheGroupFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pair(t)[0]
		g.h.do(func() { g.c.take = func(int, transport.Key) bool { return false } }) // all have begun to land
		begin := time.Now()
		h := g.Start(Op{Plan: Ring}, 0, Of(make([]float32, 20_000)), Of(make([]float32, 20_000)))
		failure := errors.New("the group has failed")
		g.h.do(func() { g.c.fail(failure) })
		if h.o.landing == 0 {
			t.Fatal("nothing lands")
		}
		if err := h.Wait(t.Context()); !errors.Is(err, failure) {
			t.Error(err)
		}
		if took := time.Since(begin); took > 31*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestLandsFromTheOthers: where a rank is lost, an operation that was given up waits for what is landing from those that are not.
func TestLandsFromTheOthers(t *testing.T) {
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}}, &o)
	c.post = func(int, transport.Key, []byte) bool { return true }
	c.take = func(int, transport.Key) bool { return false } // all have begun to land
	const cells = 4 << 10
	counts := []int{cells, cells, cells}
	op := c.start(Op{Kind: Gather, Counts: counts}, 0, Of(make([]float32, 3*cells)), Of(make([]float32, cells)), nil)
	c.convict(c.incident(false, 0, 0), &fault{cause: Canceled})
	if op.landing != 2 {
		t.Fatalf("%d land, want 2", op.landing)
	}
	if c.lost(2, errors.New("reset")); op.finish || op.landing != 1 {
		t.Errorf("the link to rank 2 is lost: %d land, and the operation has ended: %v", op.landing, op.finish)
	}
	ev := &transport.Event{Kind: kindData, Fingerprint: op.printBy(1), Key: c.key(0, 0), Payload: make([]byte, 4*cells), Posted: true}
	if c.received(1, ev); !op.finish || op.landing != 0 {
		t.Errorf("rank 1's has landed: %d land, and the operation has ended: %v", op.landing, op.finish)
	}
}

// TestFailedBeforeSub: a rank that makes a sub-group in which something has failed meanwhile waits for what the others know, as long as others do.
func TestFailedBeforeSub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := several(t, 3)[2]
		time.Sleep(2 * voidWait) // the whole group is older than an incident may be
		ranks := []int{0, 1, 2}
		m := report{waits: -1, fault: fault{cause: Canceled, rank: 1, witness: 1}}
		ev := transport.Event{
			From: g.c.names[1], Kind: kindReport, Priority: transport.Control, Head: m.append(nil),
			Key: transport.Key{Epoch: 1, Op: wire.MakeOp(0, 0), Chunk: uint32(subID(0, ranks, 0))<<16 | noData},
		}
		g.h.do(func() { g.h.dispatch(&ev) })
		sub, err := g.Sub(ranks)
		if err != nil {
			t.Fatal(err)
		}
		over := func() (over bool) {
			g.h.do(func() { over = len(sub.c.incidents) == 1 && sub.c.incidents[0].over })
			return over
		}
		if time.Sleep(voidWait / 2); over() {
			t.Error("it has concluded without rank 0, which has time to speak")
		}
		if time.Sleep(voidWait); !over() {
			t.Error("it waits for rank 0 for ever")
		}
	})
}

// voted is the core of rank 0 of three, which waits for the last of these operations to end: the others have voted.
func voted(t *testing.T, start ...Op) (*core, *tally) {
	t.Helper()
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}}, &o)
	for tag, op := range start {
		c.start(op, uint32(tag), Of(make([]float32, 10)), Of(make([]float32, 10)), nil)
	}
	c.tally(0).have = 1<<1 | 1<<2
	return c, c.commit(0, nil)
}

// Where the end of one of several failures, or operations, ends the step, the others are left alone. After a loss nothing ends it but the verdict:
// this rank has said that it has not voted.
func TestStepEndsAmongOthers(t *testing.T) {
	c, vote := voted(t, Op{})
	c.trigger(0, fault{cause: Canceled})
	c.speak(c.incident(false, 0, 7)) // another rank has said something of one that is not begun here
	c.now = voidWait
	if c.tick(); !vote.over || vote.err == nil || c.step != 1 {
		t.Errorf("in time: %+v", vote)
	}
	c, vote = voted(t, Op{})
	c.trigger(0, fault{cause: Canceled})
	c.incidents[0].reports[1] = &report{waits: -1}
	if c.lost(2, errors.New("reset")); vote.begun || vote.over {
		t.Errorf("by the loss: %+v", vote)
	}
	c.now = lostWait
	if c.tick(); !vote.over || vote.err == nil || vote.err != c.failed || c.step != 0 {
		t.Errorf("by the verdict: %+v, failed with %v", vote, c.failed)
	}
	c, vote = voted(t, Op{}, Op{Kind: Send, Root: 1})
	if c.unsettle(&fault{cause: Refused}); !vote.over || c.step != 1 {
		t.Errorf("what was settled: %+v", vote)
	}
}

// The verdict of a deadline, by what the ranks report.
func TestCulprit(t *testing.T) {
	sends := &descriptor{kind: Send.String(), from: 2, to: 1}
	for _, v := range []struct {
		name    string
		whole   bool
		seen    int // by the fault's witness
		reports []*report
		want    int
	}{
		{"a vote is missing", true, 0, []*report{{status: complete, waits: 2}, {status: complete, waits: 0}, {status: running, waits: 1}}, 2},
		{"Commit was not called", true, 0, []*report{{status: complete, waits: 1}, {status: complete, waits: 2}, {status: notStarted, waits: -1}}, 2},
		{"a rank is through with the step", true, 1, []*report{{step: 1, waits: -1}, {status: running, waits: -1}, {status: complete, waits: 1}}, 1},
		{"a rank says nothing", true, 0, []*report{{status: complete, waits: 1}, nil, {status: notStarted, waits: -1}}, 1},
		{"a chain of waits", false, 1, []*report{{status: running, waits: 1}, {status: running, waits: 2}, {status: running, waits: -1}}, 2},
		{"a third is silent", false, 2, []*report{nil, {status: running, waits: 2, desc: sends}, {status: running, waits: -1, desc: sends}}, 2},
		{"a third has not started", false, 2, []*report{{waits: -1}, {status: running, waits: 2, desc: sends}, {waits: -1}}, 2},
	} {
		in := &incident{whole: v.whole, reports: v.reports}
		if got := in.culprit(&fault{cause: Deadline, rank: v.seen}); got != v.want {
			t.Errorf("%s: rank %d is to blame, want %d", v.name, got, v.want)
		}
	}
}

// Of several faults that were reported, by whomever, the same one is everyone's: that of the lower rank, of one rank that of the earlier operation.
func TestFirstOfFaults(t *testing.T) {
	at := func(rank int, step uint64, op string) *report {
		return &report{fault: fault{cause: Lost, rank: rank, step: step, op: op}}
	}
	for _, reports := range [][]*report{ // of each the first is the one
		{at(1, 4, "x"), at(2, 3, "x")},
		{at(1, 3, "x"), at(1, 4, "x"), nil},
		{at(1, 4, "x"), at(1, 3, ""), {}},
	} {
		want := reports[0].fault
		for range reports {
			reports = append(reports[1:], reports[0])
			if got := (&incident{reports: reports}).first(); got == nil || got.rank != want.rank || got.step != want.step {
				t.Errorf("%+v is told, want %+v", got, want)
			}
		}
	}
}

// An operation that only waits until its frames are taken waits for whom they are for.
func TestWaitsForTheReceiver(t *testing.T) {
	o := &operation{plan: &Plan{Tasks: []Task{{Do: DoSend, Peer: 2}, {Do: DoRecv, Peer: 1}}}, left: []int32{taskSending, taskArmed}}
	if r, _ := o.waits(); r != 1 {
		t.Errorf("it waits for rank %d, want the sender, 1", r)
	}
	o.left[1] = taskDone
	if r, _ := o.waits(); r != 2 {
		t.Errorf("it waits for rank %d, want the receiver, 2", r)
	}
}

// What a member sends of operations that nobody else knows does not fill the memory: steps that no rank can be at are ignored, and it is
// blamed where it goes on.
func TestHostileMember(t *testing.T) {
	frame := func(kind uint8, step uint64, tag uint32, head []byte) *transport.Event {
		return &transport.Event{Kind: kind, Key: transport.Key{Epoch: 1, Op: wire.MakeOp(step, tag)}, Head: head}
	}
	vote := (&vote{seen: opsSeen{1, 1, 1, 1}}).append(nil)
	report := func(step uint64, tag uint32) []byte {
		return (&report{step: step, tag: tag, waits: -1, fault: fault{cause: Canceled, rank: 1}}).append(nil)
	}
	for name, send := range map[string]func(c *core, i int) *transport.Event{
		"reports of far steps": func(_ *core, i int) *transport.Event {
			s := uint64(2 + i)
			return frame(kindReport, s, 0, report(s, 0))
		},
		"votes of far steps":      func(_ *core, i int) *transport.Event { return frame(kindVote, uint64(2+i), 0, vote) },
		"data of far steps":       func(_ *core, i int) *transport.Event { return frame(kindData, uint64(2+i), 0, nil) },
		"reports of many tags":    func(_ *core, i int) *transport.Event { return frame(kindReport, 0, uint32(i), report(0, uint32(i))) },
		"empty data of many tags": func(_ *core, i int) *transport.Event { return frame(kindData, 1, uint32(i), nil) },
		"one frame again and again": func(c *core, _ int) *transport.Event {
			ev := frame(kindData, 0, 0, nil)
			ev.Fingerprint, ev.Chunk = c.ops[0].print, 3 // the last: others have their turn before
			return ev
		},
	} {
		o, err := Options{}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}}, &o)
		ring := c.start(Op{Plan: Ring}, 0, Of(make([]float32, 30)), Of(make([]float32, 30)), nil)
		const most = mostUnknown + 1
		for i := range 3 * most {
			c.received(2, send(c, i))
			c.out = c.out[:0]
		}
		kept := len(c.votes) + len(c.incidents) + len(c.void) + len(ring.held)
		if counted := c.copied / int(unsafe.Sizeof(transport.Event{})); kept+len(c.early)-counted > 2*most {
			t.Errorf("%s: of %d frames %d are kept, and %d of %d are counted", name, 3*most, kept, counted, len(c.early))
		}
		b, ok := errors.AsType[*Blame](c.failed)
		if c.now = voidWait; c.failed == nil {
			c.tick()
			b, ok = errors.AsType[*Blame](c.failed)
		}
		if blamed := ok && b.Rank == 2 && b.Cause == Refused; blamed != (name == "reports of many tags") {
			t.Errorf("%s: the group has failed with %v", name, c.failed)
		}
	}
}

// TestDecidedByOthers: where the others have decided that our operation is void, which is complete here, before we have concluded it ourselves, its error
// is that of our context.
func TestDecidedByOthers(t *testing.T) {
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}, Self: 1}, &o)
	op := c.start(Op{}, 0, Of(make([]float32, 10)), Of(make([]float32, 10)), nil)
	c.cancel(op, context.Canceled)
	c.end(op, nil)
	vote := c.commit(0, nil)
	vote.note(fault{cause: Canceled, rank: 1})
	vote.have = 1
	if c.advance(); !vote.over || !errors.Is(vote.err, context.Canceled) {
		t.Errorf("%+v", vote)
	}
}

// TestAbandonedAfterAll: a rank that gives up its commit, and has not heard that the step counts, hears it of those that know.
func TestAbandonedAfterAll(t *testing.T) {
	g := newTrio(t)
	votes := make([]*tally, 3)
	for r, c := range g.cores {
		votes[r] = c.commit(0, nil)
	}
	g.deliver(1, g.takeOut(1, kindVote))
	g.deliver(2, g.takeOut(2, kindVote))
	for _, out := range g.takeOut(0, kindVote) {
		if out.to == 2 { // what goes to rank 1 is late
			g.deliver(0, []outFrame{out})
		}
	}
	g.cores[1].abandonCommit(votes[1], errors.New("given up"))
	for _, r := range []int{1, 0, 2} {
		g.deliver(r, g.takeOut(r, kindReport))
	}
	for r, v := range votes {
		if !v.over || v.err != nil {
			t.Errorf("rank %d: %+v", r, v)
		}
	}
}
