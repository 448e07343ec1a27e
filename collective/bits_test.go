package collective_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
)

func TestCase6Exact(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 20_000
	}
	for _, v := range []int{8, 16} {
		leaves := make([][]float32, v)
		for i := range leaves {
			random := rand.New(rand.NewPCG(uint64(v), uint64(i)))
			leaves[i] = make([]float32, n)
			for k := range leaves[i] {
				leaves[i][k] = float32(random.NormFloat64())
			}
		}
		want := treeSum(leaves)
		for size := 1; size <= v; size++ {
			if size > 8 && size%3 != 1 { // 10, 13, 16
				continue
			}
			w := open(t, inMemory, size, collective.Options{})
			ringDiffers := make([]float64, size)
			w.must(func(r int, g *collective.Group) error {
				var src []float32
				for _, s := range shards.Owned(r, size, v) {
					src = append(src, treeSum(leaves[s.From:s.To])...)
				}
				dst := make([]float32, n)
				for _, part := range []int{n, 100} { // both plans of a power of two
					var cut []float32
					for k := 0; k < len(src); k += n {
						cut = append(cut, src[k:k+part]...)
					}
					clear(dst)
					if err := run(t.Context(), g, collective.Op{Shards: v}, collective.Of(dst[:part]), collective.Of(cut)); err != nil {
						return err
					}
					for i, x := range dst[:part] {
						if math.Float32bits(x) != math.Float32bits(want[i]) {
							return fmt.Errorf("%d shards, %d ranks: rank %d has %v at %d, want %v", v, size, r, x, i, want[i])
						}
					}
				}
				// What the test would find in a plain ring over the ranks' sums.
				sum := make([]float32, n)
				for s := r * v / size; s < (r+1)*v/size; s++ {
					for i, x := range leaves[s] {
						sum[i] += x
					}
				}
				if err := run(t.Context(), g, collective.Op{Plan: collective.Ring}, collective.Of(dst), collective.Of(sum)); err != nil {
					return err
				}
				for i := range dst {
					if dst[i] != want[i] {
						ringDiffers[r] += 1 / float64(n)
					}
				}
				return nil
			})
			if ringDiffers[0] < 0.2 {
				t.Errorf("%d shards, %d ranks: a plain ring differs in %.0f %% of the elements: this test finds nothing", v, size, 100*ringDiffers[0])
			}
			w.close()
		}
	}
}

// TestExactNaN: of NaNs of any sign and payload, and of infinities of both signs, the sum is the one quiet NaN, whatever the number of ranks.
func TestExactNaN(t *testing.T) {
	t.Run("f32", func(t *testing.T) {
		var nans []float32
		for _, b := range []uint32{0xffc00000, 0x7fc00001, 0xffc12345, 0x7fffffff, 0x7fd00000} {
			nans = append(nans, math.Float32frombits(b))
		}
		exactNaN(t, func(x float32) uint64 { return uint64(math.Float32bits(x)) }, nans, 0x7fc00000)
	})
	t.Run("f64", func(t *testing.T) {
		var nans []float64
		for _, b := range []uint64{0xfff8000000000000, 0x7ff8000000000001, 0xfff8000012345678, 0x7fffffffffffffff, 0x7ffc000000000000} {
			nans = append(nans, math.Float64frombits(b))
		}
		exactNaN(t, math.Float64bits, nans, 0x7ff8000000000000)
	})
}

func exactNaN[T float32 | float64](t *testing.T, bits func(T) uint64, nans []T, one uint64) {
	const n = 40
	inf := T(math.Inf(1))
	sum := func(vectors [][]T) []T {
		x := slices.Clone(vectors[0])
		for _, y := range vectors[1:] {
			for i, v := range y {
				x[i] += v
			}
		}
		return x
	}
	var mu sync.Mutex
	by := map[collective.Algorithm]bool{}
	for _, costs := range []collective.Costs{{}, {Alpha: 1e-9, Beta: 1e-9, Gamma: 1e-9}} { // for both plans of a power of two
		for _, size := range []int{1, 2, 3, 5, 8} {
			w := open(t, inMemory, size, collective.Options{Segment: 64, Costs: costs, Record: func(m collective.Measurement) {
				mu.Lock()
				defer mu.Unlock()
				by[m.Algorithm] = true
			}})
			for _, v := range []int{1, 3, 5, 8} {
				leaves := make([][]T, v)
				for s := range leaves {
					leaves[s] = make([]T, n)
					for k := range leaves[s] {
						x := T(s + k)
						switch {
						case k%4 == 1 || k%4 == 3 && s == k%v: // at every shard, or at one
							x = nans[(s+k)%len(nans)]
						case k%4 == 2 && s%2 == 0:
							x = inf
						case k%4 == 2:
							x = -inf
						}
						leaves[s][k] = x
					}
				}
				want := make([]uint64, n)
				for i, x := range sum(leaves) {
					if want[i] = bits(x); x != x {
						want[i] = one
					}
				}
				w.must(func(r int, g *collective.Group) error {
					var src []T
					for _, s := range shards.Owned(r, size, v) {
						src = append(src, sum(leaves[s.From:s.To])...)
					}
					dst := make([]T, n)
					if err := run(t.Context(), g, collective.Op{Shards: v}, collective.Of(dst), collective.Of(src)); err != nil {
						return err
					}
					for i, x := range dst {
						if bits(x) != want[i] {
							return fmt.Errorf("%d shards, %d ranks: rank %d has the bits %x at %d, want %x", v, size, r, bits(x), i, want[i])
						}
					}
					return nil
				})
			}
			w.close()
		}
	}
	if !by[collective.Doubling] || !by[collective.ExactTree] {
		t.Errorf("plans by %v, want doubling and exact", by)
	}
}

func treeSum(leaves [][]float32) []float32 {
	var pending [][]float32
	for v, s := range leaves {
		now := slices.Clone(s)
		for size := v + 1; len(pending) > 0 && (size%2 == 0 || v == len(leaves)-1); size /= 2 {
			for i, x := range pending[len(pending)-1] {
				now[i] += x
			}
			pending = pending[:len(pending)-1]
		}
		pending = append(pending, now)
	}
	return pending[0]
}

func TestCase7Fast(t *testing.T) {
	const n = 3000
	for _, size := range []int{2, 3, 4, 5, 8} {
		w := openHosts(t, inMemory, size, collective.Options{Segment: 1 << 11}, collective.HostsOf(size, 2))
		srcs := make([][]float32, size)
		exact, abs := make([]float64, n), make([]float64, n)
		for r := range srcs {
			random := rand.New(rand.NewPCG(7, uint64(r)))
			srcs[r] = make([]float32, n)
			for i := range srcs[r] {
				srcs[r][i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(8)-4)))
				exact[i] += float64(srcs[r][i])
				abs[i] += math.Abs(float64(srcs[r][i]))
			}
		}
		agree := func(name string, op collective.Op, check bool) {
			t.Helper()
			out := make([][]float32, size)
			w.must(func(r int, g *collective.Group) error {
				out[r] = make([]float32, n)
				op := op
				if op.Codec != nil {
					op.Residual, op.Owner = compress.NewResidual(n), compress.NewResidual(n)
				}
				return run(t.Context(), g, op, collective.Of(out[r]), collective.Of(srcs[r]))
			})
			for r := range out {
				for i := range out[r] {
					if math.Float32bits(out[r][i]) != math.Float32bits(out[0][i]) {
						t.Fatalf("%s, %d ranks: ranks 0 and %d have %v and %v at %d", name, size, r, out[0][i], out[r][i], i)
					}
					if d := math.Abs(float64(out[r][i]) - exact[i]); check && d > float64(size)*0x1p-24*abs[i] {
						t.Fatalf("%s, %d ranks: element %d is %v, want %v", name, size, i, out[r][i], exact[i])
					}
				}
			}
		}
		for _, a := range algorithms {
			agree(a.String(), collective.Op{Plan: a}, true)
		}
		// Values that are not numbers, or hardly so.
		for r := range srcs {
			for i, v := range []float64{0, math.Copysign(0, -1), 1e-45, -3e-40, math.NaN(), math.Inf(1), math.Inf(-1), 3e38, -3e38, 65505, 1e-8} {
				for k := range size {
					srcs[r][(11*k+i*(r+1)*7+r)%n] = float32(v)
				}
			}
		}
		for _, a := range algorithms {
			agree(a.String(), collective.Op{Plan: a}, false)
			agree(a.String()+" max", collective.Op{Plan: a, Reduce: collective.Max}, false)
		}
		for _, spec := range []string{"f16", "bf16", "int8", "1bit", "1bit:l2", "topk:0.1", "randomk:0.1", "qsgd:7", "powersgd:2"} {
			c, err := compress.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			agree(spec, collective.Op{Codec: c, Reduce: collective.Mean}, false)
			agree(spec+" at one rank", collective.Op{Codec: c, Reduce: collective.Mean, Plan: collective.GatherCast}, false)
		}
		w.close()
	}
}

// Under a codec with error feedback the sums over many steps are those of the gradients, up to what the residuals hold.
func TestCodecFeedback(t *testing.T) {
	const n, size, steps = 500, 3, 30
	for k, spec := range []string{"f16", "int8", "1bit", "topk:0.05", "randomk:0.1", "qsgd:3", "powersgd:2", "f16", "topk:0.05"} {
		plan := collective.Auto
		if k >= 7 {
			plan = collective.GatherCast
		}
		c, err := compress.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		w := open(t, inMemory, size, collective.Options{})
		got := make([]float64, n)
		var mu sync.Mutex
		want := make([]float64, n)
		kept := make([]float64, n)
		w.must(func(r int, g *collective.Group) error {
			e, owner := compress.NewResidual(n), compress.NewResidual(n)
			random := rand.New(rand.NewPCG(3, uint64(r)))
			src, dst := make([]float32, n), make([]float32, n)
			for range steps {
				for i := range src {
					src[i] = float32(random.NormFloat64())
				}
				if err := run(t.Context(), g, collective.Op{Codec: c, Plan: plan, Residual: e, Owner: owner}, collective.Of(dst), collective.Of(src)); err != nil {
					return err
				}
				mu.Lock()
				for i := range src {
					want[i] += float64(src[i])
					if r == 0 {
						got[i] += float64(dst[i])
					}
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range kept {
				kept[i] += float64(e.Cells()[i]) + float64(owner.Cells()[i])
			}
			return nil
		})
		for i := range got {
			if d := math.Abs(got[i] + kept[i] - want[i]); d > 1e-3 {
				t.Fatalf("%s: element %d: %v arrived and %v is kept, of %v", spec, i, got[i], kept[i], want[i])
			}
		}
		w.close()
	}
}

// What a checkpoint kept, shared out to all ranks, arrives at once where the codec has the bits for it: also the part that the owner of a
// share has of it, who encodes nothing of that share.
func TestCodecRestored(t *testing.T) {
	const n, size = 500, 3
	for _, plan := range []collective.Algorithm{collective.Auto, collective.GatherCast} {
		w := open(t, inMemory, size, collective.Options{})
		w.must(func(r int, g *collective.Group) error {
			e, owner := compress.NewResidual(n), compress.NewResidual(n)
			src, dst := make([]float32, n), make([]float32, n)
			for i := range src {
				src[i], e.Cells()[i] = float32(i), float32(10*r)
			}
			for step := range 2 {
				if err := run(t.Context(), g, collective.Op{Codec: compress.F16{}, Plan: plan, Residual: e, Owner: owner}, collective.Of(dst), collective.Of(src)); err != nil {
					return err
				}
				for i, v := range dst {
					want := float32(size * i)
					if step == 0 {
						want += 10 + 20
					}
					if v != want {
						return fmt.Errorf("%v, step %d: element %d is %v, want %v", plan, step, i, v, want)
					}
				}
			}
			return nil
		})
		w.close()
	}
}

// Sources are intact until the commit, and a destination that overlaps one is refused.
func TestInputsSurvive(t *testing.T) {
	w := open(t, inMemory, 4, collective.Options{Segment: 256})
	for _, a := range algorithms {
		w.must(func(r int, g *collective.Group) error {
			src := make([]float32, 500)
			for i := range src {
				src[i] = float32(i * r)
			}
			before := slices.Clone(src)
			if err := run(t.Context(), g, collective.Op{Plan: a}, collective.Of(make([]float32, 500)), collective.Of(src)); err != nil {
				return err
			}
			if !slices.Equal(src, before) {
				return fmt.Errorf("%v changed its source", a)
			}
			return nil
		})
	}
	errs := w.each(func(_ int, g *collective.Group) error {
		x := make([]float32, 10)
		return run(t.Context(), g, collective.Op{}, collective.Of(x[:5]), collective.Of(x[4:9]))
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "overlap") {
		t.Errorf("overlapping buffers: %v", errs[0])
	}
}

// Fits says of a codec and a length what an operation finds out, whatever the plan makes of the ranks' shares.
func TestFits(t *testing.T) {
	w := open(t, inMemory, 3, collective.Options{MaxFrame: 1 << 10, Segment: 1 << 10})
	for _, crowded := range []bool{false, true} {
		refused := 0
		for _, spec := range []string{"topk:100", "topk:0.5", "randomk:7", "powersgd:4", "int8", "qsgd:7"} {
			codec, err := compress.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{0, 2, 20, 48, 150, 250, 299, 300, 301, 1000, 3084} {
				for _, plain := range []int{0, 2} {
					w.must(func(r int, g *collective.Group) error {
						g.SetCosts(collective.Costs{Alpha: 1e-5, Beta: 1e-9, Gamma: 1e-10, Crowded: crowded})
						op := collective.Op{Codec: codec, Plain: plain, Residual: compress.NewResidual(n), Owner: compress.NewResidual(n)}
						says := g.Fits(op, plain+n)
						err := run(t.Context(), g, op, collective.Of(make([]float32, plain+n)), collective.Of(make([]float32, plain+n)))
						if (says == nil) != (err == nil) {
							return fmt.Errorf("%s, %d values after %d plain, crowded %v: Fits says %w, the operation %w", spec, n, plain, crowded, says, err)
						}
						if r == 0 && says != nil && plain == 0 {
							refused++
						}
						return nil
					})
				}
			}
		}
		if refused < 5 {
			t.Errorf("crowded %v: %d refusals", crowded, refused)
		}
	}
}

// TestHalfRoundsOnce: a sum of half precision that the planner has a choice for is rounded once, whatever its length: added one after the other, 2048
// and three times 1 stay 2048.
func TestHalfRoundsOnce(t *testing.T) {
	const one, large, sum = 0x3c00, 0x6800, 0x6802 // 1, 2048 and 2052, which is nearest to 2051
	w := open(t, inMemory, 4, collective.Options{})
	defer w.close()
	for _, n := range []int{1, 4, 100, 5000, 300_000} {
		w.must(func(r int, g *collective.Group) error {
			src, dst := make([]tensor.Float16, n), make([]tensor.Float16, n)
			for i := range src {
				if src[i] = one; i%4 == r {
					src[i] = large
				}
			}
			if err := run(t.Context(), g, collective.Op{}, collective.Half(dst), collective.Half(src)); err != nil {
				return err
			}
			for i, v := range dst {
				if v != sum {
					return fmt.Errorf("%d values: rank %d has %#04x at %d, want %#04x", n, r, v, i, sum)
				}
			}
			return nil
		})
	}
}
