//go:build linux

package collective_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestShareBesideOneThatStands: who is told where the memory is, and is not handed it, as by a process that stands still, does without.
func TestShareBesideOneThatStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path) // which hands over nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := ln.(*net.UnixListener).SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	w := open(t, inMemory, 2, collective.Options{Deadline: 4 * time.Second})
	w.must(func(r int, g *collective.Group) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if r == 0 { // does what Share does, but for the files
			addr, bad := make([]uint8, 256), []uint8{0}
			addr[0] = uint8(copy(addr[1:], path))
			if err := collective.BroadcastInto(ctx, g, addr, 0); err != nil {
				return err
			}
			nc, err := ln.Accept()
			if err != nil {
				return err // nobody has come for it
			}
			defer nc.Close()
			if _, err := io.Copy(io.Discard, nc); err != nil { // until the other has given up: from then on it has a whole deadline, and not half of one
				return err
			}
			return collective.AllReduceInto(ctx, g, bad, bad, collective.Max)
		}
		err := g.Share(ctx, "")
		if _, ok := errors.AsType[*collective.UnsharedError](err); !ok {
			return errors.Join(errors.New("memory that nobody handed over is shared, or not waited for"), err)
		}
		return nil
	})
}
