package kernel

import "unsafe"

// HandOver copies src to dst, which another core read last and reads next, such as memory that processes share. A store to a cache line that
// another core has waits for it, and few such are under way at a time: 318 KB took 37 to 110 µs on processors of AMD, and 7 around the own
// cache, which is how HandOver writes. Intel's have more under way, and memory is what they wait for: there it is the longest that goes around
// the cache. dst has the length of src or less, and does not overlap it.
func HandOver(dst, src []byte) {
	src = src[:len(dst)]
	if intel && len(dst) <= handPlain {
		copy(dst, src)
		return
	}
	around(dst, src)
}

// around copies src to dst, of the same length, around the cache.
func around(dst, src []byte) {
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

// handPlain is up to what length processors of Intel copy plainly: sums of 64 and 256 KiB among ranks were a quarter faster, a tenth those of
// 4 MiB, which are copied in pieces; with all pieces plain, several sums of 4 MiB were a tenth slower.
const handPlain = 256 << 10

// handMost is how many lines one call of assembly takes, for which the collector waits: some 10 µs.
const handMost = 4096
