//go:build race

package kernel

import (
	"runtime"
	"unsafe"
)

const raceEnabled = true

// read and wrote tell the race detector what a loop touches that it does not look into (go:norace): element by element, as it would be told
// else, tests that train took a third longer.
func read[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceReadRange(stays(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

func wrote[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceWriteRange(stays(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

// stays hides p from the compiler's escape analysis, which does not know that the detector keeps no pointer: arrays of scratch would be allocated.
//
//go:nosplit
//go:nocheckptr
func stays(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return unsafe.Pointer(x ^ 0)
}

// reads is read of a matrix.
func reads[T Float](x []T, transposed bool, rows, cols, ld int) {
	if transposed {
		rows, cols = cols, rows
	}
	if cols <= 0 {
		return
	}
	for i := range rows {
		read(x[i*ld:][:cols])
	}
}
