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

// A slowPath is a stream that takes a while for each frame of data to one rank, and knows the tags of those.
type slowPath struct {
	transport.Stream
	to   string
	time time.Duration
	mu   sync.Mutex
	tags []uint32
}

func (s *slowPath) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	if f.Kind == collective.KindData && to.ID == s.to {
		s.mu.Lock()
		s.tags = append(s.tags, f.Op.Index())
		s.mu.Unlock()
		select {
		case <-time.After(s.time): // in a bubble of synctest
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Stream.Send(ctx, to, f)
}

// openSlow opens groups of which rank 0 has a slow link to the last one.
func openSlow(t *testing.T, size int) (*world, *slowPath) {
	t.Helper()
	slow := &slowPath{to: fmt.Sprint(size - 1), time: 100 * time.Millisecond}
	w := openWith(t, inMemory, size, collective.Options{Segment: longFrame}, nil, func(s transport.Stream) transport.Stream {
		if slow.Stream == nil {
			slow.Stream = s
			return slow
		}
		return s
	})
	return w, slow
}

const longFrame = 16 << 10 // from here on another goroutine sends, where the caller has something else to do

// sendSlowly starts a transfer from rank 0 to the last one of so many long frames.
func sendSlowly(w *world, tag uint32, frames int, p collective.Priority) (received *collective.Handle) {
	x := func() collective.Buffer { return collective.Of(make([]float32, frames*longFrame/4)) }
	last := len(w.groups) - 1
	w.groups[0].Start(collective.Op{Kind: collective.Send, Root: last, Priority: p, Aside: true}, tag, collective.Buffer{}, x())
	return w.groups[last].Start(collective.Op{Kind: collective.Receive, Root: 0, Priority: p}, tag, x(), collective.Buffer{})
}

// TestReportBesideData: what a rank says of a failure does not wait behind the data that it has to send. The others would conclude without
// it.
func TestReportBesideData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := openSlow(t, 3)
		defer w.close()
		sendSlowly(w, 0, 50, collective.Normal)
		begin := time.Now()
		for r, err := range w.each(func(r int, g *collective.Group) error {
			ctx := t.Context()
			h := g.Start(collective.Op{Plan: collective.Pairwise}, 1, collective.Of(make([]float32, 100)), collective.Of(make([]float32, 100)))
			if r == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
			}
			return h.Wait(ctx)
		}) {
			if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 0 || b.Cause != collective.Canceled {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if took := time.Since(begin); took > 300*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestPriorityOfWhatWaits: of the frames that wait for a rank, those go first that are to go before all others.
func TestPriorityOfWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, slow := openSlow(t, 2)
		defer w.close()
		var all []*collective.Handle
		for tag, p := range []collective.Priority{collective.Back, collective.Normal, collective.Front} {
			all = append(all, sendSlowly(w, uint32(tag), 3, p))
			synctest.Wait() // the first frame of all is on its way
		}
		for _, h := range all {
			if err := h.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got, want := fmt.Sprint(slow.tags), "[0 2 2 2 1 1 1 0 0]"; got != want {
			t.Errorf("frames of %v, want %v", got, want)
		}
	})
}

// TestCloseWithMuchToSend: a rank that closes its group with more to send than Close waits for is missed as soon as Close is over, by the
// one that would have got it as well: in the whole group, in a sub-group, and in one that was closed before.
func TestCloseWithMuchToSend(t *testing.T) {
	for _, c := range []struct{ sub, before bool }{{}, {sub: true}, {sub: true, before: true}} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := openSlow(t, 2)
			defer w.close()
			all := w.groups
			if c.sub {
				w.groups = make([]*collective.Group, 2)
				for r, g := range all {
					var err error
					if w.groups[r], err = g.Sub([]int{0, 1}); err != nil {
						t.Fatal(err)
					}
				}
			}
			h := sendSlowly(w, 0, 50, collective.Normal)
			begin := time.Now()
			if c.before {
				_ = w.groups[0].Close()
			}
			w.groups = all
			var closing sync.WaitGroup
			closing.Go(func() { _ = w.groups[0].Close() })
			err := h.Wait(t.Context())
			if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 0 || b.Cause != collective.Lost {
				t.Errorf("%+v: %v", c, err)
			}
			if took := time.Since(begin); took > 1100*time.Millisecond {
				t.Errorf("%+v: it took %v", c, took)
			}
			closing.Wait()
		})
	}
}
