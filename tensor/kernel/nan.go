package kernel

import "math"

// OneNaN makes every NaN of x the same one: quiet, positive, without payload. Which sign and payload a sum of NaNs has depends on the order
// of its operands, and of Inf and -Inf on the processor. Numbers stay as they are.
func OneNaN[T Float](isa ISA, x []T) {
	for ; len(x) > 0; x = x[min(BlockLen, len(x)):] {
		block := x[:min(BlockLen, len(x))]
		// A sum that is no NaN has no NaN among its terms: nearly always that is all there is to do.
		if s := blockSum(isa, block); s == s {
			continue
		}
		nan := quietNaN[T]()
		for i, v := range block {
			if v != v {
				block[i] = nan
			}
		}
	}
}

func quietNaN[T Float]() T {
	if single[T]() {
		return T(math.Float32frombits(0x7fc00000))
	}
	return T(math.Float64frombits(0x7ff8000000000000))
}
