//go:build !amd64

package kernel

import "unsafe"

func handOver(dst, src unsafe.Pointer, lines int) {
	copy(unsafe.Slice((*byte)(dst), 64*lines), unsafe.Slice((*byte)(src), 64*lines))
}
