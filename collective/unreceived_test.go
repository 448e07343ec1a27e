package collective_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// An unreceived story is a step in which rank 2 sends a message to rank 0, which does not receive it.
type unreceived struct {
	name    string
	taken   int                                                 // messages that rank 0 takes of any rank, of rank 1
	after   func(g *collective.Group, r int) *collective.Handle // what all do afterwards; nil: nothing
	settles bool                                                // after that
}

// TestUnreceived: a message that nobody receives fails the step, at every rank with the same words, which name sender, receiver and tag; within
// 100 ms of when the receiver commits or settles without it, or it comes. The next step is as ever.
func TestUnreceived(t *testing.T) {
	sum := func(g *collective.Group, _ int) *collective.Handle {
		return g.Start(collective.Op{}, anyTag+1, collective.Of(make([]int32, 2)), collective.Of(make([]int32, 2)))
	}
	for _, story := range []unreceived{
		{name: "nothing is received"},
		{name: "fewer are received than sent", taken: 1},
		{name: "a sum follows", after: sum},
		{name: "it is settled", after: sum, settles: true},
		{name: "fewer are received, and settled", taken: 1, after: sum, settles: true},
	} {
		for _, size := range []int{3, 4, 9} {
			for _, late := range []int{-1, 0, 2} { // who begins later than the others
				if late == 2 && story.settles {
					continue // the sum would wait for the sender, and the receiver for that
				}
				synctest.Test(t, func(t *testing.T) { story.run(t, size, late) })
			}
		}
	}
}

func (story *unreceived) run(t *testing.T, size, late int) {
	const wait = time.Second
	w := open(t, inMemory, size, collective.Options{})
	defer w.close()
	begin := time.Now()
	errs := w.each(func(r int, g *collective.Group) error {
		if r == late {
			time.Sleep(wait)
		}
		switch {
		case r == 0:
			for _, h := range anyOf(g, story.taken, 2) {
				if err := h.Wait(t.Context()); err != nil {
					return err
				}
			}
		case r == 1 && story.taken > 0:
			sendTo(g, 0, anyTag, 2)
		case r == 2:
			time.Sleep(time.Millisecond) // behind rank 1
			err := sendTo(g, 0, anyTag, 2).Wait(t.Context())
			if _, void := errors.AsType[*collective.Mismatch](err); err != nil && !void { // all may have heard of it before the sender has returned
				return fmt.Errorf("to send waits for nobody: %w", err)
			}
		}
		if story.after != nil {
			_ = story.after(g, r).Wait(t.Context()) // Commit says why
		}
		if story.settles {
			_ = g.Settle(t.Context())
		}
		return g.Commit(t.Context(), 0)
	})
	name := fmt.Sprintf("%s, %d ranks, rank %d is late", story.name, size, late)
	want := fmt.Sprintf("step 0, tag %d: the ranks disagree on the messages: rank 0 has none from rank 2, rank 2 has one to rank 0", anyTag)
	for r, err := range errs {
		if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.RankA != 0 || m.RankB != 2 || !strings.HasSuffix(m.Error(), want) {
			t.Errorf("%s: rank %d has %v, want %s", name, r, err, want)
		}
	}
	limit := 100 * time.Millisecond
	if late >= 0 {
		limit += wait
	}
	if took := time.Since(begin); took > limit {
		t.Errorf("%s: it took %v", name, took)
	}
	works(t, w)
}

// TestReceivedLate: a message that is received long after it was sent, and after its sender has called Commit, counts.
func TestReceivedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 2, 20_000} {
			w := open(t, inMemory, 3, collective.Options{Deadline: 10 * time.Second})
			w.must(func(r int, g *collective.Group) error {
				for range 3 {
					var in inbox
					switch r {
					case 0:
						time.Sleep(9 * time.Second)
						in.begin(g, anyTag, n)
					case 1:
						sendTo(g, 0, anyTag, n)
					}
					if _, err := in.wait(t.Context()); err != nil {
						return err
					}
					if err := g.Commit(t.Context(), g.Step()); err != nil {
						return err
					}
				}
				return nil
			})
			w.close()
		}
	})
}

// TestNeverReceived: a rank that does nothing, to which one has sent, is named by all at the deadline of that one's commit.
func TestNeverReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, settled := range []bool{false, true} {
			w := open(t, inMemory, 4, collective.Options{Deadline: 400 * time.Millisecond})
			begin := time.Now()
			errs := w.each(func(r int, g *collective.Group) error {
				switch r {
				case 1:
					sendTo(g, 3, anyTag, 2)
					if settled {
						if err := g.Settle(t.Context()); err != nil {
							return err
						}
					}
				case 3:
					time.Sleep(500 * time.Millisecond)
				default:
					time.Sleep(200 * time.Millisecond) // the sender's deadline is before theirs
				}
				return g.Commit(t.Context(), 0)
			})
			for r, err := range errs {
				b, ok := errors.AsType[*collective.Blame](err)
				if !ok || b.Rank != 3 || b.Cause != collective.Deadline || b.Tag != anyTag || b.Op != "send" || err.Error() != errs[0].Error() {
					t.Errorf("settled %v: rank %d has %v, rank 0 %v", settled, r, err, errs[0])
				}
			}
			if took := time.Since(begin); took > 600*time.Millisecond {
				t.Errorf("settled %v: it took %v", settled, took)
			}
			works(t, w)
			w.close()
		}
	})
}

// TestUnreceivedCanceled: a rank whose context ends while its commit waits until its message is received voids the step, and no more.
func TestUnreceivedCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		begin := time.Now()
		for r, err := range w.each(func(r int, g *collective.Group) error {
			ctx := t.Context()
			switch r {
			case 0:
				time.Sleep(time.Second)
			case 1:
				sendTo(g, 0, anyTag, 2)
				c, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				ctx = c
			}
			err := g.Commit(ctx, 0)
			if took := time.Since(begin); r == 1 && took > time.Second+10*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			return err
		}) {
			b, ok := errors.AsType[*collective.Blame](err)
			if !ok || b.Rank != 1 || b.Cause != collective.Canceled || b.Op != "send" || errors.Is(err, context.DeadlineExceeded) != (r == 1) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		works(t, w)
	})
}

// TestUnreceivedBesideAnother: of two transfers at one tag, which have nothing to do with each other, that one fails which is not received.
func TestUnreceivedBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 4, collective.Options{})
		for r, err := range w.each(func(r int, g *collective.Group) error {
			switch r {
			case 0, 2:
				sendTo(g, r+1, anyTag, 2)
			case 1:
				g.Start(collective.Op{Kind: collective.Receive, Root: 0}, anyTag, collective.Of(make([]int32, 2)), collective.Buffer{})
			}
			return g.Commit(t.Context(), 0)
		}) {
			if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "messages" || m.RankA != 2 || m.RankB != 3 {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		works(t, w)
	})
}

// TestUnreceivedLeft: a rank that leaves without having received what was sent to it is lost to its sender, at once, also where that one waits
// for it in Commit, and no other rank is left to ask.
func TestUnreceivedLeft(t *testing.T) {
	for _, before := range []bool{false, true} { // it leaves before Commit
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 2, collective.Options{})
			sendTo(w.groups[0], 1, anyTag, 2)
			var closing sync.WaitGroup
			closing.Go(func() {
				if !before {
					time.Sleep(time.Second)
				}
				_ = w.groups[1].Close()
			})
			begin := time.Now()
			if before {
				closing.Wait()
				synctest.Wait()
			}
			if b, ok := errors.AsType[*collective.Blame](w.groups[0].Commit(t.Context(), 0)); !ok || b.Rank != 1 || b.Cause != collective.Lost {
				t.Errorf("before %v: the sender has %v", before, b)
			}
			if took := time.Since(begin); took > time.Second+10*time.Millisecond {
				t.Errorf("before %v: it took %v", before, took)
			}
			closing.Wait()
		})
	}
}

// TestUnreceivedSettled: a rank that has settled without a message that has come, or comes then, does not wait until it commits: what it has begun
// since fails at once.
func TestUnreceivedSettled(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 3, collective.Options{})
			begin := time.Now()
			for r, err := range w.each(func(r int, g *collective.Group) error {
				if r == 2 && !late {
					sendTo(g, 0, anyTag, 2)
				}
				g.Start(collective.Op{}, anyTag+1, collective.Of(make([]int32, 2)), collective.Of(make([]int32, 2)))
				if r == 2 && late {
					time.Sleep(10 * time.Millisecond) // the others have settled
					sendTo(g, 0, anyTag, 2)
				}
				_ = g.Settle(t.Context())
				if r != 0 {
					time.Sleep(time.Second)
					return g.Commit(t.Context(), 0)
				}
				op := collective.Op{Kind: collective.Receive, Root: 1}
				err := g.Start(op, anyTag+2, collective.Of(make([]int32, 2)), collective.Buffer{}).Wait(t.Context())
				if took := time.Since(begin); took > 30*time.Millisecond {
					t.Errorf("late %v: it took %v", late, took)
				}
				if again := g.Commit(t.Context(), 0); fmt.Sprint(again) != fmt.Sprint(err) {
					return fmt.Errorf("the operation has %w, the commit %w", err, again)
				}
				return err
			}) {
				if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "messages" || m.Tag != anyTag || m.RankA != 0 || m.RankB != 2 {
					t.Errorf("late %v: rank %d: %v", late, r, err)
				}
			}
			works(t, w)
		})
	}
}
