package main

import "fmt"

// softmaxNarrow is softmax, or its cross-entropy and the gradient, of rows of at most 16 columns, in blocks of as many rows as a vector has
// lanes. Elements are taken as they lie in memory, a vector at a time, with what their rows have in common brought to their lanes. Only
// the largest of each row and its sum cross lanes: each row in four lanes at first, which are then turned for all rows of the block at once.
//
// Each turn of the loop takes a step of four different blocks: the first step of a block, the second of the one before, and so on. They
// are independent, and need different parts of the processor; and nothing is read just after it was written in other pieces. What steps
// hand on is in rings of eight blocks. What the processor is shortest of is loads: elements are scaled, and written, in the loop that takes
// exponentials, so that both read once where the rows are. The fields of s are at multiples of 8.
func softmaxNarrow(c *code) { // DI s
	n := narrow{c}
	c.keep(24, 32)
	c.line("LEAQ 63(SP), R14")
	c.line("ANDQ $-64, R14")
	c.line("MOVQ %s, CX", narrowCols)
	c.line("LEAQ (CX*4), R11")
	n.keys()
	c.line("DECQ CX") // the columns of the last quarter of a row, fewer or all of it
	c.line("ANDQ $3, CX")
	c.line("INCQ CX")
	tailMask(c.w, c.target, "CX")
	if !c.avx512() {
		c.line("VMOVUPS Y15, %d(R14)", narrowMask)
	}
	c.line("LEAQ (R11)(R11*2), R12")
	c.line("XORQ R10, R10") // the block that takes the first step
	c.label("block")
	n.step("in", 0, n.in)
	n.exp()
	n.step("sum", 2, n.sum)
	n.step("loss", 3, n.loss)
	c.line("INCQ R10")
	c.line("LEAQ -3(R10), CX")
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
	narrowX, narrowFrom, narrowDX, narrowLoss, narrowW, narrowLabels = "(DI)", "8(DI)", "16(DI)", "24(DI)", "32(DI)", "40(DI)"
	narrowBlocks, narrowCols, narrowNext, narrowStream, narrowBad    = "48(DI)", "56(DI)", "64(DI)", "72(DI)", "80(DI)"
)

// What softmaxNarrow keeps at R14: in rings of eight blocks exponentials, at most 16 vectors a block, and vectors of what each row has one
// of; for each element of a block its key; the keys of the first elements of rows; and a mask.
//
// The key of an element is its number in the block and, in the lowest four bits, that of its row, which are all that permutations look at.
// So an element is at the label where its own key is the one that its row has.
const (
	narrowTop    = 8 * 16 * 64     // the largest element
	narrowAt     = narrowTop + 512 // the logit at the label
	narrowSum    = narrowTop + 1024
	narrowWeight = narrowTop + 1536
	narrowScale  = narrowTop + 2048 // what exponentials are multiplied by
	narrowLabel  = narrowTop + 2560 // the key of the label
	narrowKey    = narrowTop + 3072
	narrowFirst  = narrowKey + 1024
	narrowMask   = narrowFirst + 64 // of the columns of the last quarter
	narrowFrame  = narrowMask + 32 + 64
)

// A narrow writes the steps of softmaxNarrow.
type narrow struct{ *code }

// spare is the first of the registers that no step is given otherwise.
func (n narrow) spare() int {
	if n.avx512() {
		return 20
	}
	return 14
}

// ofRows is the vector of a ring, in a spare register if there is one.
func (n narrow) ofRows(ring, i int) any {
	if r := n.spare() + i; n.avx512() || r < 16 {
		n.line("VMOVUPS %s, %s", n.ring(ring), n.v(r))
		return n.named(n.v(r))
	}
	return n.ring(ring)
}

// step runs f if there is a block so many before the one that takes the first step: AX is its place in rings of vectors, R9 that of its
// exponentials.
func (n narrow) step(name string, before int, f func()) {
	n.line("LEAQ %d(R10), AX", -before)
	n.line("CMPQ AX, %s", narrowBlocks)
	n.line("JCC %sSkip", name) // unsigned
	n.place("AX", "R9")
	f()
	n.label(name + "Skip")
}

// place makes the number of a block its place in rings of vectors, and another register that of its exponentials.
func (n narrow) place(block, exps string) {
	n.line("ANDQ $7, %s", block)
	n.line("SHLQ $%d, %s", n.shift(), block)
	n.line("MOVQ %s, %s", block, exps)
	n.line("SHLQ $4, %s", exps)
	n.line("ADDQ R14, %s", exps)
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

// keys writes the keys of a block's elements, and of the first of each row. The row of an element is its number over that of columns, half of
// an element away from a whole number. Until there are labels, no key is theirs.
func (n narrow) keys() {
	n.line("VCVTDQ2PS lanes<>(SB), %s", n.v(0))
	n.line("VCVTSI2SSQ CX, X1, X1")
	n.line("VBROADCASTSS X1, %s", n.v(1))
	n.fill(n.v(2), n.num(0.5))
	n.fill(n.v(3), n.num(float64(n.lanes())))
	n.line("VADDPS %s, %s, %s", n.v(2), n.v(0), n.v(0))
	n.line("VMOVUPS lanes<>(SB), %s", n.v(4))
	n.line("VPSLLD $4, %s, %s", n.v(4), n.v(5))
	n.fill(n.v(6), n.bits(uint64(n.lanes()<<4)))
	n.line("MOVQ CX, R8")
	n.line("SHLQ $4, R8")
	n.line("INCQ R8")
	n.line("VMOVD R8, X7")
	n.line("VPBROADCASTD X7, %s", n.v(7))
	n.line("VPMULLD %s, %s, %s", n.v(7), n.v(4), n.v(4))
	n.line("VMOVUPS %s, %d(R14)", n.v(4), narrowFirst)
	n.line("LEAQ %d(R14), DX", narrowKey)
	n.line("MOVQ CX, BX")
	n.label("key")
	n.line("VDIVPS %s, %s, %s", n.v(1), n.v(0), n.v(2))
	n.line("VCVTTPS2DQ %s, %s", n.v(2), n.v(2))
	n.line("VPADDD %s, %s, %s", n.v(5), n.v(2), n.v(2))
	n.line("VMOVUPS %s, (DX)", n.v(2))
	n.line("VADDPS %s, %s, %s", n.v(3), n.v(0), n.v(0))
	n.line("VPADDD %s, %s, %s", n.v(6), n.v(5), n.v(5))
	n.line("ADDQ $%d, DX", n.width())
	n.line("DECQ BX")
	n.line("JNE key")
	n.fill(n.v(0), n.bits(0xffffffff))
	for i := range 8 {
		n.line("VMOVUPS %s, %d(R14)", n.v(0), narrowLabel+i*n.width())
	}
}

// in finds the largest of each row of x, and copies the logits at the labels.
func (n narrow) in() {
	n.line("MOVQ %s, R8", narrowW)
	n.line("VMOVUPS (R8), %s", n.v(0))
	n.line("VMOVUPS %s, %s", n.v(0), n.ring(narrowWeight))
	n.line("ADDQ %s, R8", narrowNext)
	n.line("MOVQ R8, %s", narrowW)
	n.line("MOVQ %s, SI", narrowX)
	n.labels()
	n.quarters("in", "SI", func(quarters, row int) val {
		if quarters == 1 {
			x := n.partial(n.row(row))
			n.restrict(&x)
			return x
		}
		top := n.emit('v', "VMOVUPS/X", n.row(row))
		for i := 1; i < quarters-1; i++ {
			n.into(top, "VMAXPS/X", fmt.Sprintf("%d%s", 16*i, n.row(row)), top)
		}
		n.into(top, "VMAXPS/X", n.end(row), top) // some elements again
		return top
	}, func(q [4]val) {
		m := n.emit('v', "VMAXPS", n.emit('v', "VMAXPS", q[0], q[1]), n.emit('v', "VMAXPS", q[2], q[3]))
		n.do("VMOVUPS", m, n.ring(narrowTop))
	})
	n.line("MOVQ R11, CX")
	n.line("SHLQ $%d, CX", n.shift()-2)
	n.line("ADDQ CX, %s", narrowX)
}

// labels checks the labels, and hands them and the logits there on; SI is at the rows.
func (n narrow) labels() {
	n.line("MOVQ %s, R8", narrowLabels)
	n.line("TESTQ R8, R8")
	n.line("JEQ checked")
	n.line("MOVQ %s, CX", narrowCols)
	n.line("VMOVUPS (R8), %s", n.v(0))
	n.line("VMOVD CX, X1")
	n.line("VPBROADCASTD X1, %s", n.v(1))
	if n.avx512() {
		n.line("VPCMPUD $5, Z1, Z0, K2") // not below
		n.line("KORTESTW K2, K2")
	} else {
		n.line("VPMAXUD Y1, Y0, Y2")
		n.line("VPCMPEQD Y0, Y2, Y2")
		n.line("VPTEST Y2, Y2")
	}
	n.line("JNE outside")
	n.line("VPSLLD $4, %s, %s", n.v(0), n.v(0))
	n.line("VPADDD %d(R14), %s, %s", narrowFirst, n.v(0), n.v(0))
	n.line("VMOVUPS %s, %s", n.v(0), n.ring(narrowLabel))
	n.line("MOVQ SI, BX")
	n.line("LEAQ (R14)(AX*1), DX")
	for i := range n.lanes() {
		n.line("MOVLQSX %d(R8), CX", 4*i)
		n.line("MOVL (BX)(CX*4), R13")
		n.line("MOVL R13, %d(DX)", narrowAt+4*i)
		if i < n.lanes()-1 {
			n.line("ADDQ R11, BX")
		}
	}
	n.line("ADDQ $%d, %s", n.width(), narrowLabels)
	n.label("checked")
}

// sum adds up the exponentials of each row in the order of Sum.
func (n narrow) sum() {
	n.quarters("sum", "R9", func(quarters, row int) val {
		quarter := func(i int) val {
			at := n.row(row)
			if i > 0 {
				at = fmt.Sprintf("%d%s", 16*i, at)
			}
			if i == quarters-1 {
				return n.partial(at)
			}
			return n.emit('v', "VMOVUPS/X", at)
		}
		s := quarter(0)
		if quarters > 2 {
			s = n.emit('v', "VADDPS/X", quarter(2), s)
		}
		if quarters > 1 {
			t := quarter(1)
			if quarters > 3 {
				t = n.emit('v', "VADDPS/X", quarter(3), t)
			}
			s = n.emit('v', "VADDPS/X", t, s)
		}
		return s
	}, func(q [4]val) {
		s := n.add(n.add(q[0], q[2]), n.add(q[1], q[3]))
		n.do("VMOVUPS", s, n.ring(narrowSum))
		n.do("VMOVUPS", n.emit('v', "VDIVPS", s, n.emit('v', "VMOVUPS", n.ring(narrowWeight))), n.ring(narrowScale))
	})
}

// exp is the exponentials of elements less the largest of their row, of the block before. Those of two blocks before that are scaled
// meanwhile, and the weights at the labels subtracted. What is ahead in x comes into cache: twice as far as elsewhere, since rows are many
// and short, and little else is in first-level cache.
func (n narrow) exp() {
	n.line("LEAQ -1(R10), AX")
	n.place("AX", "R9")
	top := n.ofRows(narrowTop, 0)
	n.line("LEAQ -3(R10), AX")
	n.line("CMPQ AX, %s", narrowBlocks)
	n.line("MOVQ %s, R12", narrowDX)
	n.line("MOVQ $0, R13")
	n.line("CMOVQCC R13, R12") // unsigned: no such block
	n.place("AX", "R8")
	by, label, weight := n.ofRows(narrowScale, 1), n.ofRows(narrowLabel, 2), n.ofRows(narrowWeight, 3)
	n.line("MOVQ %s, SI", narrowFrom)
	n.line("LEAQ %d(R14), BX", narrowKey)
	n.line("MOVQ %s, CX", narrowCols)
	n.line("TESTQ R12, R12")
	n.line("JEQ alone")
	n.line("CMPQ %s, $0", narrowStream)
	n.line("JNE streamed")
	sizes := []int{4, 2, 1}
	if !n.avx512() {
		sizes = sizes[1:] // a look-up is in two halves, and wants registers
	}
	for _, op := range []string{"VMOVUPS", "VMOVNTPS", ""} {
		name := map[string]string{"VMOVUPS": "write", "VMOVNTPS": "stream", "": "alone"}[op]
		switch op {
		case "VMOVNTPS":
			n.label("streamed")
		case "":
			n.label("alone")
		}
		pointers := []string{"SI", "R9", "BX"}
		if op != "" {
			pointers = append(pointers, "R12", "R8")
		}
		n.turns(name, sizes, n.free(), func(i int) {
			key := n.emit('v', "VMOVUPS", n.vector("BX", i))
			d := n.sub(n.emit('v', "VMOVUPS", n.vector("SI", i)), n.emit('v', "VPERMPS", top, key))
			n.do("PREFETCHT0", fmt.Sprintf("%d(SI)", 2*ahead+i*n.width()))
			if op != "" {
				y := n.emit('v', "VMULPS", n.vector("R8", i), n.emit('v', "VPERMPS", by, key))
				n.do(op, n.sub(y, n.atLabel(key, label, weight)), n.vector("R12", i))
			}
			n.do("VMOVUPS", n.expNegative(d), n.vector("R9", i))
		}, pointers...)
		if op != "" {
			n.line("MOVQ R12, %s", narrowDX)
			n.line("JMP scaled")
		}
	}
	n.label("scaled")
	// Before the first block, its elements are taken; after the last, those of the last: nobody reads the results.
	n.line("TESTQ R10, R10")
	n.line("JEQ stay")
	n.line("CMPQ R10, %s", narrowBlocks)
	n.line("JGE stay")
	n.line("MOVQ SI, %s", narrowFrom)
	n.label("stay")
	n.line("LEAQ (R11)(R11*2), R12")
}

// atLabel is the weight of an element's row if the element is at its label, else 0.
func (n narrow) atLabel(key val, label, weight any) val {
	if n.avx512() {
		hit := n.emit('k', "VPCMPEQD", n.emit('v', "VPERMD", label, key), key)
		return n.emit('v', "VPERMPS.Z", weight, key, hit)
	}
	hit := n.emit('v', "VPCMPEQD", n.emit('v', "VPERMD", label, key), key)
	return n.only(hit, n.emit('v', "VPERMPS", weight, key))
}

// free is how many registers there are besides those.
func (n narrow) free() int { return min(20, n.spare()) }

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
	n.turns("loss", []int{2, 1}, 16, func(i int) {
		d := n.emit('v', "VSUBPS", at(narrowTop, i), n.emit('v', "VMOVUPS", at(narrowAt, i)))
		l := n.sub(n.logPlain(n.emit('v', "VMOVUPS", at(narrowSum, i))), d)
		n.do("VMOVUPS", n.emit('v', "VMULPS", at(narrowWeight, i), l), fmt.Sprintf("%d(R15)", i*n.width()))
	}, "R9", "R15")
	n.line("MOVQ R15, %s", narrowLoss)
}

// turns runs f for CX vectors, some at a time, with so many registers; pointers go along.
func (n narrow) turns(name string, sizes []int, vectors int, f func(i int), pointers ...string) {
	for t, many := range sizes {
		label := fmt.Sprintf("%s%d", name, many)
		n.line("SUBQ $%d, CX", many)
		n.line("JLT %sless", label)
		n.label(label)
		for i := range many {
			f(i)
		}
		n.interleave(many)
		n.printShared(many, vectors)
		for _, p := range pointers {
			n.line("ADDQ $%d, %s", many*n.width(), p)
		}
		n.line("SUBQ $%d, CX", many)
		n.line("JGE %s", label)
		n.label(label + "less")
		if t < len(sizes)-1 {
			n.line("ADDQ $%d, CX", many)
		}
	}
}

// vector is the i-th vector from a pointer.
func (n narrow) vector(pointer string, i int) string {
	return fmt.Sprintf("%d(%s)", i*n.width(), pointer)
}

// quarters runs f for each row of a block, the first at a pointer: it returns four lanes. Lane l of all rows is in vector l of what g is
// given. A row has one to four quarters of four columns, of which the last may be a part.
func (n narrow) quarters(name, first string, f func(quarters, row int) val, g func(q [4]val)) {
	n.line("MOVQ %s, BX", first)
	n.line("LEAQ (BX)(R11*4), R8")
	if n.avx512() {
		n.line("LEAQ (BX)(R11*8), R15")
		n.line("LEAQ (R8)(R11*8), R13")
	} else {
		n.line("VMOVUPS %d(R14), Y15", narrowMask)
	}
	for quarters := 1; quarters <= 4; quarters++ {
		if quarters < 4 {
			n.line("CMPQ R11, $%d", 16*quarters)
			n.line("JGT %s%d", name, quarters+1)
		}
		var q [4]val
		for i := range q {
			q[i] = f(quarters, i)
			n.into(q[i], "VINSERTF128/Y", "$1", low{f(quarters, i+4)}, q[i])
			if n.avx512() {
				h := f(quarters, i+8)
				n.into(h, "VINSERTF128/Y", "$1", low{f(quarters, i+12)}, h)
				n.into(q[i], "VINSERTF64X4", "$1", half{h}, q[i])
			}
		}
		g(n.turn(q))
		n.print(n.w, n.free())
		if quarters < 4 {
			n.line("JMP %sDone", name)
			n.label(fmt.Sprintf("%s%d", name, quarters+1))
		}
	}
	n.label(name + "Done")
}

// row is the address of row i of a block.
func (n narrow) row(i int) string {
	return fmt.Sprintf([]string{"(%s)", "(%s)(R11*1)", "(%s)(R11*2)", "(%s)(R12*1)"}[i%4], rowBases[i/4])
}

// end is the address of its last four columns.
func (n narrow) end(i int) string {
	return fmt.Sprintf([]string{"-16(%s)(R11*1)", "-16(%s)(R11*2)", "-16(%s)(R12*1)", "-16(%s)(R11*4)"}[i%4], rowBases[i/4])
}

// rowBases are the registers that point to every fourth row of a block.
var rowBases = [4]string{"BX", "R8", "R15", "R13"}

// partial is the columns of the last quarter of a row, and zeros.
func (n narrow) partial(at string) val {
	if n.avx512() {
		return n.emit('v', "VMOVUPS.Z/X", at, "K1")
	}
	return n.emit('v', "VMASKMOVPS/X", at, "X15")
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

// printShared prints interleaved parts that read constants once for all, if there are registers for it.
func (n narrow) printShared(parts, vectors int) {
	plain := n.insts
	n.share(parts)
	if text, ok := n.allocate(vectors); ok {
		n.w.WriteString(text)
		n.insts = nil
		return
	}
	n.insts = plain
	n.print(n.w, vectors)
}
