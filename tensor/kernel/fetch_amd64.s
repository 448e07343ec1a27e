#include "textflag.h"

// func fetch(p unsafe.Pointer, n uintptr)
TEXT ·fetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	ADDQ SI, CX

line:
	PREFETCHT0 (SI)
	ADDQ $64, SI
	CMPQ SI, CX
	JLT line
	RET

// func fetchRows(p unsafe.Pointer, rows *int32, n int, size uintptr)
TEXT ·fetchRows(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), SI
	MOVQ rows+8(FP), DI
	MOVQ n+16(FP), CX
	MOVQ size+24(FP), DX
	LEAQ -1(SI)(DX*1), R8 // the last byte of the first row

row:
	MOVLQSX (DI), AX
	IMULQ   DX, AX
	PREFETCHT0 (SI)(AX*1)
	PREFETCHT0 (R8)(AX*1)
	ADDQ $4, DI
	DECQ CX
	JNE  row
	RET
