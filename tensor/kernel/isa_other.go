//go:build !amd64

package kernel

func assembly() []ISA { return nil }

// noAssembly is what the assembly's stand-ins panic with.
const noAssembly = "kernel: this ISA has no assembly in this program (see Available)"
