package kernel

import "fmt"

// An ISA is a set of instructions that the kernels are written in. Every kernel takes one as its first argument, gives the same
// bits on AVX512, AVX2 and GoExact (but AxpyDots and ReadSum, see the package), and runs on one thread: callers cut the work into tiles and bring the threads.
type ISA uint8

const (
	// Go is the portable twin. In products of matrices (Gemm, Conv2D, GemvT, LinearLeaves) it rounds twice where the assembly fuses a
	// multiplication with an addition: it is the fast choice where there is no assembly, and the one exception to "same bits everywhere".
	Go ISA = iota
	// GoExact is the portable twin with fused multiply-adds emulated, for exact mode and tests: the bits of the assembly, slowly.
	GoExact
	AVX2   // AVX2, FMA and F16C
	AVX512 // AVX-512 F, BW, DQ and VL
)

func (i ISA) String() string {
	switch i {
	case Go:
		return "go"
	case GoExact:
		return "go-exact"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return fmt.Sprintf("isa(%d)", uint8(i))
}

// Best returns the fastest ISA of this machine: Go where there is no assembly, and in race-detector builds, because the detector
// does not see what assembly reads and writes.
func Best() ISA {
	if raceEnabled {
		return Go
	}
	return widest()
}

// Exact returns the fastest ISA whose bits are those of every other machine in exact mode.
func Exact() ISA {
	if b := Best(); b != Go {
		return b
	}
	return GoExact
}

// Available lists what runs here, slowest first; Go and GoExact always do.
func Available() []ISA {
	isas := []ISA{GoExact, Go}
	for isa := AVX2; isa <= Best(); isa++ {
		isas = append(isas, isa)
	}
	return isas
}
