//go:build linux

package collective_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestShareBesideOneThatStands: who is told where the memory is, and is not handed it, as by a process that stands still, does without.
func TestShareBesideOneThatStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path) // which accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w := open(t, inMemory, 2, collective.Options{Deadline: 2 * time.Second})
	w.must(func(r int, g *collective.Group) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if r == 0 { // does what Share does
			addr, bad := make([]uint8, 256), []uint8{0}
			addr[0] = uint8(copy(addr[1:], path))
			return errors.Join(collective.BroadcastInto(ctx, g, addr, 0), collective.AllReduceInto(ctx, g, bad, bad, collective.Max))
		}
		err := g.Share(ctx, "")
		if _, ok := errors.AsType[*collective.UnsharedError](err); !ok {
			return errors.Join(errors.New("memory that nobody handed over is shared, or not waited for"), err)
		}
		return nil
	})
}
