package allreduce_test

import (
	"math/bits"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// mayRunOn is the number of cores that this process may run on.
func mayRunOn() int {
	var set [128]uint64
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set))); errno != 0 {
		return 0
	}
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}

// A pauser waits as one does for an accelerator: to some 60 µs. time.Sleep rounds what is below a millisecond up to one where a connection is
// being read, so that the layers of a short backward pass would all become final at once, in its middle. Its calls, which never block, go around
// the runtime: those that it sees wake its watch (sysmon), which then looks every 100 µs for the next 5 ms, on the core that sums and sends. A
// model that waits 32 times has it look all the time, and of what seemed exposed half was that.
type pauser struct{ timer *os.File }

func newPauser() (*pauser, error) {
	const monotonic = 1
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("timerfd_create", errno)
	}
	return &pauser{os.NewFile(fd, "timer")}, nil
}

// wait is for d.
func (p *pauser) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	raw, err := p.timer.SyscallConn()
	if err != nil {
		return err
	}
	spec := [2]syscall.Timespec{1: syscall.NsecToTimespec(d.Nanoseconds())} // once
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	}); err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	var count [8]byte
	err = raw.Read(func(fd uintptr) bool {
		_, _, errno = syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&count)), unsafe.Sizeof(count))
		return errno != syscall.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
