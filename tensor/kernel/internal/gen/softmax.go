package main

import "fmt"

// The routines of softmax and its losses, on rows.

func expRows(c *code) { // DI e, SI x, DX largest, R8 sum, R9 rows, R10 cols
	c.keep(16, 20)
	c.keep(24, 31)
	c.label("row")
	top := c.rowMax()
	c.line("VMOVSS X%d, (DX)", top)
	c.line("LEAQ (SI)(R10*4), R11")
	c.zero()
	c.over64("R10", "Exp", c.expSum(top, "R11"))
	c.fold()
	c.line("VMOVSS %s, (R8)", c.lane0())
	c.line("LEAQ (DI)(R10*4), DI")
	c.line("LEAQ (SI)(R10*4), SI")
	c.line("ADDQ $4, DX")
	c.line("ADDQ $4, R8")
	c.line("DECQ R9")
	c.line("JNE row")
	c.line("VZEROUPPER")
	c.line("RET")
}

// ahead is how many bytes past what is read next memory is fetched: so much arrives in time, and what softmax works on still fits beside
// it in first-level cache.
const ahead = 2560

// rowMax finds the largest of R10 elements at SI, and returns the register that has it in every lane.
func (c *code) rowMax() (top int) {
	top = c.top()
	for j := range 4 {
		c.fill(c.acc(j), c.minusInf())
	}
	c.columns("R10", 4, func(vectors int, _ string) {
		for j := range vectors {
			c.offset = c.past(j)
			c.larger(c.named(c.acc(j)), c.load("SI"))
		}
		c.print(c.w, 4)
		c.offset = ""
	})
	c.line("VMAXPS %s, %s, %s", c.acc(1), c.acc(0), c.v(top))
	c.line("VMAXPS %s, %s, %s", c.acc(2), c.v(top), c.v(top))
	c.line("VMAXPS %s, %s, %s", c.acc(3), c.v(top), c.v(top))
	c.spread("VMAXPS", c.v(top), c.v(0))
	return top
}

// top is the register of a row's largest element.
func (c *code) top() int {
	if c.avx512() {
		return 31
	}
	return 14
}

// expSum writes e^(x-top) of the row at SI to DI, and adds it up; what is ahead of next comes into cache meanwhile.
func (c *code) expSum(top int, next string) func(j int) {
	return func(j int) {
		if !c.masked {
			c.do("PREFETCHT0", fmt.Sprintf("%d(%s)(AX*1)", ahead+j*c.width(), next))
		}
		e := c.live(c.expNegative(c.sub(c.load("SI"), c.named(c.v(top)))))
		c.store(e, "DI")
		c.accumulate(j, e)
	}
}

// expScale is expRows of one row, whose largest element is known, while the largest of a later one is found, and the row before is
// scaled and written past the cache: so the processor computes, reads and writes memory all the time. AVX2 has no register left for
// the largest, and finds it after the rest. The fields of s are at multiples of 8, and the float32s after them.
func expScale(c *code) { // DI e, SI x, DX out, R8 prev, R9 s, R14 next, R15 what is subtracted
	const (
		cols, carried, before, after, rest = "(R9)", "8(R9)", "16(R9)", "24(R9)", "32(R9)"
		next, carry, first, turn, tail     = "40(R9)", "48(R9)", "56(R9)", "64(R9)", "72(R9)"
		k, largest, sum, later             = "80(R9)", "84(R9)", "88(R9)", "92(R9)"
	)
	c.keep(16, 19)
	c.keep(24, 31)
	scaled := func() val {
		by := val{mem: k}
		if !c.avx512() {
			by = c.emit('v', "VBROADCASTSS", k)
		}
		return c.mul(c.load("R8"), by)
	}
	less := func(v val, hits string) val { return c.emit('v', "VSUBPS", hits, v) }
	put := func(v val) {
		c.stream = true
		c.store(v, "DX")
		c.stream = false
	}
	top, found := c.top(), c.named(c.v(19)) // found is of AVX-512
	row := func(j int) {
		c.expSum(top, "R14")(j)
		if c.avx512() {
			c.larger(found, c.load("R14"))
		}
	}
	c.line("MOVQ %s, R10", cols)
	c.line("MOVQ %s, R14", next)
	c.line("VBROADCASTSS %s, %s", largest, c.v(top))
	if c.avx512() {
		c.fill(c.v(19), c.minusInf())
	}
	c.line("XORQ AX, AX")
	c.line("MOVQ %s, CX", carried) // elements in the first vector that are of another row
	c.line("TESTQ CX, CX")
	c.line("JEQ aligned")
	tailMask(c.w, c.target, "CX")
	c.line("NEGQ CX")
	c.line("LEAQ (R8)(CX*4), R8")
	c.line("LEAQ (DX)(CX*4), DX")
	c.line("MOVQ %s, R15", first)
	c.line("MOVQ %s, R13", carry)
	v := less(scaled(), "(R15)")
	if c.avx512() {
		c.into(v, "VMOVUPS", "(R13)", "K1")
	} else {
		v = c.choose(c.named("Y15"), val{mem: "(R13)"}, v)
	}
	put(v)
	c.print(c.w, 6)
	c.line("ADDQ $%d, R8", c.width())
	c.line("ADDQ $%d, DX", c.width())
	c.label("aligned")
	c.zero()
	c.line("LEAQ -64(R10), CX")
	c.line("MOVQ %s, BX", before)
	c.line("MOVQ %s, R11", after)
	c.line("MOVQ %s, R15", turn)
	c.label("next")
	c.line("TESTQ BX, BX")
	c.line("JNE both")
	c.line("TESTQ R11, R11")
	c.line("JLT alone")
	c.turn64(func(j int) {
		row(j)
		put(less(scaled(), fmt.Sprintf("%d(R15)", j*c.width())))
	})
	c.line("MOVQ R11, BX")
	c.line("MOVQ $-1, R11")
	c.line("JMP next")
	c.label("both")
	c.turn64(func(j int) {
		row(j)
		put(scaled())
	})
	c.line("DECQ BX")
	c.line("JNE both")
	c.line("JMP next")
	c.label("alone")
	c.line("MOVQ AX, BX")
	c.from64("Exp", row)
	c.fold()
	c.line("VMOVSS %s, %s", c.lane0(), sum)
	c.line("MOVQ BX, AX")
	c.line("MOVQ %s, R15", tail)
	c.line("SUBQ AX, R15")
	c.line("MOVQ %s, CX", rest)
	c.line("SUBQ $%d, CX", c.lanes())
	c.line("JLT last")
	c.label("whole")
	put(less(scaled(), "(R15)(AX*1)"))
	c.print(c.w, 6)
	c.line("ADDQ $%d, AX", c.width())
	c.line("SUBQ $%d, CX", c.lanes())
	c.line("JGE whole")
	c.label("last")
	c.line("MOVQ %s, R13", carry)
	c.do("VMOVUPS", less(scaled(), "(R15)(AX*1)"), "(R13)")
	c.print(c.w, 6)
	if c.avx512() {
		c.spread("VMAXPS", c.v(19), c.v(0))
		c.line("VMOVSS X19, %s", later)
	} else {
		c.line("MOVQ R14, SI")
		c.line("VMOVSS X%d, %s", c.rowMax(), later)
	}
	c.line("VZEROUPPER")
	c.line("RET")
}

func scaleRows(c *code) { // DI dst, SI e, DX k, R8 rows, R9 cols
	k := c.v(c.firstAcc())
	c.label("row")
	c.line("VBROADCASTSS (DX), %s", k)
	c.columns("R9", 4, func(vectors int, _ string) {
		for j := range vectors {
			c.offset = c.past(j)
			c.store(c.mul(c.load("SI"), c.named(k)), "DI")
		}
		c.print(c.w, 6)
		c.offset = ""
	})
	c.line("LEAQ (DI)(R9*4), DI")
	c.line("LEAQ (SI)(R9*4), SI")
	c.line("ADDQ $4, DX")
	c.line("DECQ R8")
	c.line("JNE row")
	c.line("VZEROUPPER")
	c.line("RET")
}
