package exec

import (
	"math"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// bindCast converts elements. To an integer it rounds towards zero; what does not fit becomes the nearest that does, NaN 0.
func bindCast(b *bound) {
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		castRange(b.out[0], b.in[0], from, to)
	}
}

func castRange(dst, src *slot, from, to int) {
	switch src.dt {
	case graph.F32:
		castFrom(dst, from, to, flat[float32](src))
	case graph.F64:
		castFrom(dst, from, to, flat[float64](src))
	case graph.I32:
		castFrom(dst, from, to, flat[int32](src))
	case graph.I64:
		castFrom(dst, from, to, flat[int64](src))
	case graph.U8:
		castFrom(dst, from, to, flat[uint8](src))
	case graph.Bool:
		if dst.dt == graph.Bool {
			copy(flat[bool](dst)[from:to], flat[bool](src)[from:to])
			return
		}
		castFrom(dst, from, to, flat[uint8](src)) // Go keeps a bool as 0 or 1
	case graph.BF16:
		h := flat[tensor.BFloat16](src)
		castHalf(dst, from, to, func(i int) float32 { return h[i].Float32() })
	case graph.F16:
		h := flat[tensor.Float16](src)
		castHalf(dst, from, to, func(i int) float32 { return h[i].Float32() })
	}
}

// castHalf goes through float32, which holds every half exactly, in blocks on the stack.
func castHalf(dst *slot, from, to int, at func(i int) float32) {
	var buf [256]float32
	for from < to {
		n := min(len(buf), to-from)
		for i := range n {
			buf[i] = at(from + i)
		}
		part := *dst
		shift(&part, from, n)
		castFrom(&part, 0, n, buf[:n])
		from += n
	}
}

func castFrom[S number](dst *slot, from, to int, src []S) {
	switch dst.dt {
	case graph.F32:
		convert(flat[float32](dst)[from:to], src[from:to])
	case graph.F64:
		convert(flat[float64](dst)[from:to], src[from:to])
	case graph.I32:
		truncate(flat[int32](dst)[from:to], src[from:to], math.MinInt32, math.MaxInt32)
	case graph.I64:
		truncate(flat[int64](dst)[from:to], src[from:to], math.MinInt64, math.MaxInt64)
	case graph.U8:
		truncate(flat[uint8](dst)[from:to], src[from:to], 0, math.MaxUint8)
	case graph.Bool:
		d := flat[bool](dst)[from:to]
		for i, x := range src[from:to] {
			d[i] = x != 0
		}
	case graph.BF16:
		d := flat[tensor.BFloat16](dst)[from:to]
		for i, x := range src[from:to] {
			d[i] = tensor.ToBFloat16(float32(x))
		}
	case graph.F16:
		d := flat[tensor.Float16](dst)[from:to]
		for i, x := range src[from:to] {
			d[i] = tensor.ToFloat16(float32(x))
		}
	}
}

func convert[D, S number](dst []D, src []S) {
	for i, x := range src {
		dst[i] = D(x)
	}
}

// truncate saturates at the bounds of an integer type: what Go leaves to the processor is the same on all of them.
func truncate[D int32 | int64 | uint8, S number](dst []D, src []S, lo, hi int64) {
	for i, x := range src {
		switch f := float64(x); {
		case x != x:
			dst[i] = 0
		case f >= 9223372036854775807:
			dst[i] = D(hi)
			if v, ok := any(x).(int64); ok && v < hi {
				dst[i] = D(v)
			}
		case f <= -9223372036854775808:
			dst[i] = D(lo)
			if v, ok := any(x).(int64); ok && v > lo {
				dst[i] = D(v)
			}
		default:
			dst[i] = D(max(lo, min(hi, int64(x))))
		}
	}
}
