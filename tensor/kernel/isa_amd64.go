package kernel

import "golang.org/x/sys/cpu"

// assembly lists the instruction sets of this processor that have kernels, slowest first. The operating system must save the wide
// registers too; package cpu checks that.
func assembly() []ISA {
	var isas []ISA
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA {
		isas = append(isas, AVX2)
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
			isas = append(isas, AVX512)
		}
	}
	return isas
}
