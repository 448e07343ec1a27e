package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/blob/blobtest"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/cluster/meta/metatest"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// remote is a memory store as node 0 of a network reaches it.
func remote(t *testing.T) (*sim.Network, *sim.RemoteMeta, *meta.Memory) {
	t.Helper()
	store := meta.NewMemory(meta.Options{})
	t.Cleanup(func() { _ = store.Close() })
	n := sim.New(1, sim.Options{}).Network()
	m := n.Meta(n.Node(name("a")), store)
	m.Hold = func(ctx context.Context, m cluster.Meta, key string, val []byte) (cluster.Term, error) {
		return meta.Campaign(ctx, m, key, val, time.Second)
	}
	return n, m, store
}

func TestMetaConforms(t *testing.T) {
	metatest.Run(t, metatest.Options{In: synctest.Test}, func(t *testing.T) cluster.Meta {
		_, m, _ := remote(t)
		return m
	})
}

func TestRemoteMetaFaults(t *testing.T) {
	for _, c := range []struct {
		plan string
		err  error
		took time.Duration // at least, and at most 2 ms more
	}{
		{"0s pause 0", nil, 0},
		{"0s meta-slow arg 0.1", nil, 200 * time.Millisecond},
		{"0s meta-away", protocol.ErrUnavailable, time.Second},
		{"0s meta-restart", protocol.ErrUnavailable, 0},
		{"0s partition 0", protocol.ErrUnavailable, time.Second},
		{"0s crash 0", protocol.ErrUnavailable, time.Second},
	} {
		t.Run(c.plan, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, m, _ := remote(t)
				if err := n.Run(t.Context(), plan(t, c.plan)); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				_, err := m.PutIf(t.Context(), "k", []byte("v"), 0, 0)
				if took := time.Since(begun); !errors.Is(err, c.err) || took < c.took || took > c.took+2*time.Millisecond {
					t.Errorf("a put ends with %v after %v, want %v after %v", err, took, c.err, c.took)
				}
				n.Heal()
				if _, err := m.Get(t.Context(), "k"); err != nil {
					t.Errorf("healed: %v", err)
				}
			})
		})
	}
	t.Run("a watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, m, store := remote(t)
			go func() {
				for i := range int64(3) {
					if _, err := store.PutIf(t.Context(), fmt.Sprint("k", i), []byte("v"), 0, 0); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			go func() { _ = n.Run(t.Context(), plan(t, "15ms meta-away for 100ms")) }()
			var seen []string
			rev := int64(0)
			for len(seen) < 4 {
				for kv, err := range m.Watch(t.Context(), "k", rev) {
					rev = kv.Rev
					if err != nil {
						if !errors.Is(err, protocol.ErrUnavailable) {
							t.Fatal(err)
						}
						seen = append(seen, "away")
						break
					}
					seen = append(seen, kv.Key)
					if len(seen) == 4 {
						break
					}
				}
			}
			if want := []string{"k0", "k1", "away", "k2"}; !slices.Equal(seen, want) {
				t.Errorf("the watch saw %q, want %q", seen, want)
			}
		})
	})
	t.Run("a term", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, m, store := remote(t)
			term, err := m.Campaign(t.Context(), "chief", []byte("a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Run(t.Context(), plan(t, "0s partition 0")); err != nil {
				t.Fatal(err)
			}
			<-term.Lost
			time.Sleep(2 * time.Second)
			if kv, err := store.Get(t.Context(), "chief"); err != nil || kv.Rev != 0 {
				t.Errorf("the term is lost, and its key is %v, %v", kv, err)
			}
			n.Heal()
			_ = term.Resign(t.Context())
		})
	})
}

func TestBlobConforms(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store {
		store := blob.Dir(t.TempDir())
		n := sim.New(1, sim.Options{}).Network()
		return n.Blob(n.Node(name("a")), store)
	})
}

func TestBlobFaults(t *testing.T) {
	for _, c := range []struct{ plan, text string }{
		{"0s failing-disk 0", "the write failed"},
		{"0s full-disk 0", "no space left"},
		{"0s short-disk 0", io.ErrShortWrite.Error()},
		{"0s torn-disk 0", io.ErrShortWrite.Error()},
		{"0s crash 0", "down"},
	} {
		t.Run(c.plan, func(t *testing.T) {
			store := blob.Dir(t.TempDir())
			n := sim.New(1, sim.Options{}).Network()
			s := n.Blob(n.Node(name("a")), store)
			if err := s.Put(t.Context(), "k", strings.NewReader("old")); err != nil {
				t.Fatal(err)
			}
			if err := n.Run(t.Context(), plan(t, c.plan)); err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{0, 1, 100_000} {
				put := s.Put(t.Context(), "k", strings.NewReader(strings.Repeat("n", size)))
				absent := s.PutIfAbsent(t.Context(), "new", strings.NewReader(strings.Repeat("n", size)))
				for _, err := range []error{put, absent} {
					if err == nil || !strings.Contains(err.Error(), c.text) {
						t.Errorf("a write of %d bytes ends with %v, want %q in it", size, err, c.text)
					}
				}
			}
			if p, err := blob.Read(t.Context(), s, "k", 1000); err != nil || string(p) != "old" {
				t.Errorf("the store has %q, %v: want the old object", p, err)
			}
			n.Heal()
			if err := s.Put(t.Context(), "k", strings.NewReader("new")); err != nil {
				t.Errorf("healed: %v", err)
			}
		})
	}
}
