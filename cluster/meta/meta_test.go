package meta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/cluster/meta/metatest"
	"github.com/trivium-ml/trivium/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	ctx := context.Background()
	store := meta.NewMemory(meta.Options{})
	defer store.Close()

	rev, _ := store.PutIf(ctx, "view", []byte("a b"), 0, 0)
	_, err := store.PutIf(ctx, "view", []byte("a c"), 0, 0)
	fmt.Println(err)
	_, _ = store.PutIf(ctx, "view", []byte("a b c"), rev, 0)
	for kv := range store.Watch(ctx, "view", rev) {
		fmt.Printf("%s at %d\n", kv.Value, kv.Rev)
		break
	}
	// Output:
	// meta: put "view": want it absent, found it at revision 1: the key was changed by another
	// a b c at 2
}

func TestMemory(t *testing.T) {
	metatest.Run(t, metatest.Options{In: synctest.Test}, func(t *testing.T) cluster.Meta {
		m := meta.NewMemory(meta.Options{})
		t.Cleanup(func() { m.Close() })
		return m
	})
}

// A watch from a revision that is no longer kept says so, and the revision that comes with the error leads it to the present keys.
func TestCompacted(t *testing.T) {
	for _, o := range []meta.Options{{History: 10}, {HistoryBytes: 10 * 101}} {
		m := meta.NewMemory(o)
		ctx := context.Background()
		var revs []int64
		rev := int64(0)
		for range 30 {
			rev, _ = m.PutIf(ctx, "k", make([]byte, 100), rev, 0)
			revs = append(revs, rev)
		}
		from := func(rev int64) (kv cluster.KV, err error) {
			for kv, err := range m.Watch(ctx, "k", rev) {
				return kv, err
			}
			return
		}
		if kv, err := from(revs[19]); err != nil || kv.Rev != revs[20] {
			t.Errorf("%+v: after the oldest that is kept: %+v, %v", o, kv, err)
		}
		kv, err := from(revs[18])
		if !errors.Is(err, cluster.ErrCompacted) || kv.Rev != 0 {
			t.Errorf("%+v: after one that is no longer kept: %+v, %v", o, kv, err)
		}
		if kv, err := from(kv.Rev); err != nil || kv.Rev != rev {
			t.Errorf("%+v: from there: %+v, %v", o, kv, err)
		}
		if _, err := from(rev + 1); !errors.Is(err, cluster.ErrCompacted) {
			t.Errorf("%+v: after a revision that is still to come: %v", o, err)
		}
		m.Close()
	}
}

// Leases end on the dot, keys in their order, and a watch sees each in a revision of its own.
func TestLeaseOnTheDot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meta.NewMemory(meta.Options{})
		defer m.Close()
		ctx := t.Context()
		began := time.Now()
		l, err := m.Grant(ctx, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		rev := int64(0)
		for _, key := range []string{"c", "a", "b"} {
			if rev, err = m.PutIf(ctx, key, []byte("x"), 0, l); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if err := m.Keep(ctx, l); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for kv, err := range m.Watch(ctx, "", rev) {
			if err != nil || kv.Value != nil || kv.Rev != rev+1 || time.Since(began) != 5*time.Second {
				t.Fatalf("after %v: %+v, %v", time.Since(began), kv, err)
			}
			rev = kv.Rev
			if keys = append(keys, kv.Key); len(keys) == 3 {
				break
			}
		}
		if want := []string{"a", "b", "c"}; !slices.Equal(keys, want) {
			t.Errorf("deleted %q, want %q", keys, want)
		}
	})
}

// Who holds a term and is cut off from the store counts it as lost no later than the store does.
func TestTermLostWithStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meta.NewMemory(meta.Options{TermTTL: 3 * time.Second})
		term, err := m.Campaign(t.Context(), "leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		select {
		case <-term.Lost:
			t.Fatal("a term that is kept was lost")
		default:
		}
		m.Close()
		closed := time.Now()
		<-term.Lost
		if d := time.Since(closed); d > 3*time.Second {
			t.Errorf("the term goes on for %v without its store", d)
		}
		if err := term.Resign(t.Context()); !errors.Is(err, protocol.ErrUnavailable) {
			t.Errorf("resign without a store: %v", err)
		}
	})
}

// A model of the store that is as simple as can be: random operations have the same results on both.
func TestMemoryAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := func(n int) int {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return int(seed % uint64(n))
	}
	synctest.Test(t, func(t *testing.T) {
		m := meta.NewMemory(meta.Options{})
		defer m.Close()
		type entry struct {
			val   string
			rev   int64
			lease cluster.Lease
		}
		type modelLease struct {
			end time.Time
			ttl time.Duration
		}
		model, leases := map[string]entry{}, map[cluster.Lease]modelLease{}
		ids := []cluster.Lease{0, 99}
		for i := range 3000 {
			ctx := t.Context()
			time.Sleep(time.Duration(random(400)) * time.Millisecond)
			synctest.Wait()
			for id, l := range leases {
				if !time.Now().Before(l.end) {
					delete(leases, id)
					for key, e := range model {
						if e.lease == id {
							delete(model, key)
						}
					}
				}
			}
			key, id := string(rune('a'+random(5))), ids[random(len(ids))]
			switch random(6) {
			case 0:
				ttl := time.Duration(1+random(5000)) * time.Millisecond
				l, err := m.Grant(ctx, ttl)
				if err != nil {
					t.Fatal(err)
				}
				leases[l] = modelLease{time.Now().Add(ttl), ttl}
				ids = append(ids, l)
			case 1:
				l, ok := leases[id]
				if err := m.Keep(ctx, id); (err == nil) != ok {
					t.Fatalf("operation %d: keep %d: %v, want alive %t", i, id, err, ok)
				}
				if ok {
					leases[id] = modelLease{time.Now().Add(l.ttl), l.ttl}
				}
			default:
				rev := model[key].rev
				if random(4) == 0 {
					rev += int64(random(2))
				}
				var val []byte
				if random(4) > 0 {
					val = fmt.Append(nil, i)
				}
				got, err := m.PutIf(ctx, key, val, rev, id)
				_, alive := leases[id]
				switch {
				case rev != model[key].rev:
					if !errors.Is(err, protocol.ErrConflict) {
						t.Fatalf("operation %d: put %s at %d, it is at %d: %v", i, key, rev, model[key].rev, err)
					}
				case val == nil:
					if err != nil {
						t.Fatalf("operation %d: delete %s: %v", i, key, err)
					}
					delete(model, key)
				case id != 0 && !alive:
					if !errors.Is(err, cluster.ErrLeaseLost) {
						t.Fatalf("operation %d: put %s under the ended lease %d: %v", i, key, id, err)
					}
				case err != nil:
					t.Fatalf("operation %d: put %s: %v", i, key, err)
				default:
					model[key] = entry{string(val), got, id}
				}
			}
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				kv, err := m.Get(ctx, key)
				if e := model[key]; err != nil || kv.Rev != e.rev || string(kv.Value) != e.val || kv.Lease != int64(e.lease) {
					t.Fatalf("operation %d: %s is %+v, %v, in the model %+v", i, key, kv, err, e)
				}
			}
		}
	})
}
