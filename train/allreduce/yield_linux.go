package allreduce

import (
	"syscall"
	"time"
	"unsafe"
)

// A courtesy lets other threads run that wait for a processor, in a backward pass that needs all cores: the one that has just been woken by
// what has come. The system would let it wait for a time slice, some 3 ms.
type courtesy struct {
	thread    int
	cpu, wall time.Duration // when it was last asked
}

// due is asked when a tensor is final. It says no where the pass waits for something else, an accelerator say, or where little has been computed
// since: who has just been woken should not be the last in the queue again. It costs half a microsecond.
func (c *courtesy) due(wall time.Duration) bool {
	const threadTime, least = 3, 20 * time.Microsecond
	var at syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		return false
	}
	thread, cpu := syscall.Gettid(), time.Duration(at.Nano())
	worked, passed, same := cpu-c.cpu, wall-c.wall, thread == c.thread
	*c = courtesy{thread, cpu, wall}
	return same && worked >= least && 2*worked >= passed
}

// yield costs a third of a microsecond where nobody waits.
func yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
