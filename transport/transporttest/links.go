package transporttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// closeWakes: Close ends whoever waits, and what is called after it.
func closeWakes(s *scene) {
	const size = 10 << 10
	o := transport.StreamOptions{MaxFrame: size, Window: 2 * size, Queue: 2}
	for _, whole := range []bool{false, true} {
		i := len(s.ports)
		a, b := s.stream(s.open(name(i)), "kit", o), s.stream(s.open(name(i+1)), "kit", o)
		pa, pb := s.ports[i], s.ports[i+1]
		s.fill(a, b, size, 1000)
		ended := make(chan error, 2)
		go func() {
			for {
				if err := s.send(s.ctx, a, b.Self(), transport.Frame{Payload: content(1, size)}); err != nil {
					ended <- err
					return
				}
			}
		}()
		go func() {
			for {
				ev, err := a.Recv(s.ctx)
				if err != nil {
					ended <- err
					return
				}
				ev.Release()
			}
		}()
		s.settle()
		if whole {
			s.must(pa.Close())
		} else {
			s.must(a.Close())
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, transport.ErrClosed) {
				s.Fatalf("port closed: %v: error %v, want ErrClosed", whole, err)
			}
		}
		if err := s.send(s.ctx, a, b.Self(), transport.Frame{}); !errors.Is(err, transport.ErrClosed) {
			s.Fatalf("send on a closed stream: error %v, want ErrClosed", err)
		}
		if _, err := a.Recv(s.ctx); !errors.Is(err, transport.ErrClosed) {
			s.Fatalf("receive on a closed stream: error %v, want ErrClosed", err)
		}
		if err := a.Post(b.Self(), key(1), nil); !errors.Is(err, transport.ErrClosed) {
			s.Fatalf("post on a closed stream: error %v, want ErrClosed", err)
		}
		if _, err := pa.Stream("other", o); whole != errors.Is(err, transport.ErrClosed) {
			s.Fatalf("port closed: %v: a new stream: error %v", whole, err)
		}
		if whole {
			s.must(pa.Close())
		}
		_ = pb
	}
}

// streamClose: a stream that is opened again begins anew: epoch 0, nothing posted, credit as before.
func streamClose(s *scene) {
	const size = 10 << 10
	o := transport.StreamOptions{MaxFrame: size, Window: 4 * size, Queue: 4}
	a, b := s.pair(o)
	b.Fence(9, nil)
	s.must(b.Post(a.Self(), key(1), make([]byte, size)))
	s.fill(a, b, size, 1000)
	s.must(b.Close())
	b = s.stream(s.ports[1], "kit", o)
	sent := make(chan error, 1)
	go func() {
		for i := range 40 {
			if err := s.send(s.ctx, a, b.Self(), transport.Frame{Key: key(5000 + i), Payload: content(5000+i, size)}); err != nil {
				sent <- fmt.Errorf("send after the peer opened its stream again: %w", err)
				return
			}
		}
		sent <- nil
	}()
	for next := 5000; next < 5040; {
		ev := s.recv(b) // of what waited before Close, some may come, or not
		if ev.Chunk >= 5000 {
			if ev.Chunk != uint32(next) {
				s.Fatalf("received frame %d, want %d", ev.Chunk, next)
			}
			next++
		}
		if ev.Posted {
			s.Fatal("a payload landed in a slice of the closed stream")
		}
		ev.Release()
	}
	s.must(<-sent) // a Send calls the Done of what it wrote itself, and the frame may have arrived before
}

// streamAgain: Close wakes the Recv of the stream that it closes, and takes nothing from one of that name which is opened at once.
func streamAgain(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	for i := range 200 {
		came, ended := make(chan transport.Key, 1), make(chan error, 1)
		go func() {
			for {
				ev, err := b.Recv(s.ctx)
				if err != nil {
					ended <- err
					return
				}
				ev.Release()
				came <- ev.Key
			}
		}()
		s.mustSend(a, b, transport.Frame{Key: key(i)})
		if k := <-came; k != key(i) {
			s.Fatalf("received %v, want %v", k, key(i))
		}
		s.must(b.Close()) // while Recv begins to wait
		again := s.stream(s.ports[1], "kit", transport.StreamOptions{})
		if err := <-ended; !errors.Is(err, transport.ErrClosed) {
			s.Fatalf("round %d: receive on a closed stream: error %v, want ErrClosed", i, err)
		}
		b = again
	}
}

func contextEnds(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	s.mustSend(a, b, transport.Frame{})
	ev := s.recv(b)
	ev.Release()
	err := s.blocked(func(ctx context.Context) error { _, err := b.Recv(ctx); return err })
	if err == nil {
		s.Fatal("received something that nobody sent")
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := b.Recv(ctx); !errors.Is(err, context.Canceled) {
		s.Fatalf("receive: error %v, want context.Canceled", err)
	}
	if err := s.send(ctx, a, b.Self(), transport.Frame{}); !errors.Is(err, context.Canceled) {
		s.Fatalf("send: error %v, want context.Canceled", err)
	}
}

// linkLost: when a peer closes its port, every stream hears so, with the cause, and can send nothing to it; the others go on.
func linkLost(s *scene) {
	o := transport.StreamOptions{}
	a, b := s.pair(o)
	a2 := s.stream(s.ports[0], "second", o)
	c := s.stream(s.open(name(2)), "kit", o)
	s.mustSend(a, b, transport.Frame{})
	ev := s.recv(b)
	ev.Release()
	s.shut(s.ports[1])
	for _, st := range []transport.Stream{a, a2} {
		ev := s.event(st)
		if ev.What != transport.LinkLost || ev.From != b.Self() {
			s.Fatalf("event %d from %v, want LinkLost from %v", ev.What, ev.From, b.Self())
		}
		if !errors.Is(ev.Err, io.EOF) && !errors.Is(ev.Err, protocol.ErrRefused) {
			s.Fatalf("LinkLost: cause %v, want io.EOF or protocol.ErrRefused", ev.Err)
		}
		ev.Release()
		if err := s.send(s.ctx, st, b.Self(), transport.Frame{}); !errors.Is(err, transport.ErrLinkLost) {
			s.Fatalf("send over a link that is lost: error %v, want ErrLinkLost", err)
		}
	}
	s.mustSend(c, a, transport.Frame{Key: key(3)})
	ev = s.event(a)
	for ev.What == transport.LinkLost && errors.Is(ev.Err, protocol.ErrRefused) { // the proof may follow the loss
		ev = s.event(a)
	}
	if ev.From != c.Self() || ev.Key != key(3) {
		s.Fatalf("received %v from %v", ev.Key, ev.From)
	}
	ev.Release()
}

// linkLostAfterFrames: what was sent before Close comes, and LinkLost after it.
func linkLostAfterFrames(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	const n = 20
	for i := range n {
		s.mustSend(b, a, transport.Frame{Key: key(i), Priority: transport.Priority(i % 3), Payload: content(i, 1000*i)})
	}
	s.shut(s.ports[1])
	var came [n]bool
	for range n {
		ev := s.recv(a)
		s.same("payload", content(int(ev.Chunk), 1000*int(ev.Chunk)), ev.Payload)
		came[ev.Chunk] = true
		ev.Release()
	}
	for i, ok := range came {
		if !ok {
			s.Errorf("frame %d did not come", i)
		}
	}
	if ev := s.event(a); ev.What != transport.LinkLost {
		s.Fatalf("event %d, want LinkLost", ev.What)
	}
}

// linkBack: when a port of that name opens again, frames pass again, and LinkBack comes before them.
func linkBack(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	for round := range 3 {
		s.mustSend(a, b, transport.Frame{Key: key(round)})
		ev := s.recv(b)
		ev.Release()
		s.mustSend(b, a, transport.Frame{Key: key(round)})
		ev = s.recv(a)
		ev.Release()
		s.shut(s.ports[1])
		s.link(a, transport.LinkLost, b.Self())
		b = s.stream(s.open(name(1)), "kit", transport.StreamOptions{})
		for {
			ev := s.event(a)
			if ev.What == transport.LinkBack && ev.From == b.Self() {
				break
			}
			if ev.What == transport.Received {
				s.Fatal("a frame came before LinkBack")
			}
		}
	}
	s.mustSend(a, b, transport.Frame{Key: key(8)})
	ev := s.recv(b)
	if ev.Key != key(8) {
		s.Fatalf("received %v over the new link, want %v", ev.Key, key(8))
	}
	ev.Release()
}

// nextIncarnation: a peer that is started again is another: nothing for the one before reaches it.
func nextIncarnation(s *scene) {
	o := transport.StreamOptions{}
	a := s.stream(s.open(name(0)), "kit", o)
	n := name(1)
	n.Incarnation = 1
	b := s.stream(s.open(n), "kit", o)
	s.mustSend(a, b, transport.Frame{})
	ev := s.recv(b)
	ev.Release()
	s.shut(s.ports[1])
	s.link(a, transport.LinkLost, n)
	// Send may refuse at once, or take the frame, which then ends with an error.
	if err := s.send(s.ctx, a, n, transport.Frame{Key: key(1)}); err != nil && !errors.Is(err, transport.ErrLinkLost) {
		s.Fatalf("send to a peer whose link is lost: error %v, want none or ErrLinkLost", err)
	}
	next := n
	next.Incarnation = 2
	c := s.stream(s.open(next), "kit", o)
	s.must(s.send(s.ctx, a, next, transport.Frame{Key: key(2)}))
	ev = s.recv(c)
	if ev.Key != key(2) {
		s.Fatalf("incarnation 2 received %v", ev.Key)
	}
	ev.Release()
	s.mustSend(c, a, transport.Frame{Key: key(3)})
	for {
		ev := s.event(a)
		if ev.What == transport.Received {
			if ev.From != next {
				s.Fatalf("a frame of %v came from %v", next, ev.From)
			}
			ev.Release()
			break
		}
		if ev.What == transport.LinkBack && ev.From == n {
			s.Fatalf("LinkBack from %v, which is gone", n)
		}
	}
	s.ports[0].Forget(n)
}

// refused: nobody listens where the peer should be.
func refused(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	s.shut(s.ports[1])
	if err := s.send(s.ctx, a, b.Self(), transport.Frame{}); err != nil && !errors.Is(err, transport.ErrLinkLost) {
		s.Fatalf("send to a peer that is not there: error %v, want none or ErrLinkLost", err)
	}
	if ev := s.link(a, transport.LinkLost, b.Self()); !errors.Is(ev.Err, protocol.ErrRefused) {
		s.Fatalf("LinkLost: cause %v, want protocol.ErrRefused", ev.Err)
	}
}

// cut: the link breaks while both ports live: each hears LinkLost and then LinkBack, and frames pass again.
func cut(s *scene) {
	if s.kit.Cut == nil {
		s.Skip("not run here: the network cannot break a link between two ports that live")
	}
	a, b := s.pair(transport.StreamOptions{})
	for round := range 3 {
		for _, d := range [][2]transport.Stream{{a, b}, {b, a}} {
			s.mustSend(d[0], d[1], transport.Frame{Key: key(round), Payload: content(round, 5000)})
			ev := s.recv(d[1])
			s.same("payload", content(round, 5000), ev.Payload)
			ev.Release()
		}
		s.kit.Cut(s.T, s.ports[0], s.ports[1])
		for _, d := range [][2]transport.Stream{{a, b}, {b, a}} {
			s.link(d[0], transport.LinkLost, d[1].Self())
			s.link(d[0], transport.LinkBack, d[1].Self())
		}
	}
	if n := s.ports[0].Stats().Reconnects + s.ports[1].Stats().Reconnects; n == 0 {
		s.Error("Stats.Reconnects is 0 at both ends after three cuts")
	}
}

// forget: what waits for a peer that is forgotten ends with an error each, and it is unknown then.
func forget(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	s.mustSend(a, b, transport.Frame{})
	ev := s.recv(b)
	ev.Release()
	s.shut(s.ports[1])
	s.link(a, transport.LinkLost, b.Self())
	done := make(chan error, 5)
	took := 0
	for i := range cap(done) {
		if err := s.send(s.ctx, a, b.Self(), transport.Frame{Key: key(i), Done: func(err error) { done <- err }}); err == nil {
			took++
		}
	}
	s.ports[0].Forget(b.Self())
	for range took {
		select {
		case err := <-done:
			if err == nil {
				s.Fatal("a frame for a peer that is gone ended without an error")
			}
		case <-s.ctx.Done():
			s.Fatal("a frame for a peer that was forgotten got no Done")
		}
	}
	if err := s.send(s.ctx, a, b.Self(), transport.Frame{}); !errors.Is(err, transport.ErrUnknownPeer) {
		s.Fatalf("send to a peer that was forgotten: error %v, want ErrUnknownPeer", err)
	}
	s.ports[0].Forget(name(77)) // never known
	// Known again, it is as if it had never been there.
	b = s.stream(s.open(name(1)), "kit", transport.StreamOptions{})
	s.mustSend(a, b, transport.Frame{Key: key(9)})
	ev = s.recv(b)
	if ev.Key != key(9) {
		s.Fatalf("received %v, want %v", ev.Key, key(9))
	}
	ev.Release()
}

func heard(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	if h := b.Heard(name(55)); !h.IsZero() {
		s.Fatalf("a stranger was heard at %v", h)
	}
	start := time.Now()
	s.mustSend(a, b, transport.Frame{})
	ev := s.recv(b)
	ev.Release()
	if h := b.Heard(a.Self()); h.Before(start) || h.After(time.Now()) {
		s.Fatalf("heard at %v, the frame was sent after %v", h, start)
	}
	if h, p := b.Heard(a.Self()), s.ports[1].Heard(a.Self()); p.Before(h) {
		s.Fatalf("the stream heard at %v, its port at %v", h, p)
	}
}

func stats(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	const n = 10
	for i := range n {
		s.mustSend(a, b, transport.Frame{Key: key(i), Head: make([]byte, 7), Payload: content(i, 1000)})
		ev := s.recv(b)
		ev.Release()
	}
	from, to := s.ports[0].Stats(), s.ports[1].Stats()
	if from.FramesSent != n || to.FramesReceived != n || from.PayloadSent != n*1000 || to.PayloadReceived != n*1000 {
		s.Errorf("sent %d frames, %d bytes of payload; received %d, %d; want %d, %d",
			from.FramesSent, from.PayloadSent, to.FramesReceived, to.PayloadReceived, n, n*1000)
	}
	if least := uint64(n * (wire.HeaderLen + 7 + 1000)); from.BytesSent < least || to.BytesReceived < least {
		s.Errorf("%d bytes sent, %d received, want at least %d", from.BytesSent, to.BytesReceived, least)
	}
	if from.Peers != 1 || to.Peers != 1 {
		s.Errorf("%d and %d peers, want 1 each", from.Peers, to.Peers)
	}
}
