package transport

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/wire"
)

// A puppet is a peer that has passed the handshake, and then writes what a test wants.
type puppet struct {
	*testing.T
	ctx       context.Context
	victim    Port
	stream    Stream
	log       bytes.Buffer
	conns     [2]net.Conn
	intruders int
	name      Name
}

func openPuppet(t *testing.T) *puppet {
	t.Helper()
	goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	u := &puppet{T: t, ctx: ctx, name: Name{ID: "puppet"}}
	v, err := TCP{}.Open(ctx, Name{ID: "victim"}, Options{Log: slog.New(slog.NewTextHandler(&u.log, nil))})
	u.must(err)
	t.Cleanup(func() { u.must(v.Close()) })
	u.victim = v
	u.stream, err = v.Stream("s", StreamOptions{MaxFrame: 1000})
	u.must(err)
	u.connect()
	return u
}

func (u *puppet) must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

func (u *puppet) connect() {
	u.Helper()
	u.intruders++
	c, err := TCP{}.carrier(u.ctx, Name{})
	u.must(err)
	u.must(c.listeners[0].Close())
	p := &port{self: u.name, carrier: c}
	h := &hello{name: p.self, target: u.victim.Name(), instance: [16]byte{1}, attempt: uint64(u.intruders)}
	for _, role := range []uint8{control, data} {
		nc, err := c.dial(u.ctx, u.victim.Addr())
		u.must(err)
		u.Cleanup(func() { nc.Close() })
		u.must(nc.SetDeadline(time.Now().Add(10 * time.Second)))
		u.must(p.introduce(u.ctx, h, role, &[2]net.Conn{nc, nc}))
		u.conns[role] = nc
	}
	_, err = readStep(u.conns[data], kindAccept, h.target)
	u.must(err)
}

func (u *puppet) event() Event {
	u.Helper()
	ev, err := u.stream.Recv(u.ctx)
	u.must(err)
	return ev
}

// cut ends the puppet's link, as its victim sees.
func (u *puppet) cut() {
	u.Helper()
	for _, nc := range u.conns {
		u.must(nc.Close())
	}
	if ev := u.event(); ev.What != LinkLost {
		u.Fatalf("event %+v, want LinkLost", ev)
	}
}

// back makes another.
func (u *puppet) back() {
	u.Helper()
	u.connect()
	if ev := u.event(); ev.What != LinkBack {
		u.Fatalf("event %+v, want LinkBack", ev)
	}
}

// comes sends frames, and waits until they are there.
func (u *puppet) comes(frames string) {
	u.Helper()
	_, err := io.WriteString(u.conns[data], frames+headed(wire.Header{Stream: wire.StreamID("s"), Kind: 7}, ""))
	u.must(err)
	ev := u.event()
	if ev.What != Received || ev.Kind != 7 {
		u.Fatalf("event %+v, want a frame", ev)
	}
	ev.Release()
}

// gets checks what s receives: payloads, and for LinkLost and LinkBack "lost" and "back".
func (u *puppet) gets(s Stream, want ...string) {
	u.Helper()
	for _, want := range want {
		ev, err := s.Recv(u.ctx)
		u.must(err)
		if found := [...]string{Received: string(ev.Payload), LinkLost: "lost", LinkBack: "back"}[ev.What]; found != want {
			u.Errorf("%q came (%v), want %q", found, ev.Err, want)
		}
		ev.Release()
	}
}
