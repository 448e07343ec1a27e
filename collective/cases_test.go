package collective_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
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

// Every reduction of every type that has it, along every plan. Of the three ranks' values the middle one is the mean, and nothing is rounded.
func TestReductionsOfTypes(t *testing.T) {
	const size, n = 3, 1025
	w := open(t, inMemory, size, collective.Options{Segment: 512})
	value := func(r, i int) float64 { return float64(i%7 - 3 + 3*(r-1)) }
	for _, v := range []struct {
		r    collective.Reduce
		want func(a, b, c float64) float64
	}{
		{collective.Sum, func(a, b, c float64) float64 { return a + b + c }},
		{collective.Mean, func(_, b, _ float64) float64 { return b }},
		{collective.Min, func(a, b, c float64) float64 { return min(a, b, c) }},
		{collective.Max, func(a, b, c float64) float64 { return max(a, b, c) }},
		{collective.Product, func(a, b, c float64) float64 { return a * b * c }},
	} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16, tensor.I32, tensor.I64} {
			for _, a := range algorithms {
				w.must(func(r int, g *collective.Group) error {
					src, dst := tensor.New(dt, n), tensor.New(dt, n)
					for i := range n {
						put(src, i, value(r, i))
					}
					if err := run(t.Context(), g, collective.Op{Reduce: v.r, Plan: a}, buffer(dst), buffer(src)); err != nil {
						return err
					}
					for i := range n {
						if got, want := at(dst, i), v.want(value(0, i), value(1, i), value(2, i)); got != want {
							return fmt.Errorf("%v of %v, %v, element %d: %v, want %v", v.r, dt, a, i, got, want)
						}
					}
					return nil
				})
			}
		}
	}
}

// Bytes and truth values, along every plan: sums and products wrap round, and the mean is that of the wrapped sum. Means round towards zero.
func TestReductionsOfBytes(t *testing.T) {
	const size = 3
	w := open(t, inMemory, size, collective.Options{})
	bytes := [][]uint8{{1, 200, 3, 0}, {2, 100, 6, 1}, {2, 50, 8, 1}}
	truths := [][]uint8{{0, 1, 0, 1}, {0, 1, 1, 1}, {0, 0, 0, 1}}
	for _, v := range []struct {
		r    collective.Reduce
		dt   tensor.DType
		src  [][]uint8
		want []uint8
	}{
		{collective.Sum, tensor.U8, bytes, []uint8{5, 350 - 256, 17, 2}},
		{collective.Mean, tensor.U8, bytes, []uint8{1, (350 - 256) / 3, 5, 0}},
		{collective.Min, tensor.U8, bytes, []uint8{1, 50, 3, 0}},
		{collective.Max, tensor.U8, bytes, []uint8{2, 200, 8, 1}},
		{collective.Product, tensor.U8, bytes, []uint8{4, 1_000_000 % 256, 3 * 6 * 8, 0}},
		{collective.And, tensor.U8, bytes, []uint8{1 & 2, 200 & 100 & 50, 3 & 6 & 8, 0}},
		{collective.Or, tensor.U8, bytes, []uint8{1 | 2, 200 | 100 | 50, 3 | 6 | 8, 1}},
		{collective.And, tensor.Bool, truths, []uint8{0, 0, 0, 1}},
		{collective.Or, tensor.Bool, truths, []uint8{0, 1, 1, 1}},
	} {
		for _, a := range algorithms {
			w.must(func(r int, g *collective.Group) error {
				dst := make([]uint8, len(v.want))
				op := collective.Op{Reduce: v.r, Plan: a}
				if err := run(t.Context(), g, op, collective.Buffer{DType: v.dt, Bytes: dst}, collective.Buffer{DType: v.dt, Bytes: v.src[r]}); err != nil {
					return err
				}
				if !slices.Equal(dst, v.want) {
					return fmt.Errorf("%v of %v, %v: %v, want %v", v.r, v.dt, a, dst, v.want)
				}
				return nil
			})
		}
	}
	w.must(func(r int, g *collective.Group) error {
		narrow, wide := make([]int32, 2), make([]int64, 2)
		src := [][]int64{{-5, 5}, {-1, 1}, {1, -1}}[r] // in all -5 and 5
		if err := collective.AllReduceInto(t.Context(), g, narrow, []int32{int32(src[0]), int32(src[1])}, collective.Mean); err != nil {
			return err
		}
		if err := collective.AllReduceInto(t.Context(), g, wide, src, collective.Mean); err != nil {
			return err
		}
		if !slices.Equal(narrow, []int32{-1, 1}) || !slices.Equal(wide, []int64{-1, 1}) {
			return fmt.Errorf("means of whole numbers are %v and %v, want -1 and 1", narrow, wide)
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

// TestReduceScatterInto: each rank gets its part of the sum, where parts are equal and where they are not.
func TestReduceScatterInto(t *testing.T) {
	for _, size := range []int{1, 2, 4, 7} {
		w := open(t, inMemory, size, collective.Options{})
		for _, n := range []int{28 * 100, 10_001} {
			w.must(func(r int, g *collective.Group) error {
				from, to := r*n/size, (r+1)*n/size
				dst, src := make([]int64, to-from), make([]int64, n)
				for i := range src {
					src[i] = int64(i + r)
				}
				if err := collective.ReduceScatterInto(t.Context(), g, dst, src, collective.Sum); err != nil {
					return err
				}
				for i, v := range dst {
					if want := int64(size*(from+i) + size*(size-1)/2); v != want {
						return fmt.Errorf("%d ranks, element %d of %d: %d, want %d", size, from+i, n, v, want)
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

// Operations of one size and several types: what is kept of one is of no use to the others, also where a rank has only a destination, and where
// their frames hold other numbers of elements.
func TestOneSizeManyTypes(t *testing.T) {
	w := open(t, inMemory, 3, collective.Options{Segment: 1 << 10, MaxFrame: 1 << 10})
	types := []tensor.DType{tensor.U8, tensor.F32, tensor.I32, tensor.F64, tensor.U8}
	w.must(func(r int, g *collective.Group) error {
		for _, bytes := range []bool{true, false} { // that all have 4,000 bytes, or 4,000 elements
			for _, dt := range types {
				each := dt.Size()
				if bytes {
					each = 1
				}
				dst, src := collective.Buffer{DType: dt, Bytes: tensor.AlignedBytes(4000 * each)}, collective.Buffer{}
				if r == 0 {
					src = collective.Buffer{DType: dt, Bytes: tensor.AlignedBytes(4000 * each)}
					for i := range src.Bytes {
						src.Bytes[i] = byte(i % 61)
					}
				}
				if err := run(t.Context(), g, collective.Op{Kind: collective.Broadcast}, dst, src); err != nil {
					return fmt.Errorf("%v: %w", dt, err)
				}
				for i, v := range dst.Bytes {
					if v != byte(i%61) {
						return fmt.Errorf("%v: rank %d has %d at byte %d, want %d", dt, r, v, i, i%61)
					}
				}
			}
		}
		return nil
	})
}
