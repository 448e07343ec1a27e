//go:build !amd64

package kernel

import "unsafe"

func fetch(unsafe.Pointer, uintptr) {}

func fetchRows(unsafe.Pointer, *int32, int, uintptr) {}
