package compare

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// startIn starts cmd in a network namespace and on those cores. It runs on a thread that does nothing else, and lasts as long as the
// process: the process inherits what the thread has, and is killed when the thread ends.
func startIn(cmd *exec.Cmd, space string, cores []int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if len(cores) > 0 {
		var set unix.CPUSet
		for _, c := range cores {
			set.Set(c)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("to run on cores %v: %w", cores, err)
		}
	}
	if space != "" {
		f, err := os.Open(space)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("to enter the network namespace: %w", err)
		}
	}
	return cmd.Start()
}

// endWithUs has cmd killed where this program is, so that the same command, repeated, meets no other at the same work. The thread that
// starts it must last as long.
func endWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// killGroup ends a process with what it started.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // it may be gone
