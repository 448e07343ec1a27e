//go:build !unix

package sim

import (
	"context"
	"errors"
	"os/exec"
)

// RunProcesses needs signals that stop and continue a process, which this system does not have.
func RunProcesses(context.Context, []*exec.Cmd, Plan) (*Record, error) {
	return nil, errors.New("sim: processes cannot be paused on this system: run the plan on unix")
}
