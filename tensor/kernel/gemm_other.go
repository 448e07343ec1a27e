//go:build !amd64

package kernel

// There is no assembly here, and Available says so: an ISA that claims some is a mistake of the caller.

func multiply[T Float](isa ISA, wide bool, t *tile) {
	panic("kernel: no " + isa.String() + " on this machine")
}

func multiplyFew(isa ISA, t *tile) { panic("kernel: no " + isa.String() + " on this machine") }

func turnBlock[T Float](isa ISA, b *block) { panic("kernel: no " + isa.String() + " on this machine") }

func copyBlock[T Float](isa ISA, b *block) { panic("kernel: no " + isa.String() + " on this machine") }

func multiplyZeros(isa ISA, t *zeros) { panic("kernel: no " + isa.String() + " on this machine") }

func present(isa ISA, a []float32, lda, rows, columns int, words []uint64) {
	panic("kernel: no " + isa.String() + " on this machine")
}
