//go:build !linux

package compare

import (
	"errors"
	"os"
	"os/exec"
)

// startIn starts cmd: this system binds no process to cores, and has no network namespaces.
func startIn(cmd *exec.Cmd, space string, cores []int) error {
	if space != "" {
		return errors.New("this system has no network namespaces")
	}
	return cmd.Start()
}

// endWithUs does nothing: a child outlives a program that is killed here.
func endWithUs(*exec.Cmd) {}

// killGroup ends a process.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may be gone
	}
}

// killIn does nothing: there are no namespaces here.
func killIn([]string) {}
