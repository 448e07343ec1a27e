package transport

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A pipes is a listener whose connections are made within the process: they hold nothing, so that a write waits for its reader.
type pipes struct {
	come chan net.Conn
	over chan struct{}
}

func newPipes() pipes { return pipes{make(chan net.Conn), make(chan struct{})} }

func (l pipes) Close() error   { close(l.over); return nil }
func (l pipes) Addr() net.Addr { return nil }

func (l pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-l.come:
		return nc, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// dial returns a new connection to who listens.
func (l pipes) dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.come <- there:
		return here, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// carrier is that of a port which listens at l and dials by dial, over TLS where that is not nil.
func (l pipes) carrier(secured *tls.Config, dial func(context.Context, string) (net.Conn, error)) *carrier {
	c := &carrier{
		listeners: []net.Listener{l}, dial: dial, check: func(string) error { return nil }, sum: func(net.Conn, string) bool { return false },
	}
	if secured != nil {
		TCP{TLS: secured}.secure(c)
	}
	return c
}

// pipePair opens two ports, of which the first has sent the other a frame by dial, and returns their streams. They are closed with the test.
func pipePair(t *testing.T, secured *tls.Config, dial func(ctx context.Context, to pipes) (net.Conn, error)) (from, to Stream) {
	t.Helper()
	here, there := newPipes(), newPipes()
	ports := [2]*port{
		openPort(Name{ID: "a"}, Options{}, here.carrier(secured, func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, there) })),
		openPort(Name{ID: "b"}, Options{}, there.carrier(secured, there.dial)),
	}
	var streams [2]Stream
	for i, p := range ports {
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		var err error
		if streams[i], err = p.Stream("s", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ports[0].Know(ports[1].self, "b"); err != nil {
		t.Fatal(err)
	}
	return streams[0], streams[1]
}

// A lifting is a connection that does something when the limit of its handshake is lifted, as its link is made.
type lifting struct {
	net.Conn
	lifted func()
}

func (c *lifting) SetDeadline(at time.Time) error {
	err := c.Conn.SetDeadline(at)
	if at.IsZero() {
		c.lifted()
	}
	return err
}

// TestDialLimitPasses: the limit of a handshake that passes while its link is made cuts off nothing any more.
func TestDialLimitPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secured := selfSigned(t)
		secured.ServerName = "127.0.0.1"
		from, to := pipePair(t, secured, func(ctx context.Context, to pipes) (net.Conn, error) {
			nc, err := to.dial(ctx, "")
			return &lifting{nc, func() { time.Sleep(time.Minute) }}, err
		})
		for i := range 3 {
			if err := from.Send(t.Context(), to.Self(), Frame{Key: Key{Chunk: uint32(i)}}); err != nil {
				t.Fatal(err)
			}
			ev, err := to.Recv(t.Context())
			if err != nil || ev.What != Received || ev.Chunk != uint32(i) {
				t.Fatalf("event %+v, %v; want frame %d", ev, err, i)
			}
			ev.Release()
		}
	})
}

// TestShortLivedLinks: links that are cut as soon as they are made are dialled ever less often.
func TestShortLivedLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		from, to := pipePair(t, nil, func(ctx context.Context, to pipes) (net.Conn, error) {
			time.Sleep(time.Millisecond) // the way there
			dials.Add(1)
			nc, err := to.dial(ctx, "")
			return &lifting{nc, func() { _ = nc.Close() }}, err
		})
		if err := from.Send(t.Context(), to.Self(), Frame{Done: func(error) {}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if n := dials.Load(); n < 20 || n > 120 { // two a link
			t.Errorf("%d dials in 20 s; want a second between two links in the end", n)
		}
	})
}

// A taggedConn cannot be compared, as a user's connection need not be.
type taggedConn struct {
	net.Conn
	_ []string
}

type taggedListener struct{ pipes }

func (l taggedListener) Accept() (net.Conn, error) {
	nc, err := l.pipes.Accept()
	return taggedConn{Conn: nc}, err
}

// TestConnsThatDoNotCompare: the connections of a user's network are whatever they like.
func TestConnsThatDoNotCompare(t *testing.T) {
	here, there := newPipes(), newPipes()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		nc, err := there.dial(ctx, "")
		return taggedConn{Conn: nc}, err
	}
	var streams [2]Stream
	for i, l := range []pipes{here, there} {
		p, err := Conns{Listener: taggedListener{l}, Addr: "there", Dial: dial}.Open(t.Context(), Name{ID: "ab"[i : i+1]}, Options{Linger: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if streams[i], err = p.Stream("s", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams[0].Know(streams[1].Self(), "there"); err != nil {
		t.Fatal(err)
	}
	if err := streams[0].Send(t.Context(), streams[1].Self(), Frame{Kind: 7}); err != nil {
		t.Fatal(err)
	}
	if ev, err := streams[1].Recv(t.Context()); err != nil || ev.Kind != 7 {
		t.Errorf("%+v, %v", ev, err)
	}
}
