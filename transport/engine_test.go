package transport

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

func headed(h wire.Header, body string) string {
	h.Length = uint32(max(len(body), int(h.Length)))
	return string(appendHeader(nil, &h)) + body
}

// TestBadFrames: a peer that is trusted and yet sends what it must not loses its link, with the reason in the log and to itself.
func TestBadFrames(t *testing.T) {
	id := wire.StreamID("s")
	ok := headed(wire.Header{Stream: id, Kind: 7}, "fine")
	many := func(n int, h wire.Header, body string) string { return strings.Repeat(headed(h, body), n) }
	for _, c := range []struct {
		name            string
		on              int
		send            string
		cause, sentence string
	}{
		{"garbage", data, strings.Repeat("garbage ", 6), "magic", "want 0x7654"},
		{"version", data, ok[:2] + "\x07" + ok[3:], "version", "the peer 7"},
		{"header's checksum", data, ok[:20] + "\xff" + ok[21:], "checksum", "of a header"},
		{"payload's checksum", data, headed(wire.Header{Stream: id, Flags: wire.Summed, Sum: 1}, "body"), "checksum", "of 4 bytes on stream"},
		{"too long for the stream", data, headed(wire.Header{Stream: id, Length: 1001}, ""), "length", "at most 1000 bytes on stream"},
		{"too long for any", data, headed(wire.Header{Stream: id, Length: wire.MaxFrame + 1}, ""), "length", "at most 67108864 bytes"},
		{"too long for a stream that is not open", data, headed(wire.Header{Stream: 5, Length: 4<<20 + 1}, ""), "credit", "more than was granted"},
		{"head beyond the frame", data, headed(wire.Header{Stream: id, Head: 9}, "body"), "length", "a head of 9 bytes"},
		{"unknown flags", data, headed(wire.Header{Stream: id, Flags: 1 << 14}, "body"), "flags", "unknown flags"},
		{"shared memory on TCP", data, headed(wire.Header{Stream: id, Flags: wire.Shared}, "12345678"), "flags", "of which there is none"},
		{"control frame on the data connection", data, headed(wire.Header{Stream: id, Flags: uint16(Control) << wire.PriorityShift}, "x"), "priority", "wrong connection"},
		{"data frame on the control connection", control, ok, "priority", "wrong connection"},
		{"more than was granted", data, many(5000, wire.Header{Stream: id}, strings.Repeat("x", 1000)), "credit", "more than was granted"},
		{"more frames than may be under way", data, many(1025, wire.Header{Stream: id}, ""), "credit", "more than was granted"},
		{"more control frames", control, many(1025, wire.Header{Stream: id, Flags: uint16(Control) << wire.PriorityShift}, ""), "credit", "more than was granted"},
		{"more bytes of control frames", control, many(100, wire.Header{Stream: 5, Flags: uint16(Control) << wire.PriorityShift}, strings.Repeat("x", 64<<10)), "credit", "more than was granted"},
		{"more than was granted for a stream too many", data, notOpen(maxUnopened) + many(5000, wire.Header{Stream: 5}, strings.Repeat("x", 1000)), "credit", "more than was granted"},
		{"grants what it never had", control, headed(wire.Header{Flags: wire.Internal, Kind: kindGrant, Stream: id, Chunk: 5}, ""), "credit", "more than was sent"},
		{"grants without end", control, headed(wire.Header{Flags: wire.Internal, Kind: kindGrant, Stream: id, Op: 1 << 60}, ""), "credit", "more than was sent"},
		{"a window without end", control, headed(wire.Header{Flags: wire.Internal, Kind: kindWindow, Stream: id, Op: 1 << 60}, ""), "credit", "a window of"},
		{"a hello again", control, headed(wire.Header{Flags: wire.Internal, Kind: kindHello}, "hello"), "kind", "an own frame of kind 1"},
		{"an own frame in shared memory", data, headed(wire.Header{Flags: wire.Internal | wire.Shared, Kind: kindRefuse, Length: 100}, "0123456789"), "flags", "in shared memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := openPuppet(t)
			_, err := u.conns[data].Write([]byte(ok))
			u.must(err)
			ev := u.event()
			if ev.Kind != 7 || string(ev.Payload) != "fine" {
				t.Fatalf("received %+v", ev)
			}
			ev.Release()
			told := make(chan string)
			go func() {
				p, _ := io.ReadAll(u.conns[control]) // a reset after the reason is as good as its end
				told <- string(p)
			}()
			_, _ = u.conns[c.on].Write([]byte(c.send)) // fails where the link is closed before all is written
			for ev = u.event(); ev.What == Received; ev = u.event() {
				defer ev.Release() // not now: the credit is to be used up
			}
			if ev.What != LinkLost || !strings.Contains(ev.Err.Error(), c.sentence) {
				t.Errorf("event %d: %v, want a LinkLost that says %q", ev.What, ev.Err, c.sentence)
			}
			if n := u.victim.Stats().Refused[c.cause]; n != 1 {
				t.Errorf("refused %v, want one for %q", u.victim.Stats().Refused, c.cause)
			}
			if got := <-told; !strings.Contains(got, c.sentence) && !strings.HasPrefix(c.name, "more") { // a reset may overtake the reason
				t.Errorf("the sender is told %q, want %q", got, c.sentence)
			}
			u.connect() // it may come again
			_, err = u.conns[data].Write([]byte(ok))
			u.must(err)
			for _, want := range []EventKind{LinkBack, Received} {
				if ev := u.event(); ev.What != want {
					t.Errorf("event %d (%v), want %d", ev.What, ev.Err, want)
				} else {
					ev.Release()
				}
			}
		})
	}
}

// TestHalfFrame: a sender that stops amid a frame for a posted slice holds up neither who fences it off nor who closes.
func TestHalfFrame(t *testing.T) {
	const head, size = 8, 100
	id := wire.StreamID("s")
	for _, part := range []int{0, head - 5, head, size / 2} {
		for name, end := range map[string]func(u *puppet) error{
			"Fence":        func(u *puppet) error { u.stream.Fence(2, nil); return nil },
			"Stream.Close": func(u *puppet) error { return u.stream.Close() },
			"Port.Close":   func(u *puppet) error { return u.victim.Close() },
		} {
			t.Run(fmt.Sprintf("%s/%d", name, part), func(t *testing.T) {
				u := openPuppet(t)
				s, from := u.stream.(*stream), Name{ID: "puppet"}
				dst := make([]byte, size)
				u.must(u.stream.Post(from, Key{Op: 7}, dst))
				frame := headed(wire.Header{Stream: id, Op: 7, Head: head}, strings.Repeat("x", head+size))
				_, err := io.WriteString(u.conns[data], frame[:wire.HeaderLen+part])
				u.must(err)
				for begun := false; !begun; time.Sleep(time.Millisecond) {
					s.mu.Lock()
					begun = s.posts[postKey{from, Key{Op: 7}}].state == landing
					s.mu.Unlock()
					u.must(u.ctx.Err())
				}
				ended := make(chan error, 1)
				go func() { ended <- end(u) }()
				select {
				case err := <-ended:
					u.must(err)
				case <-time.After(10 * time.Second):
					u.conns[data].Close() // it would wait for that
					t.Fatal("it waits for the rest of the frame")
				}
				if name != "Fence" {
					return
				}
				clear(dst)
				_, err = io.WriteString(u.conns[data], frame[wire.HeaderLen+part:]+headed(wire.Header{Stream: id, Epoch: 2, Kind: 7}, "next"))
				u.must(err)
				ev := u.event()
				if ev.Kind != 7 || string(ev.Payload) != "next" {
					t.Errorf("received %+v", ev)
				}
				ev.Release()
				if !bytes.Equal(dst, make([]byte, size)) {
					t.Errorf("the rest landed: %q", dst)
				}
			})
		}
	}
}

// selfSigned is the TLS configuration of peers that all hold one certificate. They are at 127.0.0.1, or also at those.
func selfSigned(t *testing.T, also ...net.IP) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: append(also, net.IPv4(127, 0, 0, 1)),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: roots, ClientCAs: roots}
}

// TestStaleSocket: the socket of a dead process is replaced; that of a live one is not.
func TestStaleSocket(t *testing.T) {
	u, self := Unix{Dir: t.TempDir()}, Name{ID: "x"}
	p, err := u.Open(t.Context(), self, Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(p.Addr(), unixScheme)
	if _, err := u.Open(t.Context(), self, Options{}); err == nil || !strings.Contains(err.Error(), "it is open already") {
		t.Errorf("the second of one name: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil { // as a dead process leaves it
		t.Fatal(err)
	}
	if p, err = u.Open(t.Context(), self, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStaleSocketOfMany: of several processes of one name that find the socket of a dead one, one takes its place, and all others hear that it did.
func TestStaleSocketOfMany(t *testing.T) {
	for range 200 {
		path := filepath.Join(t.TempDir(), "s")
		dead, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		dead.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		var opened [4]net.Listener
		for i := range opened {
			wait.Go(func() { opened[i], _ = listenUnix(t.Context(), path) })
		}
		wait.Wait()
		n := 0
		for _, ln := range opened {
			if ln != nil {
				n++
				defer ln.Close()
			}
		}
		if n != 1 {
			t.Fatalf("%d listen at one path", n)
		}
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	_, err := (Unix{Dir: dir}).Open(t.Context(), Name{ID: "x"}, Options{})
	for _, err := range []error{err, Unix{Dir: dir}.Check()} {
		want := fmt.Sprintf("the name of the directory for sockets, %s, has %d bytes, at most 77: choose a shorter one (TMPDIR, where it is a temporary one)", dir, len(dir))
		if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), want) {
			t.Errorf("a path that is too long: %v", err)
		}
	}
	longest := "/" + strings.Repeat("x", 76)
	if err := errors.Join((Unix{}).Check(), Unix{Dir: longest}.Check()); err != nil || (Unix{Dir: longest + "x"}).Check() == nil {
		t.Errorf("directories of 77 and 78 bytes: %v", err)
	}
}

// TestNearestChooses: peers of this host are reached by unix sockets, others by TCP.
func TestNearestChooses(t *testing.T) {
	ctx := t.Context()
	n := Nearest{Unix: Unix{Dir: t.TempDir()}}
	open := func(id string) *port {
		p, err := n.Open(ctx, Name{ID: id}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p.(*port)
	}
	a, b := open("a"), open("b")
	nc, err := a.carrier.dial(ctx, b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if found := nc.RemoteAddr().Network(); found != "unix" {
		t.Errorf("a peer of this host is reached by %s", found)
	}
	_, rest, _ := strings.Cut(b.Addr(), ",")
	far, err := a.carrier.dial(ctx, nearScheme+"anotherhost,"+rest)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if found := far.RemoteAddr().Network(); found != "tcp" {
		t.Errorf("a peer of another host is reached by %s", found)
	}
	for _, bad := range []string{"", "near:", "near:x", "near:x,unix:/a", "near:x,tcp:a:1,unix:/a", "http://x", "tcp:nowhere", "unix:"} {
		if err := a.Know(Name{ID: "z"}, bad); err == nil {
			t.Errorf("the address %q was taken", bad)
		}
	}
}

// TestRefusedIsProof: after a link is lost, a dial that finds nobody listening says so once.
func TestRefusedIsProof(t *testing.T) {
	for name, n := range map[string]Network{"tcp": TCP{}, "unix": Unix{Dir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			a, err := n.Open(ctx, Name{ID: "a"}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b, err := n.Open(ctx, Name{ID: "b"}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, _ := a.Stream("s", StreamOptions{})
			if err := a.Know(b.Name(), b.Addr()); err != nil {
				t.Fatal(err)
			}
			if err := s.Send(ctx, b.Name(), Frame{}); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			refused := 0
			for refused == 0 {
				ev, err := s.Recv(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if ev.What == LinkLost && errors.Is(ev.Err, protocol.ErrRefused) {
					refused++
				}
			}
			if err := s.Send(ctx, b.Name(), Frame{}); !errors.Is(err, ErrLinkLost) {
				t.Errorf("a send over a lost link: %v, want ErrLinkLost", err)
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // some dials more
			defer cancel()
			if ev, err := s.Recv(short); err == nil {
				t.Errorf("event %d (%v) after the proof", ev.What, ev.Err)
			}
		})
	}
}

// TestFenceAmidFrame: a frame for no posted slice of which a part has come when the stream is fenced is dropped once the rest is there, where
// it is of an older epoch then, or of somebody who is no member.
func TestFenceAmidFrame(t *testing.T) {
	id := wire.StreamID("s")
	for name, c := range map[string]struct {
		epoch, fence Epoch
		members      []Name
	}{
		"older":     {0, 1, nil},
		"no member": {1, 1, []Name{{ID: "other"}}},
	} {
		t.Run(name, func(t *testing.T) {
			u := openPuppet(t)
			frame := headed(wire.Header{Stream: id, Epoch: c.epoch}, "frame")
			_, err := io.WriteString(u.conns[data], frame[:len(frame)-1])
			u.must(err)
			pr := u.victim.(*port).peer(u.name)
			for begun := false; !begun; time.Sleep(time.Millisecond) {
				pr.mu.Lock()
				fl := pr.link.flows[id]
				begun = fl != nil && fl.used[data].frames == 1
				pr.mu.Unlock()
				u.must(u.ctx.Err())
			}
			u.stream.Fence(c.fence, c.members)
			_, err = io.WriteString(u.conns[data], frame[len(frame)-1:])
			u.must(err)
			for u.victim.Stats().Stale == 0 {
				u.must(u.ctx.Err())
				if st := u.stream.(*stream); !st.empty() {
					t.Fatal("it is received")
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}
