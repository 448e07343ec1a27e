package collective_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestTypedCanceled: where the context of a typed function has ended at a rank, or ends at any moment of a loop, all have one error, which is the
// context's at that rank, and the group goes on.
func TestTypedCanceled(t *testing.T) {
	for try := range 100 {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 3, collective.Options{})
			defer w.close()
			ended, cancel := context.WithCancel(t.Context())
			if try%2 == 0 {
				cancel()
			} else {
				go cancel()
			}
			errs := w.each(func(r int, g *collective.Group) (err error) {
				ctx := t.Context()
				if r == 1 {
					ctx = ended
				}
				x := make([]float32, 100)
				for unsent := false; err == nil || unsent; _, unsent = errors.AsType[*collective.UnsentError](err) {
					err = collective.AllReduceInto(ctx, g, x, x, collective.Sum)
				}
				return err
			})
			for r, err := range errs {
				b, ok := errors.AsType[*collective.Blame](err)
				if !ok || b.Rank != 1 || b.Cause != collective.Canceled || fmt.Sprint(err) != fmt.Sprint(errs[0]) || errors.Is(err, context.Canceled) != (r == 1) {
					t.Errorf("try %d: rank %d has %v, rank 0 %v", try, r, err, errs[0])
				}
			}
			for r, err := range w.each(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) }) {
				if err != nil {
					t.Errorf("try %d: rank %d: the next step: %v", try, r, err)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestVotedCanceled: a rank whose context ends when only votes are missing gives the others two seconds. A step that they commit by then counts, and
// else the group has one error.
func TestVotedCanceled(t *testing.T) {
	for impatient := range 3 {
		for _, late := range []time.Duration{time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, inMemory, 3, collective.Options{})
				defer w.close()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				begin := time.Now()
				var took time.Duration
				errs := w.each(func(r int, g *collective.Group) error {
					if r == impatient {
						defer func() { took = time.Since(begin) }()
						return g.Barrier(ended)
					}
					time.Sleep(late)
					return g.Barrier(t.Context())
				})
				if late == time.Second {
					if err := errors.Join(errs...); err != nil {
						t.Errorf("rank %d cancels: %v", impatient, err)
					}
					w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
					return
				}
				for r, err := range errs {
					b, ok := errors.AsType[*collective.Blame](err)
					if !ok || b.Rank != impatient || b.Cause != collective.Canceled || fmt.Sprint(err) != fmt.Sprint(errs[0]) || errors.Is(err, context.Canceled) != (r == impatient) {
						t.Errorf("rank %d cancels: rank %d has %v, rank 0 %v", impatient, r, err, errs[0])
					}
				}
				if took > 3*time.Second+100*time.Millisecond {
					t.Errorf("rank %d cancels: it waits %v", impatient, took)
				}
			})
		}
	}
}
