package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
)

// The cases of other algorithms for what is summed in shared memory, which two processes of a host do by themselves.

// A sharing is a world whose ranks share memory.
type sharing struct {
	*world
	shared atomic.Int64 // sums that went through it, at all ranks
}

// openSharing opens a group whose ranks share memory, each so many bytes of its own.
func openSharing(t testing.TB, size, each int) *sharing {
	t.Helper()
	s := new(sharing)
	s.world = open(t, inMemory, size, collective.Options{Record: func(m collective.Measurement) {
		if m.Algorithm == collective.Shared {
			s.shared.Add(1)
		}
	}})
	collective.ShareHere(s.groups, tensor.AlignedBytes(size*each))
	return s
}

func TestCase1Shared(t *testing.T) {
	sizes, lengths, long := []int{2, 3, 4, 5, 6, 7, 8, 9, 13}, []int{0, 1, 4, 10, 64, 100, 1000, 1025, 10000}, 1<<19
	if testing.Short() { // the race detector makes arithmetic slow
		sizes, lengths, long = []int{2, 3, 5, 9}, []int{0, 1, 10, 1025, 4000}, 200_000
	}
	for _, size := range sizes {
		case1Shared(t, size, lengths)
	}
	for _, size := range []int{3, 4} { // each sums a slice
		case1Shared(t, size, []int{long})
	}
}

// case1Shared gives every rank its number.
func case1Shared(t *testing.T, size int, lengths []int) {
	t.Helper()
	w := openSharing(t, size, 32*slices.Max(lengths)+1<<16)
	defer w.close()
	for _, n := range lengths {
		w.must(func(r int, g *collective.Group) error {
			src, dst := make([]float32, n), make([]float32, n)
			for i := range src {
				src[i] = float32(r)
			}
			if err := run(t.Context(), g, collective.Op{Plan: collective.Shared}, collective.Of(dst), collective.Of(src)); err != nil {
				return fmt.Errorf("%d ranks, %d elements: %w", size, n, err)
			}
			for i, v := range dst {
				if v != float32(size*(size-1)/2) {
					return fmt.Errorf("%d ranks, %d elements: rank %d has %v at %d", size, n, r, v, i)
				}
			}
			return nil
		})
	}
	if got := w.shared.Load(); got != int64(size*len(lengths)) {
		t.Errorf("%d ranks: %d of %d sums went through shared memory", size, got, size*len(lengths))
	}
}

// All ranks have the same bits, which are those of a sum in the order of the ranks, wherever their buffers lie.
func TestCase7Shared(t *testing.T) {
	for _, v := range []struct{ size, n int }{
		{2, 3000}, {3, 3000}, {4, 3000}, {5, 3000}, {8, 3000}, // every rank sums all
		{3, 300_001}, {5, 300_001}, // each sums a slice
		{2, 1_200_001}, // in a ring of blocks
	} {
		wheres := []string{"outside", "mixed"}
		if testing.Short() && v.n > 3000 { // the race detector makes arithmetic slow
			wheres = wheres[1:]
		}
		for _, where := range wheres {
			case7Shared(t, v.size, v.n, where)
		}
	}
}

func case7Shared(t *testing.T, size, n int, where string) {
	t.Helper()
	w := openSharing(t, size, 32*n+1<<16)
	defer w.close()
	src, dst := make([][]float32, size), make([][]float32, size)
	for r, g := range w.groups {
		src[r], dst[r] = make([]float32, n), make([]float32, n)
		if where == "mixed" && r%2 == 1 {
			src[r], dst[r] = floats(g.Memory(4*n)), floats(g.Memory(4*n))
		}
	}
	powers := []float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3}
	exact, abs, inOrder := make([]float64, n), make([]float64, n), make([]float32, n)
	for r := range src {
		random := rand.New(rand.NewPCG(7, uint64(r)))
		for i := range src[r] {
			x := float32(random.NormFloat64() * powers[random.IntN(len(powers))])
			src[r][i] = x
			exact[i] += float64(x)
			abs[i] += math.Abs(float64(x))
			inOrder[i] += x
		}
	}
	agree := func(name string, op collective.Op, check bool) {
		t.Helper()
		op.Plan = collective.Shared
		w.must(func(r int, g *collective.Group) error {
			return run(t.Context(), g, op, collective.Of(dst[r]), collective.Of(src[r]))
		})
		for r := range dst {
			for i, x := range dst[r] {
				if math.Float32bits(x) != math.Float32bits(dst[0][i]) {
					t.Fatalf("%s, %s, %d ranks, %d elements: ranks 0 and %d have %v and %v at %d", name, where, size, n, r, dst[0][i], x, i)
				}
			}
		}
		for i, x := range dst[0] {
			if !check {
				break
			}
			if d := math.Abs(float64(x) - exact[i]); x != inOrder[i] || d > float64(size)*0x1p-24*abs[i] {
				t.Fatalf("%s, %s, %d ranks, %d elements: element %d is %v, want %v, in the order of the ranks %v", name, where, size, n, i, x, exact[i], inOrder[i])
			}
		}
	}
	agree("sum", collective.Op{}, true)
	// Values that are not numbers, or hardly so.
	for r := range src {
		for i, v := range []float64{0, math.Copysign(0, -1), 1e-45, -3e-40, math.NaN(), math.Inf(1), math.Inf(-1), 3e38, -3e38, 65505, 1e-8} {
			for k := range size {
				src[r][(11*k+i*(r+1)*7+r)%n] = float32(v)
			}
		}
	}
	agree("special sum", collective.Op{}, false)
	agree("special mean", collective.Op{Reduce: collective.Mean}, false)
	agree("special max", collective.Op{Reduce: collective.Max}, false)
	if got := w.shared.Load(); got != int64(4*size) {
		t.Errorf("%s, %d ranks, %d elements: %d of %d sums went through shared memory", where, size, n, got, 4*size)
	}
}

// mustShare has all ranks of a group that lives on sum n elements in shared memory.
func (w *sharing) mustShare(n int) {
	w.t.Helper()
	before := w.shared.Load()
	w.must(func(r int, g *collective.Group) error {
		src, dst := make([]float32, n), make([]float32, n)
		for i := range src {
			src[i] = float32(r + i%5)
		}
		if err := run(w.t.Context(), g, collective.Op{Plan: collective.Shared}, collective.Of(dst), collective.Of(src)); err != nil {
			return err
		}
		for i, v := range dst {
			if want := float32(g.Size()*(g.Size()-1)/2 + g.Size()*(i%5)); v != want {
				return fmt.Errorf("afterwards the sum at %d is %v, want %v", i, v, want)
			}
		}
		return nil
	})
	if got := w.shared.Load() - before; got != int64(len(w.groups)) {
		w.t.Errorf("afterwards %d of %d sums went through shared memory", got, len(w.groups))
	}
}

// A rank that asks for something else is named at all ranks, in the same words, and the group lives on.
func TestCase8Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		for _, size := range []int{2, 3} {
			for _, v := range []struct {
				field string
				op    collective.Op // of the odd rank
				n     int
				whole bool // numbers of 32 bits, not f32
			}{
				{"count", collective.Op{Plan: collective.Shared}, n + 1000, false},
				{"dtype", collective.Op{Plan: collective.Shared}, n, true},
				{"reduction", collective.Op{Plan: collective.Shared, Reduce: collective.Max}, n, false},
				{"scale", collective.Op{Plan: collective.Shared, Scale: 2}, n, false},
				{"plan", collective.Op{Plan: collective.Ring}, n, false},
			} {
				for odd := range size {
					w := openSharing(t, size, 1<<20)
					begin := time.Now()
					errs := w.each(func(r int, g *collective.Group) error {
						op, dst, src := collective.Op{Plan: collective.Shared}, collective.Of(make([]float32, n)), collective.Of(make([]float32, n))
						if r == odd {
							op, dst, src = v.op, collective.Of(make([]float32, v.n)), collective.Of(make([]float32, v.n))
						}
						if r == odd && v.whole {
							dst, src = collective.Of(make([]int32, v.n)), collective.Of(make([]int32, v.n))
						}
						return run(t.Context(), g, op, dst, src)
					})
					if d := time.Since(begin); d > 100*time.Millisecond {
						t.Errorf("%s, %d ranks, %d is odd: it took %v", v.field, size, odd, d)
					}
					for r, err := range errs {
						m, ok := errors.AsType[*collective.Mismatch](err)
						if !ok || m.Field != v.field || m.RankA != odd && m.RankB != odd || fmt.Sprint(err) != fmt.Sprint(errs[0]) {
							t.Errorf("%s, %d ranks, %d is odd: rank %d has %v, rank 0 %v", v.field, size, odd, r, err, errs[0])
						}
					}
					w.mustShare(n)
					w.close()
				}
			}
		}
	})
}

// A rank whose context ends voids the operation at all ranks, also at one that never calls it.
func TestCase10Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		for _, size := range []int{2, 3, 4} {
			w := openSharing(t, size, 1<<20)
			impatient := size - 2
			errs := w.each(func(r int, g *collective.Group) error {
				if r == size-1 { // it never calls
					<-time.After(100 * time.Millisecond)
					return g.Commit(t.Context(), g.Step())
				}
				ctx := t.Context()
				if r == impatient {
					c, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
					defer cancel()
					ctx = c
				}
				h := g.Start(collective.Op{Plan: collective.Shared}, 0, collective.Of(make([]float32, n)), collective.Of(make([]float32, n)))
				err := h.Wait(ctx)
				if g.Commit(t.Context(), g.Step()) == nil {
					return fmt.Errorf("rank %d has committed what was void", r)
				}
				return err
			})
			for r, err := range errs {
				b, ok := errors.AsType[*collective.Blame](err)
				if !ok || b.Rank != impatient || b.Cause != collective.Canceled {
					t.Errorf("%d ranks: rank %d: %v", size, r, err)
				}
				if errors.Is(err, context.DeadlineExceeded) != (r == impatient) {
					t.Errorf("%d ranks: rank %d: %v: is it its own deadline?", size, r, err)
				}
			}
			w.mustShare(n)
			w.close()
		}
	})
}
