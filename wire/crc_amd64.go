package wire

import "golang.org/x/sys/cpu"

// folds says whether this processor multiplies polynomials in registers of 512 bits. The operating system must save them too; package
// cpu checks that.
var folds = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

const (
	foldFrom  = 512       // bytes; of fewer, hash/crc32 takes as long
	foldPiece = 256 << 10 // bytes that one call of assembly takes, at most some 20 µs: the collector waits for assembly
	foldBlock = 64
)

// foldAll takes as much of p as is whole blocks, and returns how much that is. The state is the complement of the sum.
func foldAll(state uint32, p []byte) (uint32, int) {
	whole := len(p) &^ (foldBlock - 1)
	for n := 0; n < whole; {
		m := min(whole-n, foldPiece)
		if rest := whole - n - m; rest > 0 && rest < foldFrom {
			m -= foldFrom // a call takes no less
		}
		state = fold(state, &p[n], m, &foldBy)
		n += m
	}
	return state, whole
}

// fold returns the state after n bytes more from p on: a multiple of 64, at least 256.
//
//go:noescape
func fold(state uint32, p *byte, n int, by *[12]uint64) uint32

// foldBy has the constants of fold. Polynomials over GF(2) are stored reflected, as CRC-32C has them: bit i of a word of 64 is the
// coefficient of x to the 63-i. A block of 128 bits is then a·x⁶⁴ + b, where a is its first word. The sum is the remainder by P =
// 0x11EDC6F41 (Castagnoli), and so a block may be moved D bits towards the end of the message by
//
//	(a·x⁶⁴ + b)·x^D  =  a·(x^(D+64) mod P) + b·(x^D mod P)    modulo P
//
// which has at most 96 bits and is added to the block that is there (Gopal et al. 2009, "Fast CRC computation for generic polynomials
// using PCLMULQDQ instruction"). The product of two reflected words, which the instruction leaves in 127 bits of 128, is one place too
// far: it has a factor of x that the constants have not, hence the exponents D+63 and D-1.
var foldBy = [12]uint64{
	0xe9a5d8be00000000, 0x1426a81500000000, // by 2048 bits
	0x1c19243b00000000, 0x75bba45b00000000, // by 512
	0xa46ef4aa00000000, 0x6051243f00000000, // by 384
	0x33ccbbbc00000000, 0xa2158b3400000000, // by 256
	0x3743f7bd00000000, 0x3171d43000000000, // by 128
	0x0000000000000000, 0x0000000000000000, // by 0: the last block is added as it is
}
