package collective_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestRankSkipsLate: an operation that the others have begun long before a rank commits without it fails then, and not at its deadline.
func TestRankSkipsLate(t *testing.T) {
	const late, soon = 100 * time.Millisecond, 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{2, 3, 9} {
			for skips := range size {
				for _, kind := range []collective.Kind{collective.Barrier, collective.AllReduce} {
					w := open(t, inMemory, size, collective.Options{})
					begin := time.Now()
					errs := w.each(func(r int, g *collective.Group) error {
						if r == skips {
							time.Sleep(late)
						} else {
							g.Start(collective.Op{Kind: kind, Label: "w"}, 0, collective.Of(make([]float32, 10)), collective.Of(make([]float32, 10)))
						}
						return g.Commit(t.Context(), 0)
					})
					for r, err := range errs {
						b, ok := errors.AsType[*collective.Blame](err)
						if !ok || b.Rank != skips || b.Cause != collective.Deadline || b.Op != kind.String()+" of w" || err.Error() != errs[0].Error() {
							t.Errorf("%v of %d ranks, %d skips it: rank %d has %v, rank 0 %v", kind, size, skips, r, err, errs[0])
						}
					}
					if took := time.Since(begin); took > late+soon {
						t.Errorf("%v of %d ranks, %d skips it: it took %v", kind, size, skips, took)
					}
					w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
					w.close()
				}
			}
		}
	})
}

// TestRankBeginsLate: what a rank begins before it commits is no operation that it skips, however long the others have waited.
func TestRankBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		w.must(func(r int, g *collective.Group) error {
			for step := range uint64(3) {
				var list []*collective.Handle
				for tag := range uint32(2) {
					if r == int(step) {
						time.Sleep(100 * time.Millisecond)
					}
					list = append(list, g.Start(collective.Op{}, tag, collective.Of(make([]float32, 10)), collective.Of(make([]float32, 10))))
				}
				for tag, h := range list {
					if err := h.Wait(t.Context()); err != nil {
						return fmt.Errorf("rank %d, step %d, tag %d: %w", r, step, tag, err)
					}
				}
				if err := g.Commit(t.Context(), step); err != nil {
					return fmt.Errorf("rank %d, step %d: %w", r, step, err)
				}
			}
			return nil
		})
	})
}

// TestRankSettlesWithout: a rank that settles without an operation that the others have begun, before or after they say so, or with another one at its
// tag, is found soon, by all alike, and not at the deadline.
func TestRankSettlesWithout(t *testing.T) {
	const soon = 100 * time.Millisecond
	number := func() collective.Buffer { return collective.Of(make([]float32, 10)) }
	for name, story := range map[string]struct {
		late  time.Duration
		other bool // which concerns nobody else, and is complete at once
		names func(err error, odd int) bool
	}{
		"before": {0, false, func(err error, _ int) bool {
			m, ok := errors.AsType[*collective.Mismatch](err)
			return ok && m.Field == "operations of the step" && m.Tag == 0
		}},
		"after": {soon, false, func(err error, odd int) bool {
			b, ok := errors.AsType[*collective.Blame](err)
			return ok && b.Cause == collective.Deadline && b.Rank == odd && b.Tag == 0 && b.Op == "gather of w"
		}},
		"with another": {0, true, func(err error, _ int) bool {
			m, ok := errors.AsType[*collective.Mismatch](err)
			return ok && m.Field == "operations of the step" && m.Tag == 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, size := range []int{2, 3, 9} {
					root, odd := 0, size-1
					w := open(t, inMemory, size, collective.Options{})
					begin := time.Now()
					errs := w.each(func(r int, g *collective.Group) error {
						switch all := collective.Of(make([]float32, 10*size)); {
						case r != odd:
							if r != root {
								all = collective.Buffer{}
							}
							g.Start(collective.Op{Kind: collective.Gather, Root: root, Label: "w"}, 0, all, number())
						case story.other:
							counts := make([]int, size)
							counts[odd] = 10
							g.Start(collective.Op{Kind: collective.Gather, Root: odd, Counts: counts}, 0, number(), number())
						default:
							time.Sleep(story.late)
						}
						g.Start(collective.Op{}, 1, number(), number())
						_ = g.Settle(t.Context()) // Commit says why it fails
						return g.Commit(t.Context(), 0)
					})
					for r, err := range errs {
						if !story.names(err, odd) || err.Error() != errs[0].Error() {
							t.Errorf("%d ranks: rank %d has %v, rank 0 %v", size, r, err, errs[0])
						}
					}
					if took := time.Since(begin); took > story.late+soon {
						t.Errorf("%d ranks: it took %v", size, took)
					}
					w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
					w.close()
				}
			})
		})
	}
}
