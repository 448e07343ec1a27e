//go:build !amd64

package kernel

import "unsafe"

func dotRows[T Float](isa ISA, m int) int { return 0 }

func dots[T Float](isa ISA, rows int, t *stripe) { panic("kernel: no assembly on this machine") }

func addRows[T Float](isa ISA, rows int, t *stripe) {
	panic("kernel: no " + isa.String() + " on this machine")
}

func readSum(isa ISA, x unsafe.Pointer, n int) float32 {
	panic("kernel: no " + isa.String() + " on this machine")
}
