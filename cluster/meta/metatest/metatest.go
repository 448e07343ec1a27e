// Package metatest is the conformance kit of cluster.Meta: Run passes on every store.
package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
)

// patience ends a test that waits for what does not come.
const patience = 20 * time.Second

// Options of Run. The zero value works.
type Options struct {
	// TTL is that of the leases in the tests: the shortest that the store keeps to, and long against the time that it takes to answer.
	// 0: 1 s.
	TTL time.Duration
	// In runs a test; for a store that needs no real time, that is synctest.Test. nil: the test is called.
	In func(t *testing.T, test func(t *testing.T))
	// Parallel runs the tests beside one another, since those with leases wait for most of the time.
	Parallel bool
}

// Run tests the stores that open returns: an empty one each time, which open closes in t.Cleanup.
func Run(t *testing.T, o Options, open func(t *testing.T) cluster.Meta) {
	if o.TTL == 0 {
		o.TTL = time.Second
	}
	if o.In == nil {
		o.In = func(t *testing.T, test func(t *testing.T)) { test(t) }
	}
	for _, c := range []struct {
		name string
		test func(t *testing.T, k kit)
	}{
		{"put if", putIf},
		{"values", values},
		{"a lease runs out", leaseRunsOut},
		{"a lease is kept and revoked", leaseKept},
		{"a key leaves its lease", leaveLease},
		{"watch order", watchOrder},
		{"watch again from a revision", watchAgain},
		{"watch broken off", watchBrokenOff},
		{"a slow watch holds nobody up", slowWatch},
		{"campaign", campaign},
		{"a term is lost", termLost},
		{"campaign gives up", campaignGivesUp},
		{"concurrent counter", counter},
		{"contexts", contexts},
	} {
		t.Run(c.name, func(t *testing.T) {
			if o.Parallel {
				t.Parallel()
			}
			o.In(t, func(t *testing.T) {
				m := open(t)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				c.test(t, kit{t: t, ctx: ctx, m: m, ttl: o.TTL})
			})
		})
	}
}

type kit struct {
	t   *testing.T
	ctx context.Context
	m   cluster.Meta
	ttl time.Duration
}

func (k kit) put(key, val string, rev int64, l cluster.Lease) int64 {
	k.t.Helper()
	got, err := k.m.PutIf(k.ctx, key, []byte(val), rev, l)
	if err != nil {
		k.t.Fatalf("put %q at %d: %v", key, rev, err)
	}
	return got
}

func (k kit) remove(key string, rev int64) {
	k.t.Helper()
	if _, err := k.m.PutIf(k.ctx, key, nil, rev, 0); err != nil {
		k.t.Fatalf("delete %q at %d: %v", key, rev, err)
	}
}

func (k kit) get(key string) cluster.KV {
	k.t.Helper()
	kv, err := k.m.Get(k.ctx, key)
	if err != nil {
		k.t.Fatalf("get %q: %v", key, err)
	}
	if kv.Key != key {
		k.t.Fatalf("get %q returned key %q", key, kv.Key)
	}
	return kv
}

func (k kit) grant(ttl time.Duration) cluster.Lease {
	k.t.Helper()
	l, err := k.m.Grant(k.ctx, ttl)
	if err != nil || l == 0 {
		k.t.Fatalf("grant: lease %d, %v", l, err)
	}
	return l
}

// watch returns n changes as "key=value" or "-key", and the last revision.
func (k kit) watch(prefix string, rev int64, n int) ([]string, int64) {
	k.t.Helper()
	var got []string
	for kv, err := range k.m.Watch(k.ctx, prefix, rev) {
		if err != nil {
			k.t.Fatalf("watch %q after %d: %v after %q", prefix, rev, err, got)
		}
		if kv.Rev < rev {
			k.t.Fatalf("watch %q: revision %d after %d", prefix, kv.Rev, rev)
		}
		rev = kv.Rev
		if got = append(got, say(kv)); len(got) == n {
			return got, rev
		}
	}
	k.t.Fatalf("watch %q ended without an error after %q", prefix, got)
	return nil, 0
}

func say(kv cluster.KV) string {
	if kv.Value == nil {
		return "-" + kv.Key
	}
	return kv.Key + "=" + string(kv.Value)
}

func (k kit) want(got []string, want ...string) {
	k.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		k.t.Fatalf("found %q, want %q", got, want)
	}
}

func (k kit) wantError(what string, err, want error) {
	k.t.Helper()
	if !errors.Is(err, want) {
		k.t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func putIf(t *testing.T, k kit) {
	if kv := k.get("a"); kv.Rev != 0 || kv.Value != nil {
		t.Fatalf("an absent key: %+v", kv)
	}
	r1 := k.put("a", "1", 0, 0)
	if kv := k.get("a"); r1 <= 0 || kv.Rev != r1 || string(kv.Value) != "1" || kv.Lease != 0 {
		t.Fatalf("put returned %d, get %+v", r1, kv)
	}
	_, err := k.m.PutIf(k.ctx, "a", []byte("x"), 0, 0)
	k.wantError("put of a key that is there", err, protocol.ErrConflict)
	_, err = k.m.PutIf(k.ctx, "b", []byte("x"), r1, 0)
	k.wantError("put at a revision of a key that is absent", err, protocol.ErrConflict)
	r2 := k.put("b", "2", 0, 0)
	r3 := k.put("a", "3", r1, 0)
	if r1 >= r2 || r2 >= r3 {
		t.Fatalf("revisions %d, %d, %d do not rise over the store", r1, r2, r3)
	}
	_, err = k.m.PutIf(k.ctx, "a", []byte("x"), r1, 0)
	k.wantError("put at an old revision", err, protocol.ErrConflict)
	_, err = k.m.PutIf(k.ctx, "a", nil, r1, 0)
	k.wantError("delete at an old revision", err, protocol.ErrConflict)
	if kv := k.get("a"); string(kv.Value) != "3" || kv.Rev != r3 {
		t.Fatalf("after conflicts: %+v", kv)
	}
	k.remove("a", r3)
	if kv := k.get("a"); kv.Rev != 0 || kv.Value != nil {
		t.Fatalf("after a delete: %+v", kv)
	}
	k.remove("a", 0) // absent, as demanded
	if r4 := k.put("a", "4", 0, 0); r4 <= r3 {
		t.Fatalf("revision %d of a key put again is not above %d", r4, r3)
	}
}

func values(t *testing.T, k kit) {
	rev := k.put("empty", "", 0, 0)
	if kv := k.get("empty"); kv.Value == nil || len(kv.Value) != 0 || kv.Rev != rev {
		t.Fatalf("an empty value: %+v", kv)
	}
	if got, _ := k.watch("empty", 0, 1); got[0] != "empty=" {
		t.Fatalf("an empty value is watched as %q", got)
	}
	largest := bytes.Repeat([]byte{0, 0xff}, cluster.MaxValue/2)
	if _, err := k.m.PutIf(k.ctx, "large", largest, 0, 0); err != nil {
		t.Fatal(err)
	}
	kv := k.get("large")
	if !bytes.Equal(kv.Value, largest) {
		t.Fatalf("a value of %d bytes came back as %d other ones", len(largest), len(kv.Value))
	}
	kv.Value[0] = 7
	if again := k.get("large"); again.Value[0] != 0 {
		t.Fatal("who changes what Get returned changes the store")
	}
	_, err := k.m.PutIf(k.ctx, "larger", append(largest, 1), 0, 0)
	if err == nil || !strings.Contains(err.Error(), "65536") || !strings.Contains(err.Error(), "larger") {
		t.Fatalf("a value above the limit: %v", err)
	}
	if _, err := k.m.PutIf(k.ctx, "", []byte("x"), 0, 0); err == nil {
		t.Fatal("an empty key was taken")
	}
	odd := "jobs/ä\x00\xff=/"
	k.put(odd, "v", 0, 0)
	if kv := k.get(odd); string(kv.Value) != "v" {
		t.Fatalf("an odd key: %+v", kv)
	}
}

func counter(t *testing.T, k kit) {
	const writers, each = 4, 10
	var group sync.WaitGroup
	var lock sync.Mutex
	conflicts := 0
	for range writers {
		group.Go(func() {
			for done := 0; done < each; {
				kv, err := k.m.Get(k.ctx, "count")
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				if kv.Rev != 0 {
					if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
						t.Error(err)
						return
					}
				}
				switch _, err := k.m.PutIf(k.ctx, "count", fmt.Append(nil, n+1), kv.Rev, 0); {
				case err == nil:
					done++
				case errors.Is(err, protocol.ErrConflict):
					lock.Lock()
					conflicts++
					lock.Unlock()
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if kv := k.get("count"); string(kv.Value) != fmt.Sprint(writers*each) {
		t.Fatalf("%d writers added %d each: %s", writers, each, kv.Value)
	}
	t.Logf("%d conflicts", conflicts)
}

func contexts(t *testing.T, k kit) {
	over, cancel := context.WithCancel(k.ctx)
	cancel()
	l := k.grant(patience)
	for name, call := range map[string]func() error{
		"get":      func() error { _, err := k.m.Get(over, "a"); return err },
		"put":      func() error { _, err := k.m.PutIf(over, "a", []byte("x"), 0, 0); return err },
		"grant":    func() error { _, err := k.m.Grant(over, patience); return err },
		"keep":     func() error { return k.m.Keep(over, l) },
		"revoke":   func() error { return k.m.Revoke(over, l) },
		"campaign": func() error { _, err := k.m.Campaign(over, "a", nil); return err },
		"watch": func() error {
			for _, err := range k.m.Watch(over, "a", 0) {
				return err
			}
			return nil
		},
	} {
		k.wantError(name+" with a context that has ended", call(), context.Canceled)
	}
	if kv := k.get("a"); kv.Rev != 0 {
		t.Fatalf("a put with a context that had ended was applied: %+v", kv)
	}
	if err := k.m.Keep(k.ctx, l); err != nil {
		t.Fatalf("a revoke with a context that had ended was applied: %v", err)
	}
	soon, cancel := context.WithTimeout(k.ctx, k.ttl/4)
	defer cancel()
	for _, err := range k.m.Watch(soon, "nothing", 0) {
		k.wantError("a watch that nothing comes to", err, context.DeadlineExceeded)
	}
}
