package cluster_test

import (
	"context"
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

// TestStatus: of those whom a process does not watch it has no last sign of life; who asks to leave, and may not, is seen to.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		members, _, end := gather(t, place{t, transport.NewMemory(), store, cluster.Policy{MinWorkers: 6}}, 6)
		status := func() []cluster.MemberStatus {
			t.Helper()
			s, err := members[3].Status(t.Context())
			if err != nil || s.Rank != 3 || len(s.Members) != 6 {
				t.Fatalf("status %+v, %v: want rank 3 of 6", s, err)
			}
			return s.Members
		}
		time.Sleep(5 * time.Second)
		for r, m := range status() {
			if watched := r < 3; watched && (m.Heard < 0 || m.Heard > 250*time.Millisecond) || r == 3 && m.Heard != 0 || r > 3 && m.Heard != -1 {
				t.Errorf("rank %d of 6 was heard %v ago by rank 3", r, m.Heard)
			}
			if m.State != "fine" {
				t.Errorf("rank %d is %s", r, m.State)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := members[5].Leave(ctx); err == nil {
			t.Error("one of six left, and MinWorkers is 6")
		}
		for r, m := range status() {
			if want := []string{"fine", "leaving"}[r/5]; m.State != want {
				t.Errorf("rank %d is %s, want %s", r, m.State, want)
			}
		}
		end()
		_ = store.Close()
	})
}
