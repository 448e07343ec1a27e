package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// TestGoodbyeAfterGivingUp: a Send whose context ended just when its frame was through leaves a deadline on the connection. Close says goodbye
// all the same, on both connections: else it would cut off what the other one has still to write.
func TestGoodbyeAfterGivingUp(t *testing.T) {
	for name, n := range map[string]Network{"tcp": TCP{}, "unix": Unix{Dir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			from, to := twoStreams(ctx, t, n, StreamOptions{})
			if err := from.Send(ctx, to.Self(), Frame{}); err != nil {
				t.Fatal(err)
			}
			ev, err := to.Recv(ctx)
			if err != nil {
				t.Fatal(err)
			}
			ev.Release()
			linkOf := func(at Stream, of Name) *link {
				pr := at.(*stream).port.peer(of)
				pr.mu.Lock()
				defer pr.mu.Unlock()
				return pr.link
			}
			leaves, stays := linkOf(from, to.Self()), linkOf(to, from.Self())
			for _, h := range leaves.half {
				if err := h.nc.SetWriteDeadline(longAgo); err != nil {
					t.Fatal(err)
				}
			}
			if err := from.(*stream).port.Close(); err != nil {
				t.Fatal(err)
			}
			if ev, err := to.Recv(ctx); err != nil || ev.What != LinkLost {
				t.Errorf("event %+v, %v; want a LinkLost", ev, err)
			}
			stays.peer.mu.Lock()
			defer stays.peer.mu.Unlock()
			if d, c := stays.half[data].bye, stays.half[control].bye; !d || !c {
				t.Errorf("goodbye was said on the data connection: %v, on the control connection: %v", d, c)
			}
		})
	}
}

// A frozen peer has passed the handshake, and takes no bytes unless the test reads them. Three Sends of its victim's stream s wait, the first
// while its frame is being written, and behind it a frame of another stream.
type frozen struct {
	*testing.T
	conns    [2]net.Conn
	victim   Port
	s, other Stream
	sent     [3]error // what the Sends returned
	ended    atomic.Int32
	group    sync.WaitGroup
	last     chan error // of the other stream's frame
}

func freeze(t *testing.T, secured *tls.Config) *frozen {
	z := &frozen{T: t, last: make(chan error, 1)}
	ln := newPipes()
	z.victim = openPort(Name{ID: "victim"}, Options{}, ln.carrier(secured, nil))
	var err error
	z.s, err = z.victim.Stream("s", StreamOptions{})
	z.must(err)
	z.other, err = z.victim.Stream("other", StreamOptions{})
	z.must(err)
	p := &port{self: Name{ID: "frozen"}, carrier: ln.carrier(secured, nil)}
	h := &hello{name: p.self, target: z.victim.Name(), instance: [16]byte{1}, attempt: 1}
	for _, role := range []uint8{control, data} {
		nc, err := ln.dial(t.Context(), "")
		z.must(err)
		t.Cleanup(func() { nc.Close() })
		conn := [2]net.Conn{nc, nc}
		z.must(p.introduce(t.Context(), h, role, &conn))
		z.conns[role] = conn[0]
	}
	_, err = readStep(z.conns[data], kindAccept, h.target)
	z.must(err)
	for i := range z.sent {
		z.group.Go(func() {
			z.sent[i] = z.s.Send(context.Background(), p.self, Frame{Kind: 7, Payload: make([]byte, 5000)})
			z.ended.Add(1)
		})
		synctest.Wait() // the first is being written
	}
	z.must(z.other.Send(t.Context(), p.self, Frame{Kind: 8, Done: func(err error) { z.last <- err }}))
	return z
}

func (z *frozen) must(err error) {
	z.Helper()
	if err != nil {
		z.Fatal(err)
	}
}

// thaw takes the frames that are on their way: the first of s, and that of the other stream.
func (z *frozen) thaw() {
	z.Helper()
	for _, kind := range []uint8{7, 8} {
		var b [wire.HeaderLen]byte
		_, err := io.ReadFull(z.conns[data], b[:])
		z.must(err)
		var found wire.Header
		z.must(found.Parse(&b))
		if found.Kind != kind {
			z.Errorf("a frame of kind %d was written, want %d", found.Kind, kind)
		}
		_, err = io.CopyN(io.Discard, z.conns[data], int64(found.Length))
		z.must(err)
	}
	z.must(<-z.last)
}

// TestCloseBesideFrozenPeer: Close of a stream ends its Sends also where their frames have credit, but the peer takes no bytes, as one does
// that is frozen. The link stays, and what other streams sent is written out when it takes some again.
func TestCloseBesideFrozenPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := freeze(t, nil)
		z.must(z.s.Close())
		synctest.Wait()
		if n := int(z.ended.Load()); n != len(z.sent) {
			t.Errorf("%d of %d Sends have returned after Close", n, len(z.sent))
		} else if z.sent[0] != nil || !errors.Is(z.sent[1], ErrClosed) || !errors.Is(z.sent[2], ErrClosed) {
			t.Errorf("the Sends returned %v; want one that is on its way, and ErrClosed", z.sent)
		} else {
			z.thaw()
		}
		z.must(z.victim.Close())
		z.group.Wait()
	})
}

// TestCloseBesideFrozenTLS: over TLS a frame that is being written cannot be given up: Close ends its Send, and with it the link, when the peer
// has taken nothing for tlsGrace. If it takes the frame meanwhile, the link stays.
func TestCloseBesideFrozenTLS(t *testing.T) {
	for name, thaws := range map[string]bool{"stays frozen": false, "thaws": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secured := selfSigned(t)
				secured.ServerName = "127.0.0.1"
				z := freeze(t, secured)
				z.must(z.s.Close())
				time.Sleep(tlsGrace - time.Nanosecond)
				synctest.Wait()
				if n := z.ended.Load(); n != 2 {
					t.Errorf("%d Sends have returned just before the time is over, want the two that were not begun", n)
				}
				if thaws {
					z.thaw()
				}
				time.Sleep(time.Nanosecond)
				z.group.Wait()
				if first := z.sent[0]; thaws && first != nil || !thaws && !errors.Is(first, ErrLinkLost) {
					t.Errorf("the Send whose frame was being written returned %v", first)
				}
				if !errors.Is(z.sent[1], ErrClosed) || !errors.Is(z.sent[2], ErrClosed) {
					t.Errorf("the Sends returned %v; want ErrClosed", z.sent[1:])
				}
				if thaws {
					time.Sleep(tlsGrace)
					if n := z.victim.Stats().Peers; n != 1 {
						t.Errorf("%d links are up, want the one whose peer thawed", n)
					}
				} else {
					if err := <-z.last; !errors.Is(err, ErrLinkLost) {
						t.Errorf("the other stream's frame ended with %v, want ErrLinkLost", err)
					}
					if ev, err := z.other.Recv(t.Context()); err != nil || ev.What != LinkLost || !strings.Contains(ev.Err.Error(), "takes no bytes") {
						t.Errorf("event %+v, %v; want a LinkLost that says that the peer takes no bytes", ev, err)
					}
				}
				z.must(z.victim.Close())
			})
		})
	}
}

// TestSocketsAtOneEnd: where one end keeps payloads out of shared memory, both do.
func TestSocketsAtOneEnd(t *testing.T) {
	for _, dials := range []bool{true, false} {
		dir := t.TempDir()
		ports := [2]Port{}
		streams := [2]Stream{}
		for i := range ports {
			var err error
			if ports[i], err = (Unix{Dir: dir, Sockets: dials == (i == 0)}).Open(t.Context(), Name{ID: string(rune('a' + i))}, Options{}); err != nil {
				t.Fatal(err)
			}
			defer ports[i].Close()
			if streams[i], err = ports[i].Stream("s", StreamOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := ports[0].Know(ports[1].Name(), ports[1].Addr()); err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("large"), sharedFrom)
		if err := streams[0].Send(t.Context(), ports[1].Name(), Frame{Payload: sent}); err != nil {
			t.Fatalf("the end that dials has Sockets: %v: %v", dials, err)
		}
		ev, err := streams[1].Recv(t.Context())
		if err != nil || !bytes.Equal(ev.Payload, sent) {
			t.Errorf("the end that dials has Sockets: %v: event %d, %v", dials, ev.What, err)
		}
		ev.Release()
	}
}

// TestWindowShrinks: a stream may be opened again with a smaller window. What a peer sends before it hears so is within its credit.
func TestWindowShrinks(t *testing.T) {
	const size = 1 << 20
	u := openPuppet(t)
	s, err := u.victim.Stream("w", StreamOptions{MaxFrame: size, Window: 16 * size})
	u.must(err)
	u.must(s.Close())
	send := func(n int) {
		_, err := io.WriteString(u.conns[data], strings.Repeat(headed(wire.Header{Stream: wire.StreamID("w")}, strings.Repeat("x", size)), n))
		u.must(err)
	}
	send(6)
	for u.victim.Stats().PayloadReceived < 6*size {
		u.must(u.ctx.Err())
		time.Sleep(time.Millisecond) // nobody tells when a frame waits for a stream that is not open
	}
	s, err = u.victim.Stream("w", StreamOptions{MaxFrame: size, Window: size})
	u.must(err)
	send(1)
	for range 7 {
		ev, err := s.Recv(u.ctx)
		u.must(err)
		if ev.What != Received {
			t.Fatalf("event %d: %v", ev.What, ev.Err)
		}
		defer ev.Release()
	}
}

// TestDoneBesideStream: a Done that comes due while a stream is opened may call the port.
func TestDoneBesideStream(t *testing.T) {
	const size = 2 << 20 // so much credit is told at once
	u := openPuppet(t)
	_, err := io.WriteString(u.conns[data], headed(wire.Header{Stream: wire.StreamID("late")}, strings.Repeat("x", size))+
		headed(wire.Header{Stream: wire.StreamID("s"), Kind: 7}, ""))
	u.must(err)
	if ev := u.event(); ev.Kind != 7 { // the first waits for its stream
		t.Fatalf("received %+v", ev)
	} else {
		ev.Release()
	}
	done := make(chan time.Time, 1)
	from := Name{ID: "puppet"}
	u.must(u.stream.Send(u.ctx, from, Frame{Priority: Control, More: true, Done: func(error) { done <- u.victim.Heard(from) }}))
	opened := make(chan error, 1)
	go func() {
		_, err := u.victim.Stream("late", StreamOptions{MaxFrame: 1000}) // shorter than what waits
		opened <- err
	}()
	select {
	case err := <-opened:
		u.must(err)
	case <-u.ctx.Done():
		t.Fatal("Stream and the Done wait for one another")
	}
	<-done
}

// notOpen are n frames, each for another stream that nobody opened.
func notOpen(n int) string {
	var p strings.Builder
	for i := range n {
		p.WriteString(headed(wire.Header{Stream: uint32(1000 + i)}, "x"))
	}
	return p.String()
}

// TestTooManyStreams: frames for streams that nobody opened, beyond those that may wait, are dropped one by one, and the link stays. If such a
// stream is opened after all, frames of it are missing: then the link is lost, and it is opened on the next.
func TestTooManyStreams(t *testing.T) {
	id, late := wire.StreamID("s"), wire.StreamID("late")
	u := openPuppet(t)
	told := make(chan string)
	go func() {
		p, _ := io.ReadAll(u.conns[control]) // a reset after the reason is as good as its end
		told <- string(p)
	}()
	_, err := io.WriteString(u.conns[data], notOpen(maxUnopened)+headed(wire.Header{Stream: late}, "1")+headed(wire.Header{Stream: late, Head: 1}, "2")+
		headed(wire.Header{Stream: 7}, "")+headed(wire.Header{Stream: id, Kind: 7}, "fine"))
	u.must(err)
	if ev := u.event(); ev.Kind != 7 || string(ev.Payload) != "fine" {
		t.Fatalf("received %+v", ev)
	} else {
		ev.Release()
	}
	if n := u.victim.Stats().Refused["stream"]; n != 2 {
		t.Errorf("%d streams were refused, want 2", n)
	}
	_, err = u.victim.Stream("other", StreamOptions{}) // has missed nothing
	u.must(err)
	_, err = io.WriteString(u.conns[data], headed(wire.Header{Stream: id, Kind: 8}, ""))
	u.must(err)
	if ev := u.event(); ev.Kind != 8 {
		t.Fatalf("received %+v", ev)
	} else {
		ev.Release()
	}
	const sentence = `stream "late": frames that came before it was opened were dropped`
	s, err := u.victim.Stream("late", StreamOptions{})
	u.must(err)
	for _, at := range []Stream{u.stream, s} {
		if ev, err := at.Recv(u.ctx); err != nil || ev.What != LinkLost || !strings.Contains(ev.Err.Error(), sentence) {
			t.Errorf("event %+v, %v; want a LinkLost that says %q", ev, err, sentence)
		}
	}
	if got := <-told; !strings.Contains(got, sentence) {
		t.Errorf("the sender is told %q, want %q", got, sentence)
	}
	u.connect()
	_, err = io.WriteString(u.conns[data], headed(wire.Header{Stream: late}, "3"))
	u.must(err)
	for _, want := range []EventKind{LinkBack, Received} {
		ev, err := s.Recv(u.ctx)
		if err != nil || ev.What != want {
			t.Errorf("event %+v, %v; want %d", ev, err, want)
		}
		ev.Release()
	}
}

// TestNotOpenDuringLoss: what waits for a stream that is opened after its link was lost is followed by LinkLost. What came over one link
// and what came over the next never wait together, as nobody could tell where some is missing between them, nor how much it may be in the end.
func TestNotOpenDuringLoss(t *testing.T) {
	frame := func(stream, body string) string { return headed(wire.Header{Stream: wire.StreamID(stream)}, body) }
	u := openPuppet(t)
	u.comes(frame("a", "1") + frame("a", "2"))
	u.cut()
	a, err := u.victim.Stream("a", StreamOptions{})
	u.must(err)
	u.gets(a, "1", "2", "lost")
	u.back()
	u.comes(frame("a", "3") + frame("b", "4"))
	u.gets(a, "back", "3")
	u.cut()
	u.back()
	u.comes(frame("b", "5"))
	b, err := u.victim.Stream("b", StreamOptions{})
	u.must(err)
	u.comes(frame("b", "6") + frame("c", "7"))
	u.gets(b, "5", "6")
	u.name.Incarnation++
	u.connect() // which replaces the one before
	u.gets(b, "lost")
	u.gets(u.stream, "lost")
	u.comes(frame("c", "8"))
	c, err := u.victim.Stream("c", StreamOptions{})
	u.must(err)
	u.gets(c, "8")
}

// TestStreamsOfTheGone: streams that nobody opened and whose senders' links are lost make room where others need it.
func TestStreamsOfTheGone(t *testing.T) {
	u := openPuppet(t)
	u.comes(notOpen(maxUnopened))
	u.cut()
	u.back()
	u.comes(headed(wire.Header{Stream: wire.StreamID("late")}, "1") + headed(wire.Header{Stream: 7}, ""))
	late, err := u.victim.Stream("late", StreamOptions{})
	u.must(err)
	u.gets(late, "1")
	if n := u.victim.Stats().Refused["stream"]; n != 0 {
		t.Errorf("%d streams were refused", n)
	}
	u.comes(notOpen(2 * maxUnopened)) // over a link that is up they make no room for one another
	if n := u.victim.Stats().Refused["stream"]; n != maxUnopened+1 {
		t.Errorf("%d streams were refused, want %d", n, maxUnopened+1)
	}
}

// TestLinksOfNobody: what a stream that nobody reads keeps of links that come and go does not grow, and who reads it in the end learns how
// they are, and what has come between.
func TestLinksOfNobody(t *testing.T) {
	p, err := Unix{Dir: t.TempDir()}.Open(t.Context(), Name{ID: "self"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	opened, err := p.Stream("s", StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, a, b := opened.(*stream), Name{ID: "a"}, Name{ID: "b"}
	first, last := errors.New("first"), errors.New("last")
	flap := func() {
		for range 1000 {
			for _, n := range []Name{a, b} {
				s.tell(LinkLost, n, first)
				s.tell(LinkBack, n, nil)
			}
		}
	}
	frame := func(from Name, priority Priority) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.push(&arrival{ev: Event{From: from, Priority: priority}, d: &delivery{}})
	}
	s.tell(LinkBack, a, nil) // its loss was returned
	flap()
	s.tell(LinkLost, b, last)
	if n := s.main.len(); n != 4 {
		t.Errorf("%d events are kept of two links, want 4", n)
	}
	frame(a, Control)
	frame(b, Data)
	flap()
	if n := s.main.len(); n != 9 {
		t.Errorf("%d events are kept of two links, and a frame, want 9", n)
	}
	want := []Event{
		{What: LinkBack, From: a},
		{What: LinkLost, From: a, Err: first},
		{What: LinkLost, From: b, Err: last},
		{What: LinkBack, From: a},
		{From: a, Priority: Control},
		{From: b},
		{What: LinkLost, From: a, Err: first},
		{What: LinkLost, From: b, Err: first},
		{What: LinkBack, From: a},
		{What: LinkBack, From: b},
	}
	for i, w := range want {
		ev, err := s.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.What != w.What || ev.From != w.From || ev.Err != w.Err || ev.Priority != w.Priority {
			t.Errorf("event %d: %+v, want %+v", i, ev, w)
		}
	}
}
