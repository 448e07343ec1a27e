//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package compare

import (
	"errors"
	"os"
	"syscall"
)

// hold has f for this process until release; false: another has it. Where the file system has no locks, everybody has it.
func hold(f *os.File) bool {
	return !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

func release(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) } // it may have had no lock
