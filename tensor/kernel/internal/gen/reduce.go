package main

import (
	"fmt"
	"strings"
)

// A routine is a kernel with a loop of its own.
type routine struct {
	name string
	args []arg
	ret  string // Go type of the result; "T" is the element, "" none
	f64  bool
	sums bool // AVX2 keeps the accumulators in the frame, where registers are needed for long chains
	f    func(c *code)

	frame int // bytes on the stack
}

type arg struct{ name, typ string } // typ is T for a pointer to elements, or a Go type of 8 bytes

func ptrs(names ...string) []arg {
	var a []arg
	for _, n := range names {
		a = append(a, arg{n, "T"})
	}
	return a
}

func ints(names ...string) []arg {
	var a []arg
	for _, n := range names {
		a = append(a, arg{n, "int"})
	}
	return a
}

func (r routine) signature(t target) string {
	var s []string
	for _, a := range r.args {
		s = append(s, a.name+" "+strings.Replace(a.typ, "T", "*"+t.goType(), 1))
	}
	return "(" + strings.Join(s, ", ") + ") " + strings.Replace(r.ret, "T", t.goType(), 1)
}

func (r routine) asm(w *strings.Builder, t target, consts map[uint64]bool) {
	size := 8 * len(r.args)
	switch r.ret {
	case "T":
		size += t.elem
	case "(T, bool)":
		size += t.elem + 1
	}
	name := r.name + t.typ() + t.isa
	var text strings.Builder
	c := &code{w: &text, body: newBody(t, consts), framed: r.sums && !t.avx512()}
	frame := 0
	if c.spilled() > 0 {
		frame = c.spilled() * t.width()
	}
	flags := "NOSPLIT"
	if r.frame > 0 {
		flags, frame = "0", r.frame
	}
	fmt.Fprintf(w, "\n// func %s%s\nTEXT ·%s(SB), %s, $%d-%d\n", name, r.signature(t), name, flags, frame, size)
	for i, a := range r.args {
		fmt.Fprintf(w, "\tMOVQ %s+%d(FP), %s\n", a.name, 8*i, pointers[i])
	}
	r.f(c)
	if c.kept != nil {
		fmt.Fprint(w, strings.Join(c.kept.load, ""))
	}
	fmt.Fprint(w, text.String())
}

func (r routine) dispatch(w *strings.Builder, t target, asm bool) {
	name := r.name + t.typ()
	fmt.Fprintf(w, "\nfunc %s(isa ISA, %s {", name, r.signature(t)[1:])
	if !asm {
		fmt.Fprint(w, " panic(noAssembly) }\n")
		return
	}
	var pass []string
	for _, a := range r.args {
		pass = append(pass, a.name)
	}
	call := strings.Join(pass, ", ")
	if r.ret == "" {
		fmt.Fprintf(w, "\n\tif isa == AVX512 {\n\t\t%sAVX512(%s)\n\t} else {\n\t\t%sAVX2(%s)\n\t}\n}\n", name, call, name, call)
		return
	}
	fmt.Fprintf(w, "\n\tif isa == AVX512 {\n\t\treturn %sAVX512(%s)\n\t}\n\treturn %sAVX2(%s)\n}\n", name, call, name, call)
}

// A code is a routine being written: lines with fixed registers, and bodies between them.
type code struct {
	w *strings.Builder
	*body
	framed bool // all accumulators are in the frame
}

func (c *code) line(format string, args ...any) { fmt.Fprintf(c.w, "\t"+format+"\n", args...) }
func (c *code) label(l string)                  { fmt.Fprintf(c.w, "\n%s:\n", l) }

// past is the offset of the j-th vector from the loop's index.
func (c *code) past(j int) string {
	if j == 0 {
		return ""
	}
	return fmt.Sprint(j * c.width())
}

// v is the name of vector register i, x and y those of its lower parts.
func (c *code) v(i int) string {
	if c.avx512() {
		return fmt.Sprintf("Z%d", i)
	}
	return fmt.Sprintf("Y%d", i)
}

func (c *code) ss() string { return map[int]string{4: "SS", 8: "SD"}[c.elem] }

// Sums over 64 lanes take 64/lanes accumulators. The first are registers, the rest, of AVX2's float64, are in the frame.
func (c *code) accumulators() int { return 64 / c.lanes() }
func (c *code) spilled() int      { return c.accumulators() - c.registers() }

// registers is how many accumulators are registers.
func (c *code) registers() int {
	if c.framed {
		return 0
	}
	return min(c.accumulators(), 8)
}

func (c *code) firstAcc() int {
	if c.avx512() {
		return 20
	}
	return 6
}
func (c *code) acc(j int) string { return c.v(c.firstAcc() + j) }

// zero clears the accumulators.
func (c *code) zero() {
	for j := range max(1, c.registers()) {
		c.line("VXOR%s %s, %s, %s", c.f(), c.acc(j), c.acc(j), c.acc(j))
	}
	for j := c.registers(); j < c.accumulators(); j++ {
		c.line("VMOVU%s %s, %s", c.f(), c.acc(0), c.slot(j))
	}
}

func (c *code) slot(j int) string {
	return fmt.Sprintf("acc%d-%d(SP)", j, c.width()*(c.accumulators()-j))
}

// accumulate adds register x to accumulator j; it may use the mask's register in a frame, so masks are used up before.
func (c *code) accumulate(j int, x val) {
	if j < c.registers() {
		a := c.named(c.acc(j))
		c.into(a, "VADD"+c.f(), x, a)
		return
	}
	y := c.emit('v', "VADD"+c.f(), c.slot(j), x)
	c.do("VMOVU"+c.f(), y, c.slot(j))
}

// fold leaves the sum of all lanes in lane 0 of the first accumulator.
func (c *code) fold() {
	a, b := c.acc(0), c.v(0)
	for j := range c.accumulators() / 2 * count(c.framed) {
		c.line("VMOVU%s %s, %s", c.f(), c.slot(j), c.acc(j))
	}
	for half := c.accumulators() / 2; half > 0; half /= 2 {
		for j := range half {
			if j+half < max(c.registers(), c.accumulators()/2) {
				c.line("VADD%s %s, %s, %s", c.f(), c.acc(j+half), c.acc(j), c.acc(j))
			} else {
				c.line("VADD%s %s, %s, %s", c.f(), c.slot(j+half), c.acc(j), c.acc(j))
			}
		}
	}
	y, x, extract := "Y"+a[1:], "X"+a[1:], "VEXTRACTF128"
	if c.avx512() {
		extract = "VEXTRACTF32X4" // reaches the upper registers
		c.line("VEXTRACTF64X4 $1, %s, Y%s", a, b[1:])
		c.line("VADD%s Y%s, %s, %s", c.f(), b[1:], y, y)
	}
	c.line("%s $1, %s, X%s", extract, y, b[1:])
	c.line("VADD%s X%s, %s, %s", c.f(), b[1:], x, x)
	if c.elem == 4 {
		c.line("VPERMILPD $1, %s, X%s", x, b[1:])
		c.line("VADDPS X%s, %s, %s", b[1:], x, x)
		c.line("VMOVSHDUP %s, X%s", x, b[1:])
		c.line("VADDSS X%s, %s, %s", b[1:], x, x)
	} else {
		c.line("VPERMILPD $1, %s, X%s", x, b[1:])
		c.line("VADDSD X%s, %s, %s", b[1:], x, x)
	}
}

// lane0 is the low part of the first accumulator.
func (c *code) lane0() string { return "X" + c.acc(0)[1:] }

// over64 runs f on each vector of n (a register) elements, with the accumulator that the vector belongs to: turns of 64 elements,
// then masked vectors. AX is the byte index, CX counts. Labels get the suffix.
func (c *code) over64(n, suffix string, f func(j int)) {
	c.line("XORQ AX, AX")
	c.line("MOVQ %s, CX", n)
	c.line("SUBQ $64, CX")
	c.from64(suffix, f)
}

// turn64 is a turn of over64. There are registers to take four vectors in turns in AVX-512, and two in AVX2 if the accumulators are not in
// registers: all but the two that hold a number for all, and the mask. A look-up of AVX2 has two halves.
func (c *code) turn64(f func(j int)) {
	vectors := min(c.firstAcc(), 16)
	if c.framed {
		for j := range c.accumulators() {
			c.offset, c.masked = c.past(j), false
			if f(j); j%2 == 1 {
				c.interleave(2)
				c.share(2)
				c.print(c.w, 14)
			}
		}
		c.line("ADDQ $%d, AX", 64*c.elem)
		c.line("SUBQ $64, CX")
		return
	}
	for j := range c.accumulators() {
		c.offset, c.masked = c.past(j), false
		if f(j); !c.avx512() {
			c.print(c.w, vectors)
		}
	}
	if c.avx512() {
		c.interleave(c.accumulators())
		c.print(c.w, vectors)
	}
	c.line("ADDQ $%d, AX", 64*c.elem)
	c.line("SUBQ $64, CX")
}

// from64 is over64 after some turns: CX is 64 less than what is left.
func (c *code) from64(suffix string, f func(j int)) {
	vectors := min(c.firstAcc(), 16)
	c.line("TESTQ CX, CX")
	c.line("JLT rest%s", suffix)
	c.label("turn" + suffix)
	c.turn64(f)
	c.line("JGE turn%s", suffix)
	c.label("rest" + suffix)
	c.line("ADDQ $64, CX")
	c.line("JLE fold%s", suffix)
	if n := c.accumulators(); c.avx512() && n == 4 { // a turn with a mask for each vector
		c.line("MOVQ $-1, R13")
		c.line("BZHIQ CX, R13, R13")
		for j := range n {
			c.line("KMOVW R13, K%d", 1+j)
			c.line("SHRQ $%d, R13", c.lanes())
		}
		c.masked = true
		for j := range n {
			c.offset, c.tail = c.past(j), fmt.Sprintf("K%d", 1+j)
			f(j)
			if j%2 == 1 { // two at a time: three masks are left
				c.interleave(2)
				c.print(c.w, vectors)
			}
		}
		c.offset, c.tail, c.masked = "", "", false
		c.label("fold" + suffix)
		return
	}
	c.offset, c.masked = "", true
	for j := range c.accumulators() {
		tailMask(c.w, c.target, "CX")
		f(j)
		c.print(c.w, vectors)
		if j < c.accumulators()-1 {
			c.line("ADDQ $%d, AX", c.width())
			c.line("SUBQ $%d, CX", c.lanes())
			c.line("JLE fold%s", suffix)
		}
	}
	c.masked = false
	c.label("fold" + suffix)
}

// columns runs f on groups of so many vectors of n (a register) elements, then on masked vectors. AX is the byte index, CX counts.
func (c *code) columns(n string, group int, f func(vectors int, suffix string)) {
	c.line("XORQ AX, AX")
	c.line("MOVQ %s, CX", n)
	c.line("SUBQ $%d, CX", group*c.lanes())
	c.line("JLT rest")
	c.label("group")
	c.masked = false
	f(group, "")
	c.line("ADDQ $%d, AX", group*c.width())
	c.line("SUBQ $%d, CX", group*c.lanes())
	c.line("JGE group")
	c.label("rest")
	c.line("ADDQ $%d, CX", group*c.lanes())
	c.line("JLE done")
	c.label("few")
	tailMask(c.w, c.target, "CX")
	c.masked = true
	f(1, "Few")
	c.masked = false
	c.line("ADDQ $%d, AX", c.width())
	c.line("SUBQ $%d, CX", c.lanes())
	c.line("JGT few")
	c.label("done")
}

var routines = []routine{
	{name: "blockSum", args: append(ptrs("x"), ints("n")...), ret: "T", f64: true, f: func(c *code) {
		c.zero()
		c.over64("SI", "", func(j int) { c.accumulate(j, c.load("DI")) })
		c.fold()
		c.line("VMOV%s %s, ret+16(FP)", c.ss(), c.lane0())
		c.line("VZEROUPPER")
		c.line("RET")
	}},
	{name: "blockDot", args: append(ptrs("a", "b"), ints("n")...), ret: "T", f64: true, f: func(c *code) {
		c.zero()
		c.over64("DX", "", func(j int) { c.accumulate(j, c.mul(c.load("DI"), c.load("SI"))) })
		c.fold()
		c.line("VMOV%s %s, ret+24(FP)", c.ss(), c.lane0())
		c.line("VZEROUPPER")
		c.line("RET")
	}},
	{name: "blockMax", args: append(ptrs("x"), ints("n")...), ret: "(T, bool)", f64: true, f: blockMax},
	{name: "colSumLeaf", args: append(ptrs("dst", "x"), ints("rows", "cols", "ld")...), f64: true, f: colSumLeaf},
	{name: "csrRow", args: []arg{{"dst", "T"}, {"b", "T"}, {"values", "T"}, {"indices", "*int32"}, {"nnz", "int"}, {"n", "int"}, {"ldb", "int"}}, f64: true, f: csrRow},
	{name: "csrScatter", args: []arg{{"dw", "T"}, {"dy", "T"}, {"values", "T"}, {"indices", "*int32"}, {"s", "*scatter"}}, f64: true, f: csrScatter},
	{name: "addRows", args: []arg{{"dst", "T"}, {"x", "T"}, {"rows", "*int32"}, {"count", "int"}, {"n", "int"}}, f64: true, f: addRows},
	{name: "factorRow", args: []arg{{"dst", "T"}, {"v", "T"}, {"values", "T"}, {"indices", "*int32"}, {"nnz", "int"}, {"n", "int"}}, f: factorRow},
	{name: "factorScatter", args: []arg{{"gv", "T"}, {"sums", "T"}, {"v", "T"}, {"values", "T"}, {"indices", "*int32"}, {"s", "*factorScatter"}}, f: factorScatter},
	{name: "expRows", args: append(ptrs("e", "x", "largest", "sum"), ints("rows", "cols")...), f: expRows, sums: true},
	{name: "expScale", args: []arg{{"e", "T"}, {"x", "T"}, {"out", "T"}, {"prev", "T"}, {"s", "*expScale"}}, f: expScale, sums: true},
	{name: "softmaxNarrow", args: []arg{{"s", "*narrow"}}, f: softmaxNarrow, frame: narrowFrame},
	{name: "poolRow", args: []arg{{"y", "T"}, {"arg", "*int32"}, {"x", "T"}, {"s", "*poolRow"}}, f: poolRow},
	{name: "scaleRows", args: append(ptrs("dst", "e", "k"), ints("rows", "cols")...), f: scaleRows},
}

// swaps are the permutations that bring each lane what is 8, 4, 2 and 1 lanes away.
func (c *code) swaps() [][2]string {
	swaps := [][2]string{{"VPERM2F128", "$1"}}
	if c.avx512() {
		swaps = [][2]string{{"VSHUFF64X2", "$0x4e"}, {"VSHUFF64X2", "$0xb1"}}
	}
	if c.elem == 4 {
		return append(swaps, [2]string{"VPERMILPS", "$0x4e"}, [2]string{"VPERMILPS", "$0xb1"})
	}
	return append(swaps, [2]string{"VPERMILPD", "$0x55"})
}

// spread is an instruction pair for each step that leaves op over all lanes of register v in every lane; tmp is free.
func (c *code) spread(op, v, tmp string) {
	for _, swap := range c.swaps() {
		if strings.HasPrefix(swap[0], "VPERMIL") {
			c.line("%s %s, %s, %s", swap[0], swap[1], v, tmp)
		} else {
			c.line("%s %s, %s, %s, %s", swap[0], swap[1], v, v, tmp)
		}
		c.line("%s %s, %s, %s", op, tmp, v, v)
	}
}

func (c *code) minusInf() val {
	if c.elem == 4 {
		return c.bits(0xff800000)
	}
	return c.bits(0xfff0000000000000)
}

// fill sets every lane of a register to a constant.
func (c *code) fill(reg string, v val) {
	if c.avx512() {
		c.line("VBROADCAST%s %s, %s", c.ss(), v.mem, reg)
	} else {
		c.line("VMOVU%s %s, %s", c.f(), v.mem, reg)
	}
}

// larger raises the running maxima in register m to x, a vector that was loaded at the loop's index. A NaN does not count.
func (c *code) larger(m val, x val) {
	if c.masked {
		c.restrict(&x)
	}
	c.into(m, "VMAX"+c.f(), m, x)
}

// restrict makes the lanes outside the tail mask -Inf.
func (c *code) restrict(x *val) {
	if c.avx512() {
		*x = c.emit('v', "VBLENDM"+c.f(), *x, c.inReg(c.minusInf()), c.mask())
	} else {
		*x = c.emit('v', "VBLENDV"+c.f(), "Y15", *x, c.inReg(c.minusInf()))
	}
}

func blockMax(c *code) { // running maxima in accumulators 0 to 3, unordered lanes in 4
	m, nan := c.firstAcc(), c.firstAcc()+4
	for j := range 4 {
		c.fill(c.v(m+j), c.minusInf())
	}
	c.line("VXOR%s %s, %s, %s", c.f(), c.v(nan), c.v(nan), c.v(nan))
	if c.avx512() {
		c.line("KXORW K0, K0, K0")
	}
	one := func(j int) {
		x := c.load("DI")
		if c.avx512() {
			k := c.emit('k', "VCMP"+c.f(), isNaN, x, x)
			c.do("KORW", k, "K0", "K0")
		} else {
			n := c.named(c.v(nan))
			c.into(n, "VOR"+c.f(), c.emit('v', "VCMP"+c.f(), isNaN, x, x), n)
		}
		c.larger(c.named(c.v(m+j)), x)
	}
	c.columns("SI", 4, func(vectors int, _ string) {
		for j := range vectors {
			c.offset = c.past(j)
			one(j)
			c.print(c.w, m)
		}
		c.offset = ""
	})
	for j := 1; j < 4; j++ {
		c.line("VMAX%s %s, %s, %s", c.f(), c.v(m+j), c.v(m), c.v(m))
	}
	c.spread("VMAX"+c.f(), c.v(m), c.v(0))
	c.line("VMOV%s X%d, ret+16(FP)", c.ss(), m)
	if c.avx512() {
		c.line("KMOVW K0, R12")
	} else {
		c.line("VMOVMSK%s %s, R12", c.f(), c.v(nan))
	}
	c.line("TESTL R12, R12")
	c.line("SETNE ret1+%d(FP)", 16+c.elem)
	c.line("VZEROUPPER")
	c.line("RET")
}

func colSumLeaf(c *code) { // DI dst, SI x, DX rows, R8 cols, R9 ld
	c.line("SHLQ $%d, R9", map[int]int{4: 2, 8: 3}[c.elem])
	c.columns("R8", 4, func(vectors int, suffix string) {
		a := c.firstAcc()
		for j := range vectors {
			c.line("VXOR%s %s, %s, %s", c.f(), c.v(a+j), c.v(a+j), c.v(a+j))
		}
		c.line("MOVQ SI, R10")
		c.line("MOVQ DX, R11")
		c.label("row" + suffix)
		for j := range vectors {
			c.offset = c.past(j)
			s := c.named(c.v(a + j))
			c.into(s, "VADD"+c.f(), c.load("R10"), s)
		}
		c.print(c.w, a)
		c.line("ADDQ R9, R10")
		c.line("DECQ R11")
		c.line("JNE row%s", suffix)
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
