package main

import "fmt"

// transpose writes func transpose…(b *block): dst[p*dRow + j] = src[j*sRow + p] for j < rows ≤ lanes, p < cols, in blocks of lanes ×
// lanes. With AVX2 all lanes of a row of dst are written, zero where j ≥ rows; with AVX-512 only those of the rows.
//
//	DI t, SI src, R8 sRow, R9 rows, R10 cols left, R11 dst, R12 dRow
func (a gemm) transpose() {
	name := "transpose" + a.elem + a.isa
	l, bytes := a.lanes, a.size*a.lanes
	r := func(i int) string { return fmt.Sprintf("%s%d", a.reg, i) }
	a.p("// func %s(b *block)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ b+0(FP), DI\n\tMOVQ 0(DI), SI\n\tMOVQ 8(DI), R8\n\tMOVQ 16(DI), R9\n\tMOVQ 24(DI), R10\n\tMOVQ 32(DI), R11\n\tMOVQ 40(DI), R12")
	if a.wide() {
		a.p("\tMOVQ $-1, AX\n\tKMOVW AX, K1\n\tBZHIQ R9, AX, AX\n\tKMOVW AX, K2")
	} else {
		a.p("\tLEAQ mask%s<>(SB), R13", a.elem)
	}
	a.p("next:\n\tCMPQ R10, $%d\n\tJGE whole", l)
	// fewer than lanes columns left
	if a.wide() {
		a.p("\tMOVQ $-1, AX\n\tBZHIQ R10, AX, AX\n\tKMOVW AX, K1")
	} else {
		a.p("\tMOVQ R10, AX\n\tNEGQ AX\n\tVMOVU%s %d(R13)(AX*%d), Y15", a.suffix, bytes, a.size)
	}
	a.p("\tJMP some")
	a.p("whole:\n\tCMPQ R9, $%d\n\tJL part", l)
	a.p("\tMOVQ SI, BX")
	for i := range l {
		a.p("\tVMOVU%s (BX), %s", a.suffix, r(i))
		if i < l-1 {
			a.p("\tADDQ R8, BX")
		}
	}
	a.p("\tJMP turn")
	a.p("part:")
	if !a.wide() {
		a.p("\tVMOVU%s (R13), Y15", a.suffix)
	}
	a.p("some:")
	for i := range l {
		a.p("\tVXORPS %s, %s, %s", r(i), r(i), r(i))
	}
	a.p("\tMOVQ SI, BX")
	for i := range l {
		if a.wide() {
			a.p("\tVMOVU%s.Z (BX), K1, %s", a.suffix, r(i))
		} else {
			a.p("\tVMASKMOV%s (BX), Y15, %s", a.suffix, r(i))
		}
		if i < l-1 {
			a.p("\tADDQ R8, BX\n\tCMPQ R9, $%d\n\tJLE turn", i+1)
		}
	}
	a.p("turn:")
	outs := a.turn()
	// stores, as many as there are columns
	a.p("\tMOVQ R11, BX")
	for i := range l {
		if a.wide() {
			a.p("\tVMOVU%s %s, K2, (BX)", a.suffix, outs[i])
		} else {
			a.p("\tVMOVU%s %s, (BX)", a.suffix, outs[i])
		}
		if i < l-1 {
			a.p("\tADDQ R12, BX")
			a.p("\tCMPQ R10, $%d\n\tJLE done", i+1)
		}
	}
	a.p("\tADDQ $%d, SI", bytes)
	a.p("\tMOVQ R12, AX\n\tSHLQ $%d, AX\n\tADDQ AX, R11", map[int]int{4: 2, 8: 3, 16: 4}[l])
	a.p("\tSUBQ $%d, R10\n\tJG next", l)
	a.p("done:\n\tVZEROUPPER\n\tRET\n")
}

// copy writes func copy…(b *block): dst[p*dRow + j] = src[p*sRow + j] for j < rows ≤ two vectors, p < cols. Whole vectors of dst are
// written, one where rows fit it, zero where j ≥ rows.
//
//	SI src, R8 sRow, R9 rows, CX cols left, R11 dst, R12 dRow
func (a gemm) copy() {
	name := "copy" + a.elem + a.isa
	l, bytes := a.lanes, a.size*a.lanes
	a.p("// func %s(b *block)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ b+0(FP), DI\n\tMOVQ 0(DI), SI\n\tMOVQ 8(DI), R8\n\tMOVQ 16(DI), R9\n\tMOVQ 24(DI), CX\n\tMOVQ 32(DI), R11\n\tMOVQ 40(DI), R12")
	a.p("\tCMPQ R9, $%d\n\tJE two", 2*l)
	load := func(v int) {
		if a.wide() {
			a.p("\tVMOVU%s.Z %d(SI), K%d, Z%d", a.suffix, v*bytes, v+1, v)
		} else {
			a.p("\tVMASKMOV%s %d(SI), Y%d, Y%d", a.suffix, v*bytes, v+14, v)
		}
	}
	if a.wide() {
		a.p("\tMOVQ $-1, AX\n\tBZHIQ R9, AX, AX\n\tKMOVW AX, K1\n\tSHRQ $%d, AX\n\tKMOVW AX, K2", l)
	} else {
		a.p("\tLEAQ mask%s<>(SB), R13\n\tMOVQ $%d, BX\n\tMOVQ R9, DX\n\tCMPQ DX, BX\n\tCMOVQGT BX, DX\n\tNEGQ DX", a.elem, l)
		a.p("\tVMOVU%s %d(R13)(DX*%d), Y14", a.suffix, bytes, a.size)
		a.p("\tMOVQ R9, AX\n\tSUBQ BX, AX\n\tMOVQ $0, BX\n\tCMPQ AX, BX\n\tCMOVQLT BX, AX\n\tNEGQ AX")
		a.p("\tVMOVU%s %d(R13)(AX*%d), Y15", a.suffix, bytes, a.size)
	}
	a.p("\tCMPQ R9, $%d\n\tJG edge", l)
	loop := func(label string, vecs int, whole bool) {
		a.p("%s:", label)
		for v := range vecs {
			if whole {
				a.p("\tVMOVU%s %d(SI), %s%d", a.suffix, v*bytes, a.reg, v)
			} else {
				load(v)
			}
		}
		for v := range vecs {
			a.p("\tVMOVU%s %s%d, %d(R11)", a.suffix, a.reg, v, v*bytes)
		}
		a.p("\tADDQ R8, SI\n\tADDQ R12, R11\n\tDECQ CX\n\tJG %s\n\tVZEROUPPER\n\tRET", label)
	}
	loop("one", 1, false)
	loop("edge", 2, false)
	loop("two", 2, true)
	a.p("")
}

// turn transposes lanes registers and returns the names of those that hold the rows of the result, in order.
func (a gemm) turn() []string {
	l := a.lanes
	r := func(i int) string { return fmt.Sprintf("%s%d", a.reg, i) }
	regs := make([]string, l)
	for i := range regs {
		regs[i] = r(i)
	}
	free := make([]string, 0, l)
	for i := l; i < 2*l; i++ {
		free = append(free, r(i))
	}
	// pairs applies an instruction pair (low, high) to registers at distance d, into the free registers.
	pairs := func(d int, low, high func(x, y, dst string)) {
		res := make([]string, l)
		for i := range l {
			if i&d != 0 {
				continue
			}
			x, y := regs[i], regs[i+d]
			low(x, y, free[i])
			high(x, y, free[i+d])
			res[i], res[i+d] = free[i], free[i+d]
		}
		regs, free = res, regs
	}
	op2 := func(name string) func(x, y, dst string) {
		return func(x, y, dst string) { a.p("\t%s %s, %s, %s", name, y, x, dst) }
	}
	op3 := func(name string, imm int) func(x, y, dst string) {
		return func(x, y, dst string) { a.p("\t%s $%d, %s, %s, %s", name, imm, y, x, dst) }
	}
	switch {
	case a.wide() && a.size == 4:
		// After the two in-lane steps, regs[4g+s] holds columns s, 4+s, 8+s, 12+s of rows 4g..4g+3, one in each 128-bit lane.
		pairs(1, op2("VUNPCKLPS"), op2("VUNPCKHPS"))
		// regs[2h] = rows 2h,2h+1 columns 0,1 of each lane; regs[2h+1] columns 2,3
		pairs(2, op2("VUNPCKLPD"), op2("VUNPCKHPD"))
		// order in group: [0]: col 0, [1]: col 2, [2]: col 1, [3]: col 3
		pairs(4, op3("VSHUFF32X4", 0x88), op3("VSHUFF32X4", 0xdd))
		// lanes 0,2 of both; lanes 1,3 of both
		pairs(8, op3("VSHUFF32X4", 0x88), op3("VSHUFF32X4", 0xdd))
		// Index bits: 1 and 2 swapped column bits 1, 0; 4: column bit 2; 8: column bit 3.
		res := make([]string, l)
		for i := range l {
			col := i>>1&1 | i&1<<1 | i&4 | i&8
			res[col] = regs[i]
		}
		return res
	case a.wide():
		pairs(1, op2("VUNPCKLPD"), op2("VUNPCKHPD"))
		pairs(2, op3("VSHUFF64X2", 0x88), op3("VSHUFF64X2", 0xdd))
		pairs(4, op3("VSHUFF64X2", 0x88), op3("VSHUFF64X2", 0xdd))
		return regs
	case a.size == 4:
		pairs(1, op2("VUNPCKLPS"), op2("VUNPCKHPS"))
		pairs(2, op2("VUNPCKLPD"), op2("VUNPCKHPD"))
		pairs(4, op3("VPERM2F128", 0x20), op3("VPERM2F128", 0x31))
		res := make([]string, l)
		for i := range l {
			res[i>>1&1|i&1<<1|i&4] = regs[i]
		}
		return res
	default:
		pairs(1, op2("VUNPCKLPD"), op2("VUNPCKHPD"))
		pairs(2, op3("VPERM2F128", 0x20), op3("VPERM2F128", 0x31))
		return regs
	}
}
