package tensor

import (
	"fmt"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A CPU is what arithmetic runs on: an instruction set and threads. There is one per process or job, shared by all that compute.
// Its methods cut the work so that the bits of a result do not depend on the number of threads. A nil CPU computes on the caller
// with the best instruction set.
type CPU struct {
	ISA  kernel.ISA
	Pool *Pool
}

// NewCPU returns a CPU of so many threads (0: GOMAXPROCS) with the fastest kernels of this machine or, if exact, the fastest whose
// bits are those of every machine. Close ends its threads.
func NewCPU(threads int, exact bool) *CPU {
	c := &CPU{ISA: kernel.Best(), Pool: NewPool(threads)}
	if exact {
		c.ISA = kernel.Exact()
	}
	return c
}

// Close ends the threads.
func (c *CPU) Close() {
	if c != nil {
		c.Pool.Close()
	}
}

// Describe names the kernels and threads, for a run's report.
func (c *CPU) Describe() string {
	isa, pool := c.parts()
	return fmt.Sprintf("kernels %v, threads %d", isa, pool.Threads())
}

func (c *CPU) parts() (kernel.ISA, *Pool) {
	if c == nil {
		return kernel.Best(), nil
	}
	return c.ISA, c.Pool
}

// Threads is the number of threads: 1 for a nil CPU.
func (c *CPU) Threads() int {
	_, pool := c.parts()
	return pool.Threads()
}
