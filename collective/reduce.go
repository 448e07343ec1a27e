package collective

import (
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// combine is dst = from[0] ⊕ from[1] ⊕ ..., from left to right. dst may be one of the first two, and no other. Half types are summed
// in float32 and rounded once.
func combine(dt tensor.DType, r Reduce, dst []byte, from ...[]byte) {
	switch dt {
	case tensor.F32:
		combineFloat[float32](r, dst, from)
	case tensor.F64:
		combineFloat[float64](r, dst, from)
	case tensor.I32:
		combineWhole[int32](r, dst, from)
	case tensor.I64:
		combineWhole[int64](r, dst, from)
	case tensor.U8, tensor.Bool:
		combineWhole[uint8](r, dst, from)
	case tensor.F16:
		combineHalf(r, dst, from, tensor.Float16.Float32, tensor.ToFloat16)
	case tensor.BF16:
		combineHalf(r, dst, from, tensor.BFloat16.Float32, tensor.ToBFloat16)
	}
}

// blockBytes of dst stay in the first-level cache while all operands are added to them.
const blockBytes = 8 << 10

func combineFloat[T kernel.Float](r Reduce, dst []byte, from [][]byte) {
	isa := kernel.Best()
	for at := 0; at < len(dst); at += blockBytes {
		to := min(len(dst), at+blockBytes)
		out, a := as[T](dst[at:to]), as[T](from[0][at:to])
		for _, f := range from[1:] {
			b := as[T](f[at:to])
			switch r {
			case Sum, Mean:
				kernel.Add(isa, out, a, b)
			case Min:
				kernel.Min(isa, out, a, b)
			case Max:
				kernel.Max(isa, out, a, b)
			case Product:
				kernel.Mul(isa, out, a, b)
			}
			a = out
		}
	}
}

func combineWhole[T int32 | int64 | uint8](r Reduce, dst []byte, from [][]byte) {
	out, a := as[T](dst), as[T](from[0])
	for _, f := range from[1:] {
		b := as[T](f)[:len(out)]
		a = a[:len(out)]
		switch r {
		case Sum, Mean:
			for i := range out {
				out[i] = a[i] + b[i]
			}
		case Min:
			for i := range out {
				out[i] = min(a[i], b[i])
			}
		case Max:
			for i := range out {
				out[i] = max(a[i], b[i])
			}
		case Product:
			for i := range out {
				out[i] = a[i] * b[i]
			}
		case And:
			for i := range out {
				out[i] = a[i] & b[i]
			}
		case Or:
			for i := range out {
				out[i] = a[i] | b[i]
			}
		}
		a = out
	}
}

func combineHalf[T ~uint16](r Reduce, dst []byte, from [][]byte, wide func(T) float32, narrow func(float32) T) {
	var acc [blockBytes / 4]float32
	out := as[T](dst)
	for at := 0; at < len(out); at += len(acc) {
		n := min(len(acc), len(out)-at)
		for i, v := range as[T](from[0])[at : at+n] {
			acc[i] = wide(v)
		}
		for _, f := range from[1:] {
			for i, v := range as[T](f)[at : at+n] {
				switch x := wide(v); r {
				case Sum, Mean:
					acc[i] += x
				case Min: // as kernel.Min: the second unless the first is less
					if !(acc[i] < x) {
						acc[i] = x
					}
				case Max:
					if !(acc[i] > x) {
						acc[i] = x
					}
				case Product:
					acc[i] *= x
				}
			}
		}
		for i, v := range acc[:n] {
			out[at+i] = narrow(v)
		}
	}
}

// finish turns a sum into a mean of so many ranks, and scales.
func finish(dt tensor.DType, r Reduce, ranks int, scale float64, x []byte) {
	if r != Mean {
		ranks = 1
	}
	if scale == 0 {
		scale = 1
	}
	if ranks == 1 && scale == 1 {
		return
	}
	switch dt {
	case tensor.F32:
		finishFloat(as[float32](x), ranks, scale)
	case tensor.F64:
		finishFloat(as[float64](x), ranks, scale)
	case tensor.I32:
		finishWhole(as[int32](x), ranks)
	case tensor.I64:
		finishWhole(as[int64](x), ranks)
	case tensor.U8:
		for i, v := range x {
			x[i] = uint8(int(v) / ranks)
		}
	case tensor.F16:
		for i, v := range as[tensor.Float16](x) {
			as[tensor.Float16](x)[i] = tensor.ToFloat16(float32(v.Float32()/float32(ranks)) * float32(scale))
		}
	case tensor.BF16:
		for i, v := range as[tensor.BFloat16](x) {
			as[tensor.BFloat16](x)[i] = tensor.ToBFloat16(float32(v.Float32()/float32(ranks)) * float32(scale))
		}
	}
}

func finishFloat[T kernel.Float](x []T, ranks int, scale float64) {
	if ranks > 1 {
		kernel.DivScalar(kernel.Best(), x, x, T(ranks))
	}
	if scale != 1 {
		kernel.Scale(kernel.Best(), x, x, T(scale))
	}
}

func finishWhole[T int32 | int64](x []T, ranks int) {
	for i, v := range x {
		x[i] = v / T(ranks)
	}
}
