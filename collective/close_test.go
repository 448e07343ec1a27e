package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// TestCloseBeforeTheLastVote: a rank that has voted and closes its group takes no more frames, and nobody's commit waits until it does.
func TestCloseBeforeTheLastVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rank := 0
		w := openWith(t, inMemory, 3, collective.Options{}, nil, func(s transport.Stream) transport.Stream {
			if rank++; rank > 1 {
				return s
			}
			return &lateStream{s, collective.KindVote, 10 * time.Millisecond} // of rank 0, which has all votes at once
		})
		defer w.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		errs := w.each(func(r int, g *collective.Group) error {
			if r < 2 {
				return g.Commit(ctx, 0)
			}
			time.AfterFunc(5*time.Millisecond, func() { _ = g.Close() })
			if err := g.Commit(ctx, 0); !errors.Is(err, collective.ErrClosed) {
				return fmt.Errorf("the commit of a group that was closed meanwhile: %w", err)
			}
			return nil
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
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

// A landingStream is one where all that was posted has begun to land.
type landingStream struct{ transport.Stream }

// Unpost implements transport.Stream.
func (landingStream) Unpost(transport.Name, transport.Key) bool { return false }

// TestCloseWhileLanding: an operation of a group that is closed fails when nothing lands in its memory any more, or a second later.
func TestCloseWhileLanding(t *testing.T) {
	for _, whole := range []bool{true, false} {
		for _, comes := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w := openWith(t, inMemory, 2, collective.Options{}, nil, func(s transport.Stream) transport.Stream { return landingStream{s} })
				defer w.close()
				groups := w.groups
				if !whole {
					groups = make([]*collective.Group, 2)
					for r, g := range w.groups {
						var err error
						if groups[r], err = g.Sub([]int{0, 1}); err != nil {
							t.Fatal(err)
						}
					}
				}
				src, dst := make([]float32, 30000), make([]float32, 30000)
				src[0] = 1
				op := collective.Op{Kind: collective.Broadcast, Root: 1}
				h := groups[0].Start(op, 0, collective.Of(dst), collective.Buffer{})
				begin := time.Now()
				var all sync.WaitGroup
				all.Go(func() { _ = groups[0].Close() })
				all.Go(func() {
					if err := h.Wait(t.Context()); !errors.Is(err, collective.ErrClosed) {
						t.Errorf("whole group %v: %v", whole, err)
					}
					if comes && dst[0] != 1 {
						t.Errorf("whole group %v: failed after %v, and the frame is still to land", whole, time.Since(begin))
					}
				})
				time.Sleep(100 * time.Millisecond)
				if comes {
					groups[1].Start(op, 0, collective.Of(make([]float32, 30000)), collective.Of(src))
				}
				all.Wait()
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("whole group %v: it took %v", whole, took)
				}
			})
		}
	}
}

// TestCommitWithoutOne: a rank that has left after the operations of a step, and before its vote, is missed at once.
func TestCommitWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{})
		defer w.close()
		for _, h := range []*collective.Handle{
			w.groups[0].Start(collective.Op{}, 0, collective.Of(make([]float32, 10)), collective.Of(make([]float32, 10))),
			w.groups[1].Start(collective.Op{}, 0, collective.Of(make([]float32, 10)), collective.Of(make([]float32, 10))),
		} {
			if err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.groups[1].Close()
		_ = w.ports[1].Close()
		synctest.Wait()
		begin := time.Now()
		err := w.groups[0].Commit(t.Context(), 0)
		if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 1 || b.Cause != collective.Lost {
			t.Errorf("rank 0 has %v", err)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A wardedStream is a landingStream that knows where frames of step 0 may still land.
type wardedStream struct {
	landingStream
	t     *testing.T
	taken [][]byte
}

// Post implements transport.Stream.
func (s *wardedStream) Post(from transport.Name, k transport.Key, dst []byte) error {
	for _, b := range s.taken {
		if &b[0] == &dst[0] {
			s.t.Errorf("step %d: posted where a frame of step 0 may still land", k.Op.Step())
		}
	}
	if k.Op.Step() == 0 {
		s.taken = append(s.taken, dst)
	}
	return s.Stream.Post(from, k, dst)
}

// TestLandingForEver: scratch in which a frame may land that never came is not used again.
func TestLandingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWith(t, inMemory, 2, collective.Options{Deadline: time.Second}, nil, func(s transport.Stream) transport.Stream {
			return &wardedStream{landingStream: landingStream{s}, t: t}
		})
		defer w.close()
		w.must(func(r int, g *collective.Group) error {
			for step := range uint64(5) {
				if step > 0 || r == 0 {
					src, dst := make([]float32, 30000), make([]float32, 30000)
					g.Start(collective.Op{Plan: collective.Pairwise}, 0, collective.Of(dst), collective.Of(src))
				} else {
					time.Sleep(500 * time.Millisecond)
				}
				err := g.Commit(t.Context(), step)
				if b, ok := errors.AsType[*collective.Blame](err); ok != (step == 0) || ok && (b.Rank != 1 || b.Cause != collective.Deadline) {
					return fmt.Errorf("rank %d, step %d: %w", r, step, err)
				}
			}
			return nil
		})
	})
}

// TestLeft: whoever waits for a rank that has closed its group, while its port stays open, is told at once that it has left. What it had done
// before is complete, whenever others ask for it, and what it is no part of goes on.
func TestLeft(t *testing.T) {
	const cells = 100_000 // several frames, which goodbye overtakes
	vector := func() collective.Buffer { return collective.Of(make([]float32, cells)) }
	left := func(t *testing.T, name string, r int, err error) {
		if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != r || b.Cause != collective.Lost || !strings.Contains(b.Evidence, "has left") {
			t.Errorf("%s: %v", name, err)
		}
	}
	type start func(r, tag int, op collective.Op) error // of rank r, which waits
	// The others have voted, and some of them leave, before rank 0 commits.
	voted := func(leave ...int) func(t *testing.T, w *world, g []*collective.Group, do start) {
		return func(t *testing.T, w *world, g []*collective.Group, do start) {
			w.must(func(r int, _ *collective.Group) error { return do(r, 0, collective.Op{}) })
			errs := make([]error, 3)
			var all sync.WaitGroup
			for _, r := range []int{1, 2} {
				all.Go(func() { errs[r] = g[r].Commit(t.Context(), 0) })
			}
			synctest.Wait()
			for _, r := range leave {
				_ = g[r].Close()
			}
			synctest.Wait()
			left(t, "rank 0", 1, g[0].Commit(t.Context(), 0))
			all.Wait()
			for _, r := range []int{1, 2} {
				if !slices.Contains(leave, r) {
					left(t, fmt.Sprint("rank ", r), 1, errs[r])
				} else if !errors.Is(errs[r], collective.ErrClosed) {
					t.Errorf("rank %d, which has left: %v", r, errs[r])
				}
			}
		}
	}
	for name, story := range map[string]func(t *testing.T, w *world, g []*collective.Group, do start){
		"after its vote":    voted(1),
		"after their votes": voted(1, 2),
		"before an operation": func(t *testing.T, w *world, g []*collective.Group, do start) {
			_ = g[2].Close()
			synctest.Wait()
			for r, err := range w.each(func(r int, _ *collective.Group) error {
				if r == 2 {
					return nil
				}
				return do(r, 0, collective.Op{})
			})[:2] {
				left(t, fmt.Sprint("rank ", r), 2, err)
			}
		},
		"before something is sent to it": func(t *testing.T, _ *world, g []*collective.Group, do start) {
			_ = g[2].Close()
			synctest.Wait()
			if err := do(0, 0, collective.Op{Kind: collective.Send, Root: 2}); err != nil { // all may have heard of it before the sender has returned
				left(t, "the send", 2, err)
			}
			left(t, "rank 0", 2, g[0].Commit(t.Context(), 0))
		},
		"in an operation": func(t *testing.T, w *world, g []*collective.Group, do start) {
			for r, err := range w.each(func(r int, _ *collective.Group) error {
				if r == 0 {
					time.Sleep(10 * time.Millisecond)
					return g[0].Close()
				}
				return do(r, 0, collective.Op{Plan: collective.Ring})
			})[1:] {
				left(t, fmt.Sprint("rank ", r+1), 0, err)
			}
		},
		"after an operation": func(t *testing.T, w *world, g []*collective.Group, do start) {
			cast := collective.Op{Kind: collective.Broadcast, Root: 1, Plan: collective.GatherCast}
			if err := do(1, 0, cast); err != nil {
				t.Error(err)
			}
			_ = g[1].Close()
			synctest.Wait()
			var all sync.WaitGroup
			for _, r := range []int{0, 2} {
				all.Go(func() {
					if err := do(r, 0, cast); err != nil {
						t.Errorf("rank %d: what it had done: %v", r, err)
					}
					if err := do(r, 1, collective.Op{Kind: collective.Send + collective.Kind(r/2), Root: 2 - r}); err != nil {
						t.Errorf("rank %d: what it is no part of: %v", r, err)
					}
				})
			}
			all.Wait()
			for _, r := range []int{0, 2} {
				all.Go(func() { left(t, fmt.Sprint("the commit of rank ", r), 1, g[r].Commit(t.Context(), 0)) })
			}
			all.Wait()
		},
		"in a commit": func(t *testing.T, w *world, g []*collective.Group, do start) {
			w.must(func(r int, _ *collective.Group) error { return do(r, 0, collective.Op{}) })
			for r, err := range w.each(func(r int, _ *collective.Group) error {
				if r == 1 {
					time.Sleep(10 * time.Millisecond)
					return g[1].Close()
				}
				return g[r].Commit(t.Context(), 0)
			}) {
				if r != 1 {
					left(t, fmt.Sprint("rank ", r), 1, err)
				}
			}
		},
	} {
		for _, sub := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/sub-group %v", name, sub), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := open(t, inMemory, 3, collective.Options{})
					defer w.close()
					groups := w.groups
					if sub {
						groups = make([]*collective.Group, 3)
						w.must(func(r int, g *collective.Group) (err error) {
							groups[r], err = g.Sub([]int{0, 1, 2})
							return err
						})
					}
					begin := time.Now()
					story(t, w, groups, func(r, tag int, op collective.Op) error {
						return groups[r].Start(op, uint32(tag), vector(), vector()).Wait(t.Context())
					})
					if took := time.Since(begin); took > 100*time.Millisecond {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// TestLeftBeforeSub: a rank that leaves the whole group is missed in the sub-groups that others have made, or make then, without it.
func TestLeftBeforeSub(t *testing.T) {
	for _, made := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 2, collective.Options{})
			defer w.close()
			var sub *collective.Group
			begin := time.Now()
			for _, leave := range []bool{!made, made} {
				if leave {
					_ = w.groups[1].Close()
					synctest.Wait()
					continue
				}
				var err error
				if sub, err = w.groups[0].Sub([]int{1, 0}); err != nil {
					t.Fatal(err)
				}
			}
			x := []float32{1}
			err := collective.AllReduceInto(t.Context(), sub, x, x, collective.Sum)
			if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 0 || b.Cause != collective.Lost {
				t.Errorf("made before %v: %v", made, err)
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("made before %v: it took %v", made, took)
			}
		})
	}
}

// TestSubLeftBefore: a rank that has closed a sub-group before another has made it is missed there.
func TestSubLeftBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{})
		defer w.close()
		begin := time.Now()
		for r, g := range w.groups {
			sub, err := g.Sub([]int{1, 0})
			if err != nil {
				t.Fatal(err)
			}
			if r == 0 {
				_ = sub.Close()
				synctest.Wait()
				continue
			}
			x := []float32{1}
			err = collective.AllReduceInto(t.Context(), sub, x, x, collective.Sum)
			if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 1 || b.Cause != collective.Lost {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestSubOfClosed: a group that is closed, or has failed, has no sub-groups: in one, nothing would come and no deadline pass.
func TestSubOfClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{})
		defer w.close()
		_ = w.groups[0].Close()
		if _, err := w.groups[0].Sub([]int{0, 1}); !errors.Is(err, collective.ErrClosed) {
			t.Errorf("of a closed group: %v", err)
		}
		x := []float32{1}
		failure := collective.AllReduceInto(t.Context(), w.groups[1], x, x, collective.Sum)
		if _, err := w.groups[1].Sub([]int{0, 1}); failure == nil || fmt.Sprint(err) != fmt.Sprint(failure) {
			t.Errorf("of a group that has failed with %v: %v", failure, err)
		}
	})
}
