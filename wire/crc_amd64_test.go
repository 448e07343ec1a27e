package wire

import (
	"math/bits"
	"testing"
)

// TestFoldBy derives the constants again.
func TestFoldBy(t *testing.T) {
	const polynomial = 0x1edc6f41 // and x³²
	power := func(n int) uint64 { // x^n mod P, reflected
		r := uint32(1)
		for range n {
			over := r >> 31
			r = r<<1 ^ over*polynomial
		}
		return uint64(bits.Reverse32(r)) << 32
	}
	for i, distance := range []int{2048, 512, 384, 256, 128} {
		if want := [2]uint64{power(distance + 63), power(distance - 1)}; [2]uint64(foldBy[2*i:]) != want {
			t.Errorf("by %d bits: %#x, want %#x", distance, foldBy[2*i:2*i+2], want)
		}
	}
	if foldBy[10] != 0 || foldBy[11] != 0 {
		t.Errorf("the last block is moved by %#x", foldBy[10:])
	}
}
