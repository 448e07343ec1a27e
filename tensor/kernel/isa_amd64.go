package kernel

import "golang.org/x/sys/cpu"

// widest is the largest instruction set of this processor that has kernels, or Go. The operating system must save the wide registers too;
// package cpu checks that.
func widest() ISA {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return Go
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return AVX512
	}
	return AVX2
}

// secondLevel is the size in bytes of this processor's second-level cache, as it says itself; 0 where it does not.
var secondLevel = cacheKiB() << 10

// cacheKiB is CPUID's leaf 0x80000006, which processors of AMD and Intel have.
//
//go:noescape
func cacheKiB() int
