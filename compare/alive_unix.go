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

func signalProcess(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
