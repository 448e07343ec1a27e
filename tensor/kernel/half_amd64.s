#include "textflag.h"

// Eight numbers at a time. DI is what is written, SI and DX what is read, CX how many numbers are left.

// A constant in all lanes of Y, of which X is the lower half.
#define EVERYWHERE(c, X, Y) \
	MOVL c, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

// NARROW rounds the numbers in Y0, which stay, to eight halves in X1. The instruction keeps what a NaN carries; the twin in Go does not.
#define CONSTANTS_F16 \
	EVERYWHERE($0x80000000, X15, Y15); \
	EVERYWHERE($0x7fc00000, X14, Y14)

#define NARROW_F16 \
	VCMPPS $3, Y0, Y0, Y2; \
	VANDPS Y15, Y0, Y3; \
	VORPS Y14, Y3, Y3; \
	VBLENDVPS Y2, Y3, Y0, Y1; \
	VCVTPS2PH $0, Y1, X1

#define CONSTANTS_BF16 \
	EVERYWHERE($1, X15, Y15); \
	EVERYWHERE($0x7fff, X14, Y14); \
	EVERYWHERE($0x40, X13, Y13)

#define NARROW_BF16 \
	VPSRLD $16, Y0, Y1; \
	VPAND Y15, Y1, Y2; \
	VPADDD Y14, Y2, Y2; \
	VPADDD Y0, Y2, Y2; \
	VPSRLD $16, Y2, Y2; \
	VPOR Y13, Y1, Y3; \
	VCMPPS $3, Y0, Y0, Y4; \
	VBLENDVPS Y4, Y3, Y2, Y2; \
	VEXTRACTI128 $1, Y2, X3; \
	VPACKUSDW X3, X2, X1

// WIDEN makes eight numbers in Y1 of halves from memory or X1.
#define WIDEN_F16(from) VCVTPH2PS from, Y1

#define WIDEN_BF16(from) \
	VPMOVZXWD from, Y1; \
	VPSLLD $16, Y1, Y1

#define NARROW_LOOP(NARROW) \
	MOVQ dst+0(FP), DI; \
	MOVQ x+8(FP), SI; \
	MOVQ n+16(FP), CX; \
loop: \
	VMOVUPS (SI), Y0; \
	NARROW; \
	VMOVDQU X1, (DI); \
	ADDQ $32, SI; \
	ADDQ $16, DI; \
	SUBQ $8, CX; \
	JNZ loop; \
	VZEROUPPER; \
	RET

#define KEEP_LOOP(NARROW, WIDEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ e+8(FP), SI; \
	MOVQ x+16(FP), DX; \
	MOVQ n+24(FP), CX; \
	VXORPS Y12, Y12, Y12; \
loop: \
	VMOVUPS (SI), Y0; \
	VADDPS (DX), Y0, Y0; \
	NARROW; \
	VMOVDQU X1, (DI); \
	WIDEN(X1); \
	VSUBPS Y1, Y0, Y0; \
	VSUBPS Y0, Y0, Y2; \
	VCMPPS $0, Y12, Y2, Y2; \
	VANDPS Y2, Y0, Y0; \
	VMOVUPS Y0, (SI); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $16, DI; \
	SUBQ $8, CX; \
	JNZ loop; \
	VZEROUPPER; \
	RET

#define WIDEN_LOOP(WIDEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ p+8(FP), SI; \
	MOVQ n+16(FP), CX; \
loop: \
	WIDEN((SI)); \
	VMOVUPS Y1, (DI); \
	ADDQ $16, SI; \
	ADDQ $32, DI; \
	SUBQ $8, CX; \
	JNZ loop; \
	VZEROUPPER; \
	RET

#define ADD_LOOP(WIDEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ p+8(FP), SI; \
	MOVQ n+16(FP), CX; \
loop: \
	WIDEN((SI)); \
	VMOVUPS (DI), Y0; \
	VADDPS Y1, Y0, Y0; \
	VMOVUPS Y0, (DI); \
	ADDQ $16, SI; \
	ADDQ $32, DI; \
	SUBQ $8, CX; \
	JNZ loop; \
	VZEROUPPER; \
	RET

// func narrowF16(dst *byte, x *float32, n int)
TEXT ·narrowF16(SB), NOSPLIT, $0-24
	CONSTANTS_F16
	NARROW_LOOP(NARROW_F16)

// func narrowBF16(dst *byte, x *float32, n int)
TEXT ·narrowBF16(SB), NOSPLIT, $0-24
	CONSTANTS_BF16
	NARROW_LOOP(NARROW_BF16)

// func narrowKeepF16(dst *byte, e, x *float32, n int)
TEXT ·narrowKeepF16(SB), NOSPLIT, $0-32
	CONSTANTS_F16
	KEEP_LOOP(NARROW_F16, WIDEN_F16)

// func narrowKeepBF16(dst *byte, e, x *float32, n int)
TEXT ·narrowKeepBF16(SB), NOSPLIT, $0-32
	CONSTANTS_BF16
	KEEP_LOOP(NARROW_BF16, WIDEN_BF16)

// func widenF16(dst *float32, p *byte, n int)
TEXT ·widenF16(SB), NOSPLIT, $0-24
	WIDEN_LOOP(WIDEN_F16)

// func widenBF16(dst *float32, p *byte, n int)
TEXT ·widenBF16(SB), NOSPLIT, $0-24
	WIDEN_LOOP(WIDEN_BF16)

// func widenAddF16(dst *float32, p *byte, n int)
TEXT ·widenAddF16(SB), NOSPLIT, $0-24
	ADD_LOOP(WIDEN_F16)

// func widenAddBF16(dst *float32, p *byte, n int)
TEXT ·widenAddBF16(SB), NOSPLIT, $0-24
	ADD_LOOP(WIDEN_BF16)
