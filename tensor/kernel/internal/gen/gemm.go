package main

import (
	"fmt"
	"strings"
)

// A gemm writes the micro-kernels of matrix products: one body for every number of rows, which nobody should write by hand.
type gemm struct{ simd }

func gemmFile(isa string) string {
	var w strings.Builder
	for _, s := range simds(isa, &w) {
		a := gemm{s}
		if a.isa == "AVX2" {
			a.maskTable()
		}
		a.kernel("Wide", 2)
		a.kernel("Narrow", 1)
		if a.isa == "AVX512" && a.elem == "F32" {
			a.few()
		}
		if a.elem == "F32" {
			a.zeros()
		}
		a.transpose()
		a.copy()
	}
	return w.String()
}

func (a gemm) wide() bool { return a.isa == "AVX512" }

// rows is the most rows of a tile: what is left of the registers after the operands, spread over vecs registers a row.
func (a gemm) rows(vecs int) int {
	if a.wide() {
		return 28 / vecs
	}
	return 12 / vecs
}

func (a gemm) name(kind string) string { return "gemm" + a.elem + kind + a.isa }

// kernel writes func gemm…(t *tile). See the type tile for what it computes.
//
//	DI t, SI R8 R9 R13 rows 0, 7, 14, 21 of A, AX BX DX one, three, five steps from row to row, R10 B, R11 bStep, R12 aStep,
//	CX the steps left (of a run), R14 the next of tile.deltas, or the step of R15, what is fetched ahead (with AVX-512)
func (a gemm) kernel(kind string, vecs int) {
	mr, name := a.rows(vecs), a.name(kind)
	a.p("// func %s(t *tile)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ t+0(FP), DI")
	// The kernel moves its own copies of b, c, bias, n and ahead.at.
	for _, f := range [][2]int{{24, 112}, {48, 120}, {64, 128}, {80, 136}, {144, 184}} {
		a.p("\tMOVQ %d(DI), AX\n\tMOVQ AX, %d(DI)", f[0], f[1])
	}
	a.p("\tMOVQ 72(DI), CX")
	a.dispatch(1, mr)
	for m := 1; m <= mr; m++ {
		a.body(m, vecs)
	}
	a.p("done:\n\tVZEROUPPER\n\tRET\n")
}

// dispatch jumps to the body for CX rows, from lo to hi of them.
func (a gemm) dispatch(lo, hi int) {
	if lo == hi {
		a.p("\tJMP m%d", lo)
		return
	}
	mid := (lo + hi + 1) / 2
	if mid == hi && lo == hi-1 {
		a.p("\tCMPQ CX, $%d\n\tJGE m%d\n\tJMP m%d", mid, hi, lo)
		return
	}
	a.p("\tCMPQ CX, $%d\n\tJGE from%d", mid, mid)
	a.dispatch(lo, mid-1)
	a.p("from%d:", mid)
	a.dispatch(mid, hi)
}

var rowPointers = []string{"SI", "R8", "R9", "R13"}

// row is the address of row i of A.
func row(i int) string {
	return "(" + rowPointers[i/7] + ")" + []string{"", "(AX*1)", "(AX*2)", "(BX*1)", "(AX*4)", "(DX*1)", "(BX*2)"}[i%7]
}

func (a gemm) body(m, vecs int) {
	acc := func(i, v int) string { return fmt.Sprintf("%s%d", a.reg, i*vecs+v) }
	first := a.rows(vecs) * vecs // operand registers follow the sums
	bReg := func(v int) string { return fmt.Sprintf("%s%d", a.reg, first+v) }
	temps := []string{fmt.Sprintf("%s%d", a.reg, first+vecs), fmt.Sprintf("%s%d", a.reg, first+vecs+1)}
	groups := (m + 6) / 7
	width := vecs * a.lanes
	bytes := a.size * a.lanes

	a.p("m%d:", m)
	if a.wide() { // masks
		a.p("\tMOVQ 136(DI), AX\n\tMOVQ $%d, CX\n\tCMPQ AX, CX\n\tCMOVQGT CX, AX\n\tMOVQ $-1, CX\n\tBZHIQ AX, CX, CX\n\tKMOVW CX, K1", width)
		if vecs == 2 {
			a.p("\tSHRQ $%d, CX\n\tKMOVW CX, K2", a.lanes)
		}
	}
	a.p("\tMOVQ 0(DI), SI\n\tMOVQ 8(DI), AX\n\tMOVQ 16(DI), R12\n\tMOVQ 112(DI), R10\n\tMOVQ 32(DI), R11\n\tMOVQ 104(DI), R14")
	a.p("\tLEAQ (AX)(AX*2), BX\n\tLEAQ (AX)(AX*4), DX")
	for g := 1; g < groups; g++ {
		a.p("\tLEAQ (%s)(BX*2), %s\n\tADDQ AX, %s", rowPointers[g-1], rowPointers[g], rowPointers[g])
	}
	// The lines of C, while the sum is computed.
	a.p("\tMOVQ 120(DI), CX")
	for i := range m {
		a.p("\tPREFETCHT0 (CX)")
		if vecs == 2 {
			a.p("\tPREFETCHT0 %d(CX)", 2*bytes-1)
		}
		if i < m-1 {
			a.p("\tADDQ 56(DI), CX")
		}
	}
	for i := range m {
		for v := range vecs {
			a.p("\tVXORPS %s, %s, %s", acc(i, v), acc(i, v), acc(i, v))
		}
	}
	a.p("\tMOVQ 88(DI), CX\n\tTESTQ CX, CX\n\tJLE sum%d", m)
	a.p("\tTESTQ R14, R14\n\tJNZ image%d", m)
	step := func(b string, masked bool) { // b is where the row of B is
		for v := range vecs {
			if masked {
				a.p("\tVMOVU%s.Z %d%s, K%d, %s", a.suffix, v*bytes, b, v+1, bReg(v))
			} else {
				a.p("\tVMOVU%s %d%s, %s", a.suffix, v*bytes, b, bReg(v))
			}
		}
		for i := range m {
			if vecs == 1 && a.wide() {
				a.p("\tVFMADD231%s.BCST %s, %s, %s", a.suffix, row(i), bReg(0), acc(i, 0))
				continue
			}
			t := temps[i%2]
			a.p("\t%s %s, %s", a.bcast, row(i), t)
			for v := range vecs {
				a.p("\tVFMADD231%s %s, %s, %s", a.suffix, bReg(v), t, acc(i, v))
			}
		}
	}
	on := func() {
		for g := range groups {
			a.p("\tADDQ R12, %s", rowPointers[g])
		}
	}
	// image is a loop whose steps through A are those of tile.deltas.
	image := func(label string, masked bool) {
		a.p("%s%d:", label, m)
		step("(R10)", masked)
		a.p("\tMOVQ (R14), R12\n\tADDQ $8, R14")
		on()
		a.p("\tADDQ R11, R10\n\tDECQ CX\n\tJNZ %s%d", label, m)
	}
	if a.wide() {
		// A run: as many steps as fetch ahead along one line of A or B.
		run := func(suffix string, masked bool) {
			a.p("run%[1]s%[2]d:\n\tMOVQ 168(DI), CX\n\tCMPQ CX, 192(DI)\n\tCMOVQGT 192(DI), CX\n\tSUBQ CX, 192(DI)", suffix, m)
			a.p("\tMOVQ 200(DI), R15\n\tMOVQ 160(DI), R14\n\tADDQ R14, 200(DI)\n\tMOVQ 152(DI), R14\n\tPCALIGN $32")
			a.p("loop%s%d:\n\tPREFETCHT0 (R15)\n\tPREFETCHT0 64(R15)", suffix, m)
			step("(R10)", masked)
			on()
			a.p("\tADDQ R14, R15\n\tADDQ R11, R10\n\tDECQ CX\n\tJNZ loop%[1]s%[2]d\n\tCMPQ 192(DI), $0\n\tJGT run%[1]s%[2]d\n\tJMP sum%[2]d", suffix, m)
		}
		a.p("\tMOVQ CX, 192(DI)\n\tMOVQ 184(DI), R15\n\tMOVQ R15, 200(DI)\n\tMOVQ 176(DI), R14\n\tADDQ R14, 184(DI)")
		// Intel's processors load under a mask in two instructions, of which one takes the place of a multiply-add. Where a vector is all there
		// is of a row of B, that is one in 29.
		if vecs == 2 {
			a.p("\tCMPQ 136(DI), $%d\n\tJLT runedge%d", width, m)
			run("", false)
			run("edge", true)
			a.p("image%d:\n\tCMPQ 136(DI), $%d\n\tJLT imageedge%d", m, width, m)
			image("imageloop", false)
			a.p("\tJMP sum%d", m)
			image("imageedge", true)
		} else {
			run("", true)
			image("image", true)
		}
	} else {
		// A step's multiply-adds take six cycles, and all its instructions must be decoded in as many, of which another thread of the core may
		// take half: so two steps a turn, and nothing is fetched ahead.
		a.p("\tBTQ $0, CX\n\tJCC even%d", m)
		step("(R10)", false)
		on()
		a.p("\tADDQ R11, R10\neven%d:\n\tSHRQ $1, CX\n\tJEQ sum%d\n\tPCALIGN $32\nloop%d:", m, m, m)
		step("(R10)", false)
		on()
		step("(R10)(R11*1)", false)
		on()
		a.p("\tLEAQ (R10)(R11*2), R10\n\tDECQ CX\n\tJNZ loop%d\n\tJMP sum%d", m, m)
		image("image", false)
	}

	// The epilogue: CX flags, SI row of C, R8 cRow.
	a.p("sum%d:", m)
	a.p("\tMOVQ 96(DI), CX\n\tMOVQ 120(DI), SI\n\tMOVQ 56(DI), R8")
	if a.wide() {
		a.epilogue(m, vecs, fmt.Sprintf("%d", m), acc, bReg, temps[0], false)
	} else {
		a.p("\tCMPQ 136(DI), $%d\n\tJLT edge%d", width, m)
		a.epilogue(m, vecs, fmt.Sprintf("%d", m), acc, bReg, temps[0], false)
		a.p("\tJMP next%d", m)
		a.p("edge%d:", m)
		// masks in the broadcast registers: the table is lanes times -1, then lanes times 0
		table := fmt.Sprintf("mask%s<>", a.elem)
		a.p("\tLEAQ %s(SB), R9\n\tMOVQ 136(DI), AX\n\tMOVQ $%d, BX\n\tMOVQ AX, DX\n\tCMPQ DX, BX\n\tCMOVQGT BX, DX\n\tNEGQ DX", table, a.lanes)
		a.p("\tVMOVU%s %d(R9)(DX*%d), %s", a.suffix, bytes, a.size, temps[0])
		if vecs == 2 {
			a.p("\tSUBQ BX, AX\n\tMOVQ $0, BX\n\tCMPQ AX, BX\n\tCMOVQLT BX, AX\n\tNEGQ AX")
			a.p("\tVMOVU%s %d(R9)(AX*%d), %s", a.suffix, bytes, a.size, temps[1])
		}
		a.epilogueEdge(m, vecs, fmt.Sprintf("edge%d", m), acc, bReg, temps)
	}
	a.p("next%d:", m)
	a.p("\tMOVQ 40(DI), AX\n\tADDQ AX, 112(DI)\n\tADDQ $%d, 120(DI)\n\tADDQ $%d, 128(DI)\n\tSUBQ $%d, 136(DI)\n\tJG m%d\n\tJMP done", vecs*bytes, vecs*bytes, width, m)
}

// few writes func gemmF32FewAVX512(t *tile): a tile of at most four columns, whose vectors are four rows of them. A's rows are
// contiguous, and B is packed, four to a step. For four steps a vector takes four numbers of each of its rows, and each step spreads one
// of them over the columns of its row: three instructions for what a narrow tile does in four rows with four.
//
//	DI t, SI R8 R9 R13 AX BX DX as in kernel, R10 B, CX the steps left, R11 the rows of C, R12 cRow
//	Z0 to Z6 sums, Z8 to Z11 B, Z16 to Z22 A, Z24 and up what a step takes of it
func (a gemm) few() {
	const rows, name = 28, "gemmF32FewAVX512"
	a.p("// func %s(t *tile)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ t+0(FP), DI")
	a.p("\tMOVQ 80(DI), AX\n\tMOVQ $-1, CX\n\tBZHIQ AX, CX, CX\n\tKMOVW CX, K1")
	a.p("\tMOVQ 88(DI), AX\n\tANDQ $3, AX\n\tMOVQ $-1, CX\n\tBZHIQ AX, CX, CX\n\tKMOVW CX, K2")
	a.p("\tMOVQ 0(DI), SI\n\tMOVQ 8(DI), AX\n\tMOVQ 24(DI), R10\n\tMOVQ 48(DI), R11\n\tMOVQ 56(DI), R12")
	a.p("\tLEAQ (AX)(AX*2), BX\n\tLEAQ (AX)(AX*4), DX")
	for g := 1; g < 4; g++ {
		a.p("\tLEAQ (%s)(BX*2), %s\n\tADDQ AX, %s", rowPointers[g-1], rowPointers[g], rowPointers[g])
	}
	for q := range rows / 4 {
		a.p("\tVXORPS Z%d, Z%d, Z%d", q, q, q)
	}
	a.p("\tMOVQ 72(DI), CX")
	a.dispatch(1, rows)
	for m := 1; m <= rows; m++ {
		quads := (m + 3) / 4
		inQuad := func(q int) int { return min(4, m-4*q) }
		a.p("m%d:\n\tMOVQ 88(DI), CX\n\tSUBQ $4, CX\n\tJLT rest%d\n\tPCALIGN $32", m, m)
		a.p("loop%d:", m)
		for q := range quads {
			z := 16 + q
			a.p("\tVMOVUPS %s, X%d", row(4*q), z)
			for i := 1; i < inQuad(q); i++ {
				a.p("\tVINSERTF32X4 $%d, %s, Z%d, Z%d", i, row(4*q+i), z, z)
			}
		}
		for s := range 4 {
			a.p("\tVBROADCASTF32X4 %d(R10), Z%d", 16*s, 8+s)
		}
		for s := range 4 {
			for q := range quads {
				t := 24 + (s*quads+q)%8
				a.p("\tVPERMILPS $%d, Z%d, Z%d\n\tVFMADD231PS Z%d, Z%d, Z%d", s*0x55, 16+q, t, 8+s, t, q)
			}
		}
		for g := range (m + 6) / 7 {
			a.p("\tADDQ $16, %s", rowPointers[g])
		}
		a.p("\tADDQ $64, R10\n\tSUBQ $4, CX\n\tJGE loop%d", m)
		// one to three steps more
		a.p("rest%d:\n\tADDQ $4, CX\n\tJEQ sum%d", m, m)
		for q := range quads {
			z := 16 + q
			a.p("\tVMOVUPS.Z %s, K2, X%d", row(4*q), z)
			for i := 1; i < inQuad(q); i++ {
				a.p("\tVMOVUPS.Z %s, K2, X24\n\tVINSERTF32X4 $%d, X24, Z%d, Z%d", row(4*q+i), i, z, z)
			}
		}
		for s := range 3 {
			a.p("\tVBROADCASTF32X4 %d(R10), Z8", 16*s)
			for q := range quads {
				a.p("\tVPERMILPS $%d, Z%d, Z24\n\tVFMADD231PS Z8, Z24, Z%d", s*0x55, 16+q, q)
			}
			if s < 2 {
				a.p("\tDECQ CX\n\tJEQ sum%d", m)
			}
		}
		// The epilogue: CX flags, SI row of C.
		a.p("sum%d:\n\tMOVQ 96(DI), CX\n\tTESTQ $1, CX\n\tJZ bias%d\n\tMOVQ R11, SI", m, m)
		for i := range m {
			a.p("\tVMOVUPS.Z (SI), K1, X24\n\tADDQ R12, SI")
			if i%4 == 0 {
				a.p("\tVMOVAPS X24, X16")
			} else {
				a.p("\tVINSERTF32X4 $%d, X24, Z16, Z16", i%4)
			}
			if i%4 == 3 || i == m-1 {
				a.p("\tVADDPS Z16, Z%d, Z%d", i/4, i/4)
			}
		}
		a.p("bias%d:\n\tTESTQ $2, CX\n\tJZ relu%d\n\tMOVQ 64(DI), SI\n\tVMOVUPS.Z (SI), K1, X24\n\tVSHUFF32X4 $0, Z24, Z24, Z24", m, m)
		for q := range quads {
			a.p("\tVADDPS Z24, Z%d, Z%d", q, q)
		}
		a.p("relu%d:\n\tTESTQ $4, CX\n\tJZ store%d\n\tVXORPS Z24, Z24, Z24", m, m)
		for q := range quads {
			a.p("\tVMAXPS Z%d, Z24, Z%d", q, q)
		}
		a.p("store%d:", m)
		for i := range m {
			if i%4 == 0 {
				a.p("\tVMOVUPS X%d, K1, (R11)", i/4)
			} else {
				a.p("\tVEXTRACTF32X4 $%d, Z%d, X24\n\tVMOVUPS X24, K1, (R11)", i%4, i/4)
			}
			if i < m-1 {
				a.p("\tADDQ R12, R11")
			}
		}
		a.p("\tVZEROUPPER\n\tRET")
	}
	a.p("")
}

// epilogue writes full vectors, or on AVX-512 masked ones.
func (a gemm) epilogue(m, vecs int, label string, acc func(i, v int) string, bReg func(int) string, zero string, _ bool) {
	bytes := a.size * a.lanes
	mask := func(v int) string {
		if a.wide() {
			return fmt.Sprintf("K%d, ", v+1)
		}
		return ""
	}
	z := ""
	if a.wide() {
		z = ".Z"
	}
	a.p("\tTESTQ $1, CX\n\tJZ bias%s\n\tMOVQ SI, R9", label)
	for i := range m {
		for v := range vecs {
			a.p("\tVADD%s %d(R9), %s, %s%s", a.suffix, v*bytes, acc(i, v), mask(v), acc(i, v))
		}
		if i < m-1 {
			a.p("\tADDQ R8, R9")
		}
	}
	a.p("bias%s:\n\tTESTQ $2, CX\n\tJZ relu%s\n\tMOVQ 128(DI), R9", label, label)
	for v := range vecs {
		a.p("\tVMOVU%s%s %d(R9), %s%s", a.suffix, z, v*bytes, mask(v), bReg(v))
	}
	for i := range m {
		for v := range vecs {
			a.p("\tVADD%s %s, %s, %s", a.suffix, bReg(v), acc(i, v), acc(i, v))
		}
	}
	a.p("relu%s:\n\tTESTQ $4, CX\n\tJZ store%s\n\tVXORPS %s, %s, %s", label, label, zero, zero, zero)
	for i := range m {
		for v := range vecs {
			a.p("\tVMAX%s %s, %s, %s", a.suffix, acc(i, v), zero, acc(i, v))
		}
	}
	a.p("store%s:", label)
	for i := range m {
		for v := range vecs {
			a.p("\tVMOVU%s %s, %s%d(SI)", a.suffix, acc(i, v), mask(v), v*bytes)
		}
		if i < m-1 {
			a.p("\tADDQ R8, SI")
		}
	}
}

// epilogueEdge is epilogue with AVX2's masked moves, the masks being in the registers masks.
func (a gemm) epilogueEdge(m, vecs int, label string, acc func(i, v int) string, bReg func(int) string, masks []string) {
	bytes := a.size * a.lanes
	a.p("\tTESTQ $1, CX\n\tJZ bias%s\n\tMOVQ SI, R9", label)
	for i := range m {
		for v := range vecs {
			a.p("\tVMASKMOV%s %d(R9), %s, %s\n\tVADD%s %s, %s, %s", a.suffix, v*bytes, masks[v], bReg(v), a.suffix, bReg(v), acc(i, v), acc(i, v))
		}
		if i < m-1 {
			a.p("\tADDQ R8, R9")
		}
	}
	a.p("bias%s:\n\tTESTQ $2, CX\n\tJZ relu%s\n\tMOVQ 128(DI), R9", label, label)
	for v := range vecs {
		a.p("\tVMASKMOV%s %d(R9), %s, %s", a.suffix, v*bytes, masks[v], bReg(v))
	}
	for i := range m {
		for v := range vecs {
			a.p("\tVADD%s %s, %s, %s", a.suffix, bReg(v), acc(i, v), acc(i, v))
		}
	}
	a.p("relu%s:\n\tTESTQ $4, CX\n\tJZ store%s\n\tVXORPS %s, %s, %s", label, label, bReg(0), bReg(0), bReg(0))
	for i := range m {
		for v := range vecs {
			a.p("\tVMAX%s %s, %s, %s", a.suffix, acc(i, v), bReg(0), acc(i, v))
		}
	}
	a.p("store%s:", label)
	for i := range m {
		for v := range vecs {
			a.p("\tVMASKMOV%s %s, %s, %d(SI)", a.suffix, acc(i, v), masks[v], v*bytes)
		}
		if i < m-1 {
			a.p("\tADDQ R8, SI")
		}
	}
}

func (a gemm) maskTable() {
	name := fmt.Sprintf("mask%s<>", a.elem)
	n := 2 * 32 / 8
	for i := range n {
		v := "-1"
		if i >= n/2 {
			v = "0"
		}
		a.p("DATA %s+%d(SB)/8, $%s", name, i*8, v)
	}
	a.p("GLOBL %s(SB), RODATA|NOPTR, $64\n", name)
}
