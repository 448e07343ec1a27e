package kernel

import "unsafe"

// fetch asks for the cache lines of n bytes from p on: fetch_amd64.s.
//
//go:noescape
func fetch(p unsafe.Pointer, n uintptr)
