package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// logged collects what a port logs.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A besieged port has an honest peer, whose frames must pass whatever else comes to the port.
type besieged struct {
	*testing.T
	ctx  context.Context
	log  logged
	port transport.Port
	at   transport.Stream
	peer transport.Stream
	n    uint32
}

func besiege(t *testing.T, n transport.Network, o transport.Options) *besieged {
	t.Helper()
	goleak.VerifyNone(t, goleak.IgnoreCurrent())
	b := &besieged{T: t}
	var cancel func()
	b.ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	peer := b.open(n, o, "honest")
	o.Log = slog.New(slog.NewTextHandler(&b.log, nil))
	b.port = b.open(n, o, "besieged")
	b.must(peer.Know(b.port.Name(), b.port.Addr()))
	var err error
	b.at, err = b.port.Stream("s", transport.StreamOptions{MaxFrame: 1 << 16})
	b.must(err)
	b.peer, err = peer.Stream("s", transport.StreamOptions{MaxFrame: 1 << 16})
	b.must(err)
	b.passes()
	return b
}

func (b *besieged) open(n transport.Network, o transport.Options, id string) transport.Port {
	b.Helper()
	p, err := n.Open(b.ctx, transport.Name{Job: "siege", ID: id}, o)
	b.must(err)
	b.Cleanup(func() { b.must(p.Close()) })
	return p
}

func (b *besieged) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// passes checks that a frame of the honest peer comes.
func (b *besieged) passes() {
	b.Helper()
	b.n++
	b.must(b.peer.Send(b.ctx, b.port.Name(), transport.Frame{Key: transport.Key{Chunk: b.n}}))
	for {
		ev, err := b.at.Recv(b.ctx)
		b.must(err)
		if ev.From == b.peer.Self() {
			if ev.What != transport.Received || ev.Chunk != b.n {
				b.Fatalf("from the honest peer: event %d, frame %d (%v), want frame %d", ev.What, ev.Chunk, ev.Err, b.n)
			}
			ev.Release()
			return
		}
		ev.Release()
	}
}

// refused waits until the port has counted a refusal for that cause and logged it with that sentence.
func (b *besieged) refused(cause, sentence string) {
	b.Helper()
	for b.port.Stats().Refused[cause] == 0 || !strings.Contains(b.log.String(), sentence) {
		select {
		case <-b.ctx.Done():
			b.Fatalf("want a refusal of cause %q that says %q; refused: %v\n%s", cause, sentence, b.port.Stats().Refused, &b.log)
		case <-time.After(time.Millisecond):
		}
	}
}

func (b *besieged) dial() net.Conn {
	b.Helper()
	network, addr, _ := strings.Cut(b.port.Addr(), ":")
	c, err := net.Dial(network, addr)
	b.must(err)
	b.Cleanup(func() { c.Close() })
	b.must(c.SetDeadline(time.Now().Add(20 * time.Second)))
	return c
}

func frame(kind, version uint8, flags uint16, length uint32, body string) string {
	h := wire.Header{Kind: kind, Flags: flags, Length: length, Sum: wire.Sum([]byte(body))}
	var p [wire.HeaderLen]byte
	h.Put(&p)
	p[2] = version
	return string(p[:]) + body
}

// TestBadInput: case B6 of the design: whatever comes to the port of a socket, the port says what it was, to its log and to the sender,
// and frames of others pass.
func TestBadInput(t *testing.T) {
	networks := map[string]func(t *testing.T) transport.Network{
		"tcp":  func(*testing.T) transport.Network { return transport.TCP{} },
		"unix": func(t *testing.T) transport.Network { return transport.Unix{Dir: t.TempDir()} },
	}
	const internal = wire.Internal | wire.Summed
	for _, c := range []struct {
		name, send      string
		shut            bool // the sender ends its direction
		cause, sentence string
		answer          string // contains
	}{
		{"garbage", strings.Repeat("\xde\xad\xbe\xef", 1000), false, "magic", "want 0x7654, found 0xadde", "want 0x7654, found 0xadde"},
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, "magic", "an HTTP request", "HTTP/1.1 400 Bad Request"},
		{"HTTP short", "GET ", false, "magic", "an HTTP request", "this port speaks Trivium's frames"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false, "magic", "a TLS client", "\x15\x03\x03\x00\x02\x02\x28"},
		{"version", frame(1, 9, internal, 0, ""), false, "version", "this program speaks version 1, the peer 9", "this program speaks version 1, the peer 9"},
		{"header's checksum", strings.Replace(frame(1, 1, internal, 4, "body"), "\x04", "\x05", 1), false, "checksum", "of a header", "of a header"},
		{"body's checksum", frame(1, 1, internal, 4, "body")[:48] + "bodi", false, "checksum", "a step of the handshake", "checksum"},
		{"huge", frame(1, 1, internal, 60<<20, ""), false, "length", "at most 4096 bytes before the peer is known, found 62914560", "at most 4096"},
		{"beyond huge", frame(1, 1, internal, 1<<31, ""), false, "length", "at most 67108864", "at most 67108864"},
		{"no hello", frame(3, 1, internal, 4, "body"), false, "kind", "want step 1 of the handshake", "want step 1"},
		{"a carrier's frame", frame(1, 1, 0, 4, "body"), false, "kind", "want step 1 of the handshake", "want step 1"},
		{"a refusal", frame(5, 1, internal, 9, "\x06closed\x01x"), false, "kind", "want step 1 of the handshake", "want step 1"},
		{"empty hello", frame(1, 1, internal, 0, ""), false, "hello", "hello", "hello"},
		{"random hello", frame(1, 1, internal, 400, strings.Repeat("\xff\x00\x7f\x80", 100)), false, "hello", "hello", "hello"},
		{"truncated header", frame(1, 1, internal, 4, "body")[:20], true, "truncated", "ended before the handshake", "ended before the handshake"},
		{"truncated body", frame(1, 1, internal, 40, "body"), true, "truncated", "ended before the handshake", "ended before the handshake"},
		{"nothing", "", true, "truncated", "ended before the handshake", "ended before the handshake"},
	} {
		for network, open := range networks {
			t.Run(c.name+"/"+network, func(t *testing.T) {
				b := besiege(t, open(t), transport.Options{Secret: []byte("secret")})
				conn := b.dial()
				_, err := io.WriteString(conn, c.send)
				b.must(err)
				if c.shut {
					b.must(conn.(interface{ CloseWrite() error }).CloseWrite())
				}
				answer, err := io.ReadAll(conn)
				if err != nil && len(answer) == 0 {
					t.Errorf("no answer: %v", err)
				}
				if !strings.Contains(string(answer), c.answer) {
					t.Errorf("answer %q, want it to contain %q", answer, c.answer)
				}
				b.refused(c.cause, c.sentence)
				b.passes()
			})
		}
	}
}

// TestSlowLoris: who sends a byte now and then is cut off when the time for the handshake is over.
func TestSlowLoris(t *testing.T) {
	b := besiege(t, transport.TCP{}, transport.Options{Handshake: 300 * time.Millisecond})
	conn := b.dial()
	hello := frame(1, 1, wire.Internal|wire.Summed, 200, strings.Repeat("x", 200))
	answer := make(chan string, 1)
	go func() {
		p, _ := io.ReadAll(conn) // a reset after the refusal is as good as its end
		answer <- string(p)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case got := <-answer:
			if !strings.Contains(got, "no whole handshake within 300ms") {
				t.Errorf("answer %q", got)
			}
			b.refused("timeout", "no whole handshake within 300ms")
			b.passes()
			return
		case <-tick.C:
			_, _ = io.WriteString(conn, hello[i%200:i%200+1]) // fails once it is cut off
		}
	}
}

// TestMemoryPerStranger: case P6 of the design: at most 64 KiB are held for a connection before it has said who it is.
func TestMemoryPerStranger(t *testing.T) {
	const strangers, most = 200, 64 << 10
	a := newAuthority(t)
	hello := frame(1, 1, wire.Internal|wire.Summed, 4096, strings.Repeat("x", 4095))
	for _, c := range []struct {
		name string
		n    transport.Network
		send string
	}{
		{"tcp", transport.TCP{}, hello},
		{"unix", transport.Unix{Dir: t.TempDir()}, hello},
		{"tls", transport.TCP{TLS: a.config(t, "x")}, "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + strings.Repeat("\x03", 16<<10-8)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := besiege(t, c.n, transport.Options{Handshake: 20 * time.Second})
			held := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc + m.StackInuse
			}
			before := held()
			for range strangers {
				_, err := io.WriteString(b.dial(), c.send)
				b.must(err)
			}
			var each uint64
			for still := 0; still < 10; still++ { // until what the port reads of them is no more
				b.passes()
				if now := held(); now > before && (now-before)/strangers > each {
					each, still = (now-before)/strangers, -1
				}
			}
			if each > most {
				t.Errorf("%d bytes are held for a stranger, want at most %d", each, most)
			}
			t.Logf("%d bytes for each of %d strangers, who sent %d bytes each", each, strangers, len(c.send))
		})
	}
}

// TestCrowd: strangers beyond those that may be undecided at a time push one another out, and not those who say who they are.
func TestCrowd(t *testing.T) {
	b := besiege(t, transport.TCP{}, transport.Options{Handshake: 20 * time.Second})
	for range 300 {
		b.dial()
	}
	for b.port.Stats().Refused["crowded"] == 0 {
		b.passes()
	}
	late := b.open(transport.TCP{}, transport.Options{}, "late")
	s, err := late.Stream("s", transport.StreamOptions{})
	b.must(err)
	b.must(late.Know(b.port.Name(), b.port.Addr()))
	b.must(s.Send(b.ctx, b.port.Name(), transport.Frame{Key: transport.Key{Chunk: 77}}))
	ev, err := b.at.Recv(b.ctx)
	b.must(err)
	if ev.From != late.Name() || ev.Chunk != 77 {
		t.Errorf("frame %d of %v", ev.Chunk, ev.From)
	}
	ev.Release()
}

// refusal sends to the port from an honest program with the wrong credentials, and returns what it is told.
func (b *besieged) refusal(n transport.Network, o transport.Options, self transport.Name, target transport.Name) error {
	b.Helper()
	p, err := n.Open(b.ctx, self, o)
	b.must(err)
	defer p.Close()
	s, err := p.Stream("s", transport.StreamOptions{})
	b.must(err)
	b.must(p.Know(target, b.port.Addr()))
	_ = s.Send(b.ctx, target, transport.Frame{}) // the event says what became of it
	for {
		ev, err := s.Recv(b.ctx)
		b.must(err)
		if ev.What == transport.LinkLost {
			return ev.Err
		}
		ev.Release()
	}
}

func TestRefusals(t *testing.T) {
	ours := newAuthority(t)
	withTLS := func(t *testing.T, a *authority, name string) transport.TCP {
		return transport.TCP{TLS: a.config(t, name), Verify: byCommonName}
	}
	plain := func(*testing.T) transport.Network { return transport.TCP{} }
	secured := func(t *testing.T) transport.Network {
		// besiege opens two ports; each gets the certificate of its name from this one.
		return named{t, ours}
	}
	secret := transport.Options{Secret: []byte("secret")}
	intruder := transport.Name{Job: "siege", ID: "intruder"}
	for _, c := range []struct {
		name            string
		open            func(*testing.T) transport.Network
		with            func(t *testing.T) transport.Network
		o               transport.Options
		self, target    string
		cause, sentence string
		told            string
	}{
		{"secret", plain, plain, transport.Options{Secret: []byte("guess")}, "intruder", "besieged", "", "", "does not hold the secret"},
		{"no secret", plain, plain, transport.Options{}, "intruder", "besieged", "", "", "does not hold the secret"},
		{"target", plain, plain, secret, "intruder", "another", "target", "siege/another is wanted, this is siege/besieged", "siege/another is wanted"},
		{"duplicate", plain, plain, secret, "honest", "besieged", "duplicate", "is connected already, from another process", "is connected already"},
		{"certificate of another authority", secured, func(t *testing.T) transport.Network { return withTLS(t, newAuthority(t), "intruder") }, secret, "intruder", "besieged", "certificate", "certificate", "certificate"},
		{"certificate of another name", secured, func(t *testing.T) transport.Network { return withTLS(t, ours, "somebody") }, secret, "intruder", "besieged", "certificate", "it is \\\"somebody\\\"'s", "it is \"somebody\"'s"},
		{"no TLS", secured, plain, secret, "intruder", "besieged", "certificate", "TLS is spoken here", "TLS is spoken here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := besiege(t, c.open(t), secret)
			self := intruder
			self.ID = c.self
			err := b.refusal(c.with(t), c.o, self, transport.Name{Job: "siege", ID: c.target})
			if err == nil || !strings.Contains(err.Error(), c.told) {
				t.Errorf("the sender is told %v, want %q", err, c.told)
			}
			if c.cause != "" {
				b.refused(c.cause, c.sentence)
			}
			b.passes()
		})
	}
}

// named opens each port with a certificate of its name.
type named struct {
	t *testing.T
	a *authority
}

func (n named) Open(ctx context.Context, self transport.Name, o transport.Options) (transport.Port, error) {
	return transport.TCP{TLS: n.a.config(n.t, self.ID), Verify: byCommonName}.Open(ctx, self, o)
}

// TestNoCertificate: a client of TLS without a certificate is refused.
func TestNoCertificate(t *testing.T) {
	b := besiege(t, named{t, newAuthority(t)}, transport.Options{})
	c := tls.Client(b.dial(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	err := c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client is told %v, want an alert", err)
	}
	b.refused("certificate", "client didn't provide a certificate")
	b.passes()
}

// TestReplay: a handshake that was recorded proves nothing.
func TestReplay(t *testing.T) {
	b := besiege(t, transport.TCP{}, transport.Options{Secret: []byte("secret")})
	// A relay in between records what the dialler says on its first connection.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	defer ln.Close()
	var mu sync.Mutex
	var record bytes.Buffer
	var relays sync.WaitGroup
	relays.Go(func() {
		for i := 0; ; i++ {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out := b.dial()
			relays.Go(func() {
				defer out.Close()
				defer in.Close()
				_, _ = io.Copy(in, out)
			})
			relays.Go(func() {
				buf := make([]byte, 4096)
				for {
					n, err := in.Read(buf)
					if err != nil {
						_ = out.Close()
						return
					}
					if i == 0 {
						mu.Lock()
						record.Write(buf[:n])
						mu.Unlock()
					}
					_, _ = out.Write(buf[:n])
				}
			})
		}
	})
	p, err := transport.TCP{}.Open(b.ctx, transport.Name{Job: "siege", ID: "victim"}, transport.Options{Secret: []byte("secret")})
	b.must(err)
	s, err := p.Stream("s", transport.StreamOptions{})
	b.must(err)
	b.must(p.Know(b.port.Name(), "tcp:"+ln.Addr().String()))
	b.must(s.Send(b.ctx, b.port.Name(), transport.Frame{}))
	ev, err := b.at.Recv(b.ctx)
	b.must(err)
	if ev.From != p.Name() {
		t.Fatalf("an event of %v", ev.From)
	}
	ev.Release()
	b.must(p.Close())
	b.must(ln.Close())
	relays.Wait()
	conn := b.dial()
	_, err = conn.Write(record.Bytes())
	b.must(err)
	answer, _ := io.ReadAll(conn) // a reset after the refusal is as good as its end
	if !strings.Contains(string(answer), "does not hold the secret") {
		t.Errorf("answer %q", answer)
	}
	b.refused("secret", "siege/victim does not hold the secret")
	b.passes()
}
