package tensor

import (
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trivium-ml/trivium/internal/cores"
)

// newTurns returns nil where there is a core for each of n processes, and where only one is for all.
func newTurns(index, n int) *Turns {
	all, err := allowed()
	if err != nil {
		return nil
	}
	s := &affinity{all: all}
	for i := range len(s.all) * int(unsafe.Sizeof(s.all[0])) * 8 {
		if s.all.IsSet(i) {
			var one unix.CPUSet
			one.Set(i)
			s.each = append(s.each, one)
		}
	}
	if len(s.each) < 2 || n <= len(s.each) {
		return nil
	}
	return &Turns{duty: dutyOf(index, n, len(s.each)), home: index * len(s.each) / n, sys: s}
}

// allowed is where this process may run, before any of its threads is kept anywhere.
var allowed = sync.OnceValues(func() (all unix.CPUSet, err error) {
	err = unix.SchedGetaffinity(0, &all)
	return all, err
})

// An affinity says where threads may run. What fails leaves them where they are.
type affinity struct {
	all  unix.CPUSet
	each []unix.CPUSet
}

// keep also sees to the mask: the runtime starts no thread as a copy of one that is locked.
func (s *affinity) keep() { runtime.LockOSThread() }

func (s *affinity) run(core int) { s.set(&s.each[core]) }

func (s *affinity) free(ran bool) {
	if ran {
		s.set(&s.all)
	}
	runtime.UnlockOSThread()
}

func (s *affinity) leave(core int) {
	cores.Threads(func(id int) {
		var now unix.CPUSet
		if unix.SchedGetaffinity(id, &now) == nil && now == s.each[core] {
			_ = unix.SchedSetaffinity(id, &s.all)
		}
	})
}

// set does without the runtime: the call takes half a microsecond.
func (s *affinity) set(to *unix.CPUSet) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*to), uintptr(unsafe.Pointer(to)))
}

func (*affinity) yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

func (*affinity) computed() time.Duration {
	const threadTime = 3
	var at syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&at)), 0)
	return time.Duration(at.Nano())
}
