package sim

import (
	"context"
	"errors"
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
	ln = n.listen(protocol.Name{ID: "b"})
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

// TestDialWhilePaused: nothing passes to a node that pauses, also over a path that nobody has used before.
func TestDialWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1, Options{}).Network()
		from := n.Node(protocol.Name{ID: "a"})
		ln := n.listen(protocol.Name{ID: "b"})
		defer ln.Close()
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := n.Run(t.Context(), Plan{{For: 50 * time.Millisecond, Kind: Pause, Nodes: []Node{ln.node}}}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond) // the pause has begun
		begun := time.Now()
		c, err := n.dial(t.Context(), from, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 49*time.Millisecond {
			t.Errorf("a node that pauses for 49 ms more was connected to after %v", took)
		}
		_ = c.Close()
		wait.Wait()
	})
}

// TestRefusedThroughPartition: that nobody listens any more is not heard through a partition.
func TestRefusedThroughPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1, Options{}).Network()
		from := n.Node(protocol.Name{ID: "a"})
		ln := n.listen(protocol.Name{ID: "b"})
		_ = ln.Close()
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := n.Run(t.Context(), Plan{{For: 50 * time.Millisecond, Kind: Partition, Nodes: []Node{ln.node}}}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond) // the partition has begun
		begun := time.Now()
		_, err := n.dial(t.Context(), from, ln.Addr().String())
		if took := time.Since(begun); !errors.Is(err, protocol.ErrRefused) || took < 49*time.Millisecond {
			t.Errorf("after %v: %v, want ErrRefused once the partition is over, in 49 ms", took, err)
		}
		wait.Wait()
	})
}
