//go:build unix && !linux

package launch

import "syscall"

// attributes: a process group of its own, so that a terminal's interrupt reaches the parent alone. The pipe's end tells a child that its
// parent is gone.
func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
