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

	"github.com/trivium-ml/trivium/protocol"
)

// TestNearestCommas: a folder of sockets may have commas in its name.
func TestNearestCommas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n := Nearest{Unix: Unix{Dir: filepath.Join(t.TempDir(), "a,tcp:b,c")}}
	var ports [2]Port
	for i, id := range []string{"a", "b"} {
		p, err := n.Open(ctx, Name{ID: id}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ports[i] = p
	}
	if err := ports[0].Know(ports[1].Name(), ports[1].Addr()); err != nil {
		t.Fatal(err)
	}
	nc, err := ports[0].(*port).carrier.dial(ctx, ports[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if found := nc.RemoteAddr().Network(); found != "unix" {
		t.Errorf("a peer of this host is reached by %s", found)
	}
}

// TestHostOf: ports of one host name one host, and addresses of a single network none.
func TestHostOf(t *testing.T) {
	var hosts []string
	for _, id := range []string{"a", "b"} {
		p, err := Nearest{Unix: Unix{Dir: t.TempDir()}}.Open(t.Context(), Name{ID: id}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		hosts = append(hosts, HostOf(p.Addr()))
	}
	if hosts[0] == "" || hosts[0] != hosts[1] {
		t.Errorf("two ports of this host: %q", hosts)
	}
	if h := HostOf("near:other,unix:/a,tcp:a:1"); h != "other" {
		t.Errorf("another's: %q", h)
	}
	for _, addr := range []string{"", "unix:/a,b", "tcp:a:1"} {
		if h := HostOf(addr); h != "" {
			t.Errorf("%q: %q", addr, h)
		}
	}
}

// TestNearestElsewhere: a peer of this host whose socket is not to be seen here, as that of a container with files of its own, is reached by
// TCP. Where that does not answer either, the peer is gone.
func TestNearestElsewhere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n := Nearest{Unix: Unix{Dir: t.TempDir()}}
	var ports [2]Port
	for i, id := range []string{"a", "b"} {
		p, err := n.Open(ctx, Name{ID: id}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ports[i] = p
	}
	to := ports[1].Addr()
	_, rest, _ := strings.Cut(to, unixScheme)
	path, _, _ := strings.Cut(rest, ","+tcpScheme)
	if err := os.Rename(path, path+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	dial := ports[0].(*port).carrier.dial
	nc, err := dial(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if found := nc.RemoteAddr().Network(); found != "tcp" {
		t.Errorf("it is reached by %s", found)
	}
	if err := ports[1].Close(); err != nil {
		t.Fatal(err)
	}
	if nc, err := dial(ctx, to); !errors.Is(err, protocol.ErrRefused) {
		if err == nil {
			_ = nc.Close()
		}
		t.Errorf("one that has closed: %v, want %v", err, protocol.ErrRefused)
	}
}

// A farConn is a connection between two addresses.
type farConn struct {
	net.Conn
	at, to string
}

func (c farConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP(c.at)} }
func (c farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.to)} }

// TestNearestSums: between hosts payloads have checksums; between namespaces of one host, which have addresses of their own, only where that
// was asked for.
func TestNearestSums(t *testing.T) {
	for _, c := range []struct {
		sum         Checksums
		here, there bool
	}{{SumBetweenHosts, false, true}, {SumAlways, true, true}, {SumNever, false, false}} {
		p, err := Nearest{Unix: Unix{Dir: t.TempDir()}, TCP: TCP{Sum: c.sum}, Apart: true}.Open(t.Context(), Name{ID: "a"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		host, _, _ := strings.Cut(strings.TrimPrefix(p.Addr(), nearScheme), ",")
		nc := farConn{at: "10.0.0.1", to: "10.0.0.2"}
		sum := p.(*port).carrier.sum
		for addr, want := range map[string]bool{
			nearScheme + host + ",unix:/b,tcp:10.0.0.2:1":  c.here,
			nearScheme + host + "0,unix:/b,tcp:10.0.0.2:1": c.there,
			"tcp:10.0.0.2:1": c.there,
		} {
			if found := sum(nc, addr); found != want {
				t.Errorf("%d: payloads to %s are summed: %v, want %v", c.sum, addr, found, want)
			}
		}
	}
}
