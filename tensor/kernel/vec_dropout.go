package kernel

import "github.com/trivium-ml/trivium/draw"

// Dropout zeroes each x[i] with probability rate and divides the others by 1-rate. Whether element from+i is dropped depends on key
// and from+i alone, so tiles and recomputation repeat it, and the gradient is Dropout of dy with the same key.
func Dropout[T Float](isa ISA, dst, x []T, rate float64, key uint64, from int64) {
	scale := T(1 / (1 - rate))
	bound := uint64(rate * (1 << 53))
	for i := range dst {
		if draw.Mix(key+uint64(from+int64(i))*draw.Weyl)>>11 < bound {
			dst[i] = 0
		} else {
			dst[i] = x[i] * scale
		}
	}
}
