package tensor

import (
	"sync"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A CPU is what arithmetic runs on: an instruction set and threads. There is one per process or job, shared by all that compute.
// Its methods cut the work so that the bits of a result do not depend on the number of threads. A nil CPU computes on the caller
// with the best instruction set.
type CPU struct {
	ISA  kernel.ISA
	Pool *Pool

	turns  *Turns
	width  *Width
	spaces [2]sync.Pool // *kernel.Workspace of float32 and of float64
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

// Among says that this is the index-th of n processes of this machine that compute the same at the same time. Where each has one thread, and
// they are more than the cores, their steps take turns, and short ones keep to a core of their process: see Turns. It changes no bit of a
// result. Threads that were kept on a core may run everywhere again after Close.
func (c *CPU) Among(index, n int) {
	if c.Threads() == 1 {
		c.turns.leave()
		c.turns = newTurns(index, n)
	}
}

// Turns returns nil where steps need not take turns; its methods may be called all the same.
func (c *CPU) Turns() *Turns {
	if c == nil {
		return nil
	}
	return c.turns
}

// Adapt says that steps take as many of the threads as make them fastest, which is measured while they are made: see Width. It changes no
// bit of a result.
func (c *CPU) Adapt() {
	if c.Threads() > 1 {
		c.width = newWidth(c.Pool)
	}
}

// Width returns nil where steps take all threads; its methods may be called all the same.
func (c *CPU) Width() *Width {
	if c == nil {
		return nil
	}
	return c.width
}

// Close ends the threads, and what Among began.
func (c *CPU) Close() {
	if c != nil {
		c.Pool.Close()
		c.turns.leave()
	}
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

// Split calls f on runs of [0, n) that together cover it, one for each thread. Each starts at a multiple of grain, the least worth a
// thread; with a grain of kernel.BlockLen the sums of kernel.SumBlocks fold to the same bits.
func (c *CPU) Split(n, grain int, f func(from, to, worker int)) {
	_, pool := c.parts()
	grains := (n + grain - 1) / grain
	runs := min(grains, pool.Threads())
	pool.Run(runs, func(i, worker int) {
		f(i*grains/runs*grain, min(n, (i+1)*grains/runs*grain), worker)
	})
}
