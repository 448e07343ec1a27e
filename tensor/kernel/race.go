//go:build race

package kernel

import (
	"runtime"
	"unsafe"
)

const raceEnabled = true

// reads tells the race detector that a matrix is read, by code that it does not look into.
func reads[T Float](x []T, transposed bool, rows, cols, ld int) {
	if transposed {
		rows, cols = cols, rows
	}
	if cols <= 0 {
		return
	}
	for i := range rows {
		row := x[i*ld:][:cols]
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(row)), cols*int(unsafe.Sizeof(row[0])))
	}
}
