package tensor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size in bytes of a large page of memory, where the processor has pages of 4 KiB.
const hugePage = 2 << 20

// adviseHuge asks the kernel to back b with huge pages, which it does on the first touch: with fewer pages there are fewer misses of
// the translation cache, and fewer page ends at which the hardware stops fetching ahead. It is advice: if the kernel does not take
// it, nothing is lost but speed.
func adviseHuge(b []byte) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := int(-start % hugePage)
	if n := (len(b) - skip) / hugePage * hugePage; n > 0 {
		_ = unix.Madvise(b[skip:skip+n], unix.MADV_HUGEPAGE)
	}
}
