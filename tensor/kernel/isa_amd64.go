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
