package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is the file of this very program, also if another stands in its place by now.
func program() (string, error) { return "/proc/self/exe", nil }

// nameProcess gives the process the name that it would have had without program's path, for those who list processes.
func nameProcess(arg0 string) { _ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(arg0)), 0) }

// attributes: a process group of its own, so that a terminal's interrupt reaches the parent alone; and death with the parent.
func attributes(deathSignal bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if deathSignal {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}

// pin lets the calling thread, and what it starts, run on those cores alone. The thread is locked to its goroutine.
func pin(cpus []int) (restore func() error, err error) {
	if len(cpus) == 0 {
		return nil, nil
	}
	var before, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("the cores it may run on: %w", err)
	}
	for _, c := range cpus {
		want.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return nil, fmt.Errorf("to run on cores %v: %w: this process may use %d cores", cpus, err, before.Count())
	}
	return func() error {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			return fmt.Errorf("the starting thread's cores: %w", err)
		}
		return nil
	}, nil
}

// enter puts the calling thread, and what it starts, into the network namespace of that file. The thread is locked to its goroutine.
func enter(space string) (leave func() error, err error) {
	if space == "" {
		return nil, nil
	}
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("the network namespace of this thread: %w", err)
	}
	to, err := os.Open(space)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the network namespace: %w", err), before.Close())
	}
	defer to.Close()
	if err := unix.Setns(int(to.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, errors.Join(fmt.Errorf("to enter the network namespace %s: %w", space, err), before.Close())
	}
	return func() error {
		err := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET)
		if err != nil {
			err = fmt.Errorf("the starting thread's network namespace: %w", err)
		}
		return errors.Join(err, before.Close())
	}, nil
}
