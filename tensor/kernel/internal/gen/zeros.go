package main

// zeros writes the kernels of products that leave out the zeros of A, for float32: see the type zeros in package kernel.
func (a gemm) zeros() {
	a.present()
	const most = 8 // vectors of C: a fused multiply-add of each takes as long as one's result is waited for
	// DI the argument, SI the row of A, R14 aRow, R12 aStep, R8 B, R9 bRow, R10 C, R11 cRow, R13 the row's word, CX rows left, DX the bits of the
	// word that are left, AX and BX where the first of them has its number and its row of B
	a.p("// func zeros%s(t *zeros)", a.isa)
	a.p("TEXT ·zeros%s(SB), NOSPLIT, $0-8", a.isa)
	a.p("\tMOVQ t+0(FP), DI\n\tMOVQ 0(DI), SI\n\tMOVQ 8(DI), R14\n\tMOVQ 16(DI), R12\n\tMOVQ 24(DI), R8\n\tMOVQ 32(DI), R9\n\tMOVQ 40(DI), R10\n\tMOVQ 48(DI), R11")
	a.p("\tMOVQ 56(DI), R13\n\tMOVQ 72(DI), CX")
	if a.wide() { // the last vector of C
		a.p("\tMOVQ 88(DI), AX\n\tMOVQ $-1, DX\n\tBZHIQ AX, DX, DX\n\tKMOVW DX, K1")
	} else {
		a.p("\tLEAQ maskF32<>(SB), BX\n\tMOVQ 88(DI), AX\n\tNEGQ AX\n\tVMOVUPS 32(BX)(AX*4), Y15")
	}
	a.dispatch(1, most)
	for vecs := 1; vecs <= most; vecs++ {
		a.p("m%d:\n\tMOVQ 64(DI), CX", vecs)
		a.p("row%d:\n\tMOVQ (R13), DX\n\tCMPQ 80(DI), $0\n\tJEQ more%d", vecs, vecs)
		for v := range vecs {
			a.p("\tVXORPS %s%d, %s%d, %s%d", a.reg, v, a.reg, v, a.reg, v)
		}
		a.p("\tTESTQ DX, DX\n\tJEQ store%d\n\tJMP term%d", vecs, vecs)
		a.p("more%d:\n\tTESTQ DX, DX\n\tJEQ next%d", vecs, vecs)
		for v := range vecs {
			switch at := 4 * a.lanes * v; {
			case v < vecs-1:
				a.p("\tVMOVUPS %d(R10), %s%d", at, a.reg, v)
			case a.wide():
				a.p("\tVMOVUPS.Z %d(R10), K1, Z%d", at, v)
			default:
				a.p("\tVMASKMOVPS %d(R10), Y15, Y%d", at, v)
			}
		}
		a.p("term%d:\n\tTZCNTQ DX, BX\n\tMOVQ BX, AX\n\tIMULQ R12, AX\n\tIMULQ R9, BX\n\tADDQ R8, BX\n\tVBROADCASTSS (SI)(AX*1), %s8", vecs, a.reg)
		for v := range vecs {
			a.p("\tVFMADD231PS %d(BX), %s8, %s%d", 4*a.lanes*v, a.reg, a.reg, v)
		}
		a.p("\tBLSRQ DX, DX\n\tJNE term%d\nstore%d:", vecs, vecs)
		for v := range vecs {
			switch at := 4 * a.lanes * v; {
			case v < vecs-1:
				a.p("\tVMOVUPS %s%d, %d(R10)", a.reg, v, at)
			case a.wide():
				a.p("\tVMOVUPS Z%d, K1, %d(R10)", v, at)
			default:
				a.p("\tVMASKMOVPS Y%d, Y15, %d(R10)", v, at)
			}
		}
		a.p("next%d:\n\tADDQ R14, SI\n\tADDQ R11, R10\n\tADDQ $8, R13\n\tDECQ CX\n\tJNE row%d\n\tVZEROUPPER\n\tRET", vecs, vecs)
	}
	a.p("")
}

// present writes the kernel that tells which numbers are not zero. They are told by their bits: to compare denormal numbers takes long.
//
//	SI the row of A, R12 aRow, CX rows left, R8 where the word goes, R9 columns, DX the word
func (a gemm) present() {
	a.p("// func present%s(a *float32, aRow, rows, columns int, words *uint64)", a.isa)
	a.p("TEXT ·present%s(SB), NOSPLIT, $0-40", a.isa)
	a.p("\tMOVQ a+0(FP), SI\n\tMOVQ aRow+8(FP), R12\n\tMOVQ rows+16(FP), CX\n\tMOVQ columns+24(FP), R9\n\tMOVQ words+32(FP), R8")
	if a.wide() {
		a.p("\tMOVQ $-1, DX\n\tBZHIQ R9, DX, DX")
		for g := range 4 {
			a.p("\tKMOVW DX, K%d\n\tSHRQ $16, DX", 4+g)
		}
		a.p("\tMOVL $0x7fffffff, AX\n\tVPBROADCASTD AX, Z31")
	} else {
		a.p("\tLEAQ maskF32<>(SB), BX\n\tMOVQ R9, AX\n\tANDQ $7, AX\n\tNEGQ AX\n\tVMOVUPS 32(BX)(AX*4), Y14\n\tVXORPS Y13, Y13, Y13")
	}
	a.p("row:")
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
	} else {
		eight := func() {
			a.p("\tVPADDD Y12, Y12, Y12\n\tVPCMPEQD Y13, Y12, Y12\n\tVMOVMSKPS Y12, AX\n\tXORL $255, AX\n\tSHLXQ BX, AX, AX\n\tORQ AX, DX")
		}
		a.p("\tXORQ DX, DX\n\tXORQ BX, BX\n\tMOVQ R9, R13\n\tSUBQ $8, R13\n\tJLT last")
		a.p("eight:\n\tVMOVUPS (SI)(BX*4), Y12")
		eight()
		a.p("\tADDQ $8, BX\n\tSUBQ $8, R13\n\tJGE eight")
		a.p("last:\n\tADDQ $8, R13\n\tJEQ word\n\tVMASKMOVPS (SI)(BX*4), Y14, Y12")
		eight()
		a.p("word:")
	}
	a.p("\tMOVQ DX, (R8)\n\tADDQ $8, R8\n\tADDQ R12, SI\n\tDECQ CX\n\tJNE row\n\tVZEROUPPER\n\tRET\n")
}
