package compare

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
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

// killIn ends what is left in the network namespaces of a row: what its processes started may have left their groups, and would keep the namespace
// as long as it lives. That of this program is none of them.
func killIn(paths []string) {
	ours, err := os.Stat("/proc/thread-self/ns/net") // the first thread of all may be that of a row's namespace
	if err != nil {
		return
	}
	var rows []os.FileInfo
	for _, path := range paths {
		if f, err := os.Stat(path); err == nil && !os.SameFile(f, ours) {
			rows = append(rows, f)
		}
	}
	killed := map[int]bool{}
	for more := len(rows) > 0; more; { // what is killed may just have started another
		more = false
		list, _ := os.ReadDir("/proc")
		for _, x := range list {
			pid, err := strconv.Atoi(x.Name())
			if err != nil || pid == os.Getpid() || killed[pid] {
				continue
			}
			p, err := os.FindProcess(pid) // held by a handle, so that the number is no other's by the time it is killed
			if err != nil {
				continue
			}
			f, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err == nil && slices.ContainsFunc(rows, func(r os.FileInfo) bool { return os.SameFile(f, r) }) {
				_ = p.Kill() // it may be gone
				killed[pid], more = true, true
			}
			_ = p.Release()
		}
	}
}
