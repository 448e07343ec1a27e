package transport_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

func TestSegment(t *testing.T) {
	const size = 1<<20 + 8
	g, err := transport.CreateSegment(t.Context(), t.TempDir(), size)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var users [3]*transport.Segment
	for i := range users {
		if users[i], err = transport.OpenSegment(t.Context(), g.Addr(), size); err != nil {
			t.Fatal(err)
		}
		defer users[i].Close()
	}
	word := func(g *transport.Segment) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&g.Bytes()[1<<20])) }
	g.Bytes()[0] = 7
	for _, u := range users {
		if len(u.Bytes()) != size || u.Bytes()[0] != 7 || u.Bytes()[1] != 0 {
			t.Fatalf("%d bytes, the first %v", len(u.Bytes()), u.Bytes()[:2])
		}
		word(u).Add(1)
	}
	if n := word(g).Load(); n != 3 {
		t.Errorf("three users added 1 each: %d", n)
	}
	// It outlives its creator, who hands it to nobody any more.
	for range 2 {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	users[1].Bytes()[5] = 9
	if users[2].Bytes()[5] != 9 {
		t.Error("the users do not share memory after the creator's Close")
	}
	if _, err := transport.OpenSegment(t.Context(), g.Addr(), size); err == nil {
		t.Error("a segment was opened after its creator's Close")
	}
}

func TestSegmentRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []int{0, -1, 1 << 50} {
		if _, err := transport.CreateSegment(t.Context(), dir, n); err == nil {
			t.Errorf("a segment of %d bytes was made", n)
		}
	}
	if _, err := transport.CreateSegment(t.Context(), filepath.Join(dir, "missing"), 10); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: error %v", err)
	}
	g, err := transport.CreateSegment(t.Context(), dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := transport.OpenSegment(t.Context(), g.Addr(), 101); err == nil || !strings.Contains(err.Error(), "want 101 bytes, it has 100") {
		t.Errorf("of another size: error %v", err)
	}
	// Another server than CreateSegment's.
	path := filepath.Join(dir, "other")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte{100, 0, 0, 0, 0, 0, 0, 0})
			c.Close()
		}
	}()
	if _, err := transport.OpenSegment(t.Context(), path, 100); err == nil || !strings.Contains(err.Error(), "0 files came with it") {
		t.Errorf("without a file: error %v", err)
	}
	ln.Close()
	if _, err := transport.OpenSegment(t.Context(), path, 100); err == nil || errors.Is(err, protocol.ErrRefused) && errors.Is(err, os.ErrNotExist) {
		t.Errorf("where nobody serves: error %v", err)
	}
	// A server that says nothing: the context ends it.
	silent, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := transport.OpenSegment(ctx, path, 100)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended: error %v", err)
	}
}
