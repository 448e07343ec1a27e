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

// cpuid is what the processor says of itself.
//
//go:noescape
func cpuid(leaf uint32) (a, b, c, d uint32)

// secondLevel is the size in bytes of this processor's second-level cache; 0 where it does not say.
var secondLevel = func() int {
	const leaf = 0x80000006 // of AMD, and of Intel too
	if most, _, _, _ := cpuid(0x80000000); most < leaf {
		return 0
	}
	_, _, c, _ := cpuid(leaf)
	return int(c>>16) << 10
}()

// intel says whether this is a processor of Intel.
var intel = func() bool {
	_, b, c, d := cpuid(0)
	return b == 0x756e6547 && d == 0x49656e69 && c == 0x6c65746e // "GenuineIntel"
}()
