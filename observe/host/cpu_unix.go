//go:build !windows

package host

import (
	"syscall"
	"time"
)

// processorTime comes from getrusage, which counts microseconds where procfs has hundredths of a second.
func processorTime() (user, system time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}
