package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// anyTag is where messages of any rank are received.
const anyTag = 5

// message is what a rank sends.
func message(rank, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(1000*rank + i)
	}
	return x
}

func sendTo(g *collective.Group, root int, tag uint32, n int) *collective.Handle {
	return g.Start(collective.Op{Kind: collective.Send, Root: root}, tag, collective.Buffer{}, collective.Of(message(g.Rank(), n)))
}

// An inbox is receives from any rank at one tag.
type inbox struct {
	handles []*collective.Handle
	boxes   [][]int32
}

func (b *inbox) begin(g *collective.Group, tag uint32, n int) *collective.Handle {
	y := make([]int32, n)
	h := g.Start(collective.Op{Kind: collective.Receive, Root: collective.AnyRank}, tag, collective.Of(y), collective.Buffer{})
	b.handles, b.boxes = append(b.handles, h), append(b.boxes, y)
	return h
}

// wait returns who sent, in the order of the receives, whose messages are whole.
func (b *inbox) wait(ctx context.Context) (from []int, err error) {
	for i, h := range b.handles {
		if err := h.Wait(ctx); err != nil {
			return from, err
		}
		if got, want := b.boxes[i], message(h.From(), len(b.boxes[i])); !slices.Equal(got, want) {
			return from, fmt.Errorf("from rank %d: %v, want %v", h.From(), got[:min(8, len(got))], want[:min(8, len(want))])
		}
		from = append(from, h.From())
	}
	return from, nil
}

// TestReceiveAny: messages are taken in the order in which they come, whether or not they are waited for by then, each by the receive
// whose turn it is; also where they have many frames, or one of nothing.
func TestReceiveAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 2, 20_000} {
			w := open(t, inMemory, 4, collective.Options{Segment: 16 << 10})
			for step, order := range [][]int{{2, 3, 1}, {1, 2, 3}, {3, 1, 2}, {3, 2, 1}} {
				for _, late := range []int{0, 1, 3} { // of the receives, so many are begun when all messages have come
					w.must(func(r int, g *collective.Group) error {
						if r != 0 {
							time.Sleep(time.Duration(1+slices.Index(order, r)) * time.Millisecond)
							if err := sendTo(g, 0, anyTag, n).Wait(t.Context()); err != nil {
								return err
							}
							return g.Commit(t.Context(), g.Step())
						}
						var in inbox
						for range 3 - late {
							in.begin(g, anyTag, n)
						}
						time.Sleep(10 * time.Millisecond)
						for range late {
							in.begin(g, anyTag, n)
						}
						from, err := in.wait(t.Context())
						if err == nil && !slices.Equal(from, order) {
							err = fmt.Errorf("%d elements, step %d, %d late: from %v, want %v", n, step, late, from, order)
						}
						return errors.Join(err, g.Commit(t.Context(), g.Step()))
					})
				}
			}
			w.close()
		}
	})
}

// TestReceiveAnyAsTheyCome: whoever sends is served at once, while the others compute, and may be answered.
func TestReceiveAnyAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		begin := time.Now()
		w.must(func(r int, g *collective.Group) error {
			answer := make([]int32, 2)
			if r != 0 {
				time.Sleep(time.Duration(3-r) * time.Second) // longer than a rank waits before it asks who sends
				sendTo(g, 0, anyTag, 2)
				h := g.Start(collective.Op{Kind: collective.Receive, Root: 0}, uint32(r), collective.Of(answer), collective.Buffer{})
				if err := h.Wait(t.Context()); err != nil {
					return err
				}
				if took, want := time.Since(begin), time.Duration(3-r)*time.Second; took != want {
					return fmt.Errorf("rank %d was answered after %v, want %v", r, took, want)
				}
				return g.Commit(t.Context(), g.Step())
			}
			var in inbox
			for range 2 {
				h := in.begin(g, anyTag, 2)
				if err := h.Wait(t.Context()); err != nil {
					return err
				}
				sendTo(g, h.From(), uint32(h.From()), 2)
			}
			if from, err := in.wait(t.Context()); err != nil || !slices.Equal(from, []int{2, 1}) {
				return fmt.Errorf("from %v, %w", from, err)
			}
			return g.Commit(t.Context(), g.Step())
		})
	})
}

func TestReceiveAnyOverTCP(t *testing.T) {
	for _, n := range []int{1, 100_000} {
		w := open(t, overTCP, 3, collective.Options{})
		for range 20 {
			w.must(func(r int, g *collective.Group) error {
				if r != 0 {
					sendTo(g, 0, anyTag, n)
					return g.Commit(t.Context(), g.Step())
				}
				var in inbox
				in.begin(g, anyTag, n)
				in.begin(g, anyTag, n)
				from, err := in.wait(t.Context())
				if slices.Sort(from); err == nil && !slices.Equal(from, []int{1, 2}) {
					err = fmt.Errorf("from %v", from)
				}
				return errors.Join(err, g.Commit(t.Context(), g.Step()))
			})
		}
		w.close()
	}
}

// TestReceiveAnyBesideOthers: a receive from any at one tag, and one from a named rank at another, take what is theirs. At one tag they
// are refused, and so are two from any of different lengths, and an operation of another kind.
func TestReceiveAnyBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		w.must(func(r int, g *collective.Group) error {
			if r != 0 {
				sendTo(g, 0, uint32(r), 3) // rank 2 sends at the other tag
				return g.Commit(t.Context(), 0)
			}
			var in inbox
			y := make([]int32, 3)
			named := g.Start(collective.Op{Kind: collective.Receive, Root: 2}, 2, collective.Of(y), collective.Buffer{})
			in.begin(g, 1, 3)
			for what, h := range map[string]*collective.Handle{
				"from any":          (&inbox{}).begin(g, 2, 3),
				"by name":           g.Start(collective.Op{Kind: collective.Receive, Root: 1}, 1, collective.Of(message(0, 3)), collective.Buffer{}),
				"of another length": (&inbox{}).begin(g, 1, 4),
				"a send":            sendTo(g, 1, 1, 3),
			} {
				if err := h.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "the second is refused") {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
			if from, err := in.wait(t.Context()); err != nil || !slices.Equal(from, []int{1}) {
				return fmt.Errorf("from %v, %w", from, err)
			}
			if err := named.Wait(t.Context()); err != nil || named.From() != 2 || !slices.Equal(y, message(2, 3)) {
				return fmt.Errorf("from rank %d, %v, %w", named.From(), y, err)
			}
			return g.Commit(t.Context(), 0)
		})
	})
}

// TestReceiveAnySettled: what is settled was received, and the messages that follow are others.
func TestReceiveAnySettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		w.must(func(r int, g *collective.Group) error {
			for tag := range uint32(3) {
				var in inbox
				if r == 0 {
					in.begin(g, tag, 2)
					in.begin(g, tag, 2)
				} else {
					time.Sleep(time.Duration(r) * time.Second)
					sendTo(g, 0, tag, 2)
				}
				if from, err := in.wait(t.Context()); err != nil || r == 0 && !slices.Equal(from, []int{1, 2}) {
					return fmt.Errorf("tag %d: from %v, %w", tag, from, err)
				}
				if err := g.Settle(t.Context()); err != nil {
					return err
				}
			}
			return g.Commit(t.Context(), 0)
		})
	})
}

// TestReceiveAnyInSubGroups: ranks are those of the sub-group, and what came before it was made is taken in its order.
func TestReceiveAnyInSubGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 4, collective.Options{})
		w.must(func(r int, g *collective.Group) error {
			if r == 0 {
				return nil
			}
			time.Sleep(time.Duration(r) * time.Millisecond)
			sub, err := g.Sub([]int{3, 2, 1})
			if err != nil {
				return err
			}
			if r != 3 {
				sendTo(sub, 0, anyTag, 2)
				return sub.Commit(t.Context(), 0)
			}
			var in inbox
			in.begin(sub, anyTag, 2)
			in.begin(sub, anyTag, 2)
			from, err := in.wait(t.Context())
			if err == nil && !slices.Equal(from, []int{2, 1}) {
				err = fmt.Errorf("from %v", from)
			}
			return errors.Join(err, sub.Commit(t.Context(), 0))
		})
	})
}

// TestReceiveAnyOfEachOther: ranks that wait for any at one tag, where nobody sends, wait for one another. It is found as other mismatches are.
func TestReceiveAnyOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{})
		begin := time.Now()
		for r, err := range anyStep(t, w, func(_ int, g *collective.Group) []*collective.Handle { return anyOf(g, 1, 2) }) {
			if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "ends" || m.A != "any to 0" || m.B != "any to 1" {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		works(t, w)
	})
}

// TestReceiveAnyFewerThanWait: where fewer ranks may still send than receives wait, they fail, though one may; who does not is named.
func TestReceiveAnyFewerThanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		begin := time.Now()
		for r, err := range anyStep(t, w, func(r int, g *collective.Group) []*collective.Handle {
			switch r {
			case 0:
				hs := anyOf(g, 2, 2)
				_ = hs[1].Wait(t.Context())
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				return hs
			case 1:
				time.Sleep(time.Second)
			}
			return nil
		}) {
			if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != 2 || b.Cause != collective.Deadline {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		works(t, w)
	})
}

// TestReceiveAnyOfOtherPair: a rank that waits for any where two others have done something, and settled it, has begun something else than they.
func TestReceiveAnyOfOtherPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		begin := time.Now()
		for r, err := range w.each(func(r int, g *collective.Group) error {
			switch r {
			case 0:
				anyOf(g, 1, 2)
			case 1:
				g.Start(collective.Op{Kind: collective.Receive, Root: 2}, anyTag, collective.Of(make([]int32, 2)), collective.Buffer{})
			case 2:
				sendTo(g, 1, anyTag, 2)
			}
			g.Start(collective.Op{}, anyTag+1, collective.Of(make([]int32, 2)), collective.Of(message(r, 2)))
			if r != 0 {
				if err := g.Settle(t.Context()); err != nil {
					return err
				}
			}
			return g.Commit(t.Context(), 0)
		}) {
			if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "operations of the step" || m.Tag != anyTag || m.RankA != 0 {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		works(t, w)
	})
}
