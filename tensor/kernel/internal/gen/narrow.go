package main

import "fmt"

// softmaxNarrow is softmax, or its cross-entropy and the gradient, of rows of at most 16 columns. Blocks of as many rows as a vector has
// lanes are turned, so that a vector has one column of each: maxima, exponentials and sums then are plain arithmetic, as many lanes as
// there are rows, and results are turned back. Groups of 64 rows take one step after the other, so that the blocks of a group hide each
// other's latency, and nothing is read just after it was written in other pieces. The fields of s are at multiples of 8.
func softmaxNarrow(c *code) { // DI s
	const x, dx, loss, w, labels, blocks, cols, step, stream, bad, now = "(DI)", "8(DI)", "16(DI)", "24(DI)", "32(DI)", "40(DI)", "48(DI)", "56(DI)", "64(DI)", "72(DI)", "80(DI)"
	n := narrow{c}
	c.keep(16, 20)
	c.keep(21, 32)
	top := c.named(c.v(n.spare()))
	c.line("LEAQ 63(SP), R14")
	c.line("ANDQ $-64, R14")
	if c.avx512() {
		for i, lanes := range []string{"$0xf0", "$0xf00", "$0xf000"} {
			c.line("MOVL %s, R13", lanes)
			c.line("KMOVW R13, K%d", 5+i)
		}
	}
	c.line("MOVQ %s, CX", cols)
	c.line("LEAQ (CX*4), R11")
	c.line("LEAQ (R11)(R11*2), R12")
	c.label("group")
	c.line("MOVQ %s, R10", blocks)
	c.line("MOVQ $%d, CX", 64/c.lanes())
	c.line("CMPQ R10, CX")
	c.line("CMOVQGT CX, R10")
	c.line("MOVQ R10, %s", now)

	c.line("MOVQ %s, R8", labels)
	c.line("TESTQ R8, R8")
	c.line("JEQ checked")
	n.check("R8", cols)
	n.pick("R8", x, now)
	c.label("checked")

	n.each("in", now, func() { // the columns, and the largest of each row
		c.line("MOVQ %s, SI", x)
		n.rows("SI")
		c.fill(c.v(n.spare()), c.minusInf())
		n.quads("turn", cols, func() {
			q := n.turn(n.load())
			m := c.emit('v', "VMAXPS", c.emit('v', "VMAXPS", q[0], q[1]), c.emit('v', "VMAXPS", q[2], q[3]))
			c.into(top, "VMAXPS", top, m)
			for i, v := range q {
				c.do("VMOVUPS", v, n.column(i))
			}
		})
		c.line("CMPQ %s, $4", cols)
		c.line("JGE whole")
		c.line("VMOVUPS (R9), %s", c.v(n.spare())) // fewer columns: those of the next row were read, too
		for i := 1; i < 3; i++ {
			c.line("CMPQ %s, $%d", cols, i)
			c.line("JEQ whole")
			c.line("VMAXPS %d(R9), %s, %s", i*c.width(), c.v(n.spare()), c.v(n.spare()))
		}
		c.label("whole")
		c.line("VMOVUPS %s, %d(R14)(AX*1)", c.v(n.spare()), narrowTop)
		n.clear(cols)
		n.blockBytes("CX")
		c.line("ADDQ CX, %s", x)
	})
	c.line("MOVQ %s, SI", x) // past the group, for what comes after the next
	n.each("exp", now, func() {
		c.line("MOVQ R9, DX")
		c.line("MOVQ %s, CX", cols)
		n.turns("exp", []int{5, 2, 1}, func(i int) {
			d := c.sub(c.emit('v', "VMOVUPS", n.column(i)), val{mem: fmt.Sprintf("%d(R14)(AX*1)", narrowTop)}.vector(c))
			c.do("PREFETCHT0", fmt.Sprintf("%d(SI)", farAhead+i*c.width()))
			c.do("VMOVUPS", c.expNegative(d), n.column(i))
		}, func(many int) {
			c.line("ADDQ $%d, DX", many*c.width())
			c.line("ADDQ $%d, SI", many*c.width())
		})
	})
	n.sums(cols, w, now)
	c.line("MOVQ %s, R8", dx)
	c.line("TESTQ R8, R8")
	c.line("JEQ losses")
	c.line("LEAQ %d(R14), SI", narrowRows)
	n.each("out", now, func() {
		c.line("VMOVUPS %d(R14)(AX*1), %s", narrowScales, c.v(n.spare()))
		n.rows("SI")
		n.quads("back", cols, func() {
			var q [4]val
			for i := range q {
				q[i] = c.bin("VMULPS", top, val{mem: n.column(i)}.vector(c))
			}
			n.store(n.turn(q))
		})
		n.blockBytes("CX")
		c.line("ADDQ CX, SI")
	})
	n.hits(labels, w, now)
	c.label("losses")
	n.losses(loss, w, now)
	n.write(dx, stream, cols, now)

	c.line("MOVQ %s, CX", step)
	c.line("ADDQ CX, %s", w)
	c.line("MOVQ %s, R10", now)
	c.line("SUBQ R10, %s", blocks)
	c.line("JNE group")
	c.line("VZEROUPPER")
	c.line("RET")
	c.label("outside")
	c.line("MOVQ $1, %s", bad)
	c.line("VZEROUPPER")
	c.line("RET")
}

// What softmaxNarrow keeps at R14: the columns of 64 rows, 16 vectors a block; rows of results; and one number a row of the largest
// element, the logit at the label, the sum, and what exponentials are scaled by.
const (
	narrowRows   = 64 * 16 * 4
	narrowTop    = 2 * narrowRows
	narrowAt     = narrowTop + 256
	narrowSums   = narrowTop + 512
	narrowScales = narrowTop + 768
	narrowFrame  = narrowTop + 1024 + 64
)

// A narrow writes the steps of softmaxNarrow.
type narrow struct{ *code }

// spare is a register that no step is given otherwise.
func (n narrow) spare() int {
	if n.avx512() {
		return 20
	}
	return 15
}

// vector is a memory operand of a whole vector, where a constant would be broadcast.
func (v val) vector(c *code) val {
	if c.avx512() {
		return c.emit('v', "VMOVUPS", v.mem)
	}
	return v
}

// each runs f for every block: R9 is at its columns, AX at its numbers of rows, R10 counts.
func (n narrow) each(name, now string, f func()) {
	n.line("MOVQ %s, R10", now)
	n.line("MOVQ R14, R9")
	n.line("XORQ AX, AX")
	n.label(name)
	f()
	n.line("ADDQ $%d, R9", 16*n.width())
	n.line("ADDQ $%d, AX", n.width())
	n.line("DECQ R10")
	n.line("JNE %s", name)
}

// turns runs f for CX vectors, some at a time, and next after each time.
func (n narrow) turns(name string, sizes []int, f func(i int), next func(many int)) {
	for t, many := range sizes {
		label := fmt.Sprintf("%s%d", name, many)
		n.line("SUBQ $%d, CX", many)
		n.line("JLT %sless", label)
		n.label(label)
		for i := range many {
			f(i)
		}
		n.interleave(many)
		n.print(n.w, 16)
		next(many)
		n.line("SUBQ $%d, CX", many)
		n.line("JGE %s", label)
		n.label(label + "less")
		if t < len(sizes)-1 {
			n.line("ADDQ $%d, CX", many)
		}
	}
}

// bases are the registers that point to every fourth row of a block.
func (n narrow) bases() []string { return []string{"BX", "R8", "R15", "R13"}[:n.lanes()/4] }

// blockBytes is the bytes of the rows of a block.
func (n narrow) blockBytes(reg string) {
	n.line("MOVQ R11, %s", reg)
	n.line("SHLQ $%d, %s", map[bool]int{true: 4, false: 3}[n.avx512()], reg)
}

// rows sets the bases from the first row, of R11 bytes.
func (n narrow) rows(first string) {
	n.line("MOVQ %s, BX", first)
	n.line("LEAQ (BX)(R11*4), R8")
	if n.avx512() {
		n.line("LEAQ (BX)(R11*8), R15")
		n.line("LEAQ (R8)(R11*8), R13")
	}
}

// quads runs f for four columns at a time, the last four ending with the last column, DX at the first. With fewer than four columns it
// runs f once.
func (n narrow) quads(name, cols string, f func()) {
	n.line("MOVQ R9, DX")
	n.line("MOVQ %s, CX", cols)
	n.label(name)
	f()
	n.print(n.w, 15)
	n.line("SUBQ $4, CX")
	n.line("JLE %sDone", name)
	n.line("CMPQ CX, $4")
	n.line("JLT %sLast", name)
	n.line("ADDQ $%d, DX", 4*n.width())
	for _, base := range n.bases() {
		n.line("ADDQ $16, %s", base)
	}
	n.line("JMP %s", name)
	n.label(name + "Last") // columns again, with the same results
	for _, base := range n.bases() {
		n.line("LEAQ (%s)(CX*4), %s", base, base)
	}
	n.line("SHLQ $%d, CX", map[bool]int{true: 6, false: 5}[n.avx512()])
	n.line("ADDQ CX, DX")
	n.line("MOVQ $4, CX")
	n.line("JMP %s", name)
	n.label(name + "Done")
}

// column is the i-th column from DX.
func (n narrow) column(i int) string { return fmt.Sprintf("%d(DX)", i*n.width()) }

// row is the address of row i of a block, at some columns.
func (n narrow) row(i int) string {
	return fmt.Sprintf([]string{"(%s)", "(%s)(R11*1)", "(%s)(R11*2)", "(%s)(R12*1)"}[i%4], n.bases()[i/4])
}

// load reads four columns: vector i has those of rows i, i+4 and so on.
func (n narrow) load() (q [4]val) {
	for i := range q {
		if !n.avx512() {
			q[i] = n.emit('v', "VINSERTF128", "$1", n.row(i+4), n.emit('v', "VBROADCASTF128", n.row(i)))
			continue
		}
		q[i] = n.emit('v', "VBROADCASTF32X4", n.row(i))
		for part := 1; part < 4; part++ {
			n.into(q[i], "VBROADCASTF32X4", n.row(i+4*part), fmt.Sprintf("K%d", 4+part))
		}
	}
	return q
}

// store is the opposite of load. Rows are written in ascending order: where there are fewer than four columns, each row corrects what the
// one before wrote past its end.
func (n narrow) store(q [4]val) {
	for i := range n.lanes() {
		switch part := i / 4; {
		case part == 0:
			n.do("VMOVUPS", low{q[i]}, n.row(i))
		case n.avx512():
			n.do("VEXTRACTF32X4", fmt.Sprintf("$%d", part), q[i%4], n.row(i))
		default:
			n.do("VEXTRACTF128", "$1", q[i%4], n.row(i))
		}
	}
}

// turn exchanges rows and columns of the 4×4 numbers in each 16 bytes of four vectors.
func (n narrow) turn(q [4]val) [4]val {
	a, b := n.emit('v', "VUNPCKLPS", q[1], q[0]), n.emit('v', "VUNPCKLPS", q[3], q[2])
	l, m := n.emit('v', "VUNPCKHPS", q[1], q[0]), n.emit('v', "VUNPCKHPS", q[3], q[2])
	return [4]val{
		n.emit('v', "VUNPCKLPD", b, a), n.emit('v', "VUNPCKHPD", b, a),
		n.emit('v', "VUNPCKLPD", m, l), n.emit('v', "VUNPCKHPD", m, l),
	}
}

// check leaves for outside if a label is not below cols.
func (n narrow) check(labels, cols string) {
	n.line("MOVQ %s, CX", cols)
	if n.avx512() {
		n.line("VPBROADCASTD CX, Z1")
	} else {
		n.line("VMOVD CX, X1")
		n.line("VPBROADCASTD X1, Y1")
	}
	n.line("MOVQ %s, SI", labels)
	n.label("check")
	n.line("VMOVUPS (SI), %s", n.v(0))
	if n.avx512() {
		n.line("VPCMPUD $5, Z1, Z0, K1") // not below
		n.line("KORTESTW K1, K1")
	} else {
		n.line("VPMAXUD Y1, Y0, Y2")
		n.line("VPCMPEQD Y0, Y2, Y0")
		n.line("VPTEST Y0, Y0")
	}
	n.line("JNE outside")
	n.line("ADDQ $%d, SI", n.width())
	n.line("DECQ R10")
	n.line("JNE check")
}

// pick copies the logits at the labels.
func (n narrow) pick(labels, x, now string) {
	n.line("MOVQ %s, SI", x)
	n.line("LEAQ (R11*4), R13")
	n.line("MOVQ %s, R10", now)
	n.line("SHLQ $%d, R10", map[bool]int{true: 4, false: 3}[n.avx512()])
	n.line("XORQ AX, AX")
	n.label("pick")
	for i := range 4 {
		n.line("MOVLQSX %d(%s)(AX*4), CX", 4*i, labels)
		row := []string{"SI", "R9", "BX", "DX"}[i]
		if i > 0 {
			n.line("LEAQ %s, %s", []string{"", "(SI)(R11*1)", "(SI)(R11*2)", "(SI)(R12*1)"}[i], row)
		}
		n.line("MOVL (%s)(CX*4), CX", row)
		n.line("MOVL CX, %d(R14)(AX*4)", narrowAt+4*i)
	}
	n.line("ADDQ R13, SI")
	n.line("ADDQ $4, AX")
	n.line("CMPQ AX, R10")
	n.line("JLT pick")
}

// clear makes the columns of the block that there are not 0.
func (n narrow) clear(cols string) {
	n.line("VXORPS %s, %s, %s", n.v(0), n.v(0), n.v(0))
	n.line("MOVQ %s, CX", cols)
	n.line("SHLQ $%d, CX", map[bool]int{true: 6, false: 5}[n.avx512()])
	n.line("SUBQ $%d, CX", 16*n.width())
	n.line("JEQ full")
	n.line("LEAQ %d(R9), DX", 16*n.width())
	n.label("clear")
	n.line("VMOVUPS %s, (DX)(CX*1)", n.v(0))
	n.line("ADDQ $%d, CX", n.width())
	n.line("JNE clear")
	n.label("full")
}

// sums adds up the columns of every block in the order of Sum, and finds what exponentials are scaled by.
func (n narrow) sums(cols, w, now string) {
	n.line("MOVQ %s, R8", w)
	n.each("sum", now, func() {
		n.line("MOVQ R9, DX")
		var s [8]val
		for j := range s {
			s[j] = n.emit('v', "VMOVUPS", n.column(j))
			s[j] = n.emit('v', "VADDPS", n.column(j+8), s[j])
		}
		for half := 4; half > 0; half /= 2 {
			for j := range half {
				s[j] = n.add(s[j], s[j+half])
			}
		}
		n.do("VMOVUPS", s[0], fmt.Sprintf("%d(R14)(AX*1)", narrowSums))
		n.do("VMOVUPS", n.div(n.emit('v', "VMOVUPS", "(R8)(AX*1)"), s[0]), fmt.Sprintf("%d(R14)(AX*1)", narrowScales))
		n.print(n.w, 16)
	})
}

// hits subtracts w at the labels.
func (n narrow) hits(labels, w, now string) {
	n.line("MOVQ %s, R8", labels)
	n.line("TESTQ R8, R8")
	n.line("JEQ losses")
	n.line("MOVQ %s, R9", w)
	n.line("LEAQ %d(R14), SI", narrowRows)
	n.line("LEAQ (R11*4), R13")
	n.line("MOVQ %s, R10", now)
	n.line("SHLQ $%d, R10", map[bool]int{true: 4, false: 3}[n.avx512()])
	n.line("XORQ AX, AX")
	n.label("hits")
	for i := range 4 {
		n.line("MOVLQSX %d(R8)(AX*4), CX", 4*i)
		row := []string{"SI", "R15", "BX", "DX"}[i]
		if i > 0 {
			n.line("LEAQ %s, %s", []string{"", "(SI)(R11*1)", "(SI)(R11*2)", "(SI)(R12*1)"}[i], row)
		}
		n.line("VMOVSS (%s)(CX*4), X%d", row, i)
		n.line("VSUBSS %d(R9)(AX*4), X%d, X%d", 4*i, i, i)
		n.line("VMOVSS X%d, (%s)(CX*4)", i, row)
	}
	n.line("ADDQ R13, SI")
	n.line("ADDQ $4, AX")
	n.line("CMPQ AX, R10")
	n.line("JLT hits")
}

// losses are the logarithms of the sums less what the logits at the labels are below the largest. Then loss and labels are at the next group.
func (n narrow) losses(loss, w, now string) {
	const labels = "32(DI)"
	n.line("MOVQ %s, R15", loss)
	n.line("TESTQ R15, R15")
	n.line("JEQ lost")
	n.line("MOVQ %s, R8", w)
	n.line("MOVQ R14, R9")
	n.line("MOVQ %s, CX", now)
	at := func(past, i int) string { return fmt.Sprintf("%d(R9)", past+i*n.width()) }
	n.turns("loss", []int{2, 1}, func(i int) {
		d := n.emit('v', "VSUBPS", at(narrowTop, i), n.emit('v', "VMOVUPS", at(narrowAt, i)))
		l := n.sub(n.logPlain(n.emit('v', "VMOVUPS", at(narrowSums, i))), d)
		n.do("VMOVUPS", n.emit('v', "VMULPS", fmt.Sprintf("%d(R8)", i*n.width()), l), fmt.Sprintf("%d(R15)", i*n.width()))
	}, func(many int) {
		for _, ptr := range []string{"R8", "R9", "R15"} {
			n.line("ADDQ $%d, %s", many*n.width(), ptr)
		}
	})
	n.line("MOVQ R15, %s", loss)
	n.line("ADDQ $256, %s", labels)
	n.label("lost")
}

// write copies the results to dx, which then is at the next group.
func (n narrow) write(dx, stream, cols, now string) {
	n.line("MOVQ %s, DX", dx)
	n.line("TESTQ DX, DX")
	n.line("JEQ written")
	n.line("MOVQ %s, R13", now)
	n.line("IMULQ %s, R13", cols)
	n.line("CMPQ %s, $0", stream)
	n.line("JNE streamed")
	for _, op := range []string{"VMOVUPS", "VMOVNTPS"} {
		name := map[string]string{"VMOVUPS": "put", "VMOVNTPS": "stream"}[op]
		if op == "VMOVNTPS" {
			n.label("streamed")
		}
		n.line("LEAQ %d(R14), SI", narrowRows)
		n.line("MOVQ R13, CX")
		n.turns(name, []int{4, 1}, func(i int) {
			n.do(op, n.emit('v', "VMOVUPS", fmt.Sprintf("%d(SI)", i*n.width())), n.column(i))
		}, func(many int) {
			n.line("ADDQ $%d, SI", many*n.width())
			n.line("ADDQ $%d, DX", many*n.width())
		})
		n.line("MOVQ DX, %s", dx)
		if op == "VMOVUPS" {
			n.line("JMP written")
		}
	}
	n.label("written")
}
