package compare

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// transfers are the calls by which a program moves bytes. A socket is read by read as well as by recv: Go does the first, and ZeroMQ, below
// MXNet, the second; files and pipes are read by them too, and processes of a trial have little to do with those while its clock runs.
var transfers = []uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
	unix.SYS_SENDMMSG, unix.SYS_RECVMMSG,
}

// A callCounter has the kernel count the system calls of processes, by its tracepoint raw_syscalls:sys_enter: of each thread that there is,
// and, by inheritance, of each that these start. Nothing is written for a call, and nobody is woken.
type callCounter struct {
	all, moves map[int][]int // files of counters, by process
}

// countCalls begins to count those of the processes, and of what they started. It is called while they wait for each other: a thread that one
// which is not counted yet starts meanwhile would be missed, and so where others are there in the end it begins again.
func countCalls(processes []Process) (*callCounter, error) {
	const tries = 20
	id, err := tracepoint("raw_syscalls/sys_enter")
	if err != nil {
		return nil, fmt.Errorf("system calls are counted by a tracepoint, which only root may read: %w", err)
	}
	for range tries {
		c := &callCounter{all: map[int][]int{}, moves: map[int][]int{}}
		found := threadsOf(processes)
		for _, p := range processes {
			for _, thread := range found[p.PID] {
				if err := c.open(p.PID, thread, id); err != nil {
					c.close()
					return nil, fmt.Errorf("counting system calls wants root, or the capability CAP_PERFMON: %w", err)
				}
			}
		}
		if maps.EqualFunc(found, threadsOf(processes), slices.Equal) {
			return c, nil
		}
		c.close()
	}
	return nil, fmt.Errorf("in each of %d attempts to count system calls threads came or went", tries)
}

// threadsOf are the threads of each process, and of what it started.
func threadsOf(processes []Process) map[int][]int {
	children, all := descendants(processes), map[int][]int{}
	for _, p := range processes {
		for _, pid := range append(children[p.PID], p.PID) {
			all[p.PID] = append(all[p.PID], threads(pid)...)
		}
	}
	return all
}

// open counts a thread's calls for a process.
func (c *callCounter) open(pid, thread, id int) error {
	all, err := openCounter(thread, id)
	if errors.Is(err, unix.ESRCH) { // it has ended
		return nil
	}
	if err != nil {
		return err
	}
	c.all[pid] = append(c.all[pid], all)
	moves, err := openCounter(thread, id)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	c.moves[pid] = append(c.moves[pid], moves)
	return setFilter(moves, transferFilter())
}

func openCounter(thread, id int) (int, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: uint64(id), Bits: unix.PerfBitInherit}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("perf_event_open", err)
	}
	return fd, nil
}

// transferFilter is that of the tracepoint.
func transferFilter() string {
	var words []string
	for _, n := range transfers {
		words = append(words, fmt.Sprintf("id==%d", n))
	}
	return strings.Join(words, "||")
}

// setFilter has a counter count what passes the filter alone.
func setFilter(fd int, filter string) error {
	text, err := unix.BytePtrFromString(filter)
	if err != nil {
		return err
	}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(text)))
	if e != 0 {
		return os.NewSyscallError("ioctl PERF_EVENT_IOC_SET_FILTER", e)
	}
	return nil
}

// tracepoint is the kernel's number of one.
func tracepoint(name string) (int, error) {
	var first error
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		text, err := os.ReadFile(dir + "/events/" + name + "/id")
		if err == nil {
			return strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if first == nil {
			first = err
		}
	}
	return 0, first
}

// threads are those of a process; none, once it has ended.
func threads(pid int) (list []int) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// read are the calls so far, by process. What a counted thread started is in its counter, also once it has ended.
func (c *callCounter) read() map[int]Calls {
	if c == nil {
		return nil
	}
	out := map[int]Calls{}
	for pid := range c.all {
		all, ok := sumCounters(c.all[pid])
		moves, both := sumCounters(c.moves[pid])
		if ok && both {
			out[pid] = Calls{All: all, Transfers: moves}
		}
	}
	return out
}

func sumCounters(files []int) (sum int64, ok bool) {
	for _, fd := range files {
		var n [8]byte
		if k, err := unix.Read(fd, n[:]); err != nil || k != len(n) {
			return 0, false
		}
		sum += int64(binary.NativeEndian.Uint64(n[:]))
	}
	return sum, true
}

func (c *callCounter) close() {
	if c == nil {
		return
	}
	for pid := range c.all {
		for _, fd := range slices.Concat(c.all[pid], c.moves[pid]) {
			_ = unix.Close(fd) // it was only read
		}
	}
	c.all, c.moves = nil, nil
}
