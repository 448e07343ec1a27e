#include "textflag.h"

// DI y, R10 alpha, SI x, DX z, CX n, R8 bytes of a row, R9 of three, R11 d. Vectors of sums are in the order of Dots. Each line of z is
// asked for AHEAD bytes before its turn, since the rows come from memory; four rows' lines are 6 KiB of the first-level cache then. Intel's
// processors are asked for them in the second-level cache: of lines on their way to the first they hold too few to be kept busy (0.80 of what one
// core reads, in place of 0.68).

#define AHEAD 1536

#define ARGUMENTS \
	MOVQ y+0(FP), DI; \
	MOVQ alpha+8(FP), R10; \
	MOVQ x+16(FP), SI; \
	MOVQ z+24(FP), DX; \
	MOVQ n+32(FP), CX; \
	MOVQ cols+40(FP), R8; \
	MOVQ d+48(FP), R11; \
	SHLQ $2, R8; \
	LEAQ (R8)(R8*2), R9

#define PREFETCH(INSTRUCTION) \
	INSTRUCTION AHEAD(DX); \
	INSTRUCTION AHEAD(DX)(R8*1); \
	INSTRUCTION AHEAD(DX)(R8*2); \
	INSTRUCTION AHEAD(DX)(R9*1)

// NEXT goes to the next 16 cells, and sets the zero flag if there are none.
#define NEXT \
	ADDQ $64, SI; \
	ADDQ $64, DI; \
	ADDQ $64, DX; \
	SUBQ $16, CX

// CLEAR makes all sums zero, also the upper halves of Z registers.
#define CLEAR \
	VXORPS Y6, Y6, Y6; \
	VXORPS Y7, Y7, Y7; \
	VXORPS Y8, Y8, Y8; \
	VXORPS Y9, Y9, Y9; \
	VXORPS Y10, Y10, Y10; \
	VXORPS Y11, Y11, Y11; \
	VXORPS Y12, Y12, Y12; \
	VXORPS Y13, Y13, Y13; \
	VXORPS Y14, Y14, Y14; \
	VXORPS Y15, Y15, Y15

// SUM writes the sum of vector Y, of which X is the lower half, as the i-th of d.
#define SUM(Y, X, i) \
	VEXTRACTF128 $1, Y, X0; \
	VADDPS X0, X, X; \
	VHADDPS X, X, X; \
	VHADDPS X, X, X; \
	VMOVSS X, (4*i)(R11)

#define SUMS \
	SUM(Y6, X6, 0); \
	SUM(Y7, X7, 1); \
	SUM(Y8, X8, 2); \
	SUM(Y9, X9, 3); \
	SUM(Y10, X10, 4); \
	SUM(Y11, X11, 5); \
	SUM(Y12, X12, 6); \
	SUM(Y13, X13, 7); \
	SUM(Y14, X14, 8); \
	SUM(Y15, X15, 9)

// FOLD adds the upper half of Z to Y, its lower.
#define FOLD(Z, Y) \
	VEXTRACTF64X4 $1, Z, Y0; \
	VADDPS Y0, Y, Y

#define STEP512(x, alpha) \
	VMULPS x, alpha, Z1; \
	VADDPS Z1, Z0, Z0

#define TURN512 \
	VMOVUPS (DI), Z0; \
	STEP512((SI), Z16); \
	STEP512((SI)(R8*1), Z17); \
	STEP512((SI)(R8*2), Z18); \
	STEP512((SI)(R9*1), Z19); \
	VMOVUPS (DX), Z2; \
	VMOVUPS (DX)(R8*1), Z3; \
	VMOVUPS (DX)(R8*2), Z4; \
	VMOVUPS (DX)(R9*1), Z5; \
	VMOVUPS Z0, (DI); \
	VFMADD231PS Z2, Z3, Z10; \
	VFMADD231PS Z2, Z4, Z11; \
	VFMADD231PS Z2, Z5, Z12; \
	VFMADD231PS Z3, Z4, Z13; \
	VFMADD231PS Z3, Z5, Z14; \
	VFMADD231PS Z4, Z5, Z15; \
	VFMADD231PS Z2, Z0, Z6; \
	VFMADD231PS Z3, Z0, Z7; \
	VFMADD231PS Z4, Z0, Z8; \
	VFMADD231PS Z5, Z0, Z9

// func axpyDotsF32AVX512(y *float32, alpha *[AxpyRows]float32, x, z *float32, n, cols int, d *Dots)
TEXT ·axpyDotsF32AVX512(SB), NOSPLIT, $0-56
	ARGUMENTS
	VBROADCASTSS 0(R10), Z16
	VBROADCASTSS 4(R10), Z17
	VBROADCASTSS 8(R10), Z18
	VBROADCASTSS 12(R10), Z19
	CLEAR
	CMPB ·intel(SB), $0
	JNE  intelAVX512

loopAVX512:
	PREFETCH(PREFETCHT0)
	TURN512
	NEXT
	JNE loopAVX512
	JMP fold

intelAVX512:
	PREFETCH(PREFETCHT1)
	TURN512
	NEXT
	JNE intelAVX512

fold:
	FOLD(Z6, Y6)
	FOLD(Z7, Y7)
	FOLD(Z8, Y8)
	FOLD(Z9, Y9)
	FOLD(Z10, Y10)
	FOLD(Z11, Y11)
	FOLD(Z12, Y12)
	FOLD(Z13, Y13)
	FOLD(Z14, Y14)
	FOLD(Z15, Y15)
	SUMS
	VZEROUPPER
	RET

#define STEP256(x, alpha) \
	VBROADCASTSS alpha, Y1; \
	VMULPS x, Y1, Y1; \
	VADDPS Y1, Y0, Y0

#define HALF(at) \
	VMOVUPS at(DI), Y0; \
	STEP256(at(SI), 0(R10)); \
	STEP256(at(SI)(R8*1), 4(R10)); \
	STEP256(at(SI)(R8*2), 8(R10)); \
	STEP256(at(SI)(R9*1), 12(R10)); \
	VMOVUPS at(DX), Y2; \
	VMOVUPS at(DX)(R8*1), Y3; \
	VMOVUPS at(DX)(R8*2), Y4; \
	VMOVUPS at(DX)(R9*1), Y5; \
	VMOVUPS Y0, at(DI); \
	VFMADD231PS Y2, Y3, Y10; \
	VFMADD231PS Y2, Y4, Y11; \
	VFMADD231PS Y2, Y5, Y12; \
	VFMADD231PS Y3, Y4, Y13; \
	VFMADD231PS Y3, Y5, Y14; \
	VFMADD231PS Y4, Y5, Y15; \
	VFMADD231PS Y2, Y0, Y6; \
	VFMADD231PS Y3, Y0, Y7; \
	VFMADD231PS Y4, Y0, Y8; \
	VFMADD231PS Y5, Y0, Y9

// func axpyDotsF32AVX2(y *float32, alpha *[AxpyRows]float32, x, z *float32, n, cols int, d *Dots)
TEXT ·axpyDotsF32AVX2(SB), NOSPLIT, $0-56
	ARGUMENTS
	CLEAR
	CMPB ·intel(SB), $0
	JNE  intelAVX2

loopAVX2:
	PREFETCH(PREFETCHT0)
	HALF(0)
	HALF(32)
	NEXT
	JNE loopAVX2
	JMP sums

intelAVX2:
	PREFETCH(PREFETCHT1)
	HALF(0)
	HALF(32)
	NEXT
	JNE intelAVX2

sums:
	SUMS
	VZEROUPPER
	RET
