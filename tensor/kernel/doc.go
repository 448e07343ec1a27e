// Package kernel is the arithmetic of Trivium: plain functions over slices, on one thread, written in Go and in assembly for AVX2 and
// AVX-512, with the same bits on both and wherever a caller cuts the work.
//
// Every function takes an ISA first, the set of instructions to use: Best() for speed, Exact() where a run must have the bits of other
// machines. The main ones: Gemm, a matrix product in all four transpose forms with an Epilogue (bias, activation) applied while its
// tiles are in registers or cache; GemmZeros, the same for a first matrix of many zeros, which it leaves out; Gemv, GemvT and the fused
// regression step LinearLeaves; Conv2D and its two gradients, products of patches that are never stored; Dot and Sum; the element-wise
// functions; Softmax and the losses; products with sparse rows; pooling; the steps of the optimizers; and the loops of codecs.
//
// There are no goroutines here. A caller cuts the result into pieces and gives each to a thread of its own, with a Workspace of its own:
//
//	rows, cols := kernel.GemmTiles(m, n, k, threads)
//	// for every tile (i, j), on any thread:
//	kernel.Gemm(isa, false, false, min(rows, m-i), min(cols, n-j), k, a[i*k:], k, b[j:], n, c[i*n+j:], n, ep, &workspaces[thread])
//
// # One arithmetic
//
// The order of floating-point operations depends on shape and type alone.
//
//   - Products and convolutions: the sum over k is cut into blocks of 384 terms (float32) or 192 (float64); in a block each element is
//     one chain of fused multiply-adds from zero, ascending in k; block sums are added in order.
//   - Sum, Dot and Gemv: 64 lanes, element i in lane i mod 64, folded in halves; blocks of 4,096 elements, added pairwise.
//   - GemvT and LinearLeaves: leaves of 8 rows, each a chain of fused multiply-adds in ascending rows; leaves are added pairwise, along
//     the tree of LeafTree, which is that of FoldSums.
//   - The polynomials of Exp, Log, Tanh, Sigmoid and GELU of float32 are chains of fused multiply-adds. Erf and the slope of GELU of float32
//     compute in float64 with those of math.FMA. Both on every ISA.
//   - Everything else rounds each product before it is added.
//   - AxpyDots and ReadSum, which exact mode has no use for, add up in an order of the ISA's own.
//
// The ISA Go multiplies and then adds in the first and third of these, so its products of matrices differ in the last bits, in float32
// and float64; all else but AxpyDots and ReadSum is the same on every ISA. GoExact emulates the fused operation there too.
//
// # Misuse
//
// A slice that is too short for its shape is a mistake of the program and panics, as an index out of range does.
package kernel

//go:generate go run ./internal/gen
