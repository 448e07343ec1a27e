package exec

import "syscall"

// nap gives the processor to other processes for a moment: 20 µs, and the 50 that Linux adds. A time.Sleep of less than a millisecond is
// one of a millisecond, where no other goroutine runs.
func nap() {
	t := syscall.NsecToTimespec(20_000)
	_ = syscall.Nanosleep(&t, nil) // interrupted: shorter
}
