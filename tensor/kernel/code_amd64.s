#include "textflag.h"

// Eight values at a time. DI is what is written, SI what is read, CX how many values are left.

// A constant in all lanes of Y, of which X is the lower half.
#define EVERYWHERE(c, X, Y) \
	MOVL c, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

// FINITE makes what is not finite in Y0 zero. Y12 is 0.
#define FINITE \
	VSUBPS Y0, Y0, Y2; \
	VCMPPS $0, Y12, Y2, Y2; \
	VANDPS Y2, Y0, Y0

// ROUND8 makes eight bytes in X1 of the values in Y0 times Y15, whose whole numbers stay in Y3.
#define ROUND8 \
	VMULPS Y15, Y0, Y1; \
	VCVTPS2DQ Y1, Y3; \
	VEXTRACTI128 $1, Y3, X2; \
	VPACKSSDW X2, X3, X1; \
	VPACKSSWB X1, X1, X1

// WIDEN8 makes eight values in Y1 of bytes, times Y15.
#define WIDEN8 \
	VPMOVSXBD (SI), Y1; \
	VCVTDQ2PS Y1, Y1; \
	VMULPS Y15, Y1, Y1

// SIGNED8 makes eight times the scale in Y1, with the signs of a byte. Y15 is the scale, Y14 the sign bits, Y13 by how much to shift them.
#define SIGNED8 \
	VPBROADCASTB (SI), Y1; \
	VPSLLVD Y13, Y1, Y1; \
	VPAND Y14, Y1, Y1; \
	VPXOR Y15, Y1, Y1

// func peakBits(x *float32, n int) uint32
TEXT ·peakBits(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	EVERYWHERE($0x7fffffff, X15, Y15)
	VPXOR Y0, Y0, Y0

loop:
	VPAND (SI), Y15, Y1
	VPMAXUD Y1, Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+16(FP)
	VZEROUPPER
	RET

// func toInt8(q *byte, x *float32, n int, by float32)
TEXT ·toInt8(SB), NOSPLIT, $0-28
	MOVQ q+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS by+24(FP), Y15

loop:
	VMOVUPS (SI), Y0
	ROUND8
	VMOVQ X1, (DI)
	ADDQ $32, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func toInt8Keep(q *byte, x *float32, n int, by, scale float32)
TEXT ·toInt8Keep(SB), NOSPLIT, $0-32
	MOVQ q+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS by+24(FP), Y15
	VBROADCASTSS scale+28(FP), Y14
	VXORPS Y12, Y12, Y12

loop:
	VMOVUPS (SI), Y0
	ROUND8
	VMOVQ X1, (DI)
	VCVTDQ2PS Y3, Y3
	VMULPS Y14, Y3, Y3
	VSUBPS Y3, Y0, Y0
	FINITE
	VMOVUPS Y0, (SI)
	ADDQ $32, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func fromInt8(dst *float32, q *byte, n int, scale float32)
TEXT ·fromInt8(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y15

loop:
	WIDEN8
	VMOVUPS Y1, (DI)
	ADDQ $8, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func addInt8(dst *float32, q *byte, n int, scale float32)
TEXT ·addInt8(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y15

loop:
	WIDEN8
	VMOVUPS (DI), Y0
	VADDPS Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $8, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func absSum(s *[4]float64, x *float32, n int)
TEXT ·absSum(SB), NOSPLIT, $0-24
	MOVQ s+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	EVERYWHERE($0x7fffffff, X15, Y15)
	VMOVUPD (DI), Y0

loop:
	VPAND (SI), Y15, Y1
	VEXTRACTI128 $1, Y1, X2
	VCVTPS2PD X1, Y1
	VCVTPS2PD X2, Y2
	VADDPD Y1, Y0, Y0
	VADDPD Y2, Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VMOVUPD Y0, (DI)
	VZEROUPPER
	RET

// func squareSum(s *[4]float64, x *float32, n int)
TEXT ·squareSum(SB), NOSPLIT, $0-24
	MOVQ s+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VMOVUPD (DI), Y0

loop:
	VCVTPS2PD (SI), Y1
	VCVTPS2PD 16(SI), Y2
	VMULPD Y1, Y1, Y1
	VMULPD Y2, Y2, Y2
	VADDPD Y1, Y0, Y0
	VADDPD Y2, Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VMOVUPD Y0, (DI)
	VZEROUPPER
	RET

// func signs(p *byte, x *float32, n int)
TEXT ·signs(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	VMOVUPS (SI), Y0
	VMOVMSKPS Y0, AX
	MOVB AX, (DI)
	ADDQ $32, SI
	INCQ DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func keepSigns(x *float32, n int, scale float32)
TEXT ·keepSigns(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTSS scale+16(FP), Y15
	EVERYWHERE($0x80000000, X14, Y14)
	VXORPS Y12, Y12, Y12

loop:
	VMOVUPS (SI), Y0
	VANDPS Y14, Y0, Y1
	VXORPS Y15, Y1, Y1
	VSUBPS Y1, Y0, Y0
	FINITE
	VMOVUPS Y0, (SI)
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// shifts brings each of a byte's bits to the sign of its lane.
DATA shifts<>+0(SB)/8, $0x0000001e0000001f
DATA shifts<>+8(SB)/8, $0x0000001c0000001d
DATA shifts<>+16(SB)/8, $0x0000001a0000001b
DATA shifts<>+24(SB)/8, $0x0000001800000019
GLOBL shifts<>(SB), RODATA|NOPTR, $32

// func fromSigns(dst *float32, p *byte, n int, scale float32)
TEXT ·fromSigns(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y15
	EVERYWHERE($0x80000000, X14, Y14)
	VMOVDQU shifts<>+0(SB), Y13

loop:
	SIGNED8
	VMOVUPS Y1, (DI)
	INCQ SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func addSigns(dst *float32, p *byte, n int, scale float32)
TEXT ·addSigns(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y15
	EVERYWHERE($0x80000000, X14, Y14)
	VMOVDQU shifts<>+0(SB), Y13

loop:
	SIGNED8
	VMOVUPS (DI), Y0
	VADDPS Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	INCQ SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// PLACES makes Y13 the places of pairs of codes in a word, 0 to 3 times 2·R8, and X12 what brings a dword's code beside the one below.
#define PLACES \
	MOVQ R8, AX; \
	ADDQ AX, AX; \
	VMOVQ AX, X13; \
	VPBROADCASTQ X13, Y13; \
	VPMULUDQ pairs<>+0(SB), Y13, Y13; \
	MOVQ $32, AX; \
	SUBQ R8, AX; \
	VMOVQ AX, X12

// func codes(p *byte, x *float32, groups, width, most int)
TEXT ·codes(SB), NOSPLIT, $0-40
	MOVQ p+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ width+24(FP), R8
	PLACES
	MOVQ most+32(FP), R9
	MOVL $0x4b400000, AX
	SUBL R9, AX
	VMOVD AX, X15
	VPBROADCASTD X15, Y15
	VPCMPEQD Y14, Y14, Y14
	VPSRLQ $32, Y14, Y14

loop:
	VMOVDQU (SI), Y0
	VPSUBD Y15, Y0, Y0
	VPSRLQ X12, Y0, Y1
	VPOR Y1, Y0, Y0
	VPAND Y14, Y0, Y0
	VPSLLVQ Y13, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPOR X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPOR X1, X0, X0
	VMOVQ X0, (DI)
	ADDQ $32, SI
	ADDQ R8, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// LEVELS makes eight times the scale in Y0 of codes at SI.
#define LEVELS \
	VPBROADCASTQ (SI), Y0; \
	VPSRLVQ Y13, Y0, Y0; \
	VPSLLQ X12, Y0, Y1; \
	VPBLENDD $0xaa, Y1, Y0, Y0; \
	VPAND Y14, Y0, Y0; \
	VPSUBD Y11, Y0, Y0; \
	VCVTDQ2PS Y0, Y0; \
	VMULPS Y15, Y0, Y0

// func fromCodes(dst *float32, p *byte, groups, width, most int, scale float32)
TEXT ·fromCodes(SB), NOSPLIT, $0-44
	MOVQ dst+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ width+24(FP), R8
	PLACES
	VPCMPEQD Y14, Y14, Y14
	VPSRLD X12, Y14, Y14
	MOVQ most+32(FP), AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11
	VBROADCASTSS scale+40(FP), Y15

loop:
	LEVELS
	VMOVUPS Y0, (DI)
	ADDQ R8, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// func addCodes(dst *float32, p *byte, groups, width, most int, scale float32)
TEXT ·addCodes(SB), NOSPLIT, $0-44
	MOVQ dst+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ width+24(FP), R8
	PLACES
	VPCMPEQD Y14, Y14, Y14
	VPSRLD X12, Y14, Y14
	MOVQ most+32(FP), AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11
	VBROADCASTSS scale+40(FP), Y15

loop:
	LEVELS
	VMOVUPS (DI), Y1
	VADDPS Y0, Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ R8, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

DATA pairs<>+0(SB)/8, $0
DATA pairs<>+8(SB)/8, $1
DATA pairs<>+16(SB)/8, $2
DATA pairs<>+24(SB)/8, $3
GLOBL pairs<>(SB), RODATA|NOPTR, $32

// func atLeast(at *int32, x *float32, n int, below, from int32) int
TEXT ·atLeast(SB), NOSPLIT, $0-40
	MOVQ at+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL below+24(FP), AX
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	MOVL from+28(FP), R8
	EVERYWHERE($0x7fffffff, X15, Y15)

loop:
	VPAND (SI), Y15, Y1
	VPCMPGTD Y14, Y1, Y1
	VMOVMSKPS Y1, AX
	TESTL AX, AX
	JZ next

hit:
	BSFL AX, BX
	ADDL R8, BX
	MOVL BX, (DI)
	ADDQ $4, DI
	LEAL -1(AX), BX
	ANDL BX, AX
	JNZ hit

next:
	ADDL $8, R8
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	SUBQ at+0(FP), DI
	SHRQ $2, DI
	MOVQ DI, ret+32(FP)
	VZEROUPPER
	RET
