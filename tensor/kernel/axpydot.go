package kernel

// AxpyDot is y[i] += alpha * x[i], each product rounded before it is added, and returns the sum of y[i] * z[i] after it: a step of descent by
// one row, and the margin of the next, in one pass over the weights y. While it computes, z comes from memory, where a pass that only adds
// would leave that idle. The order of the sum is the ISA's own.
func AxpyDot(isa ISA, y []float32, alpha float32, x, z []float32) float32 {
	x, z = x[:len(y)], z[:len(y)]
	n := 0
	var sum float32
	if isa >= AVX2 && len(y) >= axpyDotUnit {
		n = len(y) &^ (axpyDotUnit - 1)
		if isa >= AVX512 {
			sum = axpyDotF32AVX512(&y[0], &x[0], &z[0], n, alpha)
		} else {
			sum = axpyDotF32AVX2(&y[0], &x[0], &z[0], n, alpha)
		}
	}
	for i := n; i < len(y); i++ {
		y[i] += float32(alpha * x[i])
		sum += float32(y[i] * z[i])
	}
	return sum
}

// axpyDotUnit is how many cells a turn of the assembly's loops takes.
const axpyDotUnit = 64
