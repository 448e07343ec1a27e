package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

func TestCase9Tags(t *testing.T) {
	const size, tags, n = 4, 64, 1025
	w := open(t, inMemory, size, collective.Options{})
	for round := range uint64(3) {
		w.must(func(r int, g *collective.Group) error {
			order := rand.New(rand.NewPCG(round, uint64(r))).Perm(tags)
			dst := make([][]int32, tags)
			hs := make([]*collective.Handle, tags)
			for _, k := range order {
				src := make([]int32, n)
				for i := range src {
					src[i] = int32(k*i + r)
				}
				dst[k] = make([]int32, n)
				hs[k] = g.Start(collective.Op{}, uint32(k), collective.Of(dst[k]), collective.Of(src))
			}
			second := g.Start(collective.Op{}, 5, collective.Of(make([]int32, n)), collective.Of(make([]int32, n)))
			if err := second.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "the second is refused") {
				return fmt.Errorf("a tag that is taken: %w", err)
			}
			for _, k := range order {
				if err := hs[k].Wait(t.Context()); err != nil {
					return err
				}
			}
			if err := g.Commit(t.Context(), g.Step()); err != nil {
				return err
			}
			for k := range dst {
				for i, v := range dst[k] {
					if want := int32(size*k*i + size*(size-1)/2); v != want {
						return fmt.Errorf("tag %d, element %d: %d, want %d", k, i, v, want)
					}
				}
			}
			return nil
		})
	}
}

func TestCase9SubGroups(t *testing.T) {
	const size = 5
	w := open(t, inMemory, size, collective.Options{})
	w.must(func(r int, g *collective.Group) error {
		var ranks []int
		for q := r % 2; q < size; q += 2 {
			ranks = append(ranks, q)
		}
		sub, err := g.Sub(ranks)
		if err != nil {
			return err
		}
		if _, err := g.Sub(ranks); err == nil {
			return errors.New("a sub-group is made twice")
		}
		for range 20 {
			x, all := []int64{int64(r)}, []int64{int64(r)}
			h := g.Start(collective.Op{}, 3, collective.Of(make([]int64, 1)), collective.Of(all))
			if err := collective.AllReduceInto(t.Context(), sub, x, x, collective.Sum); err != nil {
				return err
			}
			if want := []int64{0 + 2 + 4, 1 + 3}[r%2]; x[0] != want {
				return fmt.Errorf("rank %d: the sum of its half is %d, want %d", r, x[0], want)
			}
			if err := h.Wait(t.Context()); err != nil {
				return err
			}
			if err := g.Commit(t.Context(), g.Step()); err != nil {
				return err
			}
		}
		if sub.Size() != len(ranks) || ranks[sub.Rank()] != r {
			return fmt.Errorf("rank %d of %d", sub.Rank(), sub.Size())
		}
		return sub.Close()
	})
	if _, err := w.groups[0].Sub([]int{1, 2}); err == nil {
		t.Error("a sub-group without this rank")
	}
	if _, err := w.groups[0].Sub([]int{0, 9}); err == nil {
		t.Error("a sub-group with a rank that is none")
	}
}

// An epochCounter is a stream that counts the frames of data that it sends in each epoch.
type epochCounter struct {
	transport.Stream
	mu   sync.Mutex
	sent map[transport.Epoch]int
}

// Send implements transport.Stream.
func (s *epochCounter) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	if f.Kind == collective.KindData {
		s.mu.Lock()
		s.sent[f.Epoch]++
		s.mu.Unlock()
	}
	return s.Stream.Send(ctx, to, f)
}

// Frames of an old epoch are never applied: one that a rank sends which does not know yet that another has gone on has the step, the tag and the
// descriptor of an operation of the new epoch, and comes on the same stream before that.
func TestEpochFence(t *testing.T) {
	var streams []*epochCounter
	w := openWith(t, inMemory, 2, collective.Options{}, nil, func(s transport.Stream) transport.Stream {
		streams = append(streams, &epochCounter{Stream: s, sent: map[transport.Epoch]int{}})
		return streams[len(streams)-1]
	})
	again := func(r int) {
		t.Helper()
		if err := w.groups[r].Close(); err != nil {
			t.Fatal(err)
		}
		g, err := collective.New(streams[r], collective.View{Epoch: 2, Peers: []transport.Name{w.ports[0].Name(), w.ports[1].Name()}, Self: r}, collective.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.groups[r] = g
	}
	op := collective.Op{Plan: collective.Doubling} // each rank sends at once
	again(1)
	h := w.groups[0].Start(op, 0, collective.Of(make([]float32, 1)), collective.Of([]float32{1}))
	if err := h.Wait(t.Context()); err == nil {
		t.Error("an operation of the old epoch has no error, with a rank that has left it")
	}
	again(0)
	w.must(func(r int, g *collective.Group) error {
		dst := make([]float32, 1)
		if err := run(t.Context(), g, op, collective.Of(dst), collective.Of([]float32{float32(10 * (r + 1))})); err != nil {
			return err
		}
		if dst[0] != 30 {
			return fmt.Errorf("the sum is %v", dst[0])
		}
		return nil
	})
	streams[0].mu.Lock()
	sent := streams[0].sent[1]
	streams[0].mu.Unlock()
	if stale := w.ports[1].Stats().Stale; sent == 0 || stale < uint64(sent) {
		t.Errorf("in the old epoch rank 0 has sent %d frames of data, and %d frames were dropped at rank 1: this test finds nothing", sent, stale)
	}
}

// Frames that come before their turn must not use up the credit of those whose turn it is.
func TestSmallWindow(t *testing.T) {
	for name, n := range map[string]network{"memory": inMemory, "tcp": overTCP} {
		w := openHosts(t, n, 4, collective.Options{MaxFrame: 4096, Segment: 1024, Window: 8192}, collective.HostsOf(4, 2))
		for _, a := range algorithms {
			w.must(func(r int, g *collective.Group) error {
				n := 40_000
				if testing.Short() {
					n = 10_000 // five windows
				}
				src, dst := make([]float32, n), [2][]float32{make([]float32, n), make([]float32, n)}
				for i := range src {
					src[i] = float32(i%100 + r)
				}
				op := collective.Op{Plan: a}
				first := g.Start(op, 0, collective.Of(dst[0]), collective.Of(src))
				if r%2 == 0 { // the others start the second one when the first is done
					if err := first.Wait(t.Context()); err != nil {
						return fmt.Errorf("%s, %v: %w", name, a, err)
					}
				}
				g.Start(op, 1, collective.Of(dst[1]), collective.Of(src))
				if err := g.Commit(t.Context(), g.Step()); err != nil {
					return fmt.Errorf("%s, %v: %w", name, a, err)
				}
				for _, d := range dst {
					for i, v := range d {
						if want := float32(4*(i%100) + 6); v != want {
							return fmt.Errorf("%s, %v: %v at %d, want %v", name, a, v, i, want)
						}
					}
				}
				return nil
			})
		}
		w.close()
	}
}

// TestSubGroupLate: nor must those of a sub-group that is not made yet, which here has to wait for what the group does.
func TestSubGroupLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openHosts(t, inMemory, 4, collective.Options{MaxFrame: 4096, Segment: 1024, Window: 8192}, collective.HostsOf(4, 2))
		defer w.close()
		for _, a := range algorithms {
			w.must(func(r int, g *collective.Group) error {
				src, dst := make([]float32, 10_000), [2][]float32{make([]float32, 10_000), make([]float32, 10_000)} // five windows
				for i := range src {
					src[i] = float32(i%100 + r)
				}
				op := collective.Op{Plan: a}
				first := g.Start(op, 0, collective.Of(dst[0]), collective.Of(src))
				if r%2 == 0 { // the others make it, and start there, meanwhile
					if err := first.Wait(t.Context()); err != nil {
						return fmt.Errorf("%v: %w", a, err)
					}
				}
				sub, err := g.Sub([]int{0, 1, 2, 3})
				if err != nil {
					return err
				}
				sub.Start(op, 0, collective.Of(dst[1]), collective.Of(src))
				if err := errors.Join(sub.Commit(t.Context(), sub.Step()), g.Commit(t.Context(), g.Step())); err != nil {
					return fmt.Errorf("%v: %w", a, err)
				}
				for _, d := range dst {
					for i, v := range d {
						if want := float32(4*(i%100) + 6); v != want {
							return fmt.Errorf("%v: %v at %d, want %v", a, v, i, want)
						}
					}
				}
				return sub.Close()
			})
		}
	})
}

func TestCommitRefusesAnotherStep(t *testing.T) {
	w := open(t, inMemory, 1, collective.Options{FirstStep: 7})
	if err := w.groups[0].Commit(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "at step 7") {
		t.Error(err)
	}
	if err := w.groups[0].Commit(t.Context(), 7); err != nil {
		t.Error(err)
	}
}

// TestSubGroupAgain: a sub-group is made again after one of the same ranks was closed in the middle of an operation. What was sent in that
// one, and comes late, is of no use to the new one, and takes nothing of its room.
func TestSubGroupAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{MaxFrame: 4 << 10, Window: 16 << 10})
		defer w.close()
		w.must(func(r int, g *collective.Group) error {
			for round := range 20 {
				sub, err := g.Sub([]int{0, 1})
				if err != nil {
					return err
				}
				src, dst := make([]float32, 1000), make([]float32, 1000)
				for i := range src {
					src[i] = float32(round)
				}
				givesUp := round%2 == 0 // rank 0 does
				if givesUp && r == 1 {
					time.Sleep(time.Millisecond)
				}
				h := sub.Start(collective.Op{}, 0, collective.Of(dst), collective.Of(src))
				if givesUp {
					_ = sub.Close()
				}
				if err := h.Wait(t.Context()); !givesUp && (err != nil || dst[0] != 2*float32(round)) {
					return fmt.Errorf("rank %d, round %d: the sum is %v: %w", r, round, dst[0], err)
				}
				_ = sub.Close()
				if err := g.Barrier(t.Context()); err != nil {
					return fmt.Errorf("rank %d, round %d: %w", r, round, err)
				}
			}
			return nil
		})
	})
}
