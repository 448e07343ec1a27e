package sim

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestProxyEnded: what connects just when a proxy ends is closed, at both ends: nothing else would end what passes it on.
func TestProxyEnded(t *testing.T) {
	to, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	x, err := NewProxy(t.Context(), "127.0.0.1:0", to.Addr().String(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	late, err := new(net.Dialer).DialContext(t.Context(), "tcp", to.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := to.Accept()
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		x.pass(t.Context(), client)
	}()
	server, err := to.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	select {
	case <-passed:
	case <-time.After(10 * time.Second):
		t.Fatal("it is passed on")
	}
	for _, c := range []net.Conn{late, server} {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(c); err != nil && c == server {
			t.Errorf("the server reads %v, want the end", err)
		}
	}
	if x.keep(late) || late.SetDeadline(time.Time{}) == nil {
		t.Error("a proxy that has ended keeps a connection")
	}
}
