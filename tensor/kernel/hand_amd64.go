package kernel

import "unsafe"

// handOver copies so many cache lines to dst, which is aligned to one: hand_amd64.s.
//
//go:noescape
func handOver(dst, src unsafe.Pointer, lines int)
