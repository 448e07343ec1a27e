package kernel

// These are AxpyDot of n cells, a multiple of axpyDotUnit: axpydot_amd64.s.

//go:noescape
func axpyDotF32AVX512(y, x, z *float32, n int, alpha float32) float32

//go:noescape
func axpyDotF32AVX2(y, x, z *float32, n int, alpha float32) float32
