package host

import (
	"syscall"
	"time"
)

func processorTime() (user, system time.Duration) {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, 0
	}
	var created, exited, k, u syscall.Filetime
	if syscall.GetProcessTimes(self, &created, &exited, &k, &u) != nil {
		return 0, 0
	}
	return span(u), span(k)
}

// span is a Filetime that counts a length, in units of 100 ns.
func span(f syscall.Filetime) time.Duration {
	return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
}
