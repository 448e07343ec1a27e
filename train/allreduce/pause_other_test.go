//go:build unix && !linux

package allreduce_test

import "time"

func mayRunOn() int { return 0 }

// A pauser waits as one does for an accelerator.
type pauser struct{}

func newPauser() (*pauser, error) { return &pauser{}, nil }

func (*pauser) wait(d time.Duration) error {
	time.Sleep(d)
	return nil
}
