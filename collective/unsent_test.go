package collective_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

// slowDone is a stream that says late that it is through with the memory of data.
type slowDone struct {
	transport.Stream
	time time.Duration
}

func (s *slowDone) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	if done := f.Done; f.Kind == collective.KindData {
		f.Done = func(err error) { time.AfterFunc(s.time, func() { done(err) }) }
	}
	return s.Stream.Send(ctx, to, f)
}

// TestUnsent: where the context of Commit ends after all have committed, and before the stream is through with the memory, the error says
// that the step counts, and the group goes on.
func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		w := openWith(t, inMemory, 2, collective.Options{}, nil, func(s transport.Stream) transport.Stream {
			if !first {
				return s
			}
			first = false
			return &slowDone{s, time.Second}
		})
		defer w.close()
		step := func(limit time.Duration) (errs [2]error, sums [2]float32) {
			var all sync.WaitGroup
			for r, g := range w.groups {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					dst := make([]float32, 1)
					errs[r] = collective.AllReduceInto(ctx, g, dst, []float32{1}, collective.Sum)
					sums[r] = dst[0]
				})
			}
			all.Wait()
			return errs, sums
		}
		errs, sums := step(100 * time.Millisecond)
		unsent, ok := errors.AsType[*collective.UnsentError](errs[0])
		if !ok || unsent.Step != 0 || unsent.To != w.ports[1].Name() || !errors.Is(errs[0], context.DeadlineExceeded) || !strings.Contains(errs[0].Error(), "step 0 counts") {
			t.Errorf("rank 0: %v", errs[0])
		}
		if errs[1] != nil || sums != [2]float32{2, 2} {
			t.Errorf("rank 1: %v; sums %v", errs[1], sums)
		}
		if errs, sums := step(time.Minute); errs != [2]error{} || sums != [2]float32{2, 2} {
			t.Errorf("the next step: %v, sums %v", errs, sums)
		}
	})
}

// TestUnsentOfAnEndedContext: where the context has ended before Commit, the stream has two seconds to be through with the memory.
func TestUnsentOfAnEndedContext(t *testing.T) {
	for slow, want := range map[time.Duration]bool{time.Second: false, 5 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			w := openWith(t, inMemory, 2, collective.Options{}, nil, func(s transport.Stream) transport.Stream { return &slowDone{s, slow} })
			defer w.close()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			for r, err := range w.each(func(_ int, g *collective.Group) error {
				if err := g.Start(collective.Op{}, 0, collective.Of(make([]float32, 1)), collective.Of([]float32{1})).Wait(t.Context()); err != nil {
					return err
				}
				return g.Commit(ended, g.Step())
			}) {
				if _, unsent := errors.AsType[*collective.UnsentError](err); unsent != want || errors.Is(err, context.Canceled) != want || !unsent && err != nil {
					t.Errorf("through after %v: rank %d: %v", slow, r, err)
				}
			}
		})
	}
}

// heldTell is a stream that is held up as it says, in the group's timer, that an operation takes long.
type heldTell struct {
	transport.Stream
	time time.Duration
	busy atomic.Bool
}

func (s *heldTell) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	if f.Kind == collective.KindStarted {
		s.busy.Store(true)
		time.Sleep(s.time) // in a bubble of synctest: its goroutine has lost its processor
		defer s.busy.Store(false)
	}
	return s.Stream.Send(ctx, to, f)
}

// TestCloseBesideTick: Close waits for what the group's timer does, however long that takes.
func TestCloseBesideTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &heldTell{time: time.Minute}
		w := openWith(t, inMemory, 2, collective.Options{}, nil, func(s transport.Stream) transport.Stream {
			if held.Stream == nil {
				held.Stream = s
				return held
			}
			return s
		})
		defer w.close()
		w.groups[0].Start(collective.Op{}, 0, collective.Of(make([]float32, 1)), collective.Of([]float32{1}))
		time.Sleep(100 * time.Millisecond)
		if !held.busy.Load() {
			t.Error("the timer has told nobody")
		}
		_ = w.groups[0].Close()
		if held.busy.Load() {
			t.Error("the timer's goroutine outlives Close")
		}
	})
}
