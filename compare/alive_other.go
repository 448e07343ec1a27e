//go:build !unix

package compare

import (
	"errors"
	"os"
)

// alive reports whether there is a process of that number.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release() // nothing is done with it
	return true
}

// The signals of a fault.
const (
	killSignal = iota
	stopSignal
	contSignal
)

// reach is what a signal is sent to: here the process alone.
func reach(pid int) (to int, whole bool) { return pid, false }

func signalTo(pid, s int) error {
	if s != killSignal {
		return errors.New("not measured: this system has no signal that makes a process stand still")
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
