package main

// zeros writes the kernels of products that leave out the zeros of A, for float32: see the type zeros in package kernel.
//
//	DI the argument, SI the row of A, R8 B, R9 bRow, R10 C, R11 cRow, R12 aRow, CX rows left, R14 opens, DX a bit for each number of the
//	row that is left, BX the first of them and its row of B or C
func (a gemm) zeros(kind string, body func(vecs int)) {
	const most = 8 // vectors of C: a fused multiply-add of each takes as long as one's result is waited for
	name := "zeros" + kind + a.isa
	a.p("// func %s(t *zeros)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ t+0(FP), DI\n\tMOVQ 0(DI), SI\n\tMOVQ 8(DI), R12\n\tMOVQ 16(DI), R8\n\tMOVQ 24(DI), R9\n\tMOVQ 32(DI), R10\n\tMOVQ 40(DI), R11")
	a.p("\tMOVQ 72(DI), R14")
	if a.wide() {
		a.p("\tMOVQ $-1, DX\n\tMOVQ 56(DI), AX\n\tBZHIQ AX, DX, DX")
		for g := range 4 {
			a.p("\tKMOVW DX, K%d\n\tSHRQ $16, DX", 4+g)
		}
		a.p("\tMOVL $0x7fffffff, AX\n\tVPBROADCASTD AX, Z31")
	} else {
		a.p("\tLEAQ maskF32<>(SB), BX\n\tMOVQ 56(DI), AX\n\tANDQ $7, AX\n\tNEGQ AX\n\tVMOVUPS 32(BX)(AX*4), Y14\n\tVXORPS Y13, Y13, Y13")
	}
	a.p("\tMOVQ 64(DI), CX")
	a.dispatch(1, most)
	for v := 1; v <= most; v++ {
		a.p("m%d:\n\tMOVQ 48(DI), CX", v)
		body(v)
		a.p("\tVZEROUPPER\n\tRET")
	}
	a.p("")
}

// bits sets DX to a bit for each of the row's numbers that is not zero. They are told by their bits: to compare denormal numbers takes long.
func (a gemm) bits(vecs int) {
	for g := range 4 { // the next row: too far from this one for the processor to see it coming
		a.p("\tPREFETCHT0 %d(SI)(R12*1)", 64*g)
	}
	if a.wide() {
		for g := range 4 {
			a.p("\tVPTESTMD %d(SI), Z31, K%d, K2", 64*g, 4+g)
			if g == 0 {
				a.p("\tKMOVW K2, DX")
			} else {
				a.p("\tKMOVW K2, AX\n\tSHLQ $%d, AX\n\tORQ AX, DX", 16*g)
			}
		}
		return
	}
	eight := func() {
		a.p("\tVPADDD Y12, Y12, Y12\n\tVPCMPEQD Y13, Y12, Y12\n\tVMOVMSKPS Y12, AX\n\tXORL $255, AX\n\tSHLXQ BX, AX, AX\n\tORQ AX, DX")
	}
	a.p("\tXORQ DX, DX\n\tXORQ BX, BX\n\tMOVQ 56(DI), R13\n\tSUBQ $8, R13\n\tJLT last%d", vecs)
	a.p("eight%d:\n\tVMOVUPS (SI)(BX*4), Y12", vecs)
	eight()
	a.p("\tADDQ $8, BX\n\tSUBQ $8, R13\n\tJGE eight%d", vecs)
	a.p("last%d:\n\tADDQ $8, R13\n\tJEQ bits%d\n\tVMASKMOVPS (SI)(BX*4), Y14, Y12", vecs, vecs)
	eight()
	a.p("bits%d:", vecs)
}

// load and store move a row of vectors between memory at base and registers from reg on.
func (a gemm) load(vecs, reg int, base string) {
	for v := range vecs {
		a.p("\tVMOVUPS %d(%s), %s%d", 4*a.lanes*v, base, a.reg, reg+v)
	}
}

func (a gemm) store(vecs, reg int, base string) {
	for v := range vecs {
		a.p("\tVMOVUPS %s%d, %d(%s)", a.reg, reg+v, 4*a.lanes*v, base)
	}
}

// term begins a turn for the first bit of DX: its number in all lanes of register reg, and in BX its row of a matrix.
func (a gemm) term(label string, vecs, reg int, base, stride string) {
	a.p("%s%d:\n\tTZCNTQ DX, BX\n\tVBROADCASTSS (SI)(BX*4), %s%d\n\tIMULQ %s, BX\n\tADDQ %s, BX", label, vecs, a.reg, reg, stride, base)
}

func (a gemm) zerosSum(vecs int) {
	a.p("row%d:", vecs)
	a.bits(vecs)
	a.p("\tTESTQ R14, R14\n\tJEQ more%d", vecs)
	for v := range vecs {
		a.p("\tVXORPS %s%d, %s%d, %s%d", a.reg, v, a.reg, v, a.reg, v)
	}
	a.p("\tTESTQ DX, DX\n\tJEQ store%d\n\tJMP term%d", vecs, vecs)
	a.p("more%d:\n\tTESTQ DX, DX\n\tJEQ next%d", vecs, vecs)
	a.load(vecs, 0, "R10")
	a.term("term", vecs, 8, "R8", "R9")
	for v := range vecs {
		a.p("\tVFMADD231PS %d(BX), %s8, %s%d", 4*a.lanes*v, a.reg, a.reg, v)
	}
	a.p("\tBLSRQ DX, DX\n\tJNE term%d\nstore%d:", vecs, vecs)
	a.store(vecs, 0, "R10")
	a.p("next%d:", vecs)
	a.p("\tADDQ R12, SI\n\tADDQ R11, R10\n\tDECQ CX\n\tJNE row%d", vecs)
}

func (a gemm) zerosScatter(vecs int) {
	a.p("row%d:", vecs)
	a.bits(vecs)
	a.p("\tTESTQ DX, DX\n\tJEQ next%d", vecs)
	a.load(vecs, 0, "R8")
	a.term("term", vecs, 8, "R10", "R11")
	for v := range vecs {
		at, t := 4*a.lanes*v, 9+v%4
		a.p("\tVMOVUPS %d(BX), %s%d\n\tVFMADD231PS %s%d, %s8, %s%d\n\tVMOVUPS %s%d, %d(BX)", at, a.reg, t, a.reg, v, a.reg, a.reg, t, a.reg, t, at)
	}
	a.p("\tBLSRQ DX, DX\n\tJNE term%d\nnext%d:", vecs, vecs)
	a.p("\tADDQ R12, SI\n\tADDQ R9, R8\n\tDECQ CX\n\tJNE row%d", vecs)
}
