#include "textflag.h"

// func fold(state uint32, p *byte, n int, by *[12]uint64) uint32
//
// Four registers of four blocks of 128 bits each go through the message in steps of 256 bytes: each block is moved 2048 bits on, and
// added to the block that is there. Then the four become one register, which takes what is left in steps of 64 bytes; then its four
// blocks become one, and the processor's own CRC instruction takes that. See foldBy for the arithmetic.
TEXT ·fold(SB), NOSPLIT, $0-36
	MOVL state+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ by+24(FP), DI

	// The state is the remainder so far: it is added to the first 32 bits.
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VMOVD     AX, X4 // clears the rest of Z4
	VPXORQ    Z4, Z0, Z0
	ADDQ      $256, SI
	SUBQ      $256, CX

	VBROADCASTI32X4 0(DI), Z16 // by 2048 bits
	CMPQ            CX, $256
	JB              merge

loop:
	VPCLMULQDQ $0x00, Z16, Z0, Z4 // the first words
	VPCLMULQDQ $0x00, Z16, Z1, Z5
	VPCLMULQDQ $0x00, Z16, Z2, Z6
	VPCLMULQDQ $0x00, Z16, Z3, Z7
	VPCLMULQDQ $0x11, Z16, Z0, Z0 // the second
	VPCLMULQDQ $0x11, Z16, Z1, Z1
	VPCLMULQDQ $0x11, Z16, Z2, Z2
	VPCLMULQDQ $0x11, Z16, Z3, Z3
	VPTERNLOGQ $0x96, 0(SI), Z4, Z0 // the sum of three
	VPTERNLOGQ $0x96, 64(SI), Z5, Z1
	VPTERNLOGQ $0x96, 128(SI), Z6, Z2
	VPTERNLOGQ $0x96, 192(SI), Z7, Z3
	ADDQ       $256, SI
	SUBQ       $256, CX
	CMPQ       CX, $256
	JAE        loop

merge:
	VBROADCASTI32X4 16(DI), Z16 // by 512 bits
	VPCLMULQDQ      $0x00, Z16, Z0, Z4
	VPCLMULQDQ      $0x11, Z16, Z0, Z0
	VPTERNLOGQ      $0x96, Z4, Z0, Z1
	VPCLMULQDQ      $0x00, Z16, Z1, Z4
	VPCLMULQDQ      $0x11, Z16, Z1, Z1
	VPTERNLOGQ      $0x96, Z4, Z1, Z2
	VPCLMULQDQ      $0x00, Z16, Z2, Z4
	VPCLMULQDQ      $0x11, Z16, Z2, Z2
	VPTERNLOGQ      $0x96, Z4, Z2, Z3
	CMPQ            CX, $64
	JB              lanes

blocks:
	VPCLMULQDQ $0x00, Z16, Z3, Z4
	VPCLMULQDQ $0x11, Z16, Z3, Z3
	VPTERNLOGQ $0x96, 0(SI), Z4, Z3
	ADDQ       $64, SI
	SUBQ       $64, CX
	CMPQ       CX, $64
	JAE        blocks

lanes:
	VMOVDQU64     32(DI), Z16 // by 384, 256, 128 bits; the last block stays
	VPCLMULQDQ    $0x00, Z16, Z3, Z4
	VPCLMULQDQ    $0x11, Z16, Z3, Z5
	VPXORQ        Z5, Z4, Z4
	VEXTRACTI64X4 $1, Z4, Y5
	VPXORQ        Y5, Y4, Y4
	VEXTRACTI32X4 $1, Z4, X5
	VPXOR         X5, X4, X4
	VEXTRACTI32X4 $3, Z3, X3
	VPXOR         X3, X4, X4

	XORL   AX, AX
	VMOVQ  X4, BX
	CRC32Q BX, AX
	VPEXTRQ $1, X4, BX
	CRC32Q BX, AX
	MOVL   AX, ret+32(FP)
	VZEROUPPER
	RET
