package transport_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// BenchmarkShared sets shared memory beside the sockets of the same network, between two processes. Each message comes from another
// part of 64 MiB, which no cache holds, and is counted when it has come and the receiver has told so at the end of a window. Windows of
// the two alternate.
//
//	private   it lands in a posted slice: both copies are counted
//	in place  the receiver reads each word where it lies: in shared memory, or where the socket's reader has put it
//
// "best" is the ratio of the shortest windows, "median" that of the medians.
func BenchmarkShared(b *testing.B) {
	for _, c := range []struct {
		size int
		want float64
	}{{256 << 10, 1.0}, {4 << 20, 1.4}} {
		for _, how := range []string{"private", "in-place"} {
			b.Run(fmt.Sprintf("%dK/%s", c.size>>10, how), func(b *testing.B) {
				var send [2]func()
				for i, sockets := range []bool{true, false} {
					send[i] = toChild(b, sockets, c.size, how)
					send[i]()
				}
				var times [2][]float64
				for b.Loop() {
					times = [2][]float64{}
					for range windows {
						for i := range send {
							from := time.Now()
							send[i]()
							times[i] = append(times[i], time.Since(from).Seconds())
						}
					}
				}
				for i := range times {
					slices.Sort(times[i])
				}
				rate := float64(sharedWindow) / 1e9
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(times[0][0]/times[1][0], "best")
				b.ReportMetric(times[0][windows/2]/times[1][windows/2], "median")
				b.ReportMetric(rate/times[1][0], "shared-GB/s")
				b.ReportMetric(rate/times[0][0], "sockets-GB/s")
				if how == "private" {
					b.ReportMetric(c.want, "wanted")
				}
			})
		}
	}
}

const (
	sharedWindow = 128 << 20 // bytes of a window
	sharedSource = 64 << 20
	sharedChild  = "transport-bench-child"
)

// toChild starts a receiver and returns a function that sends it a window and waits for its word.
func toChild(b *testing.B, sockets bool, size int, how string) func() {
	ctx, cancel := context.WithCancel(context.Background())
	network := transport.Unix{Dir: b.TempDir(), Buffer: socket, Sockets: sockets}
	p, err := network.Open(ctx, transport.Name{ID: "parent"}, transport.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := p.Stream("bench", transport.StreamOptions{MaxFrame: size, Window: max(4*size, 4<<20)})
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSharedChild$", "-test.timeout=10m", "-test.count=1",
		sharedChild, network.Dir, fmt.Sprint(sockets), fmt.Sprint(size), how, p.Addr())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	child := transport.Name{ID: "child"}
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			b.Fatal("the receiver ended")
		}
		if addr, ok := strings.CutPrefix(lines.Text(), "at "); ok {
			if err := s.Know(child, addr); err != nil {
				b.Fatal(err)
			}
			break
		}
	}
	b.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		p.Close()
	})
	src := make([]byte, sharedSource)
	for i := range src {
		src[i] = byte(i * 7)
	}
	at := 0
	return func() {
		for i := range sharedWindow / size {
			f := transport.Frame{Key: transport.Key{Chunk: uint32(i)}, Payload: src[at : at+size], Done: ignore}
			if err := s.Send(ctx, child, f); err != nil {
				b.Fatal(err)
			}
			at = (at + size) % len(src)
		}
		for {
			ev, err := s.Recv(ctx)
			if err != nil {
				b.Fatal(err)
			}
			ev.Release()
			if ev.What == transport.Received {
				return
			}
			b.Fatal(ev.Err)
		}
	}
}

// TestSharedChild is the receiver of BenchmarkShared; as a test it does nothing.
func TestSharedChild(t *testing.T) {
	args := os.Args
	i := slices.Index(args, sharedChild)
	if i < 0 {
		return
	}
	var sockets bool
	var size int
	dir, how, parent := args[i+1], args[i+4], args[i+5]
	if _, err := fmt.Sscan(args[i+2]+" "+args[i+3], &sockets, &size); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	p, err := transport.Unix{Dir: dir, Buffer: socket, Sockets: sockets}.Open(ctx, transport.Name{ID: "child"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.Stream("bench", transport.StreamOptions{MaxFrame: size, Window: max(4*size, 4<<20)})
	if err != nil {
		t.Fatal(err)
	}
	from := transport.Name{ID: "parent"}
	if err := s.Know(from, parent); err != nil {
		t.Fatal(err)
	}
	fmt.Println("at " + p.Addr())
	count, ahead := sharedWindow/size, 4
	dst := make([][]byte, ahead)
	for j := range dst {
		dst[j] = make([]byte, size)
	}
	post := func(j int) {
		if how == "private" {
			if err := s.Post(from, transport.Key{Chunk: uint32(j % count)}, dst[j%ahead]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for j := range ahead {
		post(j)
	}
	var sum uint64
	for j := 0; ; j++ {
		ev, err := s.Recv(ctx)
		if err != nil || ev.What != transport.Received {
			return // the parent has gone
		}
		if how == "private" {
			if !ev.Posted {
				t.Fatal("not posted")
			}
		} else {
			sum ^= words(ev.Payload)
		}
		ev.Release()
		post(j + ahead)
		if (j+1)%count == 0 {
			if err := s.Send(ctx, from, transport.Frame{Key: transport.Key{Op: wire.Op(sum)}}); err != nil { // or nobody would need the sum
				return
			}
		}
	}
}

// words reads all of p, which has whole words.
func words(p []byte) (sum uint64) {
	for ; len(p) >= 32; p = p[32:] {
		sum += binary.LittleEndian.Uint64(p) + binary.LittleEndian.Uint64(p[8:]) + binary.LittleEndian.Uint64(p[16:]) + binary.LittleEndian.Uint64(p[24:])
	}
	return sum
}
