package main

import (
	"fmt"
	"strings"
)

// A simd is an instruction set and an element type, and the file of the kernels that are written for them an instruction at a time.
type simd struct {
	*strings.Builder
	isa    string // "AVX512", "AVX2"
	elem   string // "F32", "F64"
	reg    string // "Z", "Y"
	size   int    // bytes of an element
	lanes  int
	suffix string // "PS", "PD"
	bcast  string
}

func (a simd) p(format string, args ...any) { fmt.Fprintf(a, format+"\n", args...) }

// simds is those of an instruction set.
func simds(isa string, w *strings.Builder) [2]simd {
	reg, bytes := "Y", 32
	if isa == "AVX512" {
		reg, bytes = "Z", 64
	}
	return [2]simd{
		{w, isa, "F32", reg, 4, bytes / 4, "PS", "VBROADCASTSS"},
		{w, isa, "F64", reg, 8, bytes / 8, "PD", "VBROADCASTSD"},
	}
}
