package kernel

import "unsafe"

// piece is how many elements one call of assembly takes: at 3 GB/s, seven slices of them last 50 µs, and the collector waits for
// assembly.
const piece = 1 << 13

// streams says whether n elements of so many bytes in all slices together are too many to be found in cache again, so that results
// had better bypass it: more than half of a last-level cache.
func streams(n, bytes int) bool { return n*bytes > halfCache }

// halfCache is half of the usual 32 MiB of a core complex. On a machine with less, some results are cached in vain, and on one with
// more some are not though they could; bits do not depend on it.
const halfCache = 16 << 20

// misaligned is how many elements precede the first one on a cache line.
func misaligned[T Float](x []T) int {
	var e T
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(x)))%64) / int(unsafe.Sizeof(e))
}
