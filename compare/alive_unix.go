//go:build unix

package compare

import (
	"errors"
	"syscall"
)

// alive reports whether there is a process of that number.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// The signals of a fault: the end without a word, a standstill, and its end.
const (
	killSignal = syscall.SIGKILL
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)

// reach is what a signal is sent to so that a process gets it with all that it started, which is its group where it leads one; else, and then
// whole is false, the process alone.
func reach(pid int) (to int, whole bool) {
	if group, err := syscall.Getpgid(pid); err == nil && group == pid {
		return -pid, true
	}
	return pid, false
}

func signalTo(to int, s syscall.Signal) error { return syscall.Kill(to, s) }
