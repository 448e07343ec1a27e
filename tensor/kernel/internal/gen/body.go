package main

import (
	"fmt"
	"math"
	"strconv"
)

// A target is an instruction set and an element type.
type target struct {
	isa  string // AVX512, AVX2: the suffix of the functions
	elem int    // bytes
}

func (t target) avx512() bool { return t.isa == "AVX512" }

// width is the bytes of a vector, lanes its elements.
func (t target) width() int {
	if t.avx512() {
		return 64
	}
	return 32
}
func (t target) lanes() int { return t.width() / t.elem }

// typ is the suffix of Go names, f the suffix of instructions on packed numbers.
func (t target) typ() string { return fmt.Sprintf("F%d", 8*t.elem) }

func (t target) f() string {
	if t.elem == 4 {
		return "PS"
	}
	return "PD"
}

// goType is the Go type of an element.
func (t target) goType() string { return fmt.Sprintf("float%d", 8*t.elem) }

// A val is a virtual register, or the text of a memory operand that every instruction can read: a constant or a parameter.
type val struct {
	id  int // > 0: virtual register
	mem string
}

// low is the lowest 128 bits of a register, half its lower half.
type (
	low  struct{ val }
	half struct{ val }
)

// An inst is one instruction: mnemonic, operands in the order of Go's assembler, and the register that it writes, if any. A mnemonic
// that ends in /X or /Y works on those parts of its registers.
type inst struct {
	op  string
	src []any // val, low or string
	dst int
}

// A body records straight-line code on virtual registers; print gives them real ones.
type body struct {
	target
	consts  map[uint64]bool // constants used, by bits
	insts   []inst
	kinds   []byte                  // of each virtual register: v vector, k mask; kinds[0] unused
	fixed   map[int]string          // virtual registers that have a name already
	offset  string                  // byte offset added to the loop's index
	address func(ptr string) string // overrides pointer, index and offset
	masked  bool                    // only the lanes of the tail mask are loaded and stored
	tail    string                  // the register of the tail mask with AVX-512, K1 to K4; empty: K1, and no other
	stream  bool                    // stores bypass the cache
	narrow  bool                    // elements are float64, in memory float32
	kept    *keeper                 // registers for what would be read from memory in every turn
	extra   []int                   // vector registers that are free besides the first
}

// A keeper hands out the registers that a loop keeps constants and parameters in, while there are any; AVX2 has none to spare.
type keeper struct {
	free []string
	in   map[string]string // register by memory operand
	load []string          // the instructions that fill them, before the loop
}

func (b *body) keep(from, to int) {
	if b.kept == nil {
		b.kept = &keeper{in: map[string]string{}}
	}
	for i := from; i < to && b.avx512(); i++ {
		b.kept.free = append(b.kept.free, fmt.Sprintf("Z%d", i))
	}
}

// rest hands over the registers that nothing was kept in.
func (k *keeper) rest() (numbers []int) {
	if k == nil {
		return nil
	}
	for _, name := range k.free {
		n, _ := strconv.Atoi(name[1:])
		numbers = append(numbers, n)
	}
	k.free = nil
	return numbers
}

// hoist is v, in the register where it is kept if it is one of those.
func (b *body) hoist(v val) val {
	if v.id != 0 || b.kept == nil {
		return v
	}
	k := b.kept
	if k.in[v.mem] == "" {
		if len(k.free) == 0 {
			return v
		}
		k.in[v.mem], k.free = k.free[0], k.free[1:]
		k.load = append(k.load, fmt.Sprintf("\tVBROADCAST%s %s, %s\n", map[int]string{4: "SS", 8: "SD"}[b.elem], v.mem, k.in[v.mem]))
	}
	return b.named(k.in[v.mem])
}

func newBody(t target, consts map[uint64]bool) *body {
	return &body{target: t, consts: consts, kinds: []byte{0}, fixed: map[int]string{}}
}

func (b *body) reg(kind byte) int {
	b.kinds = append(b.kinds, kind)
	return len(b.kinds) - 1
}

// named is a virtual register bound to a real one for good.
func (b *body) named(name string) val {
	id := b.reg('v')
	b.fixed[id] = name
	return val{id: id}
}

func (b *body) emit(kind byte, op string, src ...any) val {
	v := val{id: b.reg(kind)}
	b.insts = append(b.insts, inst{op, src, v.id})
	return v
}

// into writes to a given register.
func (b *body) into(dst val, op string, src ...any) {
	b.insts = append(b.insts, inst{op, src, dst.id})
}

// do is an instruction that writes no vector register.
func (b *body) do(op string, src ...any) { b.insts = append(b.insts, inst{op, src, 0}) }

// Constants and operands.

func (b *body) bits(bits uint64) val {
	if b.elem == 4 {
		bits |= bits << 32
	}
	b.consts[bits] = true
	return val{mem: constName(bits) + "(SB)"}
}

func constName(bits uint64) string { return fmt.Sprintf("c%016x<>", bits) }

func (b *body) num(x float64) val {
	if b.elem == 4 {
		return b.bits(uint64(math.Float32bits(float32(x))))
	}
	return b.bits(math.Float64bits(x))
}

// param is the i-th broadcast parameter: 32 bytes at BX.
func (b *body) param(i int) val { return val{mem: fmt.Sprintf("%d(BX)", 32*i)} }

// inReg returns v in a register.
func (b *body) inReg(v val) val {
	v = b.hoist(v)
	if v.id != 0 {
		return v
	}
	if b.avx512() {
		return b.emit('v', map[int]string{4: "VBROADCASTSS", 8: "VBROADCASTSD"}[b.elem], v.mem)
	}
	return b.emit('v', "VMOVU"+b.f(), v.mem)
}

// bin is x op y, an instruction on vectors; y may be in memory.
func (b *body) bin(op string, x, y val) val {
	x, y = b.inReg(x), b.hoist(y)
	if y.id == 0 && b.avx512() {
		return b.emit('v', op+".BCST", y.mem, x)
	}
	return b.emit('v', op, operand(y), x)
}

func operand(v val) any {
	if v.id == 0 {
		return v.mem
	}
	return v
}

func (b *body) add(x, y val) val { return b.bin("VADD"+b.f(), x, y) }
func (b *body) sub(x, y val) val { return b.bin("VSUB"+b.f(), x, y) }
func (b *body) mul(x, y val) val { return b.bin("VMUL"+b.f(), x, y) }
func (b *body) div(x, y val) val { return b.bin("VDIV"+b.f(), x, y) }
func (b *body) max(x, y val) val { return b.bin("VMAX"+b.f(), x, y) } // x > y ? x : y
func (b *body) min(x, y val) val { return b.bin("VMIN"+b.f(), x, y) } // x < y ? x : y
func (b *body) and(x, y val) val { return b.bin("VAND"+b.f(), x, y) }
func (b *body) or(x, y val) val  { return b.bin("VOR"+b.f(), x, y) }
func (b *body) xor(x, y val) val { return b.bin("VXOR"+b.f(), x, y) }
func (b *body) sqrt(x val) val   { return b.emit('v', "VSQRT"+b.f(), b.inReg(x)) }

// Operations on the bits of float32s.
func (b *body) addInt(x, y val) val   { return b.bin("VPADDD", x, y) }
func (b *body) subInt(x, y val) val   { return b.bin("VPSUBD", x, y) }
func (b *body) shl(x val, by int) val { return b.emit('v', "VPSLLD", fmt.Sprintf("$%d", by), x) }
func (b *body) sar(x val, by int) val { return b.emit('v', "VPSRAD", fmt.Sprintf("$%d", by), x) }
func (b *body) intToFloat(x val) val  { return b.emit('v', "VCVTDQ2PS", x) }
func (b *body) signBit() val          { return b.bits(1 << (8*b.elem - 1)) }
func (b *body) magnitude(x val) val   { return b.and(x, b.bits(1<<(8*b.elem-1)-1)) }

// signed is y with a set sign bit of x, in y's register if there is one instruction for it.
func (b *body) signed(y, x val) val {
	if !b.avx512() {
		return b.or(y, b.and(x, b.signBit()))
	}
	const orAnd = "$0xf8" // y | (x & sign)
	op := map[int]string{4: "VPTERNLOGD", 8: "VPTERNLOGQ"}[b.elem]
	if sign := b.hoist(b.signBit()); sign.id == 0 {
		b.into(y, op+".BCST", orAnd, sign.mem, x)
	} else {
		b.into(y, op, orAnd, sign, x)
	}
	return y
}

// fma is x·y + c in c's register, which it overwrites: c must be read no more.
func (b *body) fma(x, y, c val) val { return b.fused("VFMADD231", x, y, c) }

// negFMA is c - x·y in c's register.
func (b *body) negFMA(x, y, c val) val { return b.fused("VFNMADD231", x, y, c) }

func (b *body) fused(op string, x, y, c val) val {
	x, y = b.inReg(x), b.hoist(y)
	if y.id == 0 && b.avx512() {
		b.into(c, op+b.f()+".BCST", y.mem, x)
	} else {
		b.into(c, op+b.f(), operand(y), x)
	}
	return c
}

// poly is a polynomial by Horner's rule, highest coefficient first, with fused multiply-adds.
func (b *body) poly(x val, c ...float64) val {
	y := b.fresh(b.num(c[0]))
	for _, k := range c[1:] {
		op := "VFMADD213" + b.f()
		if k := b.hoist(b.num(k)); k.id == 0 && b.avx512() {
			b.into(y, op+".BCST", k.mem, x)
		} else {
			b.into(y, op, operand(k), x)
		}
	}
	return y
}

// fresh is v in a register that may be overwritten.
func (b *body) fresh(v val) val {
	if v = b.hoist(v); v.id != 0 {
		return b.emit('v', "VMOVA"+b.f(), v)
	}
	return b.inReg(v)
}

// Comparisons give masks: x less, less or equal, not equal (or unordered), unordered, greater, not less (or unordered), not less or
// equal (or unordered).
const (
	less      = "$1"
	atMost    = "$2"
	differs   = "$4"
	isNaN     = "$3"
	above     = "$14"
	notLess   = "$5"
	notAtMost = "$6"
)

func (b *body) cmp(pred string, x, y val) val {
	x, y = b.inReg(x), b.hoist(y)
	if b.avx512() {
		if y.id == 0 {
			return b.emit('k', "VCMP"+b.f()+".BCST", pred, y.mem, x)
		}
		return b.emit('k', "VCMP"+b.f(), pred, y, x)
	}
	return b.emit('v', "VCMP"+b.f(), pred, operand(y), x)
}

// choose is x where m, else y.
func (b *body) choose(m, x, y val) val {
	x, y = b.hoist(x), b.inReg(y)
	if b.avx512() {
		if x.id == 0 {
			return b.emit('v', "VBLENDM"+b.f()+".BCST", x.mem, y, m)
		}
		return b.emit('v', "VBLENDM"+b.f(), x, y, m)
	}
	return b.emit('v', "VBLENDV"+b.f(), m, operand(x), y)
}

// nanOr is x where that is NaN, else y.
func (b *body) nanOr(x, y val) val { return b.choose(b.cmp(isNaN, x, x), x, y) }

// only is x where m, else 0.
func (b *body) only(m, x val) val {
	if b.avx512() {
		return b.emit('v', "VMOVA"+b.f()+".Z", b.inReg(x), m)
	}
	return b.and(m, x)
}

// An index is a number from 0 to 15 in the lowest bits of every lane of at. With AVX2, high has its highest bit as the highest of the lane.
type index struct{ at, high val }

// index is bits by to by+3 of x.
func (b *body) index(x val, by int) index {
	i := b.emit('v', "VPSRLD", fmt.Sprintf("$%d", by), x)
	if !b.avx512() {
		i = b.or(i, b.shl(x, 31-3-by))
	}
	return index{i, i}
}

// lowest is the lowest four bits of x.
func (b *body) lowest(x val) index {
	if b.avx512() {
		return index{at: x}
	}
	return index{x, b.shl(x, 28)}
}

// lookUp is a number in a row of a table at an index.
func (b *body) lookUp(table string, i index, row int) val {
	low := b.emit('v', "VPERMPS", fmt.Sprintf("%s<>+%d(SB)", table, 64*row), i.at)
	if b.avx512() {
		return low
	}
	high := b.emit('v', "VPERMPS", fmt.Sprintf("%s<>+%d(SB)", table, 64*row+32), i.at)
	return b.choose(i.high, high, low)
}

// Memory. at is the address of the vector that the loop is at, from a pointer.
func (b *body) at(ptr string) string {
	if b.address != nil {
		return b.address(ptr)
	}
	return b.offset + "(" + ptr + ")(AX*1)"
}

// mask is the register of the tail mask with AVX-512.
func (b *body) mask() string {
	if b.tail != "" {
		return b.tail
	}
	return "K1"
}

func (b *body) load(ptr string) val {
	switch {
	case b.narrow && !b.masked:
		return b.emit('v', "VCVTPS2PD", b.at(ptr))
	case b.narrow && b.avx512():
		return b.emit('v', "VCVTPS2PD.Z", b.at(ptr), b.mask())
	case b.narrow:
		return b.emit('v', "VCVTPS2PD", low{b.emit('v', "VMASKMOVPS", b.at(ptr), "Y15")})
	case !b.masked:
		return b.emit('v', "VMOVU"+b.f(), b.at(ptr))
	case b.avx512():
		return b.emit('v', "VMOVU"+b.f()+".Z", b.at(ptr), b.mask())
	default:
		return b.emit('v', "VMASKMOV"+b.f(), b.at(ptr), "Y15")
	}
}

func (b *body) store(x val, ptr string) {
	x = b.inReg(x)
	if b.narrow {
		op := map[bool]string{true: "VCVTPD2PS", false: "VCVTPD2PSY"}[b.avx512()]
		switch y := (half{b.emit('v', op, x)}); {
		case !b.masked:
			b.do("VMOVUPS", y, b.at(ptr))
		case b.avx512():
			b.do("VMOVUPS", y, b.mask(), b.at(ptr))
		default:
			b.do("VMASKMOVPS", y, "X15", b.at(ptr))
		}
		return
	}
	switch {
	case b.stream:
		b.do("VMOVNT"+b.f(), x, b.at(ptr))
	case !b.masked:
		b.do("VMOVU"+b.f(), x, b.at(ptr))
	case b.avx512():
		b.do("VMOVU"+b.f(), x, b.mask(), b.at(ptr))
	default:
		b.do("VMASKMOV"+b.f(), x, "Y15", b.at(ptr))
	}
}

// live is x in the lanes of the tail mask, else 0; x itself if there is none.
func (b *body) live(x val) val {
	switch {
	case !b.masked:
		return x
	case b.avx512():
		return b.emit('v', "VMOVA"+b.f()+".Z", x, b.mask())
	default:
		return b.emit('v', "VAND"+b.f(), "Y15", x)
	}
}
