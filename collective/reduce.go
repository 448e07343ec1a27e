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
		combineHalf(r, kernel.F16, dst, from)
	case tensor.BF16:
		combineHalf(r, kernel.BF16, dst, from)
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
			combineTwo(isa, r, out, a, as[T](f[at:to]))
			a = out
		}
	}
}

// combineTwo is dst = a ⊕ b.
func combineTwo[T kernel.Float](isa kernel.ISA, r Reduce, dst, a, b []T) {
	switch r {
	case Sum, Mean:
		kernel.Add(isa, dst, a, b)
	case Min:
		kernel.Min(isa, dst, a, b)
	case Max:
		kernel.Max(isa, dst, a, b)
	case Product:
		kernel.Mul(isa, dst, a, b)
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

func combineHalf(r Reduce, h kernel.Half, dst []byte, from [][]byte) {
	isa := kernel.Best()
	var sum, next [blockBytes / 4]float32
	for at := 0; at < len(dst); at += 2 * len(sum) {
		to := min(len(dst), at+2*len(sum))
		acc, x := sum[:(to-at)/2], next[:(to-at)/2]
		kernel.Widen(isa, h, acc, from[0][at:to])
		for _, f := range from[1:] {
			kernel.Widen(isa, h, x, f[at:to])
			combineTwo(isa, r, acc, acc, x)
		}
		kernel.Narrow(isa, h, dst[at:to], acc)
	}
}

// finishPart is what is left to do of x, a part of j's result that has been added up. In exact mode all NaNs become one: which operand a sum
// takes their bits from depends on the ranks.
func (j *job) finishPart(ranks int, x []byte) {
	finish(j.dtype, j.Reduce, ranks, j.Scale, x)
	if j.Shards == 0 {
		return
	}
	switch j.dtype {
	case tensor.F32:
		kernel.OneNaN(kernel.Best(), as[float32](x))
	case tensor.F64:
		kernel.OneNaN(kernel.Best(), as[float64](x))
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
		finishHalf(kernel.F16, x, ranks, scale)
	case tensor.BF16:
		finishHalf(kernel.BF16, x, ranks, scale)
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

func finishHalf(h kernel.Half, x []byte, ranks int, scale float64) {
	isa := kernel.Best()
	var wide [blockBytes / 4]float32
	for at := 0; at < len(x); at += 2 * len(wide) {
		part := x[at:min(len(x), at+2*len(wide))]
		y := wide[:len(part)/2]
		kernel.Widen(isa, h, y, part)
		finishFloat(y, ranks, scale)
		kernel.Narrow(isa, h, part, y)
	}
}

func finishWhole[T int32 | int64](x []T, ranks int) {
	for i, v := range x {
		x[i] = v / T(ranks)
	}
}
