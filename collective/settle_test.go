package collective_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

// TestSettle: many sums of one step, in the same memory, each built on the one before; then one vote for all of them.
func TestSettle(t *testing.T) {
	for name, n := range map[string]network{"memory": inMemory, "unix": overUnix, "shared": overShared} {
		for _, size := range []int{2, 3, 5} {
			for _, plan := range []collective.Algorithm{collective.Auto, collective.Ring, collective.Halving, collective.Doubling, collective.GatherCast, collective.Tree} {
				t.Run(fmt.Sprintf("%s/%d/%v", name, size, plan), func(t *testing.T) { settleMany(t, n, size, plan) })
			}
		}
	}
}

func settleMany(t *testing.T, n network, size int, plan collective.Algorithm) {
	w := open(t, n, size, collective.Options{})
	w.must(func(r int, g *collective.Group) error {
		cells, sums := 3000, 20
		if testing.Short() { // the race detector makes arithmetic slow
			cells, sums = 300, 10
		}
		src, dst := make([]float32, cells), make([]float32, cells)
		var tag uint32
		for step := range uint64(3) {
			tag = 0
			for range sums {
				for i := range src {
					src[i] = dst[i]/float32(size) + float32(r) // of what the one before has given
				}
				want := dst[0] + float32(size*(size-1)/2)
				g.Start(collective.Op{Plan: plan}, tag, collective.Of(dst), collective.Of(src))
				tag += 3
				if err := g.Settle(t.Context()); err != nil {
					return err
				}
				for i, v := range dst {
					if v < want*0.999 || v > want*1.001 {
						return fmt.Errorf("rank %d, step %d, tag %d, cell %d: %v, want %v", r, step, tag, i, v, want)
					}
				}
			}
			if err := g.Start(collective.Op{}, tag-3, collective.Of(dst), collective.Of(src)).Wait(t.Context()); err == nil {
				return errors.New("a settled tag was used again")
			}
			clear(dst)
			if err := g.Commit(t.Context(), step); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestSettledThenFailed: an operation fails at one rank after the others have settled it and gone on. What they have begun since fails with
// the same error, at once, so does the step, and the group is usable.
func TestSettledThenFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		var mu sync.Mutex
		said := map[string]int{}
		through := make(chan struct{}) // rank 0 has settled
		begin := time.Now()
		w.must(func(r int, g *collective.Group) error {
			long, short := make([]float32, 10), make([]float32, 9)
			x, src := long, collective.Buffer{}
			if r == 0 {
				src = collective.Of(make([]float32, 10)) // sends, and is through
			}
			if r == 2 {
				x = short
				<-through
			}
			g.Start(collective.Op{Kind: collective.Broadcast}, 0, collective.Of(x), src)
			err := g.Settle(t.Context())
			if r == 0 {
				if err != nil {
					return fmt.Errorf("rank 0 has sent, and is told %w", err)
				}
				close(through)
			}
			settled := err == nil
			if settled {
				err = g.Start(collective.Op{}, 1, collective.Of(long), collective.Of(make([]float32, 10))).Wait(t.Context())
			}
			if err == nil {
				return fmt.Errorf("rank %d: the sum after it is complete", r)
			}
			if again := g.Settle(t.Context()); again == nil || again.Error() != err.Error() {
				return fmt.Errorf("rank %d: %w, and then %w", r, err, again)
			}
			if settled {
				if again := g.Start(collective.Op{}, 2, collective.Of(long), collective.Of(make([]float32, 10))).Wait(t.Context()); again == nil || again.Error() != err.Error() {
					return fmt.Errorf("rank %d: %w, and then %w", r, err, again)
				}
			}
			commit := g.Commit(t.Context(), 0)
			if m, ok := errors.AsType[*collective.Mismatch](commit); !ok || m.Error() != err.Error() {
				return fmt.Errorf("rank %d: %w, and the step's is %w", r, err, commit)
			}
			mu.Lock()
			said[err.Error()]++
			mu.Unlock()
			return collective.AllReduceInto(t.Context(), g, long, long, collective.Sum)
		})
		if len(said) != 1 {
			t.Errorf("the ranks say %v", said)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v, want 100ms", took)
		}
	})
}

// TestSettledUnequally: what has been settled is compared by the vote as well.
func TestSettledUnequally(t *testing.T) {
	differs := func(err error) bool {
		m, ok := errors.AsType[*collective.Mismatch](err)
		return ok && m.Field == "operations of the step"
	}
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{})
		w.must(func(r int, g *collective.Group) error {
			if r == 0 {
				g.Start(collective.Op{Kind: collective.Broadcast}, 0, collective.Of(make([]float32, 4)), collective.Of(make([]float32, 4)))
				if err := g.Settle(t.Context()); err != nil && !differs(err) { // rank 1 may have found it before
					return err
				}
			}
			if !differs(g.Commit(t.Context(), 0)) {
				return fmt.Errorf("rank %d: the vote found no difference", r)
			}
			return nil
		})
	})
}

// TestSettleCanceled: a context that has ended does not make memory the caller's from which a frame is still to be sent.
func TestSettleCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWith(t, inMemory, 3, collective.Options{}, nil, func(s transport.Stream) transport.Stream {
			if s.Self().ID != "0" {
				return s
			}
			return &slowVotes{s, collective.KindData, time.Second}
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.must(func(r int, g *collective.Group) error {
			src, dst := collective.Of([]float32{1, 2, 3}), collective.Of(make([]float32, 3))
			if r == 0 {
				go g.Start(collective.Op{Kind: collective.AllToAll}, 0, dst, src) // it has sent to rank 1, and rank 2 is next
				time.Sleep(100 * time.Millisecond)
				if err := g.Settle(ended); !errors.Is(err, context.Canceled) {
					return fmt.Errorf("settled with a frame to be sent: %w", err)
				}
			} else {
				g.Start(collective.Op{Kind: collective.AllToAll}, 0, dst, src)
			}
			if err := g.Settle(t.Context()); err != nil {
				return err
			}
			return g.Commit(t.Context(), 0)
		})
		w.close()
	})
}

// deafStream is a stream that returns nothing of what comes, as that of a process that stands still.
type deafStream struct{ transport.Stream }

func (deafStream) Recv(ctx context.Context) (transport.Event, error) {
	<-ctx.Done()
	return transport.Event{}, ctx.Err()
}

// TestSettleBesideOneThatStands: a rank that takes nothing of what was sent to it is blamed at the deadline, also where all is complete here and
// nobody votes.
func TestSettleBesideOneThatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWith(t, inMemory, 2, collective.Options{Deadline: 5 * time.Second}, nil, func(s transport.Stream) transport.Stream {
			if s.Self().ID == "0" {
				return s
			}
			return deafStream{s}
		})
		defer w.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		op := collective.Op{Kind: collective.Broadcast}
		if err := w.groups[0].Start(op, 0, collective.Of(make([]float32, 10)), collective.Of(make([]float32, 10))).Wait(ctx); err != nil {
			t.Fatal(err) // it has sent, and is through
		}
		err := w.groups[0].Settle(ctx)
		if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 1 || b.Cause != collective.Deadline || b.Op != "" {
			t.Errorf("settled with %v", err)
		}
		if took := time.Since(begin); took > 7*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
