package tensor_test

import (
	"testing"
	"unsafe"

	"github.com/trivium-ml/trivium/tensor"
)

// Large memory is aligned, zeroed and writable to its last byte, whatever pages it is on.
func TestAlignedBytesLarge(t *testing.T) {
	for _, n := range []int{4<<20 - 1, 4 << 20, 4<<20 + 1, 9<<20 + 5} {
		b := tensor.AlignedBytes(n)
		if len(b) != n || cap(b) != n || uintptr(unsafe.Pointer(&b[0]))%tensor.Align != 0 {
			t.Fatalf("%d bytes: length %d, capacity %d, at %p", n, len(b), cap(b), &b[0])
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("%d bytes: byte %d is %d, want 0", n, i, b[i])
			}
			b[i] = 1
		}
	}
}
