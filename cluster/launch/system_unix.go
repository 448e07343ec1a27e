//go:build unix

package launch

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// give makes r the child's file 3.
func give(cmd *exec.Cmd, r *os.File) { cmd.ExtraFiles = []*os.File{r} }

// inherited is the file that give gave.
func inherited() (*os.File, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(3, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return nil, fmt.Errorf("file 3 is no pipe: this argument is for child processes, which the program starts by itself")
	}
	syscall.CloseOnExec(3) // what the child starts has a parent of its own
	return os.NewFile(3, "parent"), nil
}

// send sends a signal to a child.
func send(p *os.Process, _ *os.File, _ <-chan struct{}, s os.Signal) error { return p.Signal(s) }

func signalOf(state *os.ProcessState) os.Signal {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal()
	}
	return nil
}
