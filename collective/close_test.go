package collective_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

// slowVotes is a stream that returns late from sending a frame by which a rank votes, as one does whose goroutine has lost its processor:
// the next vote is still to be sent when the peer has done with the first.
type slowVotes struct {
	transport.Stream
	kind uint8
	time time.Duration
}

func (s *slowVotes) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	err := s.Stream.Send(ctx, to, f)
	if f.Kind == s.kind {
		time.Sleep(s.time) // in a bubble of synctest
	}
	return err
}

// TestCloseAfterCommit: a rank that closes its group as soon as its commit is over has still told the others that it voted. Rank 0 of a
// few is at the end of its commit when it has heard all votes; what the others wait for it then still has to send.
func TestCloseAfterCommit(t *testing.T) {
	for _, size := range []int{3, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := openWith(t, inMemory, size, collective.Options{Deadline: time.Minute}, nil, func(s transport.Stream) transport.Stream {
				return &slowVotes{s, collective.KindVote, 10 * time.Millisecond}
			})
			defer w.close()
			errs := make([]error, size)
			begin := time.Now()
			var all sync.WaitGroup
			for r, g := range w.groups {
				all.Go(func() {
					x := []float32{1, 2}
					errs[r] = collective.AllReduceInto(t.Context(), g, x, x, collective.Sum)
					_ = g.Close()
					if want := fmt.Sprint([]int{size, 2 * size}); errs[r] == nil && fmt.Sprint(x) != want {
						errs[r] = fmt.Errorf("sum %v, want %s", x, want)
					}
				})
			}
			all.Wait()
			for r, err := range errs {
				if err != nil {
					t.Errorf("%d ranks: rank %d: %v", size, r, err)
				}
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("%d ranks: it took %v of votes of 10 ms", size, took)
			}
		})
	}
}

// heldSend is a stream whose first send of an operation's frame is held up, and which tells who is sent to.
type heldSend struct {
	transport.Stream
	held sync.Once
	time time.Duration
	tell func(to transport.Name)
}

func (s *heldSend) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	s.tell(to)
	if f.Kind == collective.KindData {
		s.held.Do(func() { time.Sleep(s.time) }) // in a bubble of synctest, whatever ctx says: its goroutine has lost its processor
	}
	return s.Stream.Send(ctx, to, f)
}

// TestStartBesideClose: where Start is held up in its first send until after Close, what it has still to send begins no goroutine, which
// nobody would wait for.
func TestStartBesideClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3
		var mu sync.Mutex
		closed := false
		var late []string
		first := true
		w := openWith(t, inMemory, size, collective.Options{MaxFrame: 16 << 10, Window: 16 << 10}, nil, func(s transport.Stream) transport.Stream {
			if !first {
				return s
			}
			first = false
			return &heldSend{Stream: s, time: 5 * time.Second, tell: func(to transport.Name) {
				mu.Lock()
				defer mu.Unlock()
				if closed {
					late = append(late, to.ID)
				}
			}}
		})
		defer w.close()
		src, dst := make([]float32, 3000), make([]float32, 3)
		var all sync.WaitGroup
		all.Go(func() { // a little for rank 1 at once, and more for rank 2 than is sent at once
			op := collective.Op{Kind: collective.AllToAll, Counts: []int{1, 1, 2998}, Recv: []int{1, 1, 1}}
			if err := w.groups[0].Start(op, 0, collective.Of(dst), collective.Of(src)).Wait(t.Context()); err == nil {
				t.Error("an operation of a closed group is complete")
			}
		})
		time.Sleep(time.Second)
		_ = w.groups[0].Close()
		mu.Lock()
		closed = true
		mu.Unlock()
		all.Wait()
		synctest.Wait()
		if len(late) > 0 {
			t.Errorf("after Close something was sent to %v", late)
		}
	})
}
