package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/transport"
)

// TestMoved: the others learn a member's new address, in the view that they have, and the next view has it.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		members, walks, end := gather(t, place{t, transport.NewMemory(), store, cluster.Policy{}}, 3)
		const addr = "memory:elsewhere"
		members[1].Moved(addr)
		time.Sleep(time.Second)
		for _, at := range []int{0, 2} {
			s, err := members[at].Status(t.Context())
			if err != nil || s.Epoch != 1 {
				t.Errorf("member %d: status %+v, %v: want view 1", at, s, err)
			}
			for _, m := range s.Members {
				if moved := m.Name == worker(1, 1); moved != (m.Addr == addr) {
					t.Errorf("member %d has %v at %q", at, m.Name, m.Addr)
				}
			}
		}
		if err := members[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		found := false
		for _, m := range next(t, walks[0], 2).Members {
			found = found || m.Name == worker(1, 1) && m.Addr == addr
		}
		if !found {
			t.Errorf("the next view has not the address %q", addr)
		}
		end()
		_ = store.Close()
	})
}
