//go:build !amd64

package kernel

func assembly() []ISA { return nil }
