package kernel

import "unsafe"

// HandOver copies src to dst, which another core reads next and wrote or read last, such as memory that processes share. Stores to cache
// lines that another core has take a round trip each, of which few are under way at a time: of 318 KB they took 37 to 110 µs, where they
// went around the own cache 7. The slices have the same length, and do not overlap.
func HandOver(dst, src []byte) {
	src = src[:len(dst)]
	head := min(int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64), len(dst))
	lines := (len(dst) - head) / 64
	copy(dst[:head], src)
	for at, left := head, lines; left > 0; {
		n := min(left, handMost)
		handOver(unsafe.Pointer(&dst[at]), unsafe.Pointer(&src[at]), n)
		at, left = at+64*n, left-n
	}
	copy(dst[head+64*lines:], src[head+64*lines:])
}

// handMost is how many lines one call of assembly takes, for which the collector waits: some 10 µs.
const handMost = 4096
