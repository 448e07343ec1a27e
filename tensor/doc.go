// Package tensor is an n-dimensional array and the arithmetic on it; it knows no graph, gradient or network.
//
// A [Tensor] has a type, a shape and 64-byte aligned memory, row-major. A [CPU] is an instruction set and a [Pool] of threads; its
// methods do whole-tensor arithmetic. Whoever needs more control calls the functions of package kernel on [Flat] slices, and shares
// the work out with [Pool.Run]:
//
//	cpu := tensor.NewCPU(0, false)
//	defer cpu.Close()
//	x := tensor.Flat[float32](t)
//	cpu.Pool.Run(tiles, func(i, worker int) {
//		from, to := i*len(x)/tiles, (i+1)*len(x)/tiles
//		kernel.Exp(cpu.ISA, x[from:to], x[from:to])
//	})
package tensor
