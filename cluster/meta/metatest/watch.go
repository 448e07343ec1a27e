package metatest

import (
	"context"
	"fmt"
	"testing"
)

func watchOrder(t *testing.T, k kit) {
	a := k.put("w/a", "1", 0, 0)
	b := k.put("w/b", "2", 0, 0)
	k.put("v", "other", 0, 0)
	a = k.put("w/a", "3", a, 0)
	// Present keys come first, in the order of their last changes; then what changes.
	type seen struct {
		got []string
		err error
	}
	first, done := make(chan struct{}), make(chan seen, 1)
	go func() {
		var s seen
		for kv, err := range k.m.Watch(k.ctx, "w/", 0) {
			if s.err = err; err != nil {
				break
			}
			if s.got = append(s.got, say(kv)); len(s.got) == 2 {
				close(first)
			} else if len(s.got) == 6 {
				break
			}
		}
		done <- s
	}()
	select {
	case <-first:
	case <-k.ctx.Done():
		t.Fatalf("the keys that are there did not come: %+v", <-done)
	}
	k.remove("w/b", b)
	k.put("x", "other", 0, 0)
	c := k.put("w/c", "4", 0, 0)
	k.remove("w/c", c)
	k.put("w/a", "5", a, 0)
	s := <-done
	if s.err != nil {
		t.Fatal(s.err)
	}
	k.want(s.got, "w/b=2", "w/a=3", "-w/b", "w/c=4", "-w/c", "w/a=5")
}

func watchAgain(t *testing.T, k kit) {
	var revs []int64
	rev := int64(0)
	for i := range 8 {
		rev = k.put("n", fmt.Sprint(i), rev, 0)
		revs = append(revs, rev)
	}
	got, last := k.watch("n", revs[4], 3)
	k.want(got, "n=5", "n=6", "n=7")
	if last != rev {
		t.Fatalf("the last change has revision %d, want %d", last, rev)
	}
	k.remove("n", rev)
	got, last = k.watch("n", rev, 1)
	k.want(got, "-n")
	if last <= rev {
		t.Fatalf("a delete has revision %d, after %d", last, rev)
	}
	k.put("n", "new", 0, 0)
	got, _ = k.watch("", last, 1)
	k.want(got, "n=new")
}

func watchBrokenOff(t *testing.T, k kit) {
	k.put("k", "1", 0, 0)
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	ended := false
	for kv, err := range k.m.Watch(ctx, "k", 0) {
		if ended {
			t.Fatalf("%+v, %v after the end", kv, err)
		}
		if err == nil {
			cancel()
			continue
		}
		k.wantError("a watch whose context was cancelled", err, context.Canceled)
		if kv.Rev == 0 {
			t.Fatal("no revision came with the error to watch again from")
		}
		ended = true
	}
	if !ended {
		t.Fatal("the watch ended without an error")
	}
	for _, err := range k.m.Watch(k.ctx, "k", 0) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if got, _ := k.watch("k", 0, 1); got[0] != "k=1" {
		t.Fatalf("a watch after one that was broken off: %q", got)
	}
}

func slowWatch(t *testing.T, k kit) {
	const n = 100
	rev := k.put("s", "0", 0, 0)
	at, seen := rev, 0
	for kv, err := range k.m.Watch(k.ctx, "s", rev-1) {
		if err != nil {
			t.Fatal(err)
		}
		if seen == 0 {
			// Now this walk stands still, while others write more than travels ahead of it.
			for i := range n {
				rev = k.put("s", fmt.Sprint(i+1), rev, 0)
			}
		}
		if want := fmt.Sprint(seen); string(kv.Value) != want || kv.Rev < at {
			t.Fatalf("change %d: %+v, want value %s", seen, kv, want)
		}
		at = kv.Rev
		if seen++; seen == n+1 {
			break
		}
	}
}
