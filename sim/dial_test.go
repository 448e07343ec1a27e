package sim

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// unaccepted returns a network with a node, and another that listens and accepts nobody, to which so many connections are open as wait there.
func unaccepted(t *testing.T) (n *Network, from Node, ln *listener, open []net.Conn) {
	t.Helper()
	n = New(1, Options{}).Network()
	from = n.Node(protocol.Name{ID: "a"})
	b := protocol.Name{ID: "b"}
	ln = &listener{n: n, name: b, node: n.Node(b), conns: make(chan net.Conn, 16), closed: make(chan struct{})}
	n.listeners[b] = ln
	for range cap(ln.conns) {
		c, err := n.dial(t.Context(), from, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	return n, from, ln, open
}

// TestDialGivenUp: of a connection that nobody accepts, whoever gives it up, nothing stays.
func TestDialGivenUp(t *testing.T) {
	for _, by := range []string{"dialer", "listener"} {
		synctest.Test(t, func(t *testing.T) {
			n, from, ln, open := unaccepted(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var failed error
			go func() { _, failed = n.dial(ctx, from, ln.Addr().String()) }()
			time.Sleep(time.Second) // it waits to be accepted
			if by == "dialer" {
				cancel()
				synctest.Wait()
			}
			_ = ln.Close() // with those that wait there
			synctest.Wait()
			for _, c := range open {
				_ = c.Close()
			}
			if failed == nil || len(n.conns) > 0 {
				t.Errorf("given up by the %s: %v, and %d directions of connections are there", by, failed, len(n.conns))
			}
		})
	}
}

// TestDialWhileNodesCome: a dialer and those that name nodes have no data race. It is for -race.
func TestDialWhileNodesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, ln, open := unaccepted(t)
		defer ln.Close()
		trip := time.Duration(2 * n.w.link(int32(from), int32(ln.node)).delay)
		var wait sync.WaitGroup
		for i := range open {
			<-ln.conns
			wait.Go(func() {
				if _, err := n.dial(t.Context(), from, ln.Addr().String()); err != nil {
					t.Error(err)
				}
			})
			wait.Go(func() {
				time.Sleep(trip) // until the dialers go on
				if again := n.Node(protocol.Name{ID: fmt.Sprint(i)}); again == from {
					t.Errorf("node %d is %d, as the dialer's", i, from)
				}
			})
		}
		wait.Wait()
	})
}
