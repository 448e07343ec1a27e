package main

import (
	"fmt"
	"strings"
)

// The routines of softmax and its losses, on rows.

func expRows(c *code) { // DI e, SI x, DX largest, R8 sum, R9 rows, R10 cols
	c.keep(16, 20)
	c.keep(24, 31)
	c.label("row")
	top := c.rowMax()
	c.line("VMOVSS X%d, (DX)", top)
	c.line("LEAQ (SI)(R10*4), R11")
	c.zero()
	c.over64("R10", "Exp", c.expSum(top, "R11", ahead))
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

// ahead is how many bytes past the next row memory is fetched: the pass for the maximum is over the row before its last lines would
// have arrived. Where the next row is read at once, it is farAhead.
const (
	ahead    = 2048
	farAhead = 8192
)

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
func (c *code) expSum(top int, next string, ahead int) func(j int) {
	return func(j int) {
		if !c.masked && (c.avx512() || j%2 == 0) {
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
func expScale(c *code) { // DI e, SI x, DX out, R8 prev, R9 s, R14 next
	const cols, head, turns, rest, next, k, largest, sum, later = "(R9)", "8(R9)", "16(R9)", "24(R9)", "32(R9)", "40(R9)", "44(R9)", "48(R9)", "52(R9)"
	c.keep(16, 19)
	c.keep(24, 31)
	scale := func() {
		by := val{mem: k}
		if !c.avx512() {
			by = c.emit('v', "VBROADCASTSS", k)
		}
		c.store(c.mul(c.load("R8"), by), "DX")
	}
	top, found := c.top(), c.named(c.v(19)) // found is of AVX-512
	row := func(j int) {
		c.expSum(top, "R14", farAhead)(j)
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
	c.line("MOVQ %s, CX", head) // what precedes the first aligned vector of out
	c.line("TESTQ CX, CX")
	c.line("JEQ aligned")
	c.line("XORQ AX, AX")
	tailMask(c.w, c.target, "CX")
	c.masked = true
	scale()
	c.print(c.w, 6)
	c.masked = false
	c.line("LEAQ (R8)(CX*4), R8")
	c.line("LEAQ (DX)(CX*4), DX")
	c.label("aligned")
	c.zero()
	c.line("XORQ AX, AX")
	c.line("LEAQ -64(R10), CX")
	c.line("MOVQ %s, BX", turns)
	c.line("TESTQ BX, BX")
	c.line("JEQ alone")
	c.label("both")
	c.turn64(func(j int) {
		row(j)
		c.stream = true
		scale()
		c.stream = false
	})
	c.line("DECQ BX")
	c.line("JNE both")
	c.label("alone")
	c.from64("Exp", row)
	c.fold()
	c.line("VMOVSS %s, %s", c.lane0(), sum)
	c.line("MOVQ %s, AX", turns)
	c.line("SHLQ $8, AX")
	c.line("MOVQ %s, CX", rest)
	c.line("SUBQ $%d, CX", c.lanes())
	c.line("JLT last")
	c.label("whole")
	c.stream = true
	scale()
	c.stream = false
	c.print(c.w, 6)
	c.line("ADDQ $%d, AX", c.width())
	c.line("SUBQ $%d, CX", c.lanes())
	c.line("JGE whole")
	c.label("last")
	c.line("ADDQ $%d, CX", c.lanes())
	c.line("JEQ end")
	tailMask(c.w, c.target, "CX")
	c.masked = true
	scale()
	c.print(c.w, 6)
	c.masked = false
	c.label("end")
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

// quads calls f with groups of four of 16 rows of R11 bytes: 0, 4, 8 and 12, then 1, 5, 9, 13, and so on, which foldQuads brings in
// order. BX is at the first of the group, relative to ptr; four times R11 is in R12, and twelve times in R13.
func (c *code) quads(ptr string, f func(q int, row func(i int) string)) {
	c.line("MOVQ %s, BX", ptr)
	for q := range 4 {
		f(q, func(i int) string { return []string{"(BX)", "(BX)(R12*1)", "(BX)(R12*2)", "(BX)(R13*1)"}[i] })
		if q < 3 {
			c.line("ADDQ R11, BX")
		}
	}
}

// halves is op over the halves of what a and b have of each row.
func (c *code) halves(op, shuffle, lo, hi string, a, b val) val {
	args := func(imm string) []any {
		if imm == "" {
			return []any{b, a}
		}
		return []any{imm, b, a}
	}
	low, high := shuffle, shuffle
	if lo == "" {
		low, high = "VUNPCKLPD", "VUNPCKHPD"
	}
	return c.emit('v', op, c.emit('v', high, args(hi)...), c.emit('v', low, args(lo)...))
}

// quad begins to fold four rows, into accumulator q: lane j of a row takes lane j+8, then j+4.
func (c *code) quad(op string, q int, r [4]val) {
	a := c.halves(op, "VSHUFF64X2", "$0x44", "$0xee", r[0], r[1])
	b := c.halves(op, "VSHUFF64X2", "$0x44", "$0xee", r[2], r[3])
	c.into(c.named(c.acc(q)), "VMOVAPS", c.halves(op, "VSHUFF64X2", "$0x88", "$0xdd", a, b))
}

// foldQuads ends it, with lanes j+2 and j+1: a vector with what 16 rows fold to.
func (c *code) foldQuads(op string) val {
	acc := func(q int) val { return c.named(c.acc(q)) }
	a, b := c.halves(op, "", "", "", acc(0), acc(1)), c.halves(op, "", "", "", acc(2), acc(3))
	return c.halves(op, "VSHUFPS", "$0x88", "$0xdd", a, b)
}

// bounded loads a row, with -Inf in the lanes past it.
func (c *code) bounded(at string) val {
	v := c.emit('v', "VMOVAPS", c.inReg(c.minusInf()))
	c.into(v, "VMOVUPS", at, "K1")
	return v
}

// softmax16 is the part of softmaxShort that takes 16 rows at a time, so that their maxima and sums each come to lie in one vector.
// R11 is the bytes of a row, R12 three times as many; the stack has the exponentials and what they are scaled by.
func (c *code) softmax16() {
	const scales = 16 * 64
	c.masked = false
	c.line("SUBQ $16, R10")
	c.line("JLT few")
	c.line("LEAQ (R11)(R11*2), R13")
	c.line("SHLQ $2, R13")
	c.line("LEAQ (R11*4), R12")
	c.label("sixteen")
	c.quads("SI", func(q int, row func(int) string) {
		var r [4]val
		for i := range r {
			r[i] = c.bounded(row(i))
		}
		c.quad("VMAXPS", q, r)
		c.print(c.w, 16)
	})
	c.do("VMOVUPS", c.foldQuads("VMAXPS"), "(DX)")
	c.print(c.w, 16)
	c.quads("SI", func(q int, row func(int) string) {
		var r [4]val
		for i := range r {
			d := c.emit('v', "VSUBPS.BCST", fmt.Sprintf("%d(DX)", 4*(4*i+q)), c.emit('v', "VMOVUPS.Z", row(i), "K1"))
			r[i] = c.emit('v', "VMOVAPS.Z", c.expNegative(d), "K1")
			c.do("VMOVUPS", r[i], fmt.Sprintf("%d(SP)", 64*(4*i+q)))
		}
		c.interleave(4)
		c.quad("VADDPS", q, r)
		c.print(c.w, 16)
	})
	sum := c.foldQuads("VADDPS")
	c.do("VMOVUPS", sum, "(R8)")
	c.do("VMOVUPS", c.div(c.emit('v', "VMOVUPS", "(R9)"), sum), fmt.Sprintf("%d(SP)", scales))
	c.print(c.w, 16)
	c.quads("DI", func(q int, row func(int) string) {
		for i := range 4 {
			e := c.emit('v', "VMOVUPS", fmt.Sprintf("%d(SP)", 64*(4*i+q)))
			c.do("VMOVUPS", c.emit('v', "VMULPS.BCST", fmt.Sprintf("%d(SP)", scales+4*(4*i+q)), e), "K1", row(i))
		}
		c.print(c.w, 16)
	})
	c.line("LEAQ (SI)(R12*4), SI")
	c.line("LEAQ (DI)(R12*4), DI")
	for _, ptr := range []string{"DX", "R8", "R9"} {
		c.line("ADDQ $64, %s", ptr)
	}
	c.line("SUBQ $16, R10")
	c.line("JGE sixteen")
	c.label("few")
	c.line("ADDQ $16, R10")
	c.line("LEAQ (R11)(R11*2), R12")
	c.masked = true
}

// softmaxNarrow is softmax and its cross-entropy's gradient for blocks of 16 rows of at most 16 columns, up to four of them. Largest
// elements and sums are found row by row; exponentials and what they are scaled by in whole vectors, cols of them a block, for which
// the values of 16 rows are permuted by a table of row numbers and columns. Labels are checked before anything is read. Each step is for all blocks, so that nothing is read just
// after it was written in other pieces. The fields of s are at multiples of 8.
func softmaxNarrow(c *code) { // DI s
	const x, dx, largest, loss, w, labels, blocks, cols, index, stream, bad = "(DI)", "8(DI)", "16(DI)", "24(DI)", "32(DI)", "40(DI)", "48(DI)", "56(DI)", "64(DI)", "72(DI)", "80(DI)"
	const scales, sums = 64 * 16 * 4, 64*16*4 + 4*64 // past the exponentials at R14
	c.keep(16, 20)
	c.keep(24, 32)
	c.line("LEAQ 63(SP), R14")
	c.line("ANDQ $-64, R14")
	c.line("MOVQ %s, CX", cols)
	tailMask(c.w, c.target, "CX")
	c.line("LEAQ (CX*4), R11")
	c.line("LEAQ (R11*4), R12")
	c.line("LEAQ (R12)(R12*2), R13")
	c.line("VPBROADCASTD CX, %s", c.acc(0))
	c.line("MOVQ %s, R8", labels)
	c.line("MOVQ %s, R10", blocks)
	c.label("check")
	c.line("VMOVUPS (R8), Z0")
	c.line("VPCMPUD $5, %s, Z0, K2", c.acc(0)) // not below cols
	c.line("KORTESTW K2, K2")
	c.line("JNE outside")
	c.line("ADDQ $64, R8")
	c.line("DECQ R10")
	c.line("JNE check")
	// each runs f for every block; SI is at its first row, AX at its row of 16 values.
	each := func(name, at string, f func()) {
		c.line("MOVQ %s, SI", at)
		c.line("MOVQ %s, R10", blocks)
		c.line("XORQ AX, AX")
		c.label(name)
		f()
		c.line("LEAQ (SI)(R12*4), SI")
		c.line("ADDQ $64, AX")
		c.line("DECQ R10")
		c.line("JNE %s", name)
	}
	// flat runs f for every vector of a block at SI, some at a time; R9 is at its row numbers and columns, BX past SI.
	flat := func(name string, f func(at func(ptr string) string, table int), turns ...int) {
		c.line("MOVQ %s, R9", index)
		c.line("MOVQ %s, CX", cols)
		c.line("XORQ BX, BX")
		for t, n := range append(turns, 1) {
			label := fmt.Sprintf("%s%d", name, n)
			c.line("SUBQ $%d, CX", n)
			c.line("JLT %sless", label)
			c.label(label)
			for i := range n {
				f(func(ptr string) string { return fmt.Sprintf("%d(%s)(BX*1)", 64*i, ptr) }, 128*i)
			}
			c.interleave(n)
			c.print(c.w, 16)
			c.line("ADDQ $%d, BX", 64*n)
			c.line("ADDQ $%d, R9", 128*n)
			c.line("SUBQ $%d, CX", n)
			c.line("JGE %s", label)
			c.label(label + "less")
			if t < len(turns) {
				c.line("ADDQ $%d, CX", n)
			}
		}
	}
	each("max", x, func() {
		c.line("MOVQ SI, R15")
		c.line("MOVQ %s, R8", labels)
		c.line("ADDQ AX, R8")
		c.line("MOVQ %s, R9", loss) // the logits at the labels, for now
		c.line("ADDQ AX, R9")
		for i := range 16 {
			c.line("MOVLQSX %d(R8), CX", 4*i)
			c.line("MOVL (R15)(CX*4), DX")
			c.line("MOVL DX, %d(R9)", 4*i)
			if i < 15 {
				c.line("ADDQ R11, R15")
			}
		}
		c.quads("SI", func(q int, row func(int) string) {
			var r [4]val
			for i := range r {
				r[i] = c.bounded(row(i))
			}
			c.quad("VMAXPS", q, r)
			c.print(c.w, 16)
		})
		c.line("MOVQ %s, R8", largest)
		c.do("VMOVUPS", c.foldQuads("VMAXPS"), "(R8)(AX*1)")
		c.print(c.w, 16)
	})
	top, hits, weights := c.named(c.acc(0)), c.named(c.acc(1)), c.named(c.acc(2))
	c.line("MOVQ R14, DX")
	each("exp", x, func() {
		c.line("MOVQ %s, R8", largest)
		c.line("VMOVUPS (R8)(AX*1), %s", c.acc(0))
		flat("exp", func(at func(string) string, table int) {
			rows := c.emit('v', "VMOVUPS", fmt.Sprintf("%d(R9)", table))
			d := c.sub(c.emit('v', "VMOVUPS", at("SI")), c.emit('v', "VPERMPS", top, rows))
			c.do("PREFETCHT0", fmt.Sprintf("%d(SI)(BX*1)", farAhead+table/2))
			c.do("VMOVUPS", c.expNegative(d), at("DX"))
		}, 5, 2)
		c.line("LEAQ (DX)(R12*4), DX")
	})
	each("sum", "R14", func() {
		c.quads("SI", func(q int, row func(int) string) {
			var r [4]val
			for i := range r {
				r[i] = c.emit('v', "VMOVUPS.Z", row(i), "K1")
			}
			c.quad("VADDPS", q, r)
			c.print(c.w, 16)
		})
		c.line("MOVQ %s, R8", w)
		s := c.foldQuads("VADDPS")
		c.do("VMOVUPS", s, fmt.Sprintf("%d(R14)(AX*1)", sums))
		c.do("VMOVUPS", c.div(c.emit('v', "VMOVUPS", "(R8)(AX*1)"), s), fmt.Sprintf("%d(R14)(AX*1)", scales))
		c.print(c.w, 16)
	})
	// The losses of all four blocks, be there as many or not: one logarithm alone would wait for itself.
	c.line("MOVQ %s, R8", loss)
	c.line("MOVQ %s, R9", largest)
	for i := range 4 {
		at := c.sub(c.emit('v', "VMOVUPS", fmt.Sprintf("%d(R8)", 64*i)), c.emit('v', "VMOVUPS", fmt.Sprintf("%d(R9)", 64*i)))
		l := c.logPlain(c.emit('v', "VMOVUPS", fmt.Sprintf("%d(R14)", sums+64*i)))
		c.do("VMOVUPS", c.sub(l, at), fmt.Sprintf("%d(R8)", 64*i))
		if i%2 == 1 {
			c.interleave(2)
			c.print(c.w, 16)
		}
	}
	for _, op := range []string{"VMOVUPS", "VMOVNTPS"} {
		name := map[string]string{"VMOVUPS": "put", "VMOVNTPS": "stream"}[op]
		if op == "VMOVUPS" {
			c.line("CMPQ %s, $0", stream)
			c.line("JNE streamed")
		} else {
			c.label("streamed")
		}
		c.line("MOVQ %s, DX", dx)
		each(name, "R14", func() {
			c.line("VMOVUPS %d(R14)(AX*1), %s", scales, c.acc(0))
			c.line("MOVQ %s, R8", labels)
			c.line("VMOVUPS (R8)(AX*1), %s", c.acc(1))
			c.line("MOVQ %s, R8", w)
			c.line("VMOVUPS (R8)(AX*1), %s", c.acc(2))
			flat(name, func(at func(string) string, table int) {
				rows := c.emit('v', "VMOVUPS", fmt.Sprintf("%d(R9)", table))
				p := c.mul(c.emit('v', "VMOVUPS", at("SI")), c.emit('v', "VPERMPS", top, rows))
				hit := c.emit('k', "VPCMPEQD", fmt.Sprintf("%d(R9)", table+64), c.emit('v', "VPERMD", hits, rows))
				c.into(p, "VSUBPS", c.emit('v', "VPERMPS", weights, rows), p, hit)
				c.do(op, p, at("DX"))
			}, 5, 2)
			c.line("LEAQ (DX)(R12*4), DX")
		})
		c.line("VZEROUPPER")
		c.line("RET")
	}
	c.label("outside")
	c.line("MOVQ $1, %s", bad)
	c.line("VZEROUPPER")
	c.line("RET")
}

// softmaxShort is expRows for rows of one vector at most, times w / sum. Four rows are taken in turns: each is one long chain.
func softmaxShort(c *code) { // DI p, SI x, DX largest, R8 sum, R9 w, R10 rows, R11 cols
	c.keep(16, 20)
	c.keep(24, 32)
	c.line("MOVQ R11, CX")
	tailMask(c.w, c.target, "CX")
	c.line("SHLQ $2, R11")
	c.line("LEAQ (R11)(R11*2), R12")
	c.masked = true
	row := func(i int) {
		at := []string{"(%s)", "(%s)(R11*1)", "(%s)(R11*2)", "(%s)(R12*1)"}[i]
		c.address = func(ptr string) string { return fmt.Sprintf(at, ptr) }
		x := c.load("SI")
		top := x
		c.restrict(&top)
		top = c.spreads("VMAXPS", top)
		c.do("VMOVSS", low{top}, fmt.Sprintf("%d(DX)", 4*i))
		e := c.live(c.expNegative(c.sub(x, top)))
		sum := c.spreads("VADDPS", e)
		c.do("VMOVSS", low{sum}, fmt.Sprintf("%d(R8)", 4*i))
		k := c.div(c.emit('v', "VBROADCASTSS", fmt.Sprintf("%d(R9)", 4*i)), sum)
		c.store(c.mul(e, k), "DI")
	}
	vectors := 15 // without the mask
	if c.avx512() {
		vectors = 16
	}
	if c.avx512() {
		c.softmax16()
	}
	c.line("SUBQ $4, R10")
	c.line("JLT rest")
	c.label("four")
	for i := range 4 {
		if row(i); !c.avx512() {
			c.print(c.w, vectors)
		}
	}
	if c.avx512() {
		c.interleave(4)
		c.print(c.w, vectors)
	}
	advance := func(rows int) {
		c.line("LEAQ (DI)(R11*%d), DI", rows)
		c.line("LEAQ (SI)(R11*%d), SI", rows)
		for _, ptr := range []string{"DX", "R8", "R9"} {
			c.line("ADDQ $%d, %s", 4*rows, ptr)
		}
	}
	advance(4)
	c.line("SUBQ $4, R10")
	c.line("JGE four")
	c.label("rest")
	c.line("ADDQ $4, R10")
	c.line("JEQ done")
	c.label("one")
	row(0)
	c.print(c.w, vectors)
	advance(1)
	c.line("DECQ R10")
	c.line("JNE one")
	c.label("done")
	c.line("VZEROUPPER")
	c.line("RET")
}

// spreads is spread on virtual registers.
func (c *code) spreads(op string, v val) val {
	for _, swap := range c.swaps() {
		args := []any{swap[1], v}
		if strings.HasPrefix(swap[0], "VSHUF") || strings.HasPrefix(swap[0], "VPERM2") {
			args = append(args, v)
		}
		v = c.emit('v', op, c.emit('v', swap[0], args...), v)
	}
	return v
}
