package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

func TestCase8Mismatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f32, i32 := collective.Of(make([]float32, 12)), collective.Of(make([]int32, 12))
		half := collective.Of(make([]float32, 6))
		topk, _ := compress.Parse("topk:0.1")
		type ask struct {
			op       collective.Op
			dst, src collective.Buffer
		}
		for _, v := range []struct {
			name, field string
			a, b        ask
		}{
			{"operation", "operation", ask{collective.Op{}, f32, f32}, ask{collective.Op{Kind: collective.Broadcast}, f32, f32}},
			{"broadcast and gather", "operation", ask{collective.Op{Kind: collective.Broadcast}, f32, f32}, ask{collective.Op{Kind: collective.Gather}, f32, collective.Of(make([]float32, 4))}},
			{"dtype", "dtype", ask{collective.Op{}, f32, f32}, ask{collective.Op{}, i32, i32}},
			{"tensor rank", "shape", ask{collective.Op{Shape: []int{12}}, f32, f32}, ask{collective.Op{Shape: []int{3, 4}}, f32, f32}},
			{"shape", "shape", ask{collective.Op{Shape: []int{4, 3}}, f32, f32}, ask{collective.Op{Shape: []int{3, 4}}, f32, f32}},
			{"count", "count", ask{collective.Op{}, f32, f32}, ask{collective.Op{}, half, half}},
			{"trailing dimensions", "shape", ask{collective.Op{Kind: collective.AllGather, Shape: []int{-1, 3}}, collective.Of(make([]float32, 36)), f32}, ask{collective.Op{Kind: collective.AllGather, Shape: []int{-1, 4}}, collective.Of(make([]float32, 36)), f32}},
			{"reduction", "reduction", ask{collective.Op{}, f32, f32}, ask{collective.Op{Reduce: collective.Max}, f32, f32}},
			{"root", "root", ask{collective.Op{Kind: collective.Broadcast}, f32, f32}, ask{collective.Op{Kind: collective.Broadcast, Root: 1}, f32, f32}},
			{"scale", "scale", ask{collective.Op{Scale: 2}, f32, f32}, ask{collective.Op{Scale: 3}, f32, f32}},
			{"codec", "codec", ask{collective.Op{}, f32, f32}, ask{collective.Op{Codec: topk}, f32, f32}},
			{
				"splits", "splits",
				ask{collective.Op{Kind: collective.AllToAll}, f32, f32},
				ask{collective.Op{Kind: collective.AllToAll, Counts: []int{4, 4, 4}, Recv: []int{4, 4, 4}}, f32, f32},
			},
			{
				"uneven counts", "splits",
				ask{collective.Op{Kind: collective.ReduceScatter, Counts: []int{4, 4, 4}}, collective.Of(make([]float32, 4)), f32},
				ask{collective.Op{Kind: collective.ReduceScatter}, collective.Of(make([]float32, 4)), f32},
			},
		} {
			for _, odd := range []int{1, 0, 2} {
				w := open(t, inMemory, 3, collective.Options{})
				begin := time.Now()
				errs := w.each(func(r int, g *collective.Group) error {
					x := v.a
					if r == odd {
						x = v.b
						uneven := []int{4, 4, 4}
						uneven[(r+1)%3], uneven[(r+2)%3] = 3, 5
						switch v.name {
						case "uneven counts":
							x.op.Counts = uneven
						case "splits":
							x.op.Recv = uneven
						}
					}
					// Each rank has memory of its own.
					x.dst.Bytes, x.src.Bytes = own(x.dst.Bytes), own(x.src.Bytes)
					return run(t.Context(), g, x.op, x.dst, x.src)
				})
				if d := time.Since(begin); d > 100*time.Millisecond {
					t.Errorf("%s: it took %v", v.name, d)
				}
				var m *collective.Mismatch
				if !errors.As(errs[0], &m) {
					t.Fatalf("%s, rank %d is odd: rank 0 has %v", v.name, odd, errs[0])
				}
				for r, err := range errs {
					if err == nil || err.Error() != errs[0].Error() {
						t.Fatalf("%s, rank %d is odd: rank 0 has\n%v\nrank %d\n%v", v.name, odd, errs[0], r, err)
					}
				}
				if m.Field != v.field && !(oneSided(v.a.op) && m.Field == "operations of the step") || m.A == m.B || m.RankA != odd && m.RankB != odd {
					t.Errorf("%s, rank %d is odd: %v", v.name, odd, m)
				}
				// The group stays usable.
				w.must(func(r int, g *collective.Group) error {
					x := []float32{float32(r)}
					if err := collective.AllReduceInto(t.Context(), g, x, x, collective.Sum); err != nil {
						return err
					}
					if x[0] != 3 {
						return fmt.Errorf("after %s the sum is %v", v.name, x[0])
					}
					return nil
				})
				w.close()
			}
		}
	})
}

// oneSided says that ranks can complete op without having met: then the commit finds what differs.
func oneSided(op collective.Op) bool { return op.Kind == collective.Broadcast }

func own(b []byte) []byte {
	c := tensor.AlignedBytes(len(b))
	copy(c, b)
	return c
}

// A lateStream sends frames of a kind late, as a rank does that waits for its processor.
type lateStream struct {
	transport.Stream
	kind uint8
	time time.Duration
}

func (s *lateStream) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	if f.Kind == s.kind {
		time.Sleep(s.time) // in a bubble of synctest
	}
	return s.Stream.Send(ctx, to, f)
}

// A rank that is slow to say what it knows is waited for: else the others conclude without it, and something else than it does.
func TestCase8SlowRank(t *testing.T) {
	for slow := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := openWith(t, inMemory, 3, collective.Options{}, nil, func(s transport.Stream) transport.Stream {
				if s.Self().ID != fmt.Sprint(slow) {
					return s
				}
				return &lateStream{s, collective.KindReport, 200 * time.Millisecond}
			})
			errs := w.each(func(r int, g *collective.Group) error {
				x := make([]float32, 12)
				op := collective.Op{Shape: []int{12}}
				if r == 2 {
					op.Shape = []int{3, 4}
				}
				return run(t.Context(), g, op, collective.Of(make([]float32, 12)), collective.Of(x))
			})
			var m *collective.Mismatch
			for r, err := range errs {
				if !errors.As(err, &m) || m.Field != "shape" || err.Error() != errs[0].Error() {
					t.Errorf("rank %d is slow: rank %d has %v, rank 0 %v", slow, r, err, errs[0])
				}
			}
		})
	}
}

// A scalar has no part for each rank; what one rank refuses is void for all, with its words.
func TestCase8RefusedArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		errs := w.each(func(r int, g *collective.Group) error {
			n := 2
			if r == 1 {
				n = 1
			}
			op := collective.Op{Kind: collective.AllGather, Counts: []int{2, 2, 2}}
			return run(t.Context(), g, op, collective.Of(make([]float32, 6)), collective.Of(make([]float32, n)))
		})
		for r, err := range errs {
			var b *collective.Blame
			if !errors.As(err, &b) || b.Rank != 1 || b.Cause != collective.Refused || err.Error() != errs[0].Error() || !strings.Contains(err.Error(), "1 elements, want 2") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// Lengths, codecs and shards that do not fit are refused with a sentence, the same at all ranks.
func TestCase8Lengths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		for _, v := range []struct {
			name, want string
			op         collective.Op
			dst, src   int
		}{
			{"to itself", "sends 2 elements to itself, and receives 3 from itself", collective.Op{Kind: collective.AllToAll, Counts: []int{2, 2, 2}, Recv: []int{3, 3, 3}}, 9, 6},
			{"exact, too few", "the source has 3 elements, want 4", collective.Op{Shards: 6}, 4, 3},
			{"exact, too many", "the source has 12 elements, want 4", collective.Op{Shards: 6}, 4, 12},
			{"exact, no destination", "the source has 8 elements, want 0", collective.Op{Shards: 6}, 0, 8},
			{"exact, a mean", "only a sum of f32 or f64", collective.Op{Shards: 6, Reduce: collective.Mean}, 4, 4},
			{"exact, a ring", "a ring adds in an order that depends on the number of ranks", collective.Op{Shards: 6, Plan: collective.Ring}, 4, 4},
			{"exact, a codec", "exact mode allows no codec", collective.Op{Shards: 6, Codec: compress.F16{}}, 4, 4},
			{"exact, no shards", "-1 shards", collective.Op{Shards: -1}, 4, 4},
			{"a codec of a maximum", "only a sum or mean of f32", collective.Op{Codec: compress.F16{}, Reduce: collective.Max}, 4, 4},
			{"a residual too long", "a residual of 4 values for 3", collective.Op{Codec: compress.F16{}, Plain: 1, Residual: compress.NewResidual(4)}, 4, 4},
			{"too many plain", "5 of 4 elements cannot be plain", collective.Op{Codec: compress.F16{}, Plain: 5}, 4, 4},
			{"a residual of no codec", "without a codec", collective.Op{Owner: compress.NewResidual(4)}, 4, 4},
		} {
			errs := w.each(func(r int, g *collective.Group) error {
				return run(t.Context(), g, v.op, collective.Of(make([]float32, v.dst)), collective.Of(make([]float32, v.src)))
			})
			for r, err := range errs {
				var b *collective.Blame
				if !errors.As(err, &b) || b.Cause != collective.Refused || err.Error() != errs[0].Error() || !strings.Contains(err.Error(), v.want) {
					t.Errorf("%s: rank %d: %v", v.name, r, err)
				}
			}
		}
		view := collective.View{Epoch: 1, Hosts: [][]int{{0, 1}, {}}}
		for _, p := range w.ports[:2] {
			view.Peers = append(view.Peers, p.Name())
		}
		s, err := w.ports[0].Stream("other", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if g, err := collective.New(s, view, collective.Options{}); err == nil || !strings.Contains(err.Error(), "one of them has no ranks") {
			_ = g.Close()
			t.Errorf("a host without ranks: %v", err)
		}
	})
}

// More frames than numbers for them are refused: their keys would be those of other groups' frames.
func TestCase8TooManyFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{MaxFrame: 1 << 10})
		for rank, err := range w.each(func(r int, g *collective.Group) error {
			return run(t.Context(), g, collective.Op{Kind: collective.Broadcast}, collective.Of(make([]float32, 16<<20)), collective.Of(make([]float32, 16<<20)))
		}) {
			var b *collective.Blame
			if !errors.As(err, &b) || b.Cause != collective.Refused || !strings.Contains(err.Error(), "65536 frames") {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

func TestNotFinite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{NotFinite: collective.Skip})
		errs := w.each(func(r int, g *collective.Group) error {
			x := make([]float32, 10)
			if r == 2 {
				x[7] = float32(math.NaN())
			}
			return run(t.Context(), g, collective.Op{Label: "loss"}, collective.Of(make([]float32, 10)), collective.Of(x))
		})
		for r, err := range errs {
			var b *collective.Blame
			if !errors.As(err, &b) || !b.Skip() || b.Rank != 2 || !strings.Contains(b.Evidence, "element 7") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
	})
}

// TestCase8LongVectors: what ranks disagree on is found as soon among vectors whose frames land where they were posted.
func TestCase8LongVectors(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		for name, odd := range map[string]struct {
			n  int
			op collective.Op
		}{"reduction": {30000, collective.Op{Reduce: collective.Mean}}, "count": {60000, collective.Op{}}} {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, inMemory, size, collective.Options{})
				defer w.close()
				begin := time.Now()
				errs := w.each(func(r int, g *collective.Group) error {
					n, op := 30000, collective.Op{}
					if r == 0 {
						n, op = odd.n, odd.op
					}
					return run(t.Context(), g, op, collective.Of(make([]float32, n)), collective.Of(make([]float32, n)))
				})
				for r, err := range errs {
					if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != name || err.Error() != errs[0].Error() {
						t.Errorf("%s, %d ranks: rank %d has %v, rank 0 %v", name, size, r, err, errs[0])
					}
				}
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("%s, %d ranks: it took %v", name, size, took)
				}
			})
		}
	}
}

// TestCase8Nothing: a rank that has no elements, and so nothing to send, differs as others do from those that have some.
func TestCase8Nothing(t *testing.T) {
	for _, kind := range []collective.Kind{collective.AllReduce, collective.Broadcast} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, inMemory, 3, collective.Options{})
			defer w.close()
			begin := time.Now()
			errs := w.each(func(r int, g *collective.Group) error {
				n := min(r, 1)
				return run(t.Context(), g, collective.Op{Kind: kind}, collective.Of(make([]float32, n)), collective.Of(make([]float32, n)))
			})
			for r, err := range errs {
				if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "count" || err.Error() != errs[0].Error() {
					t.Errorf("%v: rank %d has %v, rank 0 %v", kind, r, err, errs[0])
				}
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("%v: it took %v", kind, took)
			}
		})
	}
}

// TestNothingIsSettled: that a sum of no elements is complete shows that all ranks have begun it, so that it can be settled.
func TestNothingIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 2, collective.Options{})
		defer w.close()
		w.must(func(r int, g *collective.Group) error {
			x, y := make([]float32, r), make([]float32, r)
			g.Start(collective.Op{}, 0, collective.Of(y), collective.Of(x))
			if m, ok := errors.AsType[*collective.Mismatch](g.Settle(t.Context())); !ok || m.Field != "count" {
				return fmt.Errorf("rank %d: settled what the other has not", r)
			}
			if m, ok := errors.AsType[*collective.Mismatch](g.Commit(t.Context(), 0)); !ok || m.Field != "count" {
				return fmt.Errorf("rank %d: committed", r)
			}
			return nil
		})
	})
}
