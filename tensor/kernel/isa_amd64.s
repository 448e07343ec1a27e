#include "textflag.h"

// func cacheKiB() int
TEXT ·cacheKiB(SB), NOSPLIT, $0-8
	MOVL $0x80000000, AX
	CPUID
	MOVQ $0, R8
	CMPL AX, $0x80000006
	JB   done
	MOVL $0x80000006, AX
	CPUID
	MOVL CX, R8
	SHRL $16, R8

done:
	MOVQ R8, ret+0(FP)
	RET
