package transport_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/transport"
)

var (
	hereFlag  = flag.String("transport.here", "127.0.0.1", "IP address of BenchmarkHosts's sender")
	thereFlag = flag.String("transport.there", "127.0.0.1", "IP address of its receiver")
	viaFlag   = flag.String("transport.via", "", "command that starts the receiver elsewhere, such as: ip netns exec far")
)

// BenchmarkHosts sets 4 MiB messages over plain TCP, checksummed as between hosts, beside a bare copy loop, from one process to another.
// Two network namespaces stand for two hosts:
//
//	ip netns add near; ip netns add far; ip link add v0 netns near type veth peer name v1 netns far
//	ip -n near addr add 10.77.0.1/24 dev v0; ip -n near link set v0 up
//	ip -n far addr add 10.77.0.2/24 dev v1; ip -n far link set v1 up
//	go test -c -o t ./transport
//	ip netns exec near ./t -test.run XXX -test.bench Hosts -test.benchtime 1x -transport.here 10.77.0.1 -transport.there 10.77.0.2 \
//		-transport.via 'ip netns exec far'
func BenchmarkHosts(b *testing.B) {
	for _, c := range []struct {
		name string
		sum  transport.Checksums
		want float64
	}{{"summed", transport.SumAlways, 0.65}, {"plain", transport.SumNever, 0.90}} {
		b.Run(c.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			args := append(strings.Fields(*viaFlag), os.Args[0], "-test.run=^TestSink$", "--", "sink", *thereFlag, fmt.Sprint(int(c.sum)))
			child := exec.Command(args[0], args[1:]...)
			child.Stderr = os.Stderr
			addr, bareAt := listening(b, child)
			x, err := net.Dial("tcp", bareAt)
			if err != nil {
				b.Fatal(err)
			}
			defer x.Close()
			if err := x.(*net.TCPConn).SetWriteBuffer(socket); err != nil {
				b.Fatal(err)
			}
			p, err := transport.TCP{Listen: *hereFlag + ":0", Buffer: socket, Sum: c.sum}.Open(ctx, transport.Name{ID: "0"}, transport.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			s, err := p.Stream("bench", transport.StreamOptions{MaxFrame: message})
			if err != nil {
				b.Fatal(err)
			}
			sink := transport.Name{ID: "sink"}
			if err := p.Know(sink, addr); err != nil {
				b.Fatal(err)
			}
			theirs := func(count int) {
				for range count {
					if _, err := x.Write(benchBuffers[1]); err != nil {
						b.Fatal(err)
					}
				}
				if count%sinkCount == 0 {
					if _, err := io.ReadFull(x, make([]byte, count/sinkCount)); err != nil {
						b.Fatal(err)
					}
				}
			}
			next := uint32(0)
			ours := func(count int) {
				for range count {
					f := transport.Frame{Key: transport.Key{Chunk: next}, Payload: benchBuffers[1], Done: ignore}
					next++
					if err := s.Send(ctx, sink, f); err != nil {
						b.Fatal(err)
					}
				}
				for range count / sinkCount {
					if _, err := s.Recv(ctx); err != nil {
						b.Fatal(err)
					}
				}
			}
			compare(b, sinkCount, message, theirs, ours, func(bare, own float64) float64 { return bare / own }, c.want)
		})
	}
}

const sinkCount = 16 // messages, after which the receiver says that they have come

// TestSink is the receiver of BenchmarkHosts.
func TestSink(t *testing.T) {
	if flag.Arg(0) != "sink" {
		t.Skip("not run here: it is a child process of BenchmarkHosts")
	}
	var sum transport.Checksums
	if _, err := fmt.Sscan(flag.Arg(2), &sum); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ln, err := net.Listen("tcp", flag.Arg(1)+":0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := transport.TCP{Listen: flag.Arg(1) + ":0", Buffer: socket, Sum: sum}.Open(ctx, transport.Name{ID: "sink"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Stream("bench", transport.StreamOptions{MaxFrame: message})
	if err != nil {
		t.Fatal(err)
	}
	from, dst := transport.Name{ID: "0"}, make([]byte, message)
	go func() {
		for i, ahead := uint32(0), uint32(0); ; i++ {
			for ; ahead < i+2; ahead++ {
				if s.Post(from, transport.Key{Chunk: ahead}, dst) != nil {
					return
				}
			}
			ev, err := s.Recv(ctx)
			if err != nil || ev.What != transport.Received {
				return
			}
			ev.Release()
			if i%sinkCount == sinkCount-1 {
				_ = s.Send(ctx, from, transport.Frame{}) // fails when the sender has gone
			}
		}
	}()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_ = c.(*net.TCPConn).SetReadBuffer(socket) // the rate tells
		buf := make([]byte, message)
		for i := 1; ; i++ {
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			if i%sinkCount == 0 {
				if _, err := c.Write(buf[:1]); err != nil {
					return
				}
			}
		}
	}()
	fmt.Println(p.Addr(), ln.Addr())
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is done
}
