package launch

import (
	"os"
	"os/exec"
	"syscall"
)

// give makes r the child's standard input: Windows passes no other files on by number.
func give(cmd *exec.Cmd, r *os.File) { cmd.Stdin = r }

func inherited() (*os.File, error) { return os.Stdin, nil }

// attributes: a console group of its own, so that an interrupt reaches the parent alone.
func attributes(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// send: Windows knows no signals but the end. The wish for an end goes through the pipe.
func send(p *os.Process, lifeline *os.File, exited <-chan struct{}, s os.Signal) error {
	if s == os.Kill {
		return p.Kill()
	}
	select {
	case <-exited:
		return os.ErrProcessDone
	default:
	}
	_, err := lifeline.Write([]byte{stopByte})
	return err
}

func signalOf(*os.ProcessState) os.Signal { return nil }
