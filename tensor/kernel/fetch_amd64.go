package kernel

import "unsafe"

// fetch asks for the cache lines of n bytes from p on: fetch_amd64.s.
//
//go:noescape
func fetch(p unsafe.Pointer, n uintptr)

// fetchRows asks for the first and last cache lines of n rows of so many bytes, from p on: fetch_amd64.s.
//
//go:noescape
func fetchRows(p unsafe.Pointer, rows *int32, n int, size uintptr)
