//go:build unix

package pstest_test

import (
	"syscall"
	"time"
)

// pause makes the process stand still for a while.
func (p *process) pause(d time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // it may be gone
	time.Sleep(d)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}
