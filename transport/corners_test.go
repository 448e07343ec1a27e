package transport

import (
	"context"
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

// A pipes is a listener whose connections are made within the process: they hold nothing, so that a write waits for its reader.
type pipes struct {
	net.Listener
	come chan net.Conn
	over chan struct{}
}

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

// TestCloseBesideFrozenPeer: Close of a stream ends its Sends also where their frames have credit, but the peer takes no bytes, as one does
// that is frozen. The link stays, and what other streams sent is written out when it takes some again.
func TestCloseBesideFrozenPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ln := pipes{come: make(chan net.Conn), over: make(chan struct{})}
		none := func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody dials here") }
		victim, err := Conns{Listener: ln, Dial: none}.Open(t.Context(), Name{ID: "victim"}, Options{})
		must(err)
		s, err := victim.Stream("s", StreamOptions{})
		must(err)
		other, err := victim.Stream("other", StreamOptions{})
		must(err)
		frozen := &port{self: Name{ID: "frozen"}, carrier: &carrier{}}
		h := &hello{name: frozen.self, target: victim.Name(), instance: [16]byte{1}, attempt: 1}
		var conns [2]net.Conn
		for _, role := range []uint8{control, data} {
			here, there := net.Pipe()
			defer here.Close()
			ln.come <- there
			must(frozen.introduce(t.Context(), h, role, &[2]net.Conn{here, here}))
			conns[role] = here
		}
		_, err = readStep(conns[data], kindAccept, h.target)
		must(err)

		var sent [3]error
		var ended atomic.Int32
		var group sync.WaitGroup
		for i := range sent {
			group.Go(func() {
				sent[i] = s.Send(context.Background(), frozen.self, Frame{Kind: 7, Payload: make([]byte, 5000)})
				ended.Add(1)
			})
			synctest.Wait() // the first is being written
		}
		must(other.Send(t.Context(), frozen.self, Frame{Kind: 8, Done: func(error) {}}))
		must(s.Close())
		synctest.Wait()
		if n := int(ended.Load()); n != len(sent) {
			t.Errorf("%d of %d Sends have returned after Close", n, len(sent))
		} else if sent[0] != nil || !errors.Is(sent[1], ErrClosed) || !errors.Is(sent[2], ErrClosed) {
			t.Errorf("the Sends returned %v; want one that is on its way, and ErrClosed", sent)
		} else {
			for _, kind := range []uint8{7, 8} {
				var b [wire.HeaderLen]byte
				_, err := io.ReadFull(conns[data], b[:])
				must(err)
				var found wire.Header
				must(found.Parse(&b))
				if found.Kind != kind {
					t.Errorf("a frame of kind %d was written, want %d", found.Kind, kind)
				}
				_, err = io.CopyN(io.Discard, conns[data], int64(found.Length))
				must(err)
			}
		}
		must(victim.Close())
		group.Wait()
	})
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
