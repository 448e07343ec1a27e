package transport_test

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// The benchmarks set this package beside the bare connection of the same kind, with the same buffers in the kernel, in one process run.
// Windows of the two alternate; "best" is the ratio of the shortest windows, "median" that of the medians. On a machine whose cores are
// shared the best says what the code costs, and the median what the neighbours do.

const (
	message = 4 << 20
	socket  = 1 << 20 // bytes of each socket's buffers, on both sides of the comparison
	windows = 15
)

var benchNets = []struct {
	name string
	open func(b *testing.B) transport.Network
	bare func(b *testing.B) (net.Conn, net.Conn)
	want float64 // of the bare rate, as the issue asks
}{
	{"unix", func(b *testing.B) transport.Network {
		return transport.Unix{Dir: b.TempDir(), Buffer: socket, Sockets: true}
	}, bareUnix, 0.90},
	{"tcp", func(*testing.B) transport.Network { return transport.TCP{Buffer: socket} }, bareTCP, 0.90},
	{"tcp-summed", func(*testing.B) transport.Network { return transport.TCP{Buffer: socket, Sum: transport.SumAlways} }, bareTCP, 0.65},
	{"tls", func(b *testing.B) transport.Network {
		return transport.TCP{Buffer: socket, TLS: newAuthority(b).config(b, "bench")}
	}, bareTLS, 0.85},
	{"shared", func(b *testing.B) transport.Network { return transport.Unix{Dir: b.TempDir(), Buffer: socket} }, bareUnix, 1.4},
}

func BenchmarkThroughput(b *testing.B) {
	for _, n := range benchNets {
		for _, posted := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/posted=%v", n.name, posted), func(b *testing.B) {
				x, y := n.bare(b)
				ours, stop := stream(b, n.open(b), posted)
				defer stop()
				theirs := func(count int) {
					copyLoop(b, x, y, count)
				}
				compare(b, 16, message, theirs, ours, func(bare, own float64) float64 { return bare / own }, n.want)
			})
		}
	}
}

// BenchmarkProcesses is BenchmarkRoundTrip between two processes.
func BenchmarkProcesses(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B) (transport.Network, []string)
		dial string
	}{
		{"unix", func(b *testing.B) (transport.Network, []string) {
			dir := b.TempDir()
			return transport.Unix{Dir: dir}, []string{dir}
		}, "unix"},
		{"tcp", func(*testing.B) (transport.Network, []string) { return transport.TCP{}, nil }, "tcp"},
	} {
		b.Run(c.name, func(b *testing.B) {
			n, args := c.open(b)
			child := exec.Command(os.Args[0], append([]string{"-test.run=^TestEcho$", "--", "echo", b.TempDir()}, args...)...)
			addr, bareAt := listening(b, child)
			x, err := net.Dial(c.dial, bareAt)
			if err != nil {
				b.Fatal(err)
			}
			defer x.Close()
			p, err := n.Open(context.Background(), transport.Name{ID: "0"}, transport.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			s, err := p.Stream("bench", transport.StreamOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Know(transport.Name{ID: "1"}, addr); err != nil {
				b.Fatal(err)
			}
			compare(b, 2000, 0, bareTrips(b, x), trips(b, s, transport.Name{ID: "1"}), func(bare, own float64) float64 { return own / bare }, 1.3)
		})
	}
}

// listening starts a process and returns where it says that it listens: the address of its port, and a bare one beside it. The process ends
// with b.
func listening(b *testing.B, child *exec.Cmd) (addr, bareAt string) {
	b.Helper()
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close() // it ends then
		_ = child.Wait()
	})
	if _, err := fmt.Fscanln(out, &addr, &bareAt); err != nil {
		b.Fatal(err)
	}
	return addr, bareAt
}

// TestEcho is the other process of BenchmarkProcesses.
func TestEcho(t *testing.T) {
	if flag.Arg(0) != "echo" {
		t.Skip("not run here: it is a child process of BenchmarkProcesses")
	}
	var n transport.Network = transport.TCP{}
	network, at := "tcp", "127.0.0.1:0"
	if flag.Arg(2) != "" {
		n = transport.Unix{Dir: flag.Arg(2)}
		network, at = "unix", filepath.Join(flag.Arg(1), "s")
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.Open(t.Context(), transport.Name{ID: "1"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Stream("bench", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go echoStream(s)
	go func() {
		if c, err := ln.Accept(); err == nil {
			echoConn(c)
		}
	}()
	fmt.Println(p.Addr(), ln.Addr())
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is done
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, n := range benchNets[:4] {
		b.Run(n.name, func(b *testing.B) {
			x, y := n.bare(b)
			go echoConn(y)
			ours, stop := echo(b, n.open(b))
			defer stop()
			compare(b, 2000, 0, bareTrips(b, x), ours, func(bare, own float64) float64 { return own / bare }, 1.3)
		})
	}
}

// compare runs theirs and ours in turns.
func compare(b *testing.B, count, bytes int, theirs, ours func(int), ratio func(bare, own float64) float64, want float64) {
	var bare, own []float64
	theirs(count)
	ours(count)
	allocs := testing.AllocsPerRun(1, func() { ours(4 * count) }) / float64(4*count)
	for b.Loop() {
		bare, own = bare[:0], own[:0]
		for range windows {
			for _, w := range []struct {
				run   func(int)
				times *[]float64
			}{{theirs, &bare}, {ours, &own}} {
				from := time.Now()
				w.run(count)
				*w.times = append(*w.times, float64(time.Since(from).Nanoseconds())/float64(count))
			}
		}
	}
	slices.Sort(bare)
	slices.Sort(own)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ratio(bare[0], own[0]), "best")
	b.ReportMetric(ratio(bare[windows/2], own[windows/2]), "median")
	b.ReportMetric(want, "wanted")
	b.ReportMetric(allocs, "allocs/frame")
	if bytes > 0 {
		b.ReportMetric(float64(bytes)/own[0], "GB/s")
		b.ReportMetric(float64(bytes)/bare[0], "bare-GB/s")
	} else {
		b.ReportMetric(own[0]/1000, "µs")
		b.ReportMetric(bare[0]/1000, "bare-µs")
	}
}

func copyLoop(b *testing.B, x, y net.Conn, count int) {
	done := make(chan error, 1)
	go func() {
		dst := benchBuffers[0]
		for range count {
			if _, err := io.ReadFull(y, dst); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	src := benchBuffers[1]
	for range count {
		if _, err := x.Write(src); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// benchBuffers are a destination and a source, for both sides of the comparison.
var benchBuffers = func() (p [2][]byte) {
	for i := range p {
		p[i] = make([]byte, message)
		for j := range p[i] {
			p[i][j] = byte(j)
		}
	}
	return p
}()

func pair(b testing.TB, n transport.Network, o transport.StreamOptions) (x, y transport.Stream, stop func()) {
	b.Helper()
	open := func(id string) (transport.Port, transport.Stream) {
		p, err := n.Open(context.Background(), transport.Name{Job: "bench", ID: id}, transport.Options{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := p.Stream("bench", o)
		if err != nil {
			b.Fatal(err)
		}
		return p, s
	}
	p, x := open("0")
	q, y := open("1")
	if err := x.Know(q.Name(), q.Addr()); err != nil {
		b.Fatal(err)
	}
	return x, y, func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
		if err := q.Close(); err != nil {
			b.Error(err)
		}
	}
}

// stream returns a function that sends so many messages.
func stream(b *testing.B, n transport.Network, posted bool) (func(count int), func()) {
	x, y, stop := pair(b, n, transport.StreamOptions{MaxFrame: message})
	ctx := context.Background()
	return func(count int) {
		done := make(chan error, 1)
		go func() {
			post := func(i int) error {
				if !posted || i >= count {
					return nil
				}
				return y.Post(x.Self(), transport.Key{Chunk: uint32(i)}, benchBuffers[0])
			}
			err := post(0)
			for i := 0; i < count && err == nil; i++ {
				if err = post(i + 1); err != nil {
					break
				}
				var ev transport.Event
				if ev, err = y.Recv(ctx); err == nil && len(ev.Payload) != message {
					err = fmt.Errorf("%d bytes: %w", len(ev.Payload), ev.Err)
				}
				ev.Release()
			}
			done <- err
		}()
		for i := range count {
			f := transport.Frame{Key: transport.Key{Chunk: uint32(i)}, Payload: benchBuffers[1], Done: ignore}
			if err := x.Send(ctx, y.Self(), f); err != nil {
				b.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}, stop
}

func ignore(error) {}

// echo returns a function that sends 64 bytes there and back so many times.
func echo(b *testing.B, n transport.Network) (func(count int), func()) {
	x, y, stop := pair(b, n, transport.StreamOptions{})
	go echoStream(y)
	return trips(b, x, y.Self()), stop
}

func echoStream(s transport.Stream) {
	for {
		ev, err := s.Recv(context.Background())
		if err != nil {
			return
		}
		if ev.What == transport.Received {
			_ = s.Send(context.Background(), ev.From, transport.Frame{Key: ev.Key, Payload: ev.Payload}) // fails when the port closes
		}
		ev.Release()
	}
}

func trips(b *testing.B, s transport.Stream, to transport.Name) func(count int) {
	buf, ctx := make([]byte, 64), context.Background()
	return func(count int) {
		for range count {
			if err := s.Send(ctx, to, transport.Frame{Payload: buf}); err != nil {
				b.Fatal(err)
			}
			ev, err := s.Recv(ctx)
			if err != nil {
				b.Fatal(err)
			}
			ev.Release()
		}
	}
}

func echoConn(c net.Conn) {
	buf := make([]byte, 64)
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

func bareTrips(b *testing.B, c net.Conn) func(count int) {
	buf := make([]byte, 64)
	return func(count int) {
		for range count {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func bareUnix(b *testing.B) (net.Conn, net.Conn) {
	ln, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	return bare(b, ln, err)
}

func bareTCP(b *testing.B) (net.Conn, net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	return bare(b, ln, err)
}

func bare(b *testing.B, ln net.Listener, err error) (net.Conn, net.Conn) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	x, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	y, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []net.Conn{x, y} {
		c := c.(interface {
			SetReadBuffer(int) error
			SetWriteBuffer(int) error
		})
		if err := c.SetReadBuffer(socket); err != nil {
			b.Fatal(err)
		}
		if err := c.SetWriteBuffer(socket); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

func bareTLS(b *testing.B) (net.Conn, net.Conn) {
	x, y := bareTCP(b)
	c := newAuthority(b).config(b, "bench")
	c.MinVersion, c.DynamicRecordSizingDisabled = tls.VersionTLS13, true
	cl, sv := tls.Client(x, c), tls.Server(y, c)
	go func() { _ = sv.Handshake() }() // the client's error says it
	if err := cl.Handshake(); err != nil {
		b.Fatal(err)
	}
	return cl, sv
}
