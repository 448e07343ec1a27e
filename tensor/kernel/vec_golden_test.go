package kernel

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

// golden is the hash of the results of TestGoldenBits, on every ISA. It changes only when the arithmetic contract does; then it is
// replaced by what the test prints, which must be the same on every architecture.
const golden uint64 = 0x9e2b41c8329573a0

// TestGoldenBits compares this machine with every other one, where the remaining tests compare its instruction sets with each other.
func TestGoldenBits(t *testing.T) {
	for _, isa := range Available() {
		h := fnv.New64a()
		add32 := func(x ...float32) {
			for _, v := range x {
				if v != v {
					v = float32(math.NaN())
				}
				binary.Write(h, binary.LittleEndian, math.Float32bits(v))
			}
		}
		add64 := func(x ...float64) {
			for _, v := range x {
				if v != v {
					v = math.NaN()
				}
				binary.Write(h, binary.LittleEndian, math.Float64bits(v))
			}
		}
		r := rand.New(rand.NewPCG(16, 16))
		const n, cols = 5000, 50
		bits, bits64 := make([]float32, n), make([]float64, n) // all exponents
		x, y, x64, y64 := make([]float32, n), make([]float32, n), make([]float64, n), make([]float64, n)
		for i := range x {
			bits[i], bits64[i] = math.Float32frombits(r.Uint32()), math.Float64frombits(r.Uint64())
			x[i], y[i] = float32(r.IntN(1<<24))/(1<<22)-2, float32(r.IntN(1<<24))/(1<<22)-2
			x64[i], y64[i] = float64(r.Int64N(1<<53))/(1<<50)-4, float64(r.Int64N(1<<53))/(1<<50)-4
		}
		u, v, w := make([]float32, n), make([]float32, n), make([]float32, n)
		u64, v64 := make([]float64, n), make([]float64, n)
		for _, f := range []func(ISA, []float32, []float32){Exp[float32], Log[float32], Tanh[float32], Sigmoid[float32], Erf[float32], GELU[float32], Sqrt[float32]} {
			for _, in := range [][]float32{bits, x} {
				f(isa, u, in)
				add32(u...)
			}
		}
		for _, f := range []func(ISA, []float64, []float64){Exp[float64], Log[float64], Tanh[float64], Sigmoid[float64], Erf[float64], GELU[float64], Sqrt[float64]} {
			for _, in := range [][]float64{bits64, x64} {
				f(isa, u64, in)
				add64(u64...)
			}
		}
		GELUGrad(isa, u, x, y)
		add32(u...)
		add32(Sum(isa, x), Dot(isa, x, y), SumSquares(isa, x), MaxOf(isa, x))
		add64(Sum(isa, x64), Dot(isa, x64, y64), SumSquares(isa, x64), MaxOf(isa, x64))
		ColSums(isa, u[:cols], x, n/cols, cols)
		add32(u[:cols]...)
		Triad(isa, u, x, 0.3, y)
		add32(u...)
		Triad(isa, u64, x64, 0.3, y64)
		add64(u64...)
		labels := make([]int32, n/cols)
		for i := range labels {
			labels[i] = int32(i % cols)
		}
		SoftmaxCrossEntropy(isa, v[:n/cols], u, x, labels, y, cols)
		add32(u...)
		add32(v[:n/cols]...)
		SoftmaxCrossEntropy(isa, v64[:n/cols], u64, x64, labels, y64, cols)
		add64(u64...)
		add64(v64[:n/cols]...)
		SoftmaxGrad(isa, v, y, u, cols)
		add32(v...)
		SigmoidCrossEntropy(isa, v, u, x, y, nil)
		add32(v...)
		add32(u...)
		SigmoidCrossEntropy(isa, v64, u64, x64, y64, nil)
		add64(v64...)
		add64(u64...)
		for _, k := range steps {
			clear(v)
			clear(w)
			for range 3 {
				k.f(isa, u, x, y, v, w, Regular{LR: 0.1, L1: 0.01, L2: 0.02, Decay: 0.03})
				add32(u...)
			}
		}
		clear(v)
		clear(w)
		FTRL(isa, u, x, y, v, w, FTRLParams{Alpha: 0.1, Beta: 1, L1: 0.2, L2: 0.1})
		add32(u...)
		Dropout(isa, u, x, 0.4, 0xf18d6ce93d6cf1ee, 3)
		add32(u...)
		if got := h.Sum64(); got != golden {
			t.Errorf("on %v the bits of all kernels have hash %#x, want %#x", isa, got, golden)
		}
	}
}
