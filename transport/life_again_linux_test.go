package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLifeOfTheNext: a port that still writes out while it closes leaves the name to the next of that name, and then takes nothing from it: the
// socket that tells of the next one's death stays.
func TestLifeOfTheNext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	u, self := Unix{Dir: t.TempDir(), Sockets: true}, Name{ID: "again"}
	first, err := u.Open(ctx, self, Options{Linger: time.Minute})
	must(err)
	s, err := first.Stream("s", StreamOptions{})
	must(err)
	frozen := &port{self: Name{ID: "frozen"}, carrier: &carrier{}}
	h := &hello{name: frozen.self, target: self, instance: [16]byte{1}, attempt: 1}
	var conns [2]net.Conn
	path := strings.TrimPrefix(first.Addr(), unixScheme)
	for _, role := range []uint8{control, data} {
		nc, err := net.Dial("unix", path)
		must(err)
		defer nc.Close()
		must(frozen.introduce(ctx, h, role, &[2]net.Conn{nc, nc}))
		conns[role] = nc
	}
	_, err = openShared(conns[data].(*net.UnixConn), false)
	must(err)
	_, err = readStep(conns[data], kindAccept, h.target)
	must(err)
	for range 4 { // more than a socket holds
		must(s.Send(ctx, frozen.self, Frame{Payload: make([]byte, 1<<20), Done: func(error) {}}))
	}
	closed := make(chan error, 1)
	go func() { closed <- first.Close() }()
	for ; err == nil; _, err = os.Stat(path) {
		time.Sleep(time.Millisecond) // nobody tells when a socket is gone
		must(ctx.Err())
	}
	next, err := u.Open(ctx, self, Options{})
	must(err)
	for _, nc := range conns {
		must(nc.Close())
	}
	must(<-closed)
	if _, err := os.Stat(strings.TrimSuffix(path, ".sock") + ".life"); err != nil {
		t.Errorf("the next port has lost its life: %v", err)
	}
	must(next.Close())
}

// TestLifeHasRoom: however many peers came and went, there is room for the next one, who hears of the end.
func TestLifeHasRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.life")
	l, err := openLife(path)
	if err != nil {
		t.Fatal(err)
	}
	var last net.Conn
	for i := range 2*lifeBacklog + 1 {
		if last, err = net.Dial("unix", path); err != nil {
			t.Fatalf("peer %d finds no room: %v", i, err)
		}
		if i < 2*lifeBacklog {
			_ = last.Close()
		}
		l.news <- struct{}{} // when it has room, all but the last two peers were seen
	}
	defer last.Close()
	l.news <- struct{}{}
	if err := errors.Join(l.leave(), l.Close()); err != nil {
		t.Error(err)
	}
	_ = last.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who is connected hears nothing of the end: %v", err)
	}
}
