//go:build !linux

package exec

import "time"

// nap gives the processor to other processes for a moment.
func nap() { time.Sleep(20 * time.Microsecond) }
