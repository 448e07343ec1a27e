package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/wire"
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

// TestSimultaneousDial: dials from both ends at once become one link, and nobody hears of a loss or a refusal.
func TestSimultaneousDial(t *testing.T) {
	at := aloneAt()
	listen := net.JoinHostPort(at.String(), "0")
	for name, n := range map[string]Network{"tcp": TCP{Listen: listen}, "unix": Unix{Dir: t.TempDir()}, "tls": TCP{Listen: listen, TLS: selfSigned(t, at)}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			for round := 0; round < 40 && !t.Failed(); round++ {
				simultaneousDial(ctx, t, n, round)
			}
		})
	}
}

// aloneAt is an address of the loopback that no other process dials, where the system has more than one. The ports of the usual one pass from
// process to process: who dials one of whom he had there, and that has gone, is a stranger to its next owner, and is refused.
func aloneAt() net.IP {
	pid := os.Getpid()
	ip := net.IPv4(127, 1+byte(pid>>16)%200, byte(pid>>8), byte(pid))
	ln, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		return net.IPv4(127, 0, 0, 1)
	}
	_ = ln.Close()
	return ip
}

func simultaneousDial(ctx context.Context, t *testing.T, n Network, round int) {
	var ports [2]Port
	var streams [2]Stream
	var logs [2]bytes.Buffer
	for i := range ports {
		o := Options{Log: slog.New(slog.NewTextHandler(&logs[i], &slog.HandlerOptions{Level: slog.LevelDebug}))}
		var err error
		if ports[i], err = n.Open(ctx, Name{ID: string(rune('a' + i))}, o); err != nil {
			t.Fatal(err)
		}
		if streams[i], err = ports[i].Stream("s", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for i := range ports {
		other := ports[1-i]
		if err := ports[i].Know(other.Name(), other.Addr()); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if err := streams[i].Send(ctx, other.Name(), Frame{Head: []byte{byte(i)}}); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			ev, err := streams[i].Recv(ctx)
			if err != nil || ev.What != Received || ev.From != other.Name() {
				t.Errorf("round %d: %v received event %d from %v (%v), error %v", round, ports[i].Name(), ev.What, ev.From, ev.Err, err)
			}
			ev.Release()
		})
	}
	group.Wait()
	for i, p := range ports {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Reconnects > 0 || len(s.Refused) > 0 || strings.Contains(logs[i].String(), "WARN") {
			t.Errorf("round %d: %d reconnects, refused %v:\n%s", round, s.Reconnects, s.Refused, &logs[i])
		}
	}
}

// TestDialOvertaken: a dial that began before the other end's came up is not needed any more. It is no word of a lost link: that one stays.
func TestDialOvertaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var ports [2]Port
	var streams [2]Stream
	for i, id := range []string{"z", "a"} { // the other way round, a's dial would win, and refuse z's as long as it goes on
		var err error
		if ports[i], err = (TCP{}).Open(ctx, Name{ID: id}, Options{}); err != nil {
			t.Fatal(err)
		}
		defer ports[i].Close()
		if streams[i], err = ports[i].Stream("s", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range ports {
		if err := p.Know(ports[1-i].Name(), ports[1-i].Addr()); err != nil {
			t.Fatal(err)
		}
	}
	a := ports[1].(*port)
	pr := a.peers[ports[0].Name()]
	pr.mu.Lock()
	begun := pr.hello()
	pr.mu.Unlock()
	for i := range byte(2) {
		if err := streams[0].Send(ctx, a.Name(), Frame{Head: []byte{i}}); err != nil {
			t.Fatal(err)
		}
		ev, err := streams[1].Recv(ctx)
		if err != nil || ev.What != Received || ev.Head[0] != i {
			t.Fatalf("want frame %d, received event %d (%v), error %v", i, ev.What, ev.Err, err)
		}
		ev.Release()
		if err := a.dial(ctx, pr, ports[0].Addr(), begun); !errors.Is(err, errBusy) {
			t.Errorf("the dial ends with %v, want %v", err, errBusy)
		}
	}
	for _, p := range ports {
		if n := p.Stats().Reconnects; n > 0 {
			t.Errorf("%v: %d reconnects", p.Name(), n)
		}
	}
}

// TestDialOver: a port that closes, and whose peer has all that was sent, dials it no more, whatever it was about to do.
func TestDialOver(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var ports [2]Port
	var streams [2]Stream
	for i, id := range []string{"a", "b"} {
		var err error
		if ports[i], err = (TCP{}).Open(ctx, Name{ID: id}, Options{}); err != nil {
			t.Fatal(err)
		}
		defer ports[i].Close()
		if streams[i], err = ports[i].Stream("s", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a := ports[0].(*port)
	if err := a.Know(ports[1].Name(), ports[1].Addr()); err != nil {
		t.Fatal(err)
	}
	if err := streams[0].Send(ctx, ports[1].Name(), Frame{}); err != nil {
		t.Fatal(err)
	}
	ev, err := streams[1].Recv(ctx)
	if err != nil || ev.What != Received {
		t.Fatalf("received event %d (%v), error %v", ev.What, ev.Err, err)
	}
	ev.Release()
	pr := a.peers[ports[1].Name()]
	pr.shut()
	<-pr.drained
	for up := true; up && ctx.Err() == nil; runtime.Gosched() { // the other end goes too
		pr.mu.Lock()
		up = pr.link.up || pr.keeping
		pr.mu.Unlock()
	}
	a.carrier.dial = func(context.Context, string) (net.Conn, error) {
		t.Error("it dials")
		pr.end(ErrClosed)
		return nil, ErrClosed
	}
	pr.keep()
}

// TestDialGivenUp: a peer that leaves may have a dial under way, which ends in the middle of the handshake: it is no stranger. From one whose link
// was lost without a goodbye it is counted.
func TestDialGivenUp(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		u := openPuppet(t)
		if leaves {
			for _, nc := range u.conns {
				_, err := io.WriteString(nc, headed(wire.Header{Flags: wire.Internal, Kind: kindBye}, ""))
				u.must(err)
			}
		}
		u.cut()
		nc, err := net.Dial("tcp", strings.TrimPrefix(u.victim.Addr(), "tcp:"))
		u.must(err)
		h := &hello{name: u.name, target: u.victim.Name(), instance: [16]byte{1}, attempt: 9}
		_, err = nc.Write(appendFrame(nil, kindHello, h.append(nil)))
		u.must(err)
		_, err = readStep(nc, kindChallenge, h.target)
		u.must(err)
		u.must(nc.Close())
		p := u.victim.(*port)
		for pending := 1; pending > 0 && u.ctx.Err() == nil; {
			p.mu.Lock()
			pending = len(p.pending)
			p.mu.Unlock()
			runtime.Gosched()
		}
		if n := p.Stats().Refused["truncated"]; (n == 0) != leaves {
			t.Errorf("leaves %v: %d handshakes are counted as truncated", leaves, n)
		}
	}
}
