//go:build !amd64

package kernel

func widest() ISA { return Go }

// noAssembly is what the assembly's stand-ins panic with.
const noAssembly = "kernel: this ISA has no assembly in this program (see Available)"

const (
	secondLevel = 0
	intel       = false
)
