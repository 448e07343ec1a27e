package trust

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPeers: two processes of a cluster, each with an identity that came to it as bytes, speak to each other, and not to a third.
func TestPeers(t *testing.T) {
	identity := func(a *Authority, id string) *Identity {
		t.Helper()
		made, err := a.Identity(Name{Role: "worker", ID: id}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p, err := made.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeIdentity(p)
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	authority := func() *Authority {
		t.Helper()
		a, err := NewAuthority(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ours := authority()
	a, b, stranger := identity(ours, "0"), identity(ours, "1"), identity(authority(), "1")
	for _, c := range []struct {
		peer *Identity
		want string
	}{{b, ""}, {stranger, "certificate"}} {
		client, server := net.Pipe()
		errs := make(chan error, 1)
		s := tls.Server(server, a.PeerConfig())
		go func() {
			err := s.Handshake()
			if err == nil {
				err = VerifyName(s.ConnectionState(), Name{Role: "worker", ID: "1"})
			}
			_ = server.Close() // the other end then ends too
			errs <- err
		}()
		d := tls.Client(client, c.peer.PeerConfig())
		_ = d.Handshake() // what the server thinks of it is what is tested
		_ = client.Close()
		err := <-errs
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	if _, err := DecodeIdentity([]byte(`{"name":{"Role":"worker"},"key":"AAAA"}`)); err == nil {
		t.Error("a broken identity was accepted")
	}
}
