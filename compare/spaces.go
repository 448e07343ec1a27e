package compare

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/trivium-ml/trivium/cluster/launch"
)

// Spaces are network namespaces that are joined by a switch, each with one shaped link to it: one for each process of a row. They last
// as long as this process, however it ends.
type spaces struct {
	link Link
	list []*space // one for each process
	hub  *space   // the switch
}

// at returns the address of space i.
func (s *spaces) at(i int) string { return fmt.Sprintf("10.77.0.%d", i+2) }

// spaceInterface is the name of the link within each.
const spaceInterface = "eth0"

// spaced is a launcher whose processes each get a network namespace, in the order of their start.
type spaced struct {
	launch.Launcher
	spaces *spaces
	next   *atomic.Int64
}

// Start implements launch.Launcher.
func (s spaced) Start(ctx context.Context, spec launch.Spec) (*launch.Process, error) {
	i := int(s.next.Add(1)) - 1
	if i >= len(s.spaces.list) {
		return nil, fmt.Errorf("compare: there are %d network namespaces, and process %d wants one", len(s.spaces.list), i)
	}
	spec.Space = s.spaces.list[i].path
	return s.Launcher.Start(ctx, spec)
}
