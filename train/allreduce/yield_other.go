//go:build !linux

package allreduce

import "time"

// A courtesy does nothing: when threads run is the system's decision here.
type courtesy struct{}

func (*courtesy) due(time.Duration) bool { return false }

func yield() {}
