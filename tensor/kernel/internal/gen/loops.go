package main

import (
	"fmt"
	"slices"
	"strings"
)

// A loop is an element-wise kernel: one vector of each input gives one of each output.
type loop struct {
	name   string
	ins    []string // slices read
	outs   []string // slices written; one that is also in ins is updated in place
	scalar bool     // a last argument s
	params bool     // a last argument h: 32 bytes for each broadcast parameter
	rule   bool     // an optimizer's step, which has a regularised form
	f64    bool     // for float64 too
	stream bool     // has a form that bypasses the cache when it writes
	wide   bool     // computes in float64 what is float32 in memory
	turns  bool     // four vectors in turns matter more than constants in registers
	long   bool     // a long chain: turns overlap with AVX-512; AVX2 has no registers for it
	f      func(b *body, in []val, s val) []val
}

var pointers = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11"}

func (l loop) slices() []string {
	all := slices.Clone(l.outs)
	for _, in := range l.ins {
		if !slices.Contains(all, in) {
			all = append(all, in)
		}
	}
	return all
}

// asm writes the function for one target. The streaming form takes whole vectors and an aligned output only.
func (l loop) asm(w *strings.Builder, t target, consts map[uint64]bool, stream bool) {
	in := t // what is computed in
	if l.wide {
		in.elem = 8
	}
	names := l.slices()
	args := 8*len(names) + 8
	if l.scalar {
		args += t.elem
	} else if l.params {
		args += 8
	}
	name := l.name + t.typ() + t.isa
	if stream {
		name += "Stream"
	}
	fmt.Fprintf(w, "\n// func %s%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, l.signature(t), name, args)
	for i, n := range names {
		fmt.Fprintf(w, "\tMOVQ %s+%d(FP), %s\n", n, 8*i, pointers[i])
	}
	fmt.Fprintf(w, "\tMOVQ n+%d(FP), CX\n", 8*len(names))
	if l.scalar {
		suffix := map[int]string{4: "SS", 8: "SD"}[t.elem]
		fmt.Fprintf(w, "\tVBROADCAST%s s+%d(FP), %s\n", suffix, 8*len(names)+8, scalarRegister(t))
	}
	if l.params {
		fmt.Fprintf(w, "\tMOVQ h+%d(FP), BX\n", 8*len(names)+8)
	}
	for _, p := range l.plans(t) {
		b := newBody(in, consts)
		b.narrow = l.wide
		b.keep(p.kept, 31)
		if text, ok := l.fit(b, p, t, stream); ok {
			fmt.Fprint(w, strings.Join(b.kept.load, ""), text)
			return
		}
	}
	panic("out of registers")
}

// scalarRegister is the register of a loop's last argument.
func scalarRegister(t target) string {
	if t.avx512() {
		return "Z31"
	}
	return "Y14"
}

// A plan is a way to use the registers.
type plan struct {
	unroll   int  // vectors a turn
	kept     int  // the first register for constants
	overlaps bool // turns are pipelined
	shares   bool // vectors of a turn share what they read
}

// plans are the ways to try, the best first: as many vectors a turn as there are registers for, four at most, since they are independent, and
// so hide each other's latency. Three leave a rest of most rows. One register more lets them share what they read.
func (l loop) plans(t target) (all []plan) {
	kept := 16
	if l.wide || l.turns {
		kept = 22 // long chains: many vectors in turns
	}
	if l.long && t.avx512() {
		for _, unroll := range []int{4, 2} {
			for k := kept; k < 31; k++ {
				all = append(all, plan{unroll, k, true, true})
			}
		}
	}
	for _, unroll := range []int{4, 2, 1} {
		all = append(all, plan{unroll, kept, false, true}, plan{unroll, kept, false, false})
	}
	return all
}

// record records a vector of the loop.
func (l loop) record(b *body, t target, stream bool) {
	var s val
	if l.scalar {
		s = b.named(scalarRegister(t))
	}
	names := l.slices()
	var ins []val
	for _, n := range l.ins {
		ins = append(ins, b.load(pointers[slices.Index(names, n)]))
	}
	for i, v := range l.f(b, ins, s) {
		b.stream = stream && i == 0 // what is updated in place is in cache already
		b.store(v, pointers[i])
	}
}

// fit writes the loop by a plan, and the vectors that are left after whole turns, and says whether there are registers for it.
func (l loop) fit(b *body, p plan, t target, stream bool) (text string, ok bool) {
	lanes := b.lanes()
	step := lanes * t.elem // bytes of memory in a vector
	turn := func(ahead int) []inst {
		b.insts = nil
		for u := ahead; u < ahead+p.unroll; u++ {
			if b.offset = ""; u > 0 {
				b.offset = fmt.Sprint(u * step)
			}
			l.record(b, t, stream)
		}
		b.interleave(p.unroll)
		b.offset = ""
		return b.insts
	}
	vectors := p.kept
	if !t.avx512() {
		vectors = 14
	}
	first := turn(0)
	b.extra = b.kept.rest()
	var begin, middle, end string
	switch {
	case p.overlaps:
		begin, middle, end, ok = b.pipelined(first, turn(p.unroll), p.unroll, vectors)
	case p.shares:
		b.share(p.unroll)
		fallthrough
	default:
		middle, ok = b.allocate(vectors)
	}
	if !ok {
		return "", false
	}
	var w strings.Builder
	count := fmt.Sprintf("\tSUBQ $%d, CX\n", p.unroll*lanes)
	on := fmt.Sprintf("\tADDQ $%d, AX\n", p.unroll*step)
	fmt.Fprintf(&w, "\tXORQ AX, AX\n%s\tJLT rest\n", count)
	if p.overlaps {
		fmt.Fprintf(&w, "%s%s\tJLT last\n", begin, count)
	}
	fmt.Fprintf(&w, "\nturn:\n%s%s%s\tJGE turn\n", middle, on, count)
	if p.overlaps {
		fmt.Fprintf(&w, "\nlast:\n%s%s", end, on)
	}
	fmt.Fprint(&w, "\nrest:\n")
	if stream {
		fmt.Fprint(&w, "\tVZEROUPPER\n\tRET\n") // fence comes when the last piece is done
		return w.String(), true
	}
	fmt.Fprintf(&w, "\tADDQ $%d, CX\n\tJLE done\n\nfew:\n", p.unroll*lanes)
	tailMaskOf(&w, t, lanes, "CX")
	b.insts, b.masked = nil, true
	l.record(b, t, false)
	b.print(&w, vectors)
	fmt.Fprintf(&w, "\tADDQ $%d, AX\n\tSUBQ $%d, CX\n\tJGT few\n\ndone:\n\tVZEROUPPER\n\tRET\n", step, lanes)
	return w.String(), true
}

// tailMask sets K1, or Y15, for the first min(n, lanes) lanes; n > 0 is a register. It uses R12 and R13.
func tailMask(w *strings.Builder, t target, n string) { tailMaskOf(w, t, t.lanes(), n) }

// tailMaskOf is tailMask of vectors with fewer elements.
func tailMaskOf(w *strings.Builder, t target, lanes int, n string) {
	fmt.Fprintf(w, "\tMOVQ $%d, R12\n\tCMPQ %s, R12\n\tCMOVQLT %s, R12\n", lanes, n, n)
	if t.avx512() {
		fmt.Fprint(w, "\tMOVL $-1, R13\n\tBZHIL R12, R13, R13\n\tKMOVW R13, K1\n")
		return
	}
	fmt.Fprintf(w, "\tNEGQ R12\n\tLEAQ tail<>(SB), R13\n\tVMOVU%s 32(R13)(R12*%d), Y15\n", t.f(), t.elem)
}

func (l loop) signature(t target) string {
	s := "(" + strings.Join(l.slices(), ", ") + " *" + t.goType() + ", n int"
	switch {
	case l.scalar:
		s += ", s " + t.goType()
	case l.params:
		s += ", h *[8]float32"
	}
	return s + ")"
}

// dispatch writes the Go function that picks the target and hands it the data by pieces.
func (l loop) dispatch(w *strings.Builder, typ target, asm bool) {
	names := l.slices()
	arg, pass := "", ""
	switch {
	case l.scalar:
		arg, pass = ", s "+typ.goType(), ", s"
	case l.params:
		arg, pass = ", h *[8]float32", ", h"
	}
	fmt.Fprintf(w, "\nfunc %s%s(isa ISA, %s []%s%s) {", l.name, typ.typ(), strings.Join(names, ", "), typ.goType(), arg)
	if !asm {
		fmt.Fprint(w, " panic(noAssembly) }\n")
		if l.stream {
			fmt.Fprintf(w, "\nfunc %s%sStream(isa ISA, %s []%s%s) { panic(noAssembly) }\n", l.name, typ.typ(), strings.Join(names, ", "), typ.goType(), arg)
		}
		return
	}
	ptrs := func(at string) string {
		var s []string
		for _, n := range names {
			s = append(s, fmt.Sprintf("&%s[%s]", n, at))
		}
		return strings.Join(s, ", ")
	}
	fmt.Fprint(w, "\n")
	if l.stream {
		fmt.Fprintf(w, "\tif streams(len(%s), %d) {\n\t\t%s%sStream(isa, %s%s)\n\t\tfence()\n\t\treturn\n\t}\n", names[0],
			typ.elem*(len(l.ins)+len(l.outs)), l.name, typ.typ(), strings.Join(names, ", "), pass)
	}
	pieces := func(suffix string) {
		fn := l.name + typ.typ()
		fmt.Fprintf(w, "\tfor i := 0; i < len(%s); i += piece {\n\t\tn := min(piece, len(%s)-i)\n", names[0], names[0])
		fmt.Fprintf(w, "\t\tif isa == AVX512 {\n\t\t\t%sAVX512%s(%s, n%s)\n\t\t} else {\n\t\t\t%sAVX2%s(%s, n%s)\n\t\t}\n\t}\n",
			fn, suffix, ptrs("i"), pass, fn, suffix, ptrs("i"), pass)
	}
	pieces("")
	fmt.Fprint(w, "}\n")
	if !l.stream {
		return
	}
	// The streaming form: whole cache lines of the output past the cache, what is left before and after them the usual way.
	fn, all := l.name+typ.typ(), strings.Join(names, ", ")
	fmt.Fprintf(w, "\nfunc %sStream(isa ISA, %s []%s%s) {\n", fn, all, typ.goType(), arg)
	fmt.Fprintf(w, "\thead := min(misaligned(%s), len(%s))\n\tend := head + (len(%s)-head)&^%d\n", names[0], names[0], names[0], streamUnit-1)
	for _, part := range []string{":head", "end:"} {
		fmt.Fprintf(w, "\t%s(isa, %s%s)\n", fn, sliced(names, part), pass)
	}
	fmt.Fprintf(w, "\t%s = %s\n", all, sliced(names, "head:end"))
	pieces("Stream")
	fmt.Fprint(w, "}\n")
}

// streamUnit is a multiple of the elements that any streaming loop takes in a turn.
const streamUnit = 64

func sliced(names []string, by string) string {
	var s []string
	for _, n := range names {
		s = append(s, n+"["+by+"]")
	}
	return strings.Join(s, ", ")
}
