package main

import "fmt"

// softmaxNarrow is softmax, or its cross-entropy and the gradient, of rows of at most 16 columns. Blocks of as many rows as a vector has
// lanes are turned, so that a vector has one column of each: maxima, exponentials and sums then are plain arithmetic, as many lanes as
// there are rows, and results are turned back.
//
// Each turn of the loop takes a step of five different blocks: the first step of a block, the second of the one before, and so on. They
// are independent, and need different parts of the processor; and nothing is read just after it was written in other pieces. What steps
// hand on is in rings of eight blocks. The fields of s are at multiples of 8.
func softmaxNarrow(c *code) { // DI s
	n := narrow{c}
	c.keep(16, 20)
	c.keep(24, 32)
	c.line("LEAQ 63(SP), R14")
	c.line("ANDQ $-64, R14")
	if c.avx512() {
		for i, lanes := range []string{"$0xf0", "$0xf00", "$0xf000"} {
			c.line("MOVL %s, R13", lanes)
			c.line("KMOVW R13, K%d", 5+i)
		}
	}
	c.line("MOVQ %s, CX", narrowCols)
	c.line("LEAQ (CX*4), R11")
	c.line("LEAQ (R11)(R11*2), R12")
	n.clear()
	c.line("XORQ R10, R10") // the block that takes the first step
	c.label("block")
	n.step("in", 0, n.in)
	n.step("exp", 1, n.exp)
	n.step("out", 2, n.out)
	n.step("loss", 3, n.loss)
	n.step("put", 4, n.put)
	c.line("INCQ R10")
	c.line("LEAQ -4(R10), CX")
	c.line("CMPQ CX, %s", narrowBlocks)
	c.line("JLT block")
	c.line("VZEROUPPER")
	c.line("RET")
	c.label("outside")
	c.line("MOVQ $1, %s", narrowBad)
	c.line("VZEROUPPER")
	c.line("RET")
}

// The fields of s.
const (
	narrowX, narrowDX, narrowLoss, narrowW, narrowLabels          = "(DI)", "8(DI)", "16(DI)", "24(DI)", "32(DI)"
	narrowBlocks, narrowCols, narrowNext, narrowStream, narrowBad = "40(DI)", "48(DI)", "56(DI)", "64(DI)", "72(DI)"
)

// What softmaxNarrow keeps at R14, in rings of eight blocks: columns, 16 vectors a block; rows of results; and vectors of what each row
// has one of.
const (
	narrowRows   = 8 * 16 * 64
	narrowTop    = 2 * narrowRows  // the largest element
	narrowAt     = narrowTop + 512 // the logit at the label
	narrowSum    = narrowTop + 1024
	narrowWeight = narrowTop + 1536
	narrowLabel  = narrowTop + 2048
	narrowFrame  = narrowTop + 2560 + 64
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

// vector is a whole vector in memory, as an operand of arithmetic.
func (n narrow) vector(at string) val {
	if n.avx512() {
		return n.emit('v', "VMOVUPS", at)
	}
	return val{mem: at}
}

// step runs f if there is a block so many before the one that takes the first step: AX is its place in rings of vectors, R9 that of its
// columns.
func (n narrow) step(name string, before int, f func()) {
	n.line("LEAQ %d(R10), AX", -before)
	n.line("CMPQ AX, %s", narrowBlocks)
	n.line("JCC %sSkip", name) // unsigned
	n.line("ANDQ $7, AX")
	n.line("SHLQ $%d, AX", n.shift())
	n.line("MOVQ AX, R9")
	n.line("SHLQ $4, R9")
	n.line("ADDQ R14, R9")
	f()
	n.label(name + "Skip")
}

// shift is the logarithm of a vector's bytes.
func (n narrow) shift() int {
	if n.avx512() {
		return 6
	}
	return 5
}

// ring is the vector of a block's rows in a ring.
func (n narrow) ring(at int) string { return fmt.Sprintf("%d(R14)(AX*1)", at) }

// in turns the rows of x into columns, and finds the largest of each.
func (n narrow) in() {
	top := n.named(n.v(n.spare()))
	n.line("MOVQ %s, R8", narrowW)
	n.line("VMOVUPS (R8), %s", n.v(0))
	n.line("VMOVUPS %s, %s", n.v(0), n.ring(narrowWeight))
	n.line("ADDQ %s, R8", narrowNext)
	n.line("MOVQ R8, %s", narrowW)
	n.line("MOVQ %s, SI", narrowX)
	n.labels()
	n.rows("SI")
	n.fill(n.v(n.spare()), n.minusInf())
	if n.avx512() {
		n.line("LEAQ lanes<>(SB), SI")
	}
	n.quads("turn", func() {
		q := n.turn(n.load())
		m := n.emit('v', "VMAXPS", n.emit('v', "VMAXPS", q[0], q[1]), n.emit('v', "VMAXPS", q[2], q[3]))
		n.into(top, "VMAXPS", top, m)
		for i, v := range q {
			n.do("VMOVUPS", v, n.column(i))
			if n.avx512() {
				n.into(n.named("Z22"), "VMOVAPS", v, n.hit(i))
			}
		}
	})
	n.line("CMPQ %s, $4", narrowCols)
	n.line("JGE whole")
	n.line("VMOVUPS (R9), %s", n.v(n.spare())) // fewer columns: those of the next row were read, too
	for i := 1; i < 3; i++ {
		n.line("CMPQ %s, $%d", narrowCols, i)
		n.line("JEQ few")
		n.line("VMAXPS %d(R9), %s, %s", i*n.width(), n.v(n.spare()), n.v(n.spare()))
	}
	n.label("few")
	n.line("VXORPS %s, %s, %s", n.v(0), n.v(0), n.v(0))
	for i := 3; i > 0; i-- {
		n.line("VMOVUPS %s, %d(R9)", n.v(0), i*n.width())
		if i > 1 {
			n.line("CMPQ %s, $%d", narrowCols, i)
			n.line("JEQ whole")
		}
	}
	n.label("whole")
	n.line("VMOVUPS %s, %s", n.v(n.spare()), n.ring(narrowTop))
	if n.avx512() {
		n.line("VMOVUPS Z22, %s", n.ring(narrowAt))
	}
	n.line("MOVQ R11, CX")
	n.line("SHLQ $%d, CX", n.shift()-2)
	n.line("ADDQ CX, %s", narrowX)
}

// hit is the mask of rows whose label is the i-th column from that whose number SI is at; their labels are in Z21.
func (n narrow) hit(i int) val {
	return n.emit('k', "VPCMPEQD.BCST", fmt.Sprintf("%d(SI)", 4*i), n.named("Z21"))
}

// labels checks the labels, and hands them on, or copies the logits there; SI is at the rows. Without labels there are -1.
func (n narrow) labels() {
	n.line("MOVQ %s, R8", narrowLabels)
	if n.avx512() {
		n.line("VPTERNLOGD $0xff, Z21, Z21, Z21")
	}
	n.line("TESTQ R8, R8")
	n.line("JEQ checked")
	n.line("MOVQ %s, CX", narrowCols)
	if n.avx512() {
		n.line("VMOVUPS (R8), Z21")
		n.line("VPBROADCASTD CX, Z1")
		n.line("VPCMPUD $5, Z1, Z21, K1") // not below
		n.line("KORTESTW K1, K1")
		n.line("JNE outside")
	} else {
		n.line("VMOVUPS (R8), Y0")
		n.line("VMOVD CX, X1")
		n.line("VPBROADCASTD X1, Y1")
		n.line("VPMAXUD Y1, Y0, Y2")
		n.line("VPCMPEQD Y0, Y2, Y0")
		n.line("VPTEST Y0, Y0")
		n.line("JNE outside")
		n.line("MOVQ SI, BX")
		n.line("LEAQ (R14)(AX*1), DX")
		for i := range 8 {
			n.line("MOVLQSX %d(R8), CX", 4*i)
			n.line("MOVL (BX)(CX*4), R13")
			n.line("MOVL R13, %d(DX)", narrowAt+4*i)
			if i < 7 {
				n.line("ADDQ R11, BX")
			}
		}
	}
	n.line("ADDQ $%d, %s", n.width(), narrowLabels)
	n.label("checked")
	if n.avx512() {
		n.line("VMOVUPS Z21, %s", n.ring(narrowLabel))
	}
}

// exp is the exponentials of columns less the largest, in their place; what is ahead in x comes into cache meanwhile.
func (n narrow) exp() {
	n.line("MOVQ %s, SI", narrowX)
	n.line("MOVQ R9, DX")
	n.line("MOVQ %s, CX", narrowCols)
	sizes := []int{4, 2, 1}
	if !n.avx512() {
		sizes = sizes[1:] // a look-up is in two halves, and wants registers
	}
	n.turns("exp", sizes, func(i int) {
		d := n.sub(n.emit('v', "VMOVUPS", n.column(i)), n.vector(n.ring(narrowTop)))
		n.do("PREFETCHT0", fmt.Sprintf("%d(SI)", ahead+i*n.width()))
		n.do("VMOVUPS", n.expNegative(d), n.column(i))
	}, func(many int) {
		n.line("ADDQ $%d, DX", many*n.width())
		n.line("ADDQ $%d, SI", many*n.width())
	})
}

// out adds up the exponentials in the order of Sum, scales them, turns them into rows, and subtracts the weights at the labels.
func (n narrow) out() {
	by := n.named(n.v(n.spare()))
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
	n.do("VMOVUPS", s[0], n.ring(narrowSum))
	n.into(by, "VDIVPS", s[0], n.emit('v', "VMOVUPS", n.ring(narrowWeight)))
	n.print(n.w, 15)
	n.line("CMPQ %s, $0", narrowDX)
	n.line("JEQ outSkip")
	n.line("LEAQ %d(R9), BX", narrowRows)
	n.rows("BX")
	if n.avx512() {
		n.line("LEAQ lanes<>(SB), SI")
		n.line("VMOVUPS %s, Z21", n.ring(narrowLabel))
		n.line("VMOVUPS %s, Z22", n.ring(narrowWeight))
	}
	n.quads("back", func() {
		var q [4]val
		for i := range q {
			q[i] = n.bin("VMULPS", by, n.vector(n.column(i)))
			if n.avx512() {
				n.into(q[i], "VSUBPS", n.named("Z22"), q[i], n.hit(i))
			}
		}
		n.store(n.turn(q))
	})
	if n.avx512() {
		return
	}
	n.line("MOVQ %s, R8", narrowLabels)
	n.line("TESTQ R8, R8")
	n.line("JEQ outSkip")
	n.line("MOVQ R10, CX")
	n.line("SUBQ %s, CX", narrowBlocks) // labels are past the block that took its first step in this turn, if there was one
	n.line("ADDQ $1, CX")
	n.line("MOVQ $0, BX")
	n.line("CMOVQLT BX, CX")
	n.line("SUBQ $3, CX")
	n.line("SHLQ $5, CX")
	n.line("ADDQ CX, R8")
	n.line("LEAQ %d(R9), BX", narrowRows)
	n.line("LEAQ (R14)(AX*1), DX")
	for i := range 8 {
		n.line("MOVLQSX %d(R8), CX", 4*i)
		n.line("VMOVSS (BX)(CX*4), X%d", i)
		n.line("VSUBSS %d(DX), X%d, X%d", narrowWeight+4*i, i, i)
		n.line("VMOVSS X%d, (BX)(CX*4)", i)
		if i < 7 {
			n.line("ADDQ R11, BX")
		}
	}
}

// loss is the logarithms of the sums less what the logits at the labels are below the largest: of four blocks at once, since one
// logarithm alone would wait for itself, or of those since the last four if there are no more.
func (n narrow) loss() {
	n.line("MOVQ %s, R15", narrowLoss)
	n.line("TESTQ R15, R15")
	n.line("JEQ lossSkip")
	n.line("LEAQ -2(R10), CX")
	n.line("CMPQ CX, %s", narrowBlocks)
	n.line("JEQ losses")
	n.line("TESTQ $3, CX")
	n.line("JNE lossSkip")
	n.label("losses")
	n.line("DECQ CX")
	n.line("ANDQ $3, CX")
	n.line("MOVQ CX, R9")
	n.line("SHLQ $%d, R9", n.shift())
	n.line("SUBQ R9, AX")
	n.line("LEAQ (R14)(AX*1), R9")
	n.line("INCQ CX")
	at := func(ring, i int) string { return fmt.Sprintf("%d(R9)", ring+i*n.width()) }
	n.turns("loss", []int{2, 1}, func(i int) {
		d := n.emit('v', "VSUBPS", at(narrowTop, i), n.emit('v', "VMOVUPS", at(narrowAt, i)))
		l := n.sub(n.logPlain(n.emit('v', "VMOVUPS", at(narrowSum, i))), d)
		n.do("VMOVUPS", n.emit('v', "VMULPS", at(narrowWeight, i), l), fmt.Sprintf("%d(R15)", i*n.width()))
	}, func(many int) {
		n.line("ADDQ $%d, R9", many*n.width())
		n.line("ADDQ $%d, R15", many*n.width())
	})
	n.line("MOVQ R15, %s", narrowLoss)
}

// put copies rows of results to dx.
func (n narrow) put() {
	n.line("MOVQ %s, DX", narrowDX)
	n.line("TESTQ DX, DX")
	n.line("JEQ putSkip")
	n.line("CMPQ %s, $0", narrowStream)
	n.line("JNE streamed")
	for _, op := range []string{"VMOVUPS", "VMOVNTPS"} {
		name := map[string]string{"VMOVUPS": "copy", "VMOVNTPS": "stream"}[op]
		if op == "VMOVNTPS" {
			n.label("streamed")
		}
		n.line("LEAQ %d(R9), SI", narrowRows)
		n.line("MOVQ %s, CX", narrowCols)
		n.turns(name, []int{5, 2, 1}, func(i int) {
			n.do(op, n.emit('v', "VMOVUPS", fmt.Sprintf("%d(SI)", i*n.width())), n.column(i))
		}, func(many int) {
			n.line("ADDQ $%d, SI", many*n.width())
			n.line("ADDQ $%d, DX", many*n.width())
		})
		n.line("MOVQ DX, %s", narrowDX)
		if op == "VMOVUPS" {
			n.line("JMP putSkip")
		}
	}
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
		n.printShared(many)
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

// moving is what goes along with the columns: with AVX-512 also SI, which is at their numbers.
func (n narrow) moving() []string {
	if n.avx512() {
		return append(n.bases(), "SI")
	}
	return n.bases()
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
func (n narrow) quads(name string, f func()) {
	n.line("MOVQ R9, DX")
	n.line("MOVQ %s, CX", narrowCols)
	n.label(name)
	f()
	n.print(n.w, 15)
	n.line("SUBQ $4, CX")
	n.line("JLE %sDone", name)
	n.line("CMPQ CX, $4")
	n.line("JLT %sLast", name)
	n.line("ADDQ $%d, DX", 4*n.width())
	for _, base := range n.moving() {
		n.line("ADDQ $16, %s", base)
	}
	n.line("JMP %s", name)
	n.label(name + "Last") // columns again, with the same results
	for _, base := range n.moving() {
		n.line("LEAQ (%s)(CX*4), %s", base, base)
	}
	n.line("SHLQ $%d, CX", n.shift())
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

// clear makes all columns 0: those that there are not stay so.
func (n narrow) clear() {
	n.line("VXORPS %s, %s, %s", n.v(0), n.v(0), n.v(0))
	n.line("MOVQ $%d, CX", -narrowRows)
	n.label("clear")
	n.line("VMOVUPS %s, %d(R14)(CX*1)", n.v(0), narrowRows)
	n.line("ADDQ $%d, CX", n.width())
	n.line("JNE clear")
}

// printShared prints interleaved parts that read constants once for all, if there are registers for it.
func (n narrow) printShared(parts int) {
	plain := n.insts
	n.share(parts)
	if text, ok := n.allocate(16); ok {
		n.w.WriteString(text)
		n.insts = nil
		return
	}
	n.insts = plain
	n.print(n.w, 16)
}
