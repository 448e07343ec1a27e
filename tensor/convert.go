package tensor

// convert copies elements [from, to) through a number that holds every element of src exactly.
func convert(dst, src *Tensor, from, to int) {
	switch src.dt {
	case F32:
		convertFrom(dst, Flat[float32](src), from, to, func(x float32) float32 { return x })
	case F64:
		convertFrom(dst, Flat[float64](src), from, to, func(x float64) float64 { return x })
	case I32:
		convertFrom(dst, Flat[int32](src), from, to, func(x int32) int32 { return x })
	case I64:
		convertFrom(dst, Flat[int64](src), from, to, func(x int64) int64 { return x })
	case U8:
		convertFrom(dst, Flat[uint8](src), from, to, func(x uint8) uint8 { return x })
	case Bool:
		convertFrom(dst, Flat[bool](src), from, to, func(x bool) uint8 {
			if x {
				return 1
			}
			return 0
		})
	case BF16:
		convertFrom(dst, Flat[BFloat16](src), from, to, BFloat16.Float32)
	case F16:
		convertFrom(dst, Flat[Float16](src), from, to, Float16.Float32)
	}
}

type number interface {
	float32 | float64 | int32 | int64 | uint8
}

func convertFrom[S Elem, N number](dst *Tensor, src []S, from, to int, number func(S) N) {
	switch dst.dt {
	case F32:
		convertTo(Flat[float32](dst), src, from, to, func(x S) float32 { return float32(number(x)) })
	case F64:
		convertTo(Flat[float64](dst), src, from, to, func(x S) float64 { return float64(number(x)) })
	case I32:
		convertTo(Flat[int32](dst), src, from, to, func(x S) int32 { return int32(number(x)) })
	case I64:
		convertTo(Flat[int64](dst), src, from, to, func(x S) int64 { return int64(number(x)) })
	case U8:
		convertTo(Flat[uint8](dst), src, from, to, func(x S) uint8 { return uint8(number(x)) })
	case Bool:
		convertTo(Flat[bool](dst), src, from, to, func(x S) bool { return number(x) != 0 })
	case BF16:
		convertTo(Flat[BFloat16](dst), src, from, to, func(x S) BFloat16 { return ToBFloat16(float32(number(x))) })
	case F16:
		convertTo(Flat[Float16](dst), src, from, to, func(x S) Float16 { return ToFloat16(float32(number(x))) })
	}
}

func convertTo[S, D Elem](dst []D, src []S, from, to int, f func(S) D) {
	for i := from; i < to; i++ {
		dst[i] = f(src[i])
	}
}
