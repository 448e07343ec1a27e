package transport

import (
	"context"
	"path/filepath"
	"testing"
	"time"
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
