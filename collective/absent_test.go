package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
)

func TestCase10DeadlineAtOneRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 4, collective.Options{})
		errs := w.each(func(r int, g *collective.Group) error {
			if r == 3 { // it never calls
				<-time.After(100 * time.Millisecond)
				return g.Commit(t.Context(), g.Step())
			}
			ctx := t.Context()
			if r == 1 {
				c, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				ctx = c
			}
			h := g.Start(collective.Op{Label: "weights"}, 0, collective.Of(make([]float32, 100)), collective.Of(make([]float32, 100)))
			err := h.Wait(ctx)
			if c := g.Commit(t.Context(), g.Step()); c == nil {
				return fmt.Errorf("rank %d has committed what was void", r)
			}
			return err
		})
		for r, err := range errs {
			var b *collective.Blame
			if !errors.As(err, &b) || b.Rank != 1 || b.Cause != collective.Canceled || b.Tag != 0 {
				t.Errorf("rank %d: %v", r, err)
			}
			if errors.Is(err, context.DeadlineExceeded) != (r == 1) {
				t.Errorf("rank %d: %v: is it its own deadline?", r, err)
			}
		}
		w.must(func(r int, g *collective.Group) error {
			x := []float32{1}
			return collective.AllReduceInto(t.Context(), g, x, x, collective.Sum)
		})
	})
}

// A typed function whose context ends while it waits voids its step, and no more: the next one is as ever.
func TestTypedContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		errs := w.each(func(r int, g *collective.Group) error {
			ctx, x := t.Context(), []float32{1}
			switch r {
			case 1:
				c, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				ctx = c
			case 2: // late: by then the operation is void
				<-time.After(100 * time.Millisecond)
			}
			return collective.AllReduceInto(ctx, g, x, x, collective.Sum)
		})
		for r, err := range errs {
			if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 1 || b.Cause != collective.Canceled {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		w.must(func(_ int, g *collective.Group) error {
			x := []float32{1}
			if err := collective.AllReduceInto(t.Context(), g, x, x, collective.Sum); err != nil || x[0] != 3 {
				return fmt.Errorf("%v, %w", x, err)
			}
			return nil
		})
	})
}

// A rank that never calls is named by all: reported to OnStraggler, and blamed at the deadline.
func TestRankNeverCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whoever calls has a processor before the others look for a straggler
		var mu sync.Mutex
		var slow []collective.Wait
		o := collective.Options{Deadline: 400 * time.Millisecond, Straggler: 150 * time.Millisecond, OnStraggler: func(w collective.Wait) {
			mu.Lock()
			defer mu.Unlock()
			slow = append(slow, w)
		}}
		w := open(t, inMemory, 4, o)
		errs := w.each(func(r int, g *collective.Group) error {
			if r == 2 {
				return nil
			}
			h := g.Start(collective.Op{Label: "bucket 3", Plan: collective.Ring}, 3, collective.Of(make([]float32, 100)), collective.Of(make([]float32, 100)))
			if len(g.Waits()) != 1 {
				t.Errorf("%d waits", len(g.Waits()))
			}
			return h.Wait(t.Context())
		})
		for r, err := range errs {
			var b *collective.Blame
			if r != 2 && (!errors.As(err, &b) || b.Rank != 2 || b.Cause != collective.Deadline || b.Op != "allreduce of bucket 3" || err.Error() != errs[0].Error()) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		wrong := func(w collective.Wait) bool { return w.Rank != 2 || !w.NotStarted }
		if len(slow) != 3 || slices.ContainsFunc(slow, wrong) {
			t.Errorf("stragglers: %+v", slow)
		}
	})
}

// A rank that never commits is named by all, whoever runs out of patience first, also where there is no operation: in a barrier.
func TestRankNeverCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{2, 3, 4, 9} {
			for idle := range size {
				for first := range size {
					neverCommits(t, size, idle, first, (idle+first)%2 == 0)
				}
			}
		}
	})
}

func neverCommits(t *testing.T, size, idle, first int, barrier bool) {
	t.Helper()
	w := open(t, inMemory, size, collective.Options{Deadline: 400 * time.Millisecond})
	defer w.close()
	errs := w.each(func(r int, g *collective.Group) error {
		if !barrier {
			if err := g.Start(collective.Op{}, 0, collective.Of(make([]float32, 10)), collective.Of(make([]float32, 10))).Wait(t.Context()); err != nil {
				return err
			}
		}
		if r == idle {
			return nil
		}
		if r != first {
			<-time.After(10 * time.Millisecond)
		}
		return g.Commit(t.Context(), g.Step())
	})
	for r, err := range errs {
		var b *collective.Blame
		if r != idle && (!errors.As(err, &b) || b.Rank != idle || b.Cause != collective.Deadline || b.Op != "commit" || err.Error() != errs[(idle+1)%size].Error()) {
			t.Errorf("%d ranks, %d never commits, %d is the first: rank %d: %v", size, idle, first, r, err)
		}
	}
}

// A rank that commits without an operation which the others begin then is found at once, not when its vote has waited too long for theirs.
func TestRankSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{2, 3, 9} {
			for skips := range size {
				for _, op := range []collective.Op{{Kind: collective.Barrier}, {}, {Kind: collective.Gather, Root: (skips + 1) % size}} {
					w := open(t, inMemory, size, collective.Options{})
					begin := time.Now()
					errs := w.each(func(r int, g *collective.Group) error {
						if r != skips {
							<-time.After(time.Millisecond)
							src := make([]float32, 10)
							dst := make([]float32, 10)
							if op.Kind == collective.Gather {
								dst = make([]float32, 10*size)
							}
							g.Start(op, 0, collective.Of(dst), collective.Of(src))
						}
						return g.Commit(t.Context(), 0)
					})
					var m *collective.Mismatch
					if !errors.As(errs[0], &m) || m.Field != "operations of the step" || m.RankA != skips && m.RankB != skips || (m.A == "") == (m.B == "") {
						t.Errorf("%v of %d ranks, %d skips it: %v", op.Kind, size, skips, errs[0])
					}
					for r, err := range errs {
						if fmt.Sprint(err) != fmt.Sprint(errs[0]) {
							t.Errorf("%v of %d ranks, %d skips it: rank 0 has %v, rank %d %v", op.Kind, size, skips, errs[0], r, err)
						}
					}
					if took := time.Since(begin); took > 100*time.Millisecond {
						t.Errorf("%v of %d ranks, %d skips it: it took %v", op.Kind, size, skips, took)
					}
					w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
					w.close()
				}
			}
		}
	})
}

// A rank that never sends what another is to receive is named, and not a third one, whom that does not concern.
func TestRankNeverSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{Deadline: 400 * time.Millisecond})
		err := w.groups[1].Start(collective.Op{Kind: collective.Receive, Root: 2}, 0, collective.Of(make([]float32, 10)), collective.Buffer{}).Wait(t.Context())
		var b *collective.Blame
		if !errors.As(err, &b) || b.Rank != 2 || b.Cause != collective.Deadline {
			t.Error(err)
		}
	})
}

// A rank that dies is named by all the others, with the same words, and soon: at once where they have met, and else when they find that
// they cannot tell it what they have started.
func TestCase11Killed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{2, 3, 4} {
			for _, n := range []int{4, 1000, 20_000} { // of the last, frames are posted
				for _, pause := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
					for _, met := range []bool{false, true} {
						for _, plan := range []collective.Algorithm{collective.Auto, collective.Shared} {
							killed(t, size, n, pause, met, plan)
						}
					}
				}
			}
		}
	})
}

func killed(t *testing.T, size, n int, pause time.Duration, met bool, plan collective.Algorithm) {
	w := open(t, inMemory, size, collective.Options{})
	defer w.close()
	if plan == collective.Shared {
		collective.ShareHere(w.groups, tensor.AlignedBytes(size<<20))
	}
	limit := 20 * 10 * time.Millisecond
	if met {
		w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
		limit = 10 * time.Millisecond // time is virtual
	}
	victim := size - 1
	var died time.Time
	took := make([]time.Duration, size)
	errs := w.each(func(r int, g *collective.Group) error {
		if r == victim {
			<-time.After(pause)
			died = time.Now()
			return w.ports[r].Close() // all at once, as the kernel does for a killed process
		}
		err := run(t.Context(), g, collective.Op{Label: "w", Plan: plan}, collective.Of(make([]float32, n)), collective.Of(make([]float32, n)))
		took[r] = time.Since(died)
		return err
	})
	for r, err := range errs[:victim] {
		var b *collective.Blame
		if !errors.As(err, &b) || b.Rank != victim || b.Cause != collective.Lost || err.Error() != errs[0].Error() {
			t.Errorf("%d ranks, %v: rank %d: %v\nrank 0: %v", size, plan, r, err, errs[0])
		}
		if took[r] > limit {
			t.Errorf("%d ranks, met %v, %v: rank %d knew %v after %v", size, met, plan, r, took[r], pause)
		}
	}
}
