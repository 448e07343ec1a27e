package main

import (
	"fmt"
	"math/bits"
	"strings"
)

// A gemv writes dot products of several rows at once, sums of several rows with factors, and a loop that only reads.
type gemv struct{ simd }

func gemvFile() string {
	var w strings.Builder
	z, y := simds("AVX512", &w), simds("AVX2", &w)
	z32, z64, y32, y64 := gemv{z[0]}, gemv{z[1]}, gemv{y[0]}, gemv{y[1]}
	z32.dots(4)
	z64.dotsByParts(8, 2)
	z64.dotsByParts(4, 4)
	y32.maskTable()
	y64.maskTable()
	for _, a := range []gemv{y32, y64} {
		a.dotsInOrder(8)
		a.dotsInOrder(4)
	}
	for _, a := range []gemv{z32, z64, y32, y64} {
		a.leaf(8)
		a.leaf(4)
		a.leaf(1)
	}
	z32.read()
	y32.read()
	return w.String()
}

// Offsets of a stripe's fields.
const (
	stripeRows  = 0
	stripeX     = 64
	stripeN     = 72
	stripeOut   = 80
	stripeStart = 88
	stripeNext  = 96
)

// apart holds how far rows 1, 2, … are from the first.
var apart = []string{"R8", "R9", "BX", "AX", "R12", "R14", "R15"}

// at is the address of row i, of which SI is that of the first.
func at(i int) string {
	if i == 0 {
		return "(SI)"
	}
	return "(SI)(" + apart[i-1] + "*1)"
}

// addresses sets SI, and how far the other rows are from it, from the stripe at DI.
func (a gemv) addresses(rows int) {
	a.p("\tMOVQ %d(DI), SI", stripeRows)
	for i := 1; i < rows; i++ {
		a.p("\tMOVQ %d(DI), %s\n\tSUBQ SI, %s", stripeRows+8*i, apart[i-1], apart[i-1])
	}
}

// dots writes func dots…(t *stripe): out[i] = a[i]·x with 64 lanes, for a block of at most BlockLen columns.
func (a gemv) dots(rows int) {
	vecs := 64 / a.lanes
	bytes := a.size * a.lanes
	acc := func(i, v int) string { return fmt.Sprintf("Z%d", i*vecs+v) }
	x := func(v int) string { return fmt.Sprintf("Z%d", rows*vecs+v) }
	temps := 32 - rows*vecs - vecs
	temp := func(n int) string { return fmt.Sprintf("Z%d", rows*vecs+vecs+n%temps) }
	name := fmt.Sprintf("dots%d%s%s", rows, a.elem, a.isa)
	a.p("// func %s(t *stripe)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ t+0(FP), DI\n\tMOVQ %d(DI), R10\n\tMOVQ %d(DI), CX", stripeX, stripeN)
	a.addresses(rows)
	for i := range rows {
		for v := range vecs {
			a.p("\tVXORPS %s, %s, %s", acc(i, v), acc(i, v), acc(i, v))
		}
	}
	a.p("\tSUBQ $64, CX\n\tJL tail\nloop:")
	n := 0
	for v := range vecs {
		a.p("\tVMOVU%s %d(R10), %s", a.suffix, v*bytes, x(v))
	}
	for i := range rows {
		for v := range vecs {
			a.p("\tVMUL%s %d%s, %s, %s", a.suffix, v*bytes, at(i), x(v), temp(n))
			a.p("\tVADD%s %s, %s, %s", a.suffix, temp(n), acc(i, v), acc(i, v))
			n++
		}
	}
	a.p("\tADDQ $%d, SI\n\tADDQ $%d, R10\n\tSUBQ $64, CX\n\tJGE loop", vecs*bytes, vecs*bytes)
	a.p("tail:\n\tADDQ $64, CX\n\tJZ fold\n\tMOVQ $-1, DX\n\tBZHIQ CX, DX, DX")
	for v := range vecs {
		a.p("\tKMOVW DX, K1\n\tSHRQ $%d, DX", a.lanes)
		a.p("\tVMOVU%s.Z %d(R10), K1, %s", a.suffix, v*bytes, x(v))
		for i := range rows {
			a.p("\tVMOVU%s.Z %d%s, K1, %s", a.suffix, v*bytes, at(i), temp(i))
			a.p("\tVMUL%s %s, %s, %s", a.suffix, temp(i), x(v), temp(i))
			a.p("\tVADD%s %s, %s, %s", a.suffix, temp(i), acc(i, v), acc(i, v))
		}
	}
	a.p("fold:\n\tMOVQ %d(DI), R11", stripeOut)
	for i := range rows {
		a.fold(i, vecs, acc, temp(0))
	}
	a.p("\tVZEROUPPER\n\tRET\n")
}

// fold adds the vectors of row i, and then the lanes of the first, in halves, and stores the sum at R11. t is free.
func (a gemv) fold(i, vecs int, acc func(i, v int) string, t string) {
	for half := vecs / 2; half > 0; half /= 2 {
		for v := range half {
			a.p("\tVADD%s %s, %s, %s", a.suffix, acc(i, v+half), acc(i, v), acc(i, v))
		}
	}
	z := acc(i, 0)
	y, xmm := "Y"+z[1:], "X"+z[1:]
	ty, tx := "Y"+t[1:], "X"+t[1:]
	extract := "VEXTRACTF128"
	if a.reg == "Z" {
		extract = "VEXTRACTF64X2" // reaches the upper registers
		a.p("\tVEXTRACTF64X4 $1, %s, %s\n\tVADD%s %s, %s, %s", z, ty, a.suffix, ty, y, y)
	}
	a.p("\t%s $1, %s, %s\n\tVADD%s %s, %s, %s", extract, y, tx, a.suffix, tx, xmm, xmm)
	if a.size == 4 {
		a.p("\tVPERMILPD $1, %s, %s\n\tVADDPS %s, %s, %s", xmm, tx, tx, xmm, xmm)
		a.p("\tVMOVSHDUP %s, %s\n\tVADDSS %s, %s, %s\n\tVMOVSS %s, %d(R11)", xmm, tx, tx, xmm, xmm, xmm, i*4)
	} else {
		a.p("\tVPERMILPD $1, %s, %s\n\tVADDSD %s, %s, %s\n\tVMOVSD %s, %d(R11)", xmm, tx, tx, xmm, xmm, xmm, i*8)
	}
}

// maskTable is a vector of ones and one of zeros, from which masks of the first lanes are read.
func (a gemv) maskTable() {
	for i := range 8 {
		a.p("DATA ones%s<>+%d(SB)/8, $%d", a.elem, 8*i, map[bool]int{true: -1, false: 0}[i < 4])
	}
	a.p("GLOBL ones%s<>(SB), RODATA|NOPTR, $64\n", a.elem)
}

// dotsByParts is dots of four or eight rows, more than there are registers for 64 lanes of: it passes over the columns once for every group of
// vectors of lanes, whose sums wait on the stack meanwhile, and adds the groups in the end as folding in halves does. The more rows at once,
// the more lines come from memory at a time, and the less often x is read: eight are an eighth faster than four (measured).
//
//	DI t, R10 x, CX the columns of a pass left, R13 those of each, R11 DX free
func (a gemv) dotsByParts(rows, group int) {
	vecs := 64 / a.lanes
	parts := vecs / group
	bytes := a.size * a.lanes
	reg := func(n int) string { return fmt.Sprintf("%s%d", a.reg, n) }
	acc := func(i, v int) string { return reg(i*group + v) }
	x := func(v int) string { return reg(rows*group + v) }
	temps := 32 - rows*group - group
	temp := func(n int) string { return reg(rows*group + group + n%temps) }
	slot := func(part, i, v int) string { return fmt.Sprintf("%d(SP)", ((part*rows+i)*group+v)*bytes) }
	each := func(f func(i, v int)) {
		for i := range rows {
			for v := range group {
				f(i, v)
			}
		}
	}
	name := fmt.Sprintf("dots%d%s%s", rows, a.elem, a.isa)
	a.p("// func %s(t *stripe)", name)
	a.p("TEXT ·%s(SB), 0, $%d-8", name, parts*rows*group*bytes)
	a.p("\tMOVQ t+0(FP), DI\n\tMOVQ %d(DI), R10\n\tMOVQ %d(DI), R13", stripeX, stripeN)
	a.addresses(rows)
	for part := range parts {
		a.p("\tMOVQ R13, CX")
		each(func(i, v int) { a.p("\tVXORPS %s, %s, %s", acc(i, v), acc(i, v), acc(i, v)) })
		a.p("\tSUBQ $64, CX\n\tJL tail%d\n\tPCALIGN $32\nloop%d:", part, part)
		for v := range group {
			a.p("\tVMOVU%s %d(R10), %s", a.suffix, v*bytes, x(v))
		}
		each(func(i, v int) {
			t := temp(i*group + v)
			a.p("\tVMUL%s %d%s, %s, %s", a.suffix, v*bytes, at(i), x(v), t)
			a.p("\tVADD%s %s, %s, %s", a.suffix, t, acc(i, v), acc(i, v))
		})
		a.p("\tADDQ $%d, SI\n\tADDQ $%d, R10\n\tSUBQ $64, CX\n\tJGE loop%d", vecs*bytes, vecs*bytes, part)
		a.p("tail%d:\n\tADDQ $%d, CX\n\tJLE end%d", part, 64-part*group*a.lanes, part)
		for v := range group { // CX elements are left, from the first lane of vector v on
			a.p("\tMOVQ $%d, R11\n\tCMPQ CX, R11\n\tCMOVQLT CX, R11", a.lanes)
			a.p("\tMOVQ $-1, DX\n\tBZHIQ R11, DX, DX\n\tKMOVW DX, K1")
			a.p("\tVMOVU%s.Z %d(R10), K1, %s", a.suffix, v*bytes, x(v))
			for i := range rows {
				t := temp(0)
				a.p("\tVMOVU%s.Z %d%s, K1, %s", a.suffix, v*bytes, at(i), t)
				a.p("\tVMUL%s %s, %s, %s\n\tVADD%s %s, %s, %s", a.suffix, t, x(v), t, a.suffix, t, acc(i, v), acc(i, v))
			}
			if v < group-1 {
				a.p("\tSUBQ $%d, CX\n\tJLE end%d", a.lanes, part)
			}
		}
		a.p("end%d:", part)
		each(func(i, v int) { a.p("\tVMOVU%s %s, %s", a.suffix, acc(i, v), slot(part, i, v)) })
		if part < parts-1 { // the next lanes of the same columns
			a.p("\tMOVQ R13, CX\n\tANDQ $-64, CX\n\tSHLQ $%d, CX\n\tSUBQ CX, SI\n\tSUBQ CX, R10", bits.Len(uint(a.size))-1)
			a.p("\tADDQ $%d, SI\n\tADDQ $%d, R10", group*bytes, group*bytes)
		}
	}
	a.p("\tMOVQ %d(DI), R11", stripeOut)
	// What is half of all lanes away is added first.
	for half := parts / 2; half > 0; half /= 2 {
		for part := range half {
			each(func(i, v int) { a.p("\tVMOVU%s %s, %s", a.suffix, slot(part, i, v), acc(i, v)) })
			each(func(i, v int) { a.p("\tVADD%s %s, %s, %s", a.suffix, slot(part+half, i, v), acc(i, v), acc(i, v)) })
			if half > 1 {
				each(func(i, v int) { a.p("\tVMOVU%s %s, %s", a.suffix, acc(i, v), slot(part, i, v)) })
			}
		}
	}
	for i := range rows {
		a.fold(i, group, acc, temp(0))
	}
	a.p("\tVZEROUPPER\n\tRET\n")
}

// dotsInOrder is dots of four or eight rows with sums that wait in first-level cache, since AVX2 has no registers for 64 lanes of several rows.
// So the lines of each row are read one after another, and several rows at a time: from memory twice as fast as by parts, and from cache
// as fast. Fetching ahead gains a sixth from memory and loses a tenth from cache (all measured on Zen 3).
//
//	DI t, R10 x, CX columns left, DX the sums, R11 R13 free
func (a gemv) dotsInOrder(rows int) {
	const line = 64 // bytes
	vecs := 64 / a.lanes
	bytes := a.size * a.lanes
	slot := func(i, v int) string { return fmt.Sprintf("%d(DX)", (i*vecs+v)*bytes) }
	reg := func(n int) string { return fmt.Sprintf("%s%d", a.reg, n) }
	name := fmt.Sprintf("dots%d%s%s", rows, a.elem, a.isa)
	a.p("// func %s(t *stripe)", name)
	a.p("TEXT ·%s(SB), 0, $%d-8", name, rows*vecs*bytes+line)
	a.p("\tMOVQ t+0(FP), DI\n\tMOVQ %d(DI), R10\n\tMOVQ %d(DI), CX", stripeX, stripeN)
	a.addresses(rows)
	a.p("\tLEAQ %d(SP), DX\n\tANDQ $-%d, DX\n\tVXORPS Y0, Y0, Y0", line-1, line)
	for i := range rows {
		for v := range vecs {
			a.p("\tVMOVU%s Y0, %s", a.suffix, slot(i, v))
		}
	}
	a.p("\tSUBQ $64, CX\n\tJL tail\n\tPCALIGN $32\nloop:")
	perLine, n := line/bytes, 0
	for v := 0; v < vecs; v += perLine {
		for k := range perLine {
			a.p("\tVMOVU%s %d(R10), %s", a.suffix, (v+k)*bytes, reg(k))
		}
		for i := range rows {
			for k := range perLine {
				t := reg(perLine + n%8)
				n++
				a.p("\tVMUL%s %d%s, %s, %s", a.suffix, (v+k)*bytes, at(i), reg(k), t)
				a.p("\tVADD%s %s, %s, %s\n\tVMOVU%s %s, %s", a.suffix, slot(i, v+k), t, t, a.suffix, t, slot(i, v+k))
			}
		}
	}
	a.p("\tADDQ $%d, SI\n\tADDQ $%d, R10\n\tSUBQ $64, CX\n\tJGE loop", vecs*bytes, vecs*bytes)
	a.p("tail:\n\tADDQ $64, CX\n\tJZ fold\nvector:\n\tMOVQ $%d, R13\n\tCMPQ CX, R13\n\tCMOVQLT CX, R13", a.lanes)
	a.p("\tLEAQ ones%s<>+%d(SB), R11\n\tNEGQ R13\n\tVMOVU%s (R11)(R13*%d), Y15\n\tVMASKMOV%s (R10), Y15, Y0", a.elem, bytes, a.suffix, a.size, a.suffix)
	for i := range rows {
		a.p("\tVMASKMOV%s %s, Y15, Y1\n\tVMUL%s Y1, Y0, Y1", a.suffix, at(i), a.suffix)
		a.p("\tVADD%s %s, Y1, Y1\n\tVMOVU%s Y1, %s", a.suffix, slot(i, 0), a.suffix, slot(i, 0))
	}
	a.p("\tADDQ $%d, SI\n\tADDQ $%d, R10\n\tADDQ $%d, DX\n\tSUBQ $%d, CX\n\tJG vector", bytes, bytes, bytes, a.lanes)
	a.p("fold:\n\tMOVQ %d(DI), R11\n\tLEAQ %d(SP), DX\n\tANDQ $-%d, DX", stripeOut, line-1, line)
	const sums = 8
	for i := range rows {
		for v := range sums {
			a.p("\tVMOVU%s %s, %s", a.suffix, slot(i, v), reg(v))
		}
		for v := sums; v < vecs; v++ { // as fold adds halves
			a.p("\tVADD%s %s, %s, %s", a.suffix, slot(i, v), reg(v-sums), reg(v-sums))
		}
		a.fold(i, sums, func(_, v int) string { return reg(v) }, reg(sums))
	}
	a.p("\tVZEROUPPER\n\tRET\n")
}

// leaf writes func leaf…(t *stripe): out[j] = (out[j], or 0 if start is not chain) + d[0]*a[0][j] + d[1]*a[1][j] + …, one fused
// multiply-add after the other; if start is sibling, out[j] is added in the end. d is x. That of eight rows with AVX2 fetches four of the
// next ones meanwhile, if it is told where: as much as comes while it computes (measured on Zen 3).
func (a gemv) leaf(rows int) {
	const unroll = 4
	bytes := a.size * a.lanes
	r := func(n int) string { return fmt.Sprintf("%s%d", a.reg, n) }
	name := fmt.Sprintf("leaf%d%s%s", rows, a.elem, a.isa)
	a.p("// func %s(t *stripe)", name)
	a.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	a.p("\tMOVQ t+0(FP), DI\n\tMOVQ %d(DI), R10\n\tMOVQ %d(DI), CX\n\tMOVQ %d(DI), R11\n\tMOVQ %d(DI), DX", stripeX, stripeN, stripeOut, stripeStart)
	a.addresses(rows)
	fetches := rows == 8 && a.reg == "Y"
	for i := range rows {
		a.p("\t%s %d(R10), %s", a.bcast, i*a.size, r(unroll+i))
	}
	loop := func(label string, vecs int, tail string) {
		step := vecs * a.lanes
		a.p("%s:\n\tSUBQ $%d, CX\n\tJL %s", label, step, tail)
		for v := range vecs {
			a.p("\tVXORPS %s, %s, %s", r(v), r(v), r(v))
		}
		a.p("\tTESTQ DX, DX\n\tJNZ %szero", label)
		for v := range vecs {
			a.p("\tVMOVU%s %d(R11), %s", a.suffix, v*bytes, r(v))
		}
		a.p("%szero:", label)
		if fetches && vecs == unroll {
			a.p("\tMOVQ %d(DI), R13\n\tTESTQ R13, R13\n\tJZ %sadd", stripeNext, label)
			for i := range rows / 2 {
				if i > 0 {
					a.p("\tMOVQ %d(DI), R13", stripeNext+8*i)
				}
				for offset := 0; offset < vecs*bytes; offset += 64 {
					a.p("\tPREFETCHT1 %d(SI)(R13*1)", offset)
				}
			}
			a.p("%sadd:", label)
		}
		for i := range rows {
			for v := range vecs {
				a.p("\tVFMADD231%s %d%s, %s, %s", a.suffix, v*bytes, at(i), r(unroll+i), r(v))
			}
		}
		a.p("\tCMPQ DX, $2\n\tJNE %sstore", label)
		for v := range vecs {
			a.p("\tVADD%s %d(R11), %s, %s", a.suffix, v*bytes, r(v), r(v))
		}
		a.p("%sstore:", label)
		for v := range vecs {
			a.p("\tVMOVU%s %s, %d(R11)", a.suffix, r(v), v*bytes)
		}
		a.p("\tADDQ $%d, SI\n\tADDQ $%d, R11\n\tJMP %s", vecs*bytes, vecs*bytes, label)
		a.p("%s:\n\tADDQ $%d, CX", tail, step)
	}
	loop("four", unroll, "endfour")
	loop("one", 1, "endone")
	// what is left, one element at a time
	s := map[int]string{4: "SS", 8: "SD"}[a.size]
	a.p("single:\n\tDECQ CX\n\tJL done\n\tVXORPS X0, X0, X0\n\tTESTQ DX, DX\n\tJNZ singlezero\n\tVMOV%s (R11), X0\nsinglezero:", s)
	for i := range rows {
		a.p("\tVFMADD231%s %s, X%d, X0", s, at(i), unroll+i)
	}
	a.p("\tCMPQ DX, $2\n\tJNE singlestore\n\tVADD%s (R11), X0, X0\nsinglestore:", s)
	a.p("\tVMOV%s X0, (R11)\n\tADDQ $%d, SI\n\tADDQ $%d, R11\n\tJMP single\ndone:\n\tVZEROUPPER\n\tRET\n", s, a.size, a.size)
}

// read writes func read…(x unsafe.Pointer, n int) float32: the sum, in some order, of n bytes of float32, a multiple of 1,024.
// read adds up what it reads in eight registers.
func (a gemv) read() {
	const sums = 8
	reg, bytes := a.reg, a.size*a.lanes
	a.p("// func read%s(x unsafe.Pointer, n int) float32", a.isa)
	a.p("TEXT ·read%s(SB), NOSPLIT, $0-20\n\tMOVQ x+0(FP), SI\n\tMOVQ n+8(FP), CX", a.isa)
	for i := range sums {
		a.p("\tVXORPS %s%d, %s%d, %s%d", reg, i, reg, i, reg, i)
	}
	a.p("\tTESTQ CX, CX\n\tJLE end\nloop:")
	for off := 0; off < 1024; off += bytes {
		i := off / bytes % sums
		a.p("\tVADDPS %d(SI), %s%d, %s%d", off, reg, i, reg, i)
	}
	a.p("\tADDQ $1024, SI\n\tSUBQ $1024, CX\n\tJG loop\nend:")
	for half := sums / 2; half > 0; half /= 2 {
		for i := range half {
			a.p("\tVADDPS %s%d, %s%d, %s%d", reg, i+half, reg, i, reg, i)
		}
	}
	if reg == "Z" {
		a.p("\tVEXTRACTF64X4 $1, Z0, Y1\n\tVADDPS Y1, Y0, Y0")
	}
	a.p("\tVEXTRACTF128 $1, Y0, X1\n\tVADDPS X1, X0, X0\n\tVPERMILPD $1, X0, X1\n\tVADDPS X1, X0, X0\n\tVMOVSHDUP X0, X1\n\tVADDSS X1, X0, X0")
	a.p("\tVMOVSS X0, ret+16(FP)\n\tVZEROUPPER\n\tRET\n")
}
