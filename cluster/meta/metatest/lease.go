package metatest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
)

func leaseRunsOut(t *testing.T, k kit) {
	l := k.grant(k.ttl)
	began := time.Now()
	k.put("m/1", "x", 0, l)
	k.put("m/2", "y", 0, l)
	rev := k.put("m/3", "z", 0, 0)
	if kv := k.get("m/1"); kv.Lease != int64(l) {
		t.Fatalf("lease %d of a key put under %d", kv.Lease, l)
	}
	got, _ := k.watch("m/", rev, 2)
	k.want(got, "-m/1", "-m/2")
	if d := time.Since(began); d < k.ttl*9/10 {
		t.Fatalf("the lease of %v ran out after %v", k.ttl, d)
	}
	if kv := k.get("m/1"); kv.Rev != 0 {
		t.Fatalf("after the end of its lease: %+v", kv)
	}
	if kv := k.get("m/3"); string(kv.Value) != "z" {
		t.Fatalf("a key without a lease: %+v", kv)
	}
	k.wantError("keep of a lease that ran out", k.m.Keep(k.ctx, l), cluster.ErrLeaseLost)
	_, err := k.m.PutIf(k.ctx, "m/4", []byte("x"), 0, l)
	k.wantError("put under a lease that ran out", err, cluster.ErrLeaseLost)
	if _, err := k.m.Grant(k.ctx, 0); err == nil {
		t.Fatal("a lease of 0 was granted")
	}
}

func leaseKept(t *testing.T, k kit) {
	l := k.grant(k.ttl)
	rev := k.put("m", "x", 0, l)
	tick := time.NewTicker(k.ttl / 4)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 2*k.ttl; {
		<-tick.C
		if err := k.m.Keep(k.ctx, l); err != nil {
			t.Fatalf("keep after %v: %v", time.Since(began), err)
		}
	}
	if kv := k.get("m"); kv.Rev != rev {
		t.Fatalf("a key under a lease that is kept: %+v, put at %d", kv, rev)
	}
	if err := k.m.Revoke(k.ctx, l); err != nil {
		t.Fatal(err)
	}
	if kv := k.get("m"); kv.Rev != 0 {
		t.Fatalf("after Revoke: %+v", kv)
	}
	if err := k.m.Revoke(k.ctx, l); err != nil {
		t.Fatalf("revoke of a lease that has ended: %v", err)
	}
	k.wantError("keep of a revoked lease", k.m.Keep(k.ctx, l), cluster.ErrLeaseLost)
	k.wantError("keep of no lease", k.m.Keep(k.ctx, 4711), cluster.ErrLeaseLost)
}

func leaveLease(t *testing.T, k kit) {
	l := k.grant(patience)
	rev := k.put("stays", "1", 0, l)
	k.put("stays", "2", rev, 0)
	k.put("goes", "1", 0, l)
	if err := k.m.Revoke(k.ctx, l); err != nil {
		t.Fatal(err)
	}
	if kv := k.get("stays"); string(kv.Value) != "2" || kv.Lease != 0 {
		t.Fatalf("a key that was put again without its lease: %+v", kv)
	}
	if kv := k.get("goes"); kv.Rev != 0 {
		t.Fatalf("after Revoke: %+v", kv)
	}
}

func campaign(t *testing.T, k kit) {
	const n = 4
	var lock sync.Mutex
	var holders int
	var revs []int64
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			term, err := k.m.Campaign(k.ctx, "leader", fmt.Append(nil, i))
			if err != nil {
				t.Errorf("campaigner %d: %v", i, err)
				return
			}
			lock.Lock()
			holders++
			if holders != 1 {
				t.Errorf("%d hold the key at a time", holders)
			}
			revs = append(revs, term.Rev)
			lock.Unlock()
			kv, err := k.m.Get(k.ctx, "leader")
			if err != nil || string(kv.Value) != fmt.Sprint(i) || kv.Rev != term.Rev {
				t.Errorf("campaigner %d holds revision %d, and finds %+v, %v", i, term.Rev, kv, err)
			}
			lock.Lock()
			holders--
			lock.Unlock()
			if err := term.Resign(k.ctx); err != nil {
				t.Errorf("campaigner %d: resign: %v", i, err)
			}
			select {
			case <-term.Lost:
				t.Errorf("campaigner %d: a term that was resigned is lost", i)
			default:
			}
		})
	}
	group.Wait()
	if len(revs) != n {
		t.Fatalf("%d of %d held the key", len(revs), n)
	}
	for i := range n - 1 {
		if revs[i] >= revs[i+1] {
			t.Fatalf("terms %v do not rise", revs)
		}
	}
	if kv := k.get("leader"); kv.Rev != 0 {
		t.Fatalf("after the last has resigned: %+v", kv)
	}
}

func termLost(t *testing.T, k kit) {
	for _, how := range []string{"lease", "key"} {
		term, err := k.m.Campaign(k.ctx, "leader", []byte("a"))
		if err != nil {
			t.Fatal(err)
		}
		kv := k.get("leader")
		if kv.Lease == 0 {
			t.Fatal("no lease is behind the term")
		}
		if how == "lease" {
			err = k.m.Revoke(k.ctx, cluster.Lease(kv.Lease))
		} else {
			_, err = k.m.PutIf(k.ctx, "leader", []byte("b"), kv.Rev, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-term.Lost:
		case <-k.ctx.Done():
			t.Fatalf("a term without its %s goes on", how)
		}
		if err := term.Resign(k.ctx); err != nil {
			t.Fatalf("resign of a lost term: %v", err)
		}
		if kv := k.get("leader"); how == "key" && string(kv.Value) != "b" {
			t.Fatalf("to resign a lost term changed the key: %+v", kv)
		}
	}
}

func campaignGivesUp(t *testing.T, k kit) {
	term, err := k.m.Campaign(k.ctx, "leader", []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.ttl/2)
	defer cancel()
	_, err = k.m.Campaign(ctx, "leader", []byte("b"))
	k.wantError("a campaign that took too long", err, context.DeadlineExceeded)
	if kv := k.get("leader"); kv.Rev != term.Rev {
		t.Fatalf("another's campaign changed the key: %+v", kv)
	}
	if err := term.Resign(k.ctx); err != nil {
		t.Fatal(err)
	}
}
