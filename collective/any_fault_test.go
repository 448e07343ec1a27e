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
	"github.com/trivium-ml/trivium/tensor"
)

// anyStep has each rank do what do says, wait for that, and commit. It returns the errors of the commits, which those of the handles
// must be too.
func anyStep(t *testing.T, w *world, do func(r int, g *collective.Group) []*collective.Handle) []error {
	t.Helper()
	return w.each(func(r int, g *collective.Group) error {
		step := g.Step()
		var failed error
		for _, h := range do(r, g) {
			if err := h.Wait(t.Context()); err != nil {
				failed = err
			}
		}
		err := g.Commit(t.Context(), step)
		if failed != nil && fmt.Sprint(failed) != fmt.Sprint(err) {
			return fmt.Errorf("the operation has %w, the commit %w", failed, err)
		}
		return err
	})
}

// works says that a group goes on: the last rank takes what all others send.
func works(t *testing.T, w *world) {
	t.Helper()
	last := len(w.groups) - 1
	for r, err := range anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
		if r != last {
			return []*collective.Handle{sendTo(g, last, anyTag, 2)}
		}
		var in inbox
		for range last {
			in.begin(g, anyTag, 2)
		}
		return in.handles
	}) {
		if err != nil {
			t.Errorf("rank %d, in the step after: %v", r, err)
		}
	}
}

func anyOf(g *collective.Group, count, n int) []*collective.Handle {
	var in inbox
	for range count {
		in.begin(g, anyTag, n)
	}
	return in.handles
}

// TestReceiveAnyMismatch: whoever does something else at the tag is found, by all with the same words, within 100 ms of when the second
// of the two has begun.
func TestReceiveAnyMismatch(t *testing.T) {
	x := func(n int) collective.Buffer { return collective.Of(make([]int32, n)) }
	one := func(h *collective.Handle) []*collective.Handle { return []*collective.Handle{h} }
	for name, v := range map[string]struct {
		field string
		odd   func(g *collective.Group) []*collective.Handle // what rank 2 does, where rank 0 takes 2 elements of any, and rank 1 sends them
	}{
		"longer":  {"count", func(g *collective.Group) []*collective.Handle { return one(sendTo(g, 0, anyTag, 3)) }},
		"nothing": {"count", func(g *collective.Group) []*collective.Handle { return one(sendTo(g, 0, anyTag, 0)) }},
		"many":    {"count", func(g *collective.Group) []*collective.Handle { return one(sendTo(g, 0, anyTag, 100_000)) }},
		"other type": {"dtype", func(g *collective.Group) []*collective.Handle {
			return one(g.Start(collective.Op{Kind: collective.Send, Root: 0}, anyTag, collective.Buffer{}, collective.Of([]float32{1, 2})))
		}},
		"other shape": {"shape", func(g *collective.Group) []*collective.Handle {
			return one(g.Start(collective.Op{Kind: collective.Send, Root: 0, Shape: []int{2, 1}}, anyTag, collective.Buffer{}, x(2)))
		}},
		"a broadcast": {"operation", func(g *collective.Group) []*collective.Handle {
			return one(g.Start(collective.Op{Kind: collective.Broadcast, Root: 2}, anyTag, x(2), x(2)))
		}},
		"a sum": {"operation", func(g *collective.Group) []*collective.Handle {
			return one(g.Start(collective.Op{}, anyTag, x(2), x(2)))
		}},
		"waits for any, too": {"ends", func(g *collective.Group) []*collective.Handle { return anyOf(g, 1, 2) }},
		"waits for the waiting": {"ends", func(g *collective.Group) []*collective.Handle {
			return one(g.Start(collective.Op{Kind: collective.Receive, Root: 0}, anyTag, x(2), collective.Buffer{}))
		}},
		"sends to another": {"ends", func(g *collective.Group) []*collective.Handle { return one(sendTo(g, 1, anyTag, 2)) }},
	} {
		for _, late := range [3]time.Duration{0, 10 * time.Millisecond, time.Second} {
			for _, who := range [2]int{0, 2} {
				synctest.Test(t, func(t *testing.T) {
					w := open(t, inMemory, 3, collective.Options{})
					defer w.close()
					begin := time.Now()
					errs := anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
						if r == who {
							time.Sleep(late)
						}
						switch r {
						case 0:
							return anyOf(g, 2, 2)
						case 1:
							return one(sendTo(g, 0, anyTag, 2))
						}
						return v.odd(g)
					})
					var m *collective.Mismatch
					if !errors.As(errs[0], &m) || m.Field != v.field || m.Tag != anyTag || m.RankA != 2 && m.RankB != 2 {
						t.Errorf("%s, rank %d late by %v: %v", name, who, late, errs[0])
					}
					for r, err := range errs {
						if fmt.Sprint(err) != fmt.Sprint(errs[0]) {
							t.Errorf("%s, rank %d late by %v: rank 0 has %v, rank %d %v", name, who, late, errs[0], r, err)
						}
					}
					if took := time.Since(begin); took > late+100*time.Millisecond {
						t.Errorf("%s, rank %d late by %v: it took %v", name, who, late, took)
					}
					works(t, w)
				})
			}
		}
	}
}

// TestReceiveSentElsewhere: a rank that sends to another one than that which waits for it, or for any, is found within 100 ms, also where
// it begins to when it has been asked.
func TestReceiveSentElsewhere(t *testing.T) {
	for _, root := range []int{2, collective.AnyRank} {
		for _, late := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, inMemory, 3, collective.Options{})
				begin, found := time.Now(), make(chan struct{})
				for r, err := range anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
					switch r {
					case 0:
						op := collective.Op{Kind: collective.Receive, Root: root}
						h := g.Start(op, anyTag, collective.Of(make([]int32, 2)), collective.Buffer{})
						_ = h.Wait(t.Context())
						if took := time.Since(begin); took > late+100*time.Millisecond {
							t.Errorf("from %d, late by %v: it took %v", root, late, took)
						}
						close(found)
						return []*collective.Handle{h}
					case 1:
						<-found // that it commits without the message is another difference, which may be found first
					case 2:
						time.Sleep(late)
						return []*collective.Handle{sendTo(g, 1, anyTag, 2)}
					}
					return nil
				}) {
					if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "ends" || m.RankA != 0 || m.RankB != 2 || m.B != "2 to 1" {
						t.Errorf("from %d, late by %v: rank %d: %v", root, late, r, err)
					}
				}
				works(t, w)
			})
		}
	}
}

// TestReceiveFromOther: of two ranks that send to one that has named the one of them, the other is found.
func TestReceiveFromOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, named := range []int{1, 2} {
			w := open(t, inMemory, 4, collective.Options{})
			for r, err := range anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
				switch r {
				case 0:
					op := collective.Op{Kind: collective.Receive, Root: named}
					return []*collective.Handle{g.Start(op, anyTag, collective.Of(make([]int32, 2)), collective.Buffer{})}
				case named:
					time.Sleep(10 * time.Millisecond)
					fallthrough
				case 3 - named:
					return []*collective.Handle{sendTo(g, 0, anyTag, 2)}
				}
				return nil
			}) {
				want := fmt.Sprintf("the ranks disagree on the ends: rank 0 has %d to 0, rank %d has %[2]d to 0", named, 3-named)
				if err == nil || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("rank %d: %v, want %s", r, err, want)
				}
			}
			works(t, w)
			w.close()
		}
	})
}

// TestReceiveAnyInVain: where fewer ranks send than receives wait, and the others have committed, or settled later operations, the
// receives fail within 100 ms of the last of them, and all commits with the same words: the lowest that did not send is named.
func TestReceiveAnyInVain(t *testing.T) {
	for _, size := range []int{2, 3, 4, 9} {
		for _, late := range []time.Duration{0, time.Second} { // when the last that might send says that it does not
			for _, settled := range []bool{false, true} {
				for _, receiver := range []int{0, size - 1} {
					synctest.Test(t, func(t *testing.T) { receivesInVain(t, size, receiver, late, settled) })
				}
			}
		}
	}
}

func receivesInVain(t *testing.T, size, receiver int, late time.Duration, settled bool) {
	w := open(t, inMemory, size, collective.Options{})
	defer w.close()
	wait, sends, last := 2, (receiver+1)%size, (receiver+size-1)%size
	if size == 2 {
		wait, sends = 1, -1
	}
	begin := time.Now()
	var took time.Duration
	errs := w.each(func(r int, g *collective.Group) error {
		var hs []*collective.Handle
		switch r {
		case receiver:
			hs = anyOf(g, wait, 2)
		case sends:
			sendTo(g, receiver, anyTag, 2)
		case last:
			time.Sleep(late)
		}
		if settled {
			g.Start(collective.Op{}, anyTag+1, collective.Of(make([]int32, 2)), collective.Of(make([]int32, 2)))
			if r != receiver {
				if g.Settle(t.Context()) == nil { // else the commit says why
					time.Sleep(time.Second)
				}
			}
		}
		var failed error
		for _, h := range hs {
			failed = h.Wait(t.Context())
			took = time.Since(begin)
		}
		err := g.Commit(t.Context(), 0)
		if r == receiver && fmt.Sprint(failed) != fmt.Sprint(err) {
			return fmt.Errorf("the last receive has %w, the commit %w", failed, err)
		}
		return err
	})
	name := fmt.Sprintf("%d ranks, rank %d receives, the last is late by %v, settled: %v", size, receiver, late, settled)
	lowest := 0
	for lowest == receiver || lowest == sends {
		lowest++
	}
	b, ok := errors.AsType[*collective.Blame](errs[0])
	if !ok || b.Cause != collective.Deadline || b.Rank != lowest || b.Tag != anyTag || b.Op != "receive" || b.Witness != receiver {
		t.Errorf("%s: %v", name, errs[0])
	}
	for r, err := range errs {
		if fmt.Sprint(err) != fmt.Sprint(errs[0]) {
			t.Errorf("%s: rank 0 has %v, rank %d %v", name, errs[0], r, err)
		}
	}
	if took > late+100*time.Millisecond {
		t.Errorf("%s: it took %v", name, took)
	}
	works(t, w)
}

// TestReceiveAnyWaitsForTheLast: that all others have committed without it is no failure while one may still send.
func TestReceiveAnyWaitsForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{3, 4, 9} {
			w := open(t, inMemory, size, collective.Options{})
			for r, err := range anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
				switch r {
				case 1:
					return anyOf(g, 1, 2)
				case size - 1:
					time.Sleep(time.Second)
					return []*collective.Handle{sendTo(g, 1, anyTag, 2)}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("%d ranks: rank %d: %v", size, r, err)
				}
			}
			works(t, w)
			w.close()
		}
	})
}

// TestReceiveAnyTooMany: a rank that wants more messages than there are other ranks is named; one that is alone is refused.
func TestReceiveAnyTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		begin := time.Now()
		for r, err := range anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
			if r == 1 {
				return anyOf(g, 3, 2)
			}
			return []*collective.Handle{sendTo(g, 1, anyTag, 2)}
		}) {
			b, ok := errors.AsType[*collective.Blame](err)
			if !ok || b.Rank != 1 || b.Cause != collective.Deadline || b.Evidence != "no rank is left that may send to it" {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		works(t, w)
		alone := open(t, inMemory, 1, collective.Options{})
		err := anyOf(alone.groups[0], 1, 2)[0].Wait(t.Context())
		if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Cause != collective.Refused || !strings.Contains(b.Evidence, "cannot send to itself") {
			t.Error(err)
		}
	})
}

// TestReceiveAnyCanceled: a rank whose context ends while it waits for any is blamed by all, also by those who have sent to it, and
// what it has received at the tag is void too. Nobody takes two that send for a mismatch, nor where the receiver is yet to begin.
func TestReceiveAnyCanceled(t *testing.T) {
	for _, begun := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 4, collective.Options{})
			begin := time.Now()
			for r, err := range w.each(func(r int, g *collective.Group) error {
				switch {
				case r == 3:
					time.Sleep(time.Second)
				case r != 0:
					sendTo(g, 0, anyTag, 2)
				case begun:
					hs := anyOf(g, 3, 2)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer cancel()
					_ = hs[0].Wait(ctx)
					_ = hs[1].Wait(ctx)
					if err := hs[2].Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
						return err
					}
					if took := time.Since(begin); took > 20*time.Millisecond {
						t.Errorf("it took %v", took)
					}
					for _, h := range hs {
						if err := h.Wait(t.Context()); err == nil {
							return errors.New("a receive of a tag that is void is none")
						}
					}
				default: // what it begins is refused
					odd := collective.Buffer{DType: tensor.I32, Bytes: make([]byte, 3)}
					g.Start(collective.Op{Kind: collective.Receive, Root: collective.AnyRank}, anyTag, odd, collective.Buffer{})
				}
				return g.Commit(t.Context(), 0)
			}) {
				want := collective.Refused
				if begun {
					want = collective.Canceled
				}
				if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 0 || b.Cause != want || b.Tag != anyTag {
					t.Errorf("begun %v: rank %d: %v", begun, r, err)
				}
			}
			works(t, w)
		})
	}
}

// TestReceiveAnyDeadline: of ranks that neither send nor commit the lowest is named at the deadline, also to OnStraggler and in Waits,
// and not one that has sent.
func TestReceiveAnyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var slow []collective.Wait
		o := collective.Options{Deadline: 400 * time.Millisecond, Straggler: 150 * time.Millisecond, OnStraggler: func(w collective.Wait) {
			mu.Lock()
			defer mu.Unlock()
			slow = append(slow, w)
		}}
		w := open(t, inMemory, 4, o)
		sendTo(w.groups[0], 1, anyTag, 2)
		hs := anyOf(w.groups[1], 2, 2)
		synctest.Wait()
		if waits := w.groups[1].Waits(); len(waits) != 1 || waits[0].Rank != 2 || waits[0].Phase != "transfer" {
			t.Errorf("waits: %+v", waits)
		}
		if err := hs[0].Wait(t.Context()); err != nil || hs[0].From() != 0 {
			t.Errorf("from rank %d: %v", hs[0].From(), err)
		}
		b, ok := errors.AsType[*collective.Blame](hs[1].Wait(t.Context()))
		if !ok || b.Rank != 2 || b.Cause != collective.Deadline || b.Evidence != "it has not called the operation" {
			t.Errorf("%v", b)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(slow) != 1 || slow[0].Rank != 2 {
			t.Errorf("stragglers: %+v", slow)
		}
	})
}

// TestReceiveAnyLost: a rank that dies while any is waited for fails the group, at all with the same words, whether it was sending, or
// had nothing to send.
func TestReceiveAnyLost(t *testing.T) {
	for _, victim := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := openSlow(t, 4) // of which rank 0 has a slow link to rank 3
			w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
			var died time.Time
			errs := w.each(func(r int, g *collective.Group) error {
				const n = 50 * longFrame / 4 // five seconds
				switch r {
				case 0:
					g.Start(collective.Op{Kind: collective.Send, Root: 3, Aside: true}, anyTag, collective.Buffer{}, collective.Of(message(0, n)))
				case 3:
					hs := anyOf(g, 2, n)
					if err := hs[0].Wait(t.Context()); err == nil {
						return errors.New("it has received what was not sent")
					}
					if took := time.Since(died); took > 10*time.Millisecond {
						t.Errorf("rank %d dies: it took %v", victim, took)
					}
					return hs[1].Wait(t.Context())
				}
				if r == victim {
					time.Sleep(time.Second)
					died = time.Now()
					return w.ports[r].Close()
				}
				time.Sleep(2 * time.Second)
				return g.Commit(t.Context(), 1)
			})
			for r, err := range errs {
				b, ok := errors.AsType[*collective.Blame](err)
				if r != victim && (!ok || b.Rank != victim || b.Cause != collective.Lost || err.Error() != errs[3].Error()) {
					t.Errorf("rank %d dies: rank %d has %v, rank 3 %v", victim, r, err, errs[3])
				}
			}
		})
	}
}

// TestReceiveAnyLeft: a rank that leaves is not waited for any more; while another may still send the receive waits for that.
func TestReceiveAnyLeft(t *testing.T) {
	for _, before := range []bool{false, true} { // it begins when they have left
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 3, collective.Options{})
			var hs []*collective.Handle
			if !before {
				hs = anyOf(w.groups[0], 1, 2)
			}
			_ = w.groups[1].Close()
			synctest.Wait()
			if before {
				hs = anyOf(w.groups[0], 1, 2)
			}
			time.Sleep(time.Second)
			select {
			case <-hs[0].Done():
				t.Fatalf("before %v: rank 2 may still send: %v", before, hs[0].Wait(t.Context()))
			default:
			}
			sendTo(w.groups[2], 0, anyTag, 2)
			if err := hs[0].Wait(t.Context()); err != nil || hs[0].From() != 2 {
				t.Errorf("before %v: from rank %d: %v", before, hs[0].From(), err)
			}
			if b, ok := errors.AsType[*collective.Blame](w.groups[0].Commit(t.Context(), 0)); !ok || b.Rank != 1 || b.Cause != collective.Lost {
				t.Errorf("before %v: the commit: %v", before, b)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 3, collective.Options{})
			sendTo(w.groups[2], 0, anyTag, 2)
			var hs []*collective.Handle
			if !before {
				hs = anyOf(w.groups[0], 2, 2)
			}
			begin := time.Now()
			for _, r := range []int{1, 2} {
				_ = w.groups[r].Close()
			}
			synctest.Wait()
			if before {
				hs = anyOf(w.groups[0], 2, 2)
			}
			if b, ok := errors.AsType[*collective.Blame](hs[1].Wait(t.Context())); !ok || b.Rank != 1 || b.Cause != collective.Lost {
				t.Errorf("before %v: all have left: %v", before, b)
			}
			if took := time.Since(begin); took > 10*time.Millisecond {
				t.Errorf("before %v: it took %v", before, took)
			}
		})
	}
}
