//go:build !linux

package cores

import "context"

// Keep does nothing here, and returns false: where threads run is the system's decision.
func Keep(context.Context, int, int) bool { return false }
