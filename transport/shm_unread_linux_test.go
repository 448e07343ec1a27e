package transport

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/trivium-ml/trivium/wire"
)

// TestSharedUnread: a payload that is not wanted is given back unread, but not while a frame of before has it: who gives back what somebody
// still reads might unmap it under him.
func TestSharedUnread(t *testing.T) {
	p := openPort(Name{ID: "a"}, Options{}, &carrier{sum: func(net.Conn, string) bool { return false }})
	defer p.Close()
	s, err := p.Stream("s", StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Fence(2, nil)
	a, b := sharedPair(t, 1<<20)
	stale := func(ref uint64) {
		pr := newPeer(p, Name{ID: "b"})
		pr.link.shared = b
		h := wire.Header{Stream: wire.StreamID("s"), Epoch: 1, Flags: wire.Shared, Length: 5}
		frame := binary.LittleEndian.AppendUint64(appendHeader(nil, &h), ref)
		half := pr.link.half[data]
		half.nc = fromBytes{Reader: bytes.NewReader(frame)}
		if err := newReader(half).step(); err != nil {
			t.Fatal(err)
		}
	}
	ref, ok := a.place([]byte("hello"))
	if !ok {
		t.Fatal("no room")
	}
	if _, err := b.view(ref, 5); err != nil {
		t.Fatal(err)
	}
	stale(ref)
	if n := sharedWord(b.own, 0).Load(); n != 0 || len(b.viewed) != 1 {
		t.Errorf("%d blocks are given back, %d are in use; want 0 and 1", n, len(b.viewed))
	}
	b.free(ref, 5)
	if ref, ok = a.place([]byte("hello")); !ok {
		t.Fatal("no room")
	}
	stale(ref)
	if a.collect(); a.broken || len(a.blocks.taken) != 0 || len(b.viewed) != 0 {
		t.Errorf("broken: %v, %d blocks taken, %d in use; want none", a.broken, len(a.blocks.taken), len(b.viewed))
	}
}
