package kernel

import "unsafe"

// HandOver copies src to dst, which another core read last and reads next, such as memory that processes share. A store to a cache line that
// another core has waits for it, and few such are under way at a time: 318 KB took 37 to 110 µs, and 7 around the own cache, which is how
// HandOver writes. dst has the length of src or less, and does not overlap it.
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
