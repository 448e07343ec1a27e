//go:build !unix

package pstest_test

import "time"

// pause does nothing here: the system has no signal that stops a process.
func (p *process) pause(d time.Duration) { time.Sleep(d) }
