package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

func TestCase2ManyBuffers(t *testing.T) {
	const n = 1000
	for _, size := range []int{1, 2, 3, 4, 7} {
		w := open(t, inMemory, size, collective.Options{Segment: 128})
		for _, m := range []int{1, 2, 4} {
			w.must(func(r int, g *collective.Group) error {
				s := int64(size * m)
				dst, src := make([][]int64, m), make([][]int64, m)
				var hs []*collective.Handle
				for j := range m {
					dst[j], src[j] = make([]int64, n), make([]int64, n)
					for k := range src[j] {
						src[j][k] = int64(k)*s + int64(r*m+j)
					}
				}
				// Buffers of one rank are summed first; then in place, by the typed function.
				local := make([]int64, n)
				for j := range m {
					hs = append(hs, g.Start(collective.Op{}, uint32(j), collective.Of(dst[j]), collective.Of(src[j])))
				}
				for _, h := range hs {
					if err := h.Wait(t.Context()); err != nil {
						return err
					}
				}
				if err := g.Commit(t.Context(), g.Step()); err != nil {
					return err
				}
				for j := range m {
					for k, v := range dst[j] {
						local[k] += v
					}
				}
				in := make([]int64, n)
				for j := range m {
					for k, v := range src[j] {
						in[k] += v
					}
				}
				if err := collective.AllReduceInto(t.Context(), g, in, in, collective.Sum); err != nil {
					return err
				}
				for k := range local {
					want := int64(k)*s*s + s*(s-1)/2
					if local[k] != want || in[k] != want {
						return fmt.Errorf("%d ranks, %d buffers, element %d: %d out, %d in place, want %d", size, m, k, local[k], in[k], want)
					}
				}
				return nil
			})
		}
		w.close()
	}
}

func TestCase3Types(t *testing.T) {
	for _, size := range []int{2, 3, 16} {
		w := open(t, inMemory, size, collective.Options{})
		for d := 1; d <= 3; d++ {
			n := int(math.Pow(17, float64(d)))
			value := func(r, i int) int { return int(rand.New(rand.NewPCG(uint64(r), uint64(i))).IntN(200)) - 100 }
			want := make([]int, n)
			for r := range size {
				for i := range want {
					want[i] += value(r, i)
				}
			}
			for _, dt := range []tensor.DType{tensor.I32, tensor.I64, tensor.F32, tensor.F64, tensor.F16} {
				w.must(func(r int, g *collective.Group) error {
					src, dst := tensor.New(dt, n), tensor.New(dt, n)
					for i := range n {
						put(src, i, float64(value(r, i)))
					}
					if err := run(t.Context(), g, collective.Op{Shape: slices.Repeat([]int{17}, d)}, buffer(dst), buffer(src)); err != nil {
						return err
					}
					for i := range n {
						if got := at(dst, i); got != float64(want[i]) {
							return fmt.Errorf("%d ranks, %v, element %d: %v, want %d", size, dt, i, got, want[i])
						}
					}
					return nil
				})
			}
		}
		w.close()
	}
}

func buffer(x *tensor.Tensor) collective.Buffer {
	var b []byte
	switch x.DType() {
	case tensor.F32:
		b = collective.Of(tensor.Flat[float32](x)).Bytes
	case tensor.F64:
		b = collective.Of(tensor.Flat[float64](x)).Bytes
	case tensor.I32:
		b = collective.Of(tensor.Flat[int32](x)).Bytes
	case tensor.I64:
		b = collective.Of(tensor.Flat[int64](x)).Bytes
	case tensor.F16:
		b = collective.Half(tensor.Flat[tensor.Float16](x)).Bytes
	case tensor.BF16:
		b = collective.Half(tensor.Flat[tensor.BFloat16](x)).Bytes
	}
	return collective.Buffer{DType: x.DType(), Bytes: b}
}

func put(x *tensor.Tensor, i int, v float64) {
	switch x.DType() {
	case tensor.F32:
		tensor.Flat[float32](x)[i] = float32(v)
	case tensor.F64:
		tensor.Flat[float64](x)[i] = v
	case tensor.I32:
		tensor.Flat[int32](x)[i] = int32(v)
	case tensor.I64:
		tensor.Flat[int64](x)[i] = int64(v)
	case tensor.F16:
		tensor.Flat[tensor.Float16](x)[i] = tensor.ToFloat16(float32(v))
	case tensor.BF16:
		tensor.Flat[tensor.BFloat16](x)[i] = tensor.ToBFloat16(float32(v))
	}
}

func at(x *tensor.Tensor, i int) float64 {
	switch x.DType() {
	case tensor.F32:
		return float64(tensor.Flat[float32](x)[i])
	case tensor.F64:
		return tensor.Flat[float64](x)[i]
	case tensor.I32:
		return float64(tensor.Flat[int32](x)[i])
	case tensor.I64:
		return float64(tensor.Flat[int64](x)[i])
	case tensor.F16:
		return float64(tensor.Flat[tensor.Float16](x)[i].Float32())
	}
	return float64(tensor.Flat[tensor.BFloat16](x)[i].Float32())
}

func TestReductions(t *testing.T) {
	const size = 3
	w := open(t, inMemory, size, collective.Options{})
	for _, v := range []struct {
		r    collective.Reduce
		want []int32
	}{
		{collective.Sum, []int32{6, -6, 17}},
		{collective.Mean, []int32{2, -2, 5}},
		{collective.Min, []int32{1, -3, 3}},
		{collective.Max, []int32{3, -1, 8}},
		{collective.Product, []int32{6, -6, 3 * 6 * 8}},
		{collective.And, []int32{1 & 2 & 3, -1 & -2 & -3, 3 & 6 & 8}},
		{collective.Or, []int32{1 | 2 | 3, -1 | -2 | -3, 3 | 6 | 8}},
	} {
		w.must(func(r int, g *collective.Group) error {
			src := [][]int32{{1, -1, 3}, {2, -2, 6}, {3, -3, 8}}[r]
			dst := make([]int32, 3)
			if err := collective.AllReduceInto(t.Context(), g, dst, src, v.r); err != nil {
				return err
			}
			if !slices.Equal(dst, v.want) {
				return fmt.Errorf("%v: %v, want %v", v.r, dst, v.want)
			}
			return nil
		})
	}
	w.must(func(r int, g *collective.Group) error {
		dst := make([]float64, 2)
		if err := run(t.Context(), g, collective.Op{Reduce: collective.Mean, Scale: 0.5}, collective.Of(dst), collective.Of([]float64{float64(r), 3})); err != nil {
			return err
		}
		if dst[0] != 0.5 || dst[1] != 1.5 {
			return fmt.Errorf("a scaled mean is %v", dst)
		}
		return nil
	})
}

func TestCase4AllToAll(t *testing.T) {
	for _, size := range []int{1, 2, 4, 7} {
		w := open(t, inMemory, size, collective.Options{})
		for _, n := range []int{4, 100, 1000, 10000} {
			w.must(func(r int, g *collective.Group) error {
				src, dst := make([]int32, n*size), make([]int32, n*size)
				for i := range size {
					for j := range n {
						src[i*n+j] = int32(r*j + 127*i)
					}
				}
				if err := collective.AllToAllInto(t.Context(), g, dst, src); err != nil {
					return err
				}
				for i := range size {
					for j := range n {
						if want := int32(i*j + 127*r); dst[i*n+j] != want {
							return fmt.Errorf("%d ranks, block %d, element %d: %d, want %d", size, i, j, dst[i*n+j], want)
						}
					}
				}
				return nil
			})
		}
		w.close()
	}
}

func TestCase5Uneven(t *testing.T) {
	const size = 4
	w := open(t, inMemory, size, collective.Options{})
	for round := range 3 { // an empty message, then a full one
		counts := []int{round * 3000, 0, round, 7 * round}
		w.must(func(r int, g *collective.Group) error {
			mine := make([]float64, counts[r])
			for i := range mine {
				mine[i] = float64(1000*r + i)
			}
			all, found, err := collective.AllGatherAll(t.Context(), g, mine)
			if err != nil {
				return err
			}
			if !slices.Equal(found, counts) {
				return fmt.Errorf("counts %v, want %v", found, counts)
			}
			k := 0
			for q, n := range counts {
				for i := range n {
					if all[k] != float64(1000*q+i) {
						return fmt.Errorf("element %d is %v", k, all[k])
					}
					k++
				}
			}
			// Rank r sends r+q elements to rank q when the round allows it.
			op := collective.Op{Kind: collective.AllToAll, Counts: make([]int, size), Recv: make([]int, size)}
			var src []uint8
			total := 0
			for q := range size {
				op.Counts[q], op.Recv[q] = (r+2*q)%3*round, (q+2*r)%3*round
				src = append(src, slices.Repeat([]uint8{uint8(10*r + q)}, op.Counts[q])...)
				total += op.Recv[q]
			}
			dst := make([]uint8, total)
			if err := run(t.Context(), g, op, collective.Of(dst), collective.Of(src)); err != nil {
				return err
			}
			k = 0
			for q := range size {
				for range op.Recv[q] {
					if dst[k] != uint8(10*q+r) {
						return fmt.Errorf("all-to-all: element %d is %d", k, dst[k])
					}
					k++
				}
			}
			return nil
		})
	}
}

func TestCase6Exact(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 20_000
	}
	for _, v := range []int{8, 16} {
		shards := make([][]float32, v)
		for i := range shards {
			random := rand.New(rand.NewPCG(uint64(v), uint64(i)))
			shards[i] = make([]float32, n)
			for k := range shards[i] {
				shards[i][k] = float32(random.NormFloat64())
			}
		}
		want := treeSum(shards)
		for size := 1; size <= v; size++ {
			if size > 8 && size%3 != 1 { // 10, 13, 16
				continue
			}
			w := open(t, inMemory, size, collective.Options{})
			ringDiffers := make([]float64, size)
			w.must(func(r int, g *collective.Group) error {
				var src []float32
				for _, s := range collective.Subtrees(r, size, v) {
					src = append(src, treeSum(shards[s.From:s.To])...)
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
					for i, x := range shards[s] {
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

func treeSum(shards [][]float32) []float32 {
	var pending [][]float32
	for v, s := range shards {
		now := slices.Clone(s)
		for size := v + 1; len(pending) > 0 && (size%2 == 0 || v == len(shards)-1); size /= 2 {
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
		w := openHosts(t, inMemory, size, collective.Options{Segment: 1 << 11}, hostsOf(size, 2))
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
		}
		w.close()
	}
}

// Under a codec with error feedback the sums over many steps are those of the gradients, up to what the residuals hold.
func TestCodecFeedback(t *testing.T) {
	const n, size, steps = 500, 3, 30
	for _, spec := range []string{"f16", "int8", "1bit", "topk:0.05", "randomk:0.1", "qsgd:3", "powersgd:2"} {
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
				if err := run(t.Context(), g, collective.Op{Codec: c, Residual: e, Owner: owner}, collective.Of(dst), collective.Of(src)); err != nil {
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

func TestCase8Mismatches(t *testing.T) {
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
			ask{collective.Op{Kind: collective.AllToAll, Counts: []int{4, 4, 4}, Recv: []int{3, 5, 4}}, f32, f32},
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
					if v.name == "uneven counts" {
						x.op.Counts = []int{4, 4, 4}
						x.op.Counts[(r+1)%3], x.op.Counts[(r+2)%3] = 3, 5
					}
				}
				// Each rank has memory of its own.
				x.dst.Bytes, x.src.Bytes = own(x.dst.Bytes), own(x.src.Bytes)
				return run(t.Context(), g, x.op, x.dst, x.src)
			})
			if d := time.Since(begin); d > 20*100*time.Millisecond {
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
}

// oneSided says that ranks can complete op without having met: then the commit finds what differs.
func oneSided(op collective.Op) bool { return op.Kind == collective.Broadcast }

func own(b []byte) []byte {
	c := tensor.AlignedBytes(len(b))
	copy(c, b)
	return c
}

// A scalar has no part for each rank; what one rank refuses is void for all, with its words.
func TestCase8RefusedArguments(t *testing.T) {
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
}

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

func TestCase10DeadlineAtOneRank(t *testing.T) {
	w := open(t, inMemory, 4, collective.Options{})
	errs := w.each(func(r int, g *collective.Group) error {
		if r == 3 { // it never calls
			<-time.After(100 * time.Millisecond)
			return g.Commit(t.Context(), g.Step())
		}
		ctx := t.Context()
		if r == 1 {
			c, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			ctx = c
		}
		h := g.Start(collective.Op{Label: "weights"}, 0, collective.Of(make([]float32, 100)), collective.Of(make([]float32, 100)))
		err := h.Wait(ctx)
		if c := g.Commit(t.Context(), g.Step()); c == nil {
			return fmt.Errorf("rank %d has committed what was void", r)
		}
		return err
	})
	for r, err := range errs {
		var b *collective.Blame
		if !errors.As(err, &b) || b.Rank != 1 || b.Cause != collective.Canceled || b.Tag != 0 {
			t.Errorf("rank %d: %v", r, err)
		}
		if errors.Is(err, context.DeadlineExceeded) != (r == 1) {
			t.Errorf("rank %d: %v: is it its own deadline?", r, err)
		}
	}
	w.must(func(r int, g *collective.Group) error {
		x := []float32{1}
		return collective.AllReduceInto(t.Context(), g, x, x, collective.Sum)
	})
}

// A rank that never calls is named by all: reported to OnStraggler, and blamed at the deadline.
func TestRankNeverCalls(t *testing.T) {
	var mu sync.Mutex
	var slow []collective.Wait
	o := collective.Options{Deadline: 400 * time.Millisecond, Straggler: 150 * time.Millisecond, OnStraggler: func(w collective.Wait) {
		mu.Lock()
		defer mu.Unlock()
		slow = append(slow, w)
	}}
	w := open(t, inMemory, 4, o)
	errs := w.each(func(r int, g *collective.Group) error {
		if r == 2 {
			return nil
		}
		h := g.Start(collective.Op{Label: "bucket 3", Plan: collective.Ring}, 3, collective.Of(make([]float32, 100)), collective.Of(make([]float32, 100)))
		if len(g.Waits()) != 1 {
			t.Errorf("%d waits", len(g.Waits()))
		}
		return h.Wait(t.Context())
	})
	for r, err := range errs {
		var b *collective.Blame
		if r != 2 && (!errors.As(err, &b) || b.Rank != 2 || b.Cause != collective.Deadline || b.Op != "allreduce of bucket 3" || err.Error() != errs[0].Error()) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	named := slices.ContainsFunc(slow, func(w collective.Wait) bool { return w.Rank == 2 && w.NotStarted })
	if len(slow) != 3 || !named { // a rank without a processor for so long names another that it has not heard yet
		t.Errorf("stragglers: %+v", slow)
	}
}

// A rank that dies is named by all the others, with the same words, and soon.
func TestCase11Killed(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		for _, n := range []int{4, 1000} {
			for _, pause := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
				w := open(t, inMemory, size, collective.Options{})
				victim := size - 1
				var died time.Time
				took := make([]time.Duration, size)
				errs := w.each(func(r int, g *collective.Group) error {
					if r == victim {
						<-time.After(pause)
						died = time.Now()
						return w.ports[r].Close() // all at once, as the kernel does for a killed process
					}
					err := run(t.Context(), g, collective.Op{Label: "w"}, collective.Of(make([]float32, n)), collective.Of(make([]float32, n)))
					took[r] = time.Since(died)
					return err
				})
				for r, err := range errs[:victim] {
					var b *collective.Blame
					if !errors.As(err, &b) || b.Rank != victim || b.Cause != collective.Lost || err.Error() != errs[0].Error() {
						t.Errorf("%d ranks: rank %d: %v\nrank 0: %v", size, r, err, errs[0])
					}
					if took[r] > 20*10*time.Millisecond {
						t.Errorf("%d ranks: rank %d knew after %v", size, r, took[r])
					}
				}
				w.close()
			}
		}
	}
}

func TestNotFinite(t *testing.T) {
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

// Frames of an old epoch are never applied.
func TestEpochFence(t *testing.T) {
	w := open(t, inMemory, 2, collective.Options{})
	src := collective.Of([]float32{1})
	h := w.groups[0].Start(collective.Op{}, 0, collective.Of(make([]float32, 1)), src) // rank 1 never answers in this epoch
	defer func() { _ = h }()
	var next []*collective.Group
	for _, g := range w.groups {
		_ = g.Close()
	}
	for r, p := range w.ports {
		s, err := p.Stream("again", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for q, other := range w.ports {
			if q != r {
				if err := s.Know(other.Name(), other.Addr()); err != nil {
					t.Fatal(err)
				}
			}
		}
		g, err := collective.New(s, collective.View{Epoch: 2, Peers: []transport.Name{w.ports[0].Name(), w.ports[1].Name()}, Self: r}, collective.Options{})
		if err != nil {
			t.Fatal(err)
		}
		next = append(next, g)
	}
	w.groups = next
	w.must(func(r int, g *collective.Group) error {
		x := []float32{float32(10 * (r + 1))}
		if err := collective.AllReduceInto(t.Context(), g, x, x, collective.Sum); err != nil {
			return err
		}
		if x[0] != 30 {
			return fmt.Errorf("the sum is %v", x[0])
		}
		return nil
	})
}

// Frames that come before their turn must not use up the credit of those whose turn it is.
func TestSmallWindow(t *testing.T) {
	for name, n := range map[string]network{"memory": inMemory, "tcp": overTCP} {
		w := openHosts(t, n, 4, collective.Options{MaxFrame: 4096, Segment: 1024, Window: 8192}, hostsOf(4, 2))
		for _, a := range algorithms {
			w.must(func(r int, g *collective.Group) error {
				const n = 40_000
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

func TestSendReceive(t *testing.T) {
	w := open(t, inMemory, 3, collective.Options{})
	w.must(func(r int, g *collective.Group) error {
		step := g.Step()
		x, y := []int32{int32(r), 7}, make([]int32, 2)
		var hs []*collective.Handle
		switch r {
		case 0:
			hs = append(hs, g.Start(collective.Op{Kind: collective.Send, Root: 2}, 1, collective.Buffer{}, collective.Of(x)))
		case 2:
			hs = append(hs, g.Start(collective.Op{Kind: collective.Receive, Root: 0}, 1, collective.Of(y), collective.Buffer{}))
		}
		for _, h := range hs {
			if err := h.Wait(t.Context()); err != nil {
				return err
			}
		}
		if err := g.Commit(t.Context(), step); err != nil {
			return err
		}
		if r == 2 && (y[0] != 0 || y[1] != 7) {
			return fmt.Errorf("received %v", y)
		}
		return nil
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
