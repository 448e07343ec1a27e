package main

import "fmt"

// The routines of sparse matrices and of pooling.

func csrRow(c *code) { // DI dst, SI b, DX values, R8 indices, R9 nnz, R10 n, R11 ldb
	c.line("SHLQ $%d, R11", map[int]int{4: 2, 8: 3}[c.elem])
	c.columns("R10", 4, func(vectors int, suffix string) {
		a := c.firstAcc()
		for j := range vectors {
			c.line("VXOR%s %s, %s, %s", c.f(), c.v(a+j), c.v(a+j), c.v(a+j))
		}
		c.line("XORQ BX, BX")
		c.line("TESTQ R9, R9")
		c.line("JEQ store%s", suffix)
		c.label("term" + suffix)
		c.line("MOVLQSX (R8)(BX*4), R12")
		c.line("IMULQ R11, R12")
		c.line("ADDQ SI, R12")
		v := c.emit('v', "VBROADCAST"+c.ss(), fmt.Sprintf("(DX)(BX*%d)", c.elem))
		for j := range vectors {
			c.offset = c.past(j)
			s := c.named(c.v(a + j))
			c.into(s, "VADD"+c.f(), c.mul(v, c.load("R12")), s)
		}
		c.print(c.w, a)
		c.line("INCQ BX")
		c.line("CMPQ BX, R9")
		c.line("JLT term%s", suffix)
		c.label("store" + suffix)
		for j := range vectors {
			c.offset = c.past(j)
			c.store(c.named(c.v(a+j)), "DI")
		}
		c.print(c.w, a)
		c.offset = ""
	})
	c.line("VZEROUPPER")
	c.line("RET")
}

// csrScatter leaves out columns outside [from, from+count), by one unsigned comparison; the fields of s are at multiples of 8.
func csrScatter(c *code) { // DI dw, SI dy, DX values, R8 indices, R9 s
	const nnz, n, ld, from, count = "(R9)", "8(R9)", "16(R9)", "24(R9)", "32(R9)"
	c.line("MOVQ %s, R10", ld)
	c.line("SHLQ $%d, R10", map[int]int{4: 2, 8: 3}[c.elem])
	c.columns(n, 4, func(vectors int, suffix string) {
		a := c.firstAcc()
		for j := range vectors {
			c.offset = c.past(j)
			c.into(c.named(c.v(a+j)), "VMOVU"+c.f(), c.load("SI"))
		}
		c.print(c.w, 6)
		c.line("XORQ BX, BX")
		c.label("term" + suffix)
		c.line("MOVLQSX (R8)(BX*4), R12")
		c.line("MOVQ R12, R13")
		c.line("SUBQ %s, R13", from)
		c.line("CMPQ R13, %s", count)
		c.line("JCC next%s", suffix)
		c.line("IMULQ R10, R12")
		c.line("ADDQ DI, R12")
		v := c.emit('v', "VBROADCAST"+c.ss(), fmt.Sprintf("(DX)(BX*%d)", c.elem))
		for j := range vectors {
			c.offset = c.past(j)
			c.store(c.add(c.load("R12"), c.mul(v, c.named(c.v(a+j)))), "R12")
		}
		c.print(c.w, 6)
		c.offset = ""
		c.label("next" + suffix)
		c.line("INCQ BX")
		c.line("CMPQ BX, %s", nnz)
		c.line("JLT term%s", suffix)
	})
	c.line("VZEROUPPER")
	c.line("RET")
}

// addRows adds rows that follow one another to rows of dst.
func addRows(c *code) { // DI dst, SI x, DX rows, R8 count, R9 n
	c.line("MOVQ R9, R10")
	c.line("SHLQ $%d, R10", map[int]int{4: 2, 8: 3}[c.elem])
	c.columns("R9", 1, func(_ int, suffix string) {
		c.line("XORQ BX, BX")
		c.line("MOVQ SI, R13")
		c.label("row" + suffix)
		c.line("MOVLQSX (DX)(BX*4), R12")
		c.line("IMULQ R10, R12")
		c.line("ADDQ DI, R12")
		c.store(c.add(c.load("R12"), c.load("R13")), "R12")
		c.print(c.w, c.firstAcc())
		c.line("ADDQ R10, R13")
		c.line("INCQ BX")
		c.line("CMPQ BX, R8")
		c.line("JLT row%s", suffix)
	})
	c.line("VZEROUPPER")
	c.line("RET")
}

// factorRow leaves sums of products in dst, and those of their squares beside them: a row of dst has 2n cells, one of v n.
func factorRow(c *code) { // DI dst, SI v, DX values, R8 indices, R9 nnz, R10 n
	c.line("MOVQ R10, R11")
	c.line("SHLQ $%d, R11", map[int]int{4: 2, 8: 3}[c.elem])
	c.columns("R10", 1, func(_ int, suffix string) {
		sum, squares := c.named(c.v(c.firstAcc())), c.named(c.v(c.firstAcc()+1))
		for j := range 2 {
			c.line("VXOR%s %s, %s, %s", c.f(), c.acc(j), c.acc(j), c.acc(j))
		}
		c.line("XORQ BX, BX")
		c.label("term" + suffix)
		c.line("MOVLQSX (R8)(BX*4), R12")
		c.line("IMULQ R11, R12")
		c.line("ADDQ SI, R12")
		p := c.mul(c.emit('v', "VBROADCAST"+c.ss(), fmt.Sprintf("(DX)(BX*%d)", c.elem)), c.load("R12"))
		c.into(sum, "VADD"+c.f(), p, sum)
		c.into(squares, "VADD"+c.f(), c.mul(p, p), squares)
		c.print(c.w, c.firstAcc())
		c.line("INCQ BX")
		c.line("CMPQ BX, R9")
		c.line("JLT term%s", suffix)
		c.line("LEAQ (DI)(R11*1), R12")
		c.store(sum, "DI")
		c.store(squares, "R12")
		c.print(c.w, c.firstAcc())
	})
	c.line("VZEROUPPER")
	c.line("RET")
}

// factorScatter leaves out columns as csrScatter does; the fields of s are at multiples of 8.
func factorScatter(c *code) { // DI gv, SI sums, DX v, R8 values, R9 indices, R10 s
	const nnz, n, from, count, deriv = "(R10)", "8(R10)", "16(R10)", "24(R10)", "32(R10)"
	c.line("MOVQ %s, R11", n)
	c.line("SHLQ $%d, R11", map[int]int{4: 2, 8: 3}[c.elem])
	c.line("VBROADCAST%s %s, %s", c.ss(), deriv, c.acc(1))
	c.columns(n, 1, func(_ int, suffix string) {
		sum, d := c.named(c.acc(0)), c.named(c.acc(1))
		c.into(sum, "VMOVU"+c.f(), c.load("SI"))
		c.print(c.w, c.firstAcc())
		c.line("XORQ BX, BX")
		c.label("term" + suffix)
		c.line("MOVLQSX (R9)(BX*4), R12")
		c.line("MOVQ R12, R13")
		c.line("SUBQ %s, R13", from)
		c.line("CMPQ R13, %s", count)
		c.line("JCC next%s", suffix)
		c.line("IMULQ R11, R12")
		c.line("LEAQ (DX)(R12*1), R13")
		c.line("ADDQ DI, R12")
		x := c.emit('v', "VBROADCAST"+c.ss(), fmt.Sprintf("(R8)(BX*%d)", c.elem))
		c.store(c.add(c.load("R12"), c.mul(c.mul(d, x), c.sub(sum, c.mul(c.load("R13"), x)))), "R12")
		c.print(c.w, c.firstAcc())
		c.label("next" + suffix)
		c.line("INCQ BX")
		c.line("CMPQ BX, %s", nnz)
		c.line("JLT term%s", suffix)
	})
	c.line("VZEROUPPER")
	c.line("RET")
}

// poolRow is a row of windows, all of one size; the fields of s are at multiples of 8. A cell wins if it is not less or equal (so a
// NaN does) unless the winner is a NaN.
func poolRow(c *code) { // DI y, SI arg, DX x, R8 s
	const windows, channels, height, width, row, step, first = "(R8)", "8(R8)", "16(R8)", "24(R8)", "32(R8)", "40(R8)", "48(R8)"
	best, at, cell := c.named(c.v(8)), c.named(c.v(9)), c.named(c.v(10))
	xs := map[bool]string{true: "Z", false: "Y"}[c.avx512()]
	spreadIndex := func(reg int) { // BX + the numbers of the lanes
		if c.avx512() {
			c.line("VPBROADCASTD BX, Z%d", reg)
		} else {
			c.line("VMOVD BX, X%d", reg)
			c.line("VPBROADCASTD X%d, Y%d", reg, reg)
		}
		c.line("VPADDD lanes<>(SB), %s%d, %s%d", xs, reg, xs, reg)
	}
	c.line("MOVQ %s, R9", windows)
	c.label("window")
	c.columns(channels, 1, func(_ int, suffix string) {
		c.line("MOVQ DX, R10")
		c.line("MOVQ %s, BX", first)
		c.line("MOVQ AX, R11")
		c.line("SHRQ $2, R11")
		c.line("ADDQ R11, BX")
		spreadIndex(9)
		c.into(best, "VMOVAPS", c.load("DX"))
		c.print(c.w, 6)
		c.line("MOVQ %s, R12", height)
		c.label("line" + suffix)
		c.line("MOVQ R10, R11")
		c.line("MOVQ %s, R13", width)
		c.line("PUSHQ BX")
		c.label("cell" + suffix)
		spreadIndex(10)
		v := c.load("R11")
		wins, number := c.cmp("$6", v, best), c.cmp("$7", best, best)
		if c.avx512() {
			wins = c.emit('k', "KANDW", wins, number)
		} else {
			wins = c.and(wins, number)
		}
		v, i := c.choose(wins, v, best), c.choose(wins, cell, at)
		c.into(best, "VMOVAPS", v)
		c.into(at, "VMOVAPS", i)
		c.print(c.w, 6)
		c.line("MOVQ %s, R14", channels)
		c.line("ADDQ R14, BX")
		c.line("LEAQ (R11)(R14*4), R11")
		c.line("DECQ R13")
		c.line("JNE cell%s", suffix)
		c.line("POPQ BX")
		c.line("MOVQ %s, R14", row)
		c.line("ADDQ R14, BX")
		c.line("LEAQ (R10)(R14*4), R10")
		c.line("DECQ R12")
		c.line("JNE line%s", suffix)
		c.store(best, "DI")
		c.store(at, "SI")
		c.print(c.w, 6)
	})
	c.line("MOVQ %s, R14", channels)
	c.line("LEAQ (DI)(R14*4), DI")
	c.line("LEAQ (SI)(R14*4), SI")
	c.line("MOVQ %s, R14", step)
	c.line("LEAQ (DX)(R14*4), DX")
	c.line("ADDQ R14, %s", first)
	c.line("DECQ R9")
	c.line("JNE window")
	c.line("VZEROUPPER")
	c.line("RET")
}
