package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

func FuzzHello(f *testing.F) {
	h := hello{name: Name{Job: "job", Role: "role", ID: "id", Incarnation: 3}, target: Name{ID: "x"}, attempt: 9, addr: "tcp:h:1", role: control}
	f.Add(h.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		var h, again hello
		if h.parse(p) != nil {
			return
		}
		q := h.append(nil)
		if err := again.parse(q); err != nil || again != h {
			t.Fatalf("%+v became %+v (%v)", h, again, err)
		}
		var c challenge
		_ = c.parse(p)                     // must not panic
		_ = readRefusal(Name{}, p).Error() // nor this
	})
}

// FuzzFrames: whatever a peer sends after the handshake ends in an error or in frames, within bounded memory.
func FuzzFrames(f *testing.F) {
	id := wire.StreamID("s")
	f.Add([]byte(headed(wire.Header{Stream: id, Kind: 7, Head: 2}, "fine")), true)
	f.Add([]byte(headed(wire.Header{Stream: id, Flags: wire.Summed, Sum: wire.Sum([]byte("fine"))}, "fine")+headed(wire.Header{Flags: wire.Internal, Kind: kindBye}, "")), true)
	f.Add([]byte(headed(wire.Header{Flags: wire.Internal, Kind: kindGrant, Stream: id}, "")+headed(wire.Header{Flags: wire.Internal, Kind: kindWindow, Stream: id, Op: 77}, "")), false)
	f.Add(appendRefusal(nil, "cause", "text"), false)
	f.Fuzz(func(t *testing.T, p []byte, onData bool) {
		// The checksums of headers are put right: else nearly all would end there.
		for at := 0; at+wire.HeaderLen <= len(p); {
			binary.LittleEndian.PutUint16(p[at:], wire.Magic)
			p[at+2] = wire.Version
			binary.LittleEndian.PutUint32(p[at+44:], wire.Sum(p[at:at+44]))
			at += wire.HeaderLen + int(binary.LittleEndian.Uint32(p[at+4:])%4096)
		}
		pt := openPort(Name{ID: "a"}, Options{}, &carrier{sum: func(net.Conn, string) bool { return false }})
		defer pt.Close()
		s, err := pt.Stream("s", StreamOptions{MaxFrame: 4096})
		if err != nil {
			t.Fatal(err)
		}
		pr := newPeer(pt, Name{ID: "b"})
		pt.peers[pr.name] = pr
		h := pr.link.half[control]
		if onData {
			h = pr.link.half[data]
		}
		h.nc, h.hard = fromBytes{Reader: bytes.NewReader(p)}, fromBytes{}
		r := newReader(h)
		if err := r.frames(); err == nil {
			t.Fatal("the frames ended without an error")
		}
		pt.pool.mu.Lock()
		if pt.pool.bytes > 8<<20 {
			t.Errorf("%d bytes are held", pt.pool.bytes)
		}
		pt.pool.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for {
			ev, err := s.Recv(ctx)
			if err != nil {
				return
			}
			if len(ev.Head)+len(ev.Payload) > 4096 {
				t.Errorf("a frame of %d bytes", len(ev.Head)+len(ev.Payload))
			}
			ev.Release()
		}
	})
}

// fromBytes is a connection that reads from memory.
type fromBytes struct {
	net.Conn
	io.Reader
}

func (c fromBytes) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c fromBytes) SetReadDeadline(time.Time) error  { return nil }
func (c fromBytes) SetWriteDeadline(time.Time) error { return nil }
func (c fromBytes) Close() error                     { return nil }
