package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// order: frames of one priority come in the order of their sending, each once.
func order(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	const n = 400
	priorities := []transport.Priority{transport.Data, transport.Bulk, transport.Urgent, transport.Control}
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if err := s.send(s.ctx, a, b.Self(), transport.Frame{Priority: priorities[i%4], Key: key(i), Head: []byte{byte(i)}, Payload: content(i, i%97)}); err != nil {
				sent <- fmt.Errorf("send %d: %w", i, err)
				return
			}
		}
		sent <- nil
	}()
	next := [4]uint32{0, 1, 2, 3}
	for range n {
		ev := s.recv(b)
		at := ev.Chunk % 4
		if ev.Priority != priorities[at] || ev.Chunk != next[at] {
			s.Fatalf("priority %d: want frame %d, found %d of priority %d", priorities[at], next[at], ev.Chunk, ev.Priority)
		}
		next[at] += 4
		s.same("payload", content(int(ev.Chunk), int(ev.Chunk)%97), ev.Payload)
		s.same("head", []byte{byte(ev.Chunk)}, ev.Head)
		ev.Release()
	}
	s.must(<-sent)
}

// sizes: nothing, one byte, what fits no block, and the most that a frame may have.
func sizes(s *scene) {
	a, b := s.pair(transport.StreamOptions{MaxFrame: wire.MaxFrame})
	most := wire.MaxFrame
	if testing.Short() {
		most = 9 << 20
		s.Logf("not run here: frames of %d bytes, %d must do: -short leaves out what takes long", wire.MaxFrame, most)
	}
	for i, n := range []int{0, 1, 7, 4093, 65536, 1 << 20, 4<<20 + 13, most} {
		p := content(i, n)
		head := content(-i, min(wire.MaxHead, i*9000))
		if n == wire.MaxFrame {
			head = nil
		}
		for _, posted := range []bool{false, true} {
			var dst []byte
			if posted {
				dst = make([]byte, n)
				s.must(b.Post(a.Self(), key(i), dst))
			}
			s.mustSend(a, b, transport.Frame{Key: key(i), Head: head, Payload: p})
			ev := s.recv(b)
			if ev.Posted != posted {
				s.Fatalf("%d bytes: Posted is %v, want %v", n, ev.Posted, posted)
			}
			s.same("payload", p, ev.Payload)
			s.same("head", head, ev.Head)
			ev.Release()
			if posted {
				s.same("posted slice", p, dst)
			}
		}
	}
}

// fields: all that a frame says comes with its event.
func fields(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	f := transport.Frame{
		Kind: 200, Priority: transport.Urgent, Fingerprint: 0xdeadbeef,
		Key:  transport.Key{Epoch: 1<<63 + 5, Op: wire.MakeOp(1<<44-1, 1<<20-1), Chunk: 1<<32 - 1},
		Head: []byte("head"), Payload: []byte("payload"),
	}
	b.Fence(f.Epoch, []transport.Name{a.Self()})
	s.mustSend(a, b, f)
	ev := s.recv(b)
	if ev.Kind != f.Kind || ev.Priority != f.Priority || ev.Fingerprint != f.Fingerprint || ev.Key != f.Key || ev.From != a.Self() ||
		string(ev.Head) != "head" || string(ev.Payload) != "payload" || ev.Posted || ev.Err != nil {
		s.Fatalf("sent %+v, received %+v", f, ev)
	}
	ev.Release()
}

// tooLong: Send refuses a frame that is longer than MaxFrame, or has too long a head, and what follows passes.
func tooLong(s *scene) {
	a, b := s.pair(transport.StreamOptions{MaxFrame: 100_000})
	for _, f := range []transport.Frame{
		{Payload: make([]byte, 100_001)},
		{Head: make([]byte, 1), Payload: make([]byte, 100_000)},
		{Head: make([]byte, wire.MaxHead+1)},
	} {
		if err := s.send(s.ctx, a, b.Self(), f); err == nil {
			s.Fatalf("a frame with a head of %d and a payload of %d bytes was taken; MaxFrame is 100000", len(f.Head), len(f.Payload))
		}
	}
	s.mustSend(a, b, transport.Frame{Key: key(1), Payload: make([]byte, 100_000)})
	ev := s.recv(b)
	if ev.Key != key(1) || len(ev.Payload) != 100_000 {
		s.Fatalf("received %v with %d bytes", ev.Key, len(ev.Payload))
	}
	ev.Release()
	p := s.ports[0]
	if _, err := p.Stream("huge", transport.StreamOptions{MaxFrame: wire.MaxFrame + 1}); err == nil {
		s.Fatal("a stream with frames of more than 64 MiB was opened")
	}
}

// tooLongThere: a frame that is longer than the peer's MaxFrame, which it has told, is refused at once, and what follows passes.
func tooLongThere(s *scene) {
	a := s.stream(s.open(name(0)), "kit", transport.StreamOptions{MaxFrame: 1 << 20})
	b := s.stream(s.open(name(1)), "kit", transport.StreamOptions{MaxFrame: 1000, Window: 8000})
	s.mustSend(a, b, transport.Frame{Key: key(0)})
	ev := s.recv(b)
	ev.Release()
	s.mustSend(b, a, transport.Frame{Priority: transport.Control}) // comes after what its end says of the stream
	ev = s.recv(a)
	ev.Release()
	for i, n := range []int{1001, 9000} { // for the second there will never be credit either
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		if err := s.send(ctx, a, b.Self(), transport.Frame{Key: key(i), Payload: content(i, n)}); !errors.Is(err, transport.ErrTooLarge) {
			s.Fatalf("send of %d bytes to a stream that takes 1000: error %v, want ErrTooLarge", n, err)
		}
	}
	s.mustSend(a, b, transport.Frame{Key: key(3), Payload: content(3, 1000)})
	ev = s.recv(b)
	if ev.Key != key(3) {
		s.Fatalf("received %v, want %v", ev.Key, key(3))
	}
	ev.Release()
}

func openTwice(s *scene) {
	s.open(name(0))
	if p, err := s.net.Open(s.ctx, name(0), s.kit.Options); err == nil {
		p.Close()
		s.Fatal("the same name was opened twice")
	}
}

func streamTwice(s *scene) {
	p := s.open(name(0))
	st := s.stream(p, "kit", transport.StreamOptions{})
	if _, err := p.Stream("kit", transport.StreamOptions{}); err == nil {
		s.Fatal("the same stream was opened twice")
	}
	s.must(st.Close())
	s.must(st.Close())
	s.stream(p, "kit", transport.StreamOptions{})
}

func unknownPeer(s *scene) {
	a := s.stream(s.open(name(0)), "kit", transport.StreamOptions{})
	if err := s.send(s.ctx, a, name(9), transport.Frame{}); !errors.Is(err, transport.ErrUnknownPeer) {
		s.Fatalf("send to a peer that nobody knows: error %v, want ErrUnknownPeer", err)
	}
}

// answerWithoutKnow: a peer that connects first need not be known.
func answerWithoutKnow(s *scene) {
	a, b := s.openAlone(name(0)), s.openAlone(name(1))
	s.must(a.Know(b.Name(), b.Addr()))
	sa, sb := s.stream(a, "kit", transport.StreamOptions{}), s.stream(b, "kit", transport.StreamOptions{})
	s.mustSend(sa, sb, transport.Frame{Key: key(1)})
	ev := s.recv(sb)
	s.must(s.send(s.ctx, sb, ev.From, transport.Frame{Key: key(2)}))
	ev.Release()
	ev = s.recv(sa)
	if ev.Key != key(2) {
		s.Fatalf("the answer has key %v", ev.Key)
	}
	ev.Release()
}

// postBefore: a payload lands in the slice that was posted before it came.
func postBefore(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	const n = 20
	dst := make([][]byte, n)
	for i := range dst {
		dst[i] = make([]byte, 1000+i)
		s.must(b.Post(a.Self(), key(i), dst[i]))
	}
	for i := range dst { // backwards: it is the key that finds the slice
		i = n - 1 - i
		s.mustSend(a, b, transport.Frame{Key: key(i), Head: []byte("head"), Payload: content(i, 1000+i)})
		ev := s.recv(b)
		if !ev.Posted || &ev.Payload[0] != &dst[i][0] || string(ev.Head) != "head" {
			s.Fatalf("frame %d: Posted is %v, head %q", i, ev.Posted, ev.Head)
		}
		ev.Release()
		if ev.Payload == nil {
			s.Fatal("Release took a posted payload away")
		}
		s.same("posted slice", content(i, 1000+i), dst[i])
	}
}

// postAfter: the frame has come already, and Recv has not returned it.
func postAfter(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	s.mustSend(a, b, transport.Frame{Key: key(1)})
	s.mustSend(a, b, transport.Frame{Key: key(2), Payload: content(2, 5000)})
	s.mustSend(a, b, transport.Frame{Key: key(3)})
	ev := s.recv(b)
	ev.Release()
	dst := make([]byte, 5000)
	s.must(b.Post(a.Self(), key(2), dst))
	ev = s.recv(b)
	if ev.Key != key(2) || !ev.Posted {
		s.Fatalf("received %v, Posted is %v", ev.Key, ev.Posted)
	}
	ev.Release()
	s.same("posted slice", content(2, 5000), dst)
	ev = s.recv(b)
	ev.Release()
}

// postWrongLength: a payload of another length than the posted slice comes in memory of its own; the slice is untouched, and the
// caller's again.
func postWrongLength(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	for i, n := range []int{999, 1001, 0} {
		dst := bytes.Repeat([]byte{0xaa}, 1000)
		s.must(b.Post(a.Self(), key(i), dst))
		s.mustSend(a, b, transport.Frame{Key: key(i), Payload: content(i, n)})
		ev := s.recv(b)
		if ev.Posted {
			s.Fatalf("%d bytes landed in a slice of 1000", n)
		}
		s.same("payload", content(i, n), ev.Payload)
		ev.Release()
		s.same("posted slice", bytes.Repeat([]byte{0xaa}, 1000), dst)
		s.must(b.Post(a.Self(), key(i), dst))
		if !b.Unpost(a.Self(), key(i)) {
			s.Fatal("Unpost of a posted key returned false")
		}
	}
}

func postTwice(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	s.must(b.Post(a.Self(), key(1), make([]byte, 10)))
	if err := b.Post(a.Self(), key(1), make([]byte, 10)); err == nil {
		s.Fatal("one key was posted twice")
	}
	s.must(b.Post(name(7), key(1), make([]byte, 10))) // of another peer
	k := key(1)
	k.Epoch = 3
	s.must(b.Post(a.Self(), k, make([]byte, 10)))
}

func unpost(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	dst := make([]byte, 10)
	s.must(b.Post(a.Self(), key(1), dst))
	if !b.Unpost(a.Self(), key(1)) || b.Unpost(a.Self(), key(1)) {
		s.Fatal("Unpost must return true once")
	}
	s.mustSend(a, b, transport.Frame{Key: key(1), Payload: content(1, 10)})
	ev := s.recv(b)
	if ev.Posted {
		s.Fatal("the payload landed in a slice that was taken back")
	}
	ev.Release()
	s.same("slice", make([]byte, 10), dst)
}

// fenceOlder: frames of older epochs are dropped, counted, and touch no posted slice.
func fenceOlder(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	b.Fence(5, nil)
	old := key(1)
	old.Epoch = 4
	dst := make([]byte, 1000)
	s.must(b.Post(a.Self(), old, dst))
	now := key(2)
	now.Epoch = 5
	s.mustSend(a, b, transport.Frame{Key: old, Payload: content(1, 1000)})
	s.mustSend(a, b, transport.Frame{Key: key(1)}) // of epoch 0
	s.mustSend(a, b, transport.Frame{Key: now})
	ev := s.recv(b)
	if ev.Key != now {
		s.Fatalf("received %v, want %v", ev.Key, now)
	}
	ev.Release()
	s.same("posted slice", make([]byte, 1000), dst)
	if !b.Unpost(a.Self(), old) {
		s.Fatal("a dropped frame took its post along")
	}
	if n := s.ports[1].Stats().Stale; n != 2 {
		s.Fatalf("Stats.Stale is %d, want 2", n)
	}
}

// fenceNewer: frames of an epoch to come wait for it, in order, and land in what was posted meanwhile.
func fenceNewer(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	next := func(i int, e transport.Epoch) transport.Key { k := key(i); k.Epoch = e; return k }
	s.mustSend(a, b, transport.Frame{Key: next(1, 1)})
	s.mustSend(a, b, transport.Frame{Key: next(2, 2)})
	s.mustSend(a, b, transport.Frame{Key: next(3, 1), Payload: content(3, 100)})
	s.mustSend(a, b, transport.Frame{Key: next(4, 0)})
	want := func(k transport.Key) transport.Event {
		s.Helper()
		ev := s.recv(b)
		if ev.Key != k {
			s.Fatalf("received %v, want %v", ev.Key, k)
		}
		ev.Release()
		return ev
	}
	want(next(4, 0))
	b.Fence(1, []transport.Name{a.Self(), b.Self()})
	dst := make([]byte, 100)
	s.must(b.Post(a.Self(), next(3, 1), dst))
	want(next(1, 1))
	if ev := want(next(3, 1)); !ev.Posted {
		s.Fatal("a frame that was held back did not land in the posted slice")
	}
	s.same("posted slice", content(3, 100), dst)
	b.Fence(2, nil)
	want(next(2, 2))
	if n := s.ports[1].Stats().Stale; n != 0 {
		s.Fatalf("Stats.Stale is %d, want 0", n)
	}
}

// fenceReceived: a fence also drops what has come and was not yet returned.
func fenceReceived(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	for i := range 4 {
		k := key(i)
		k.Epoch = transport.Epoch(i % 2)
		s.mustSend(a, b, transport.Frame{Key: k, Payload: content(i, 100)})
	}
	ev := s.recv(b) // frame 0; frame 2 has come too, or is still under way
	ev.Release()
	b.Fence(1, nil)
	for _, i := range []int{1, 3} {
		ev := s.recv(b)
		if ev.Epoch != 1 || ev.Chunk != uint32(i) {
			s.Fatalf("received %v, want chunk %d of epoch 1", ev.Key, i)
		}
		ev.Release()
	}
	if n := s.ports[1].Stats().Stale; n != 1 {
		s.Fatalf("Stats.Stale is %d, want 1", n)
	}
}

// fenceMembers: who is no member of the epoch is not heard, also if it sent before.
func fenceMembers(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	c := s.stream(s.open(name(2)), "kit", transport.StreamOptions{})
	in := func(i int, e transport.Epoch) transport.Key { k := key(i); k.Epoch = e; return k }
	s.mustSend(c, b, transport.Frame{Key: in(0, 0)})
	ev := s.recv(b)
	ev.Release()
	s.mustSend(c, b, transport.Frame{Key: in(1, 3)}) // held back, then refused
	s.mustSend(c, b, transport.Frame{Key: in(9, 0)})
	ev = s.recv(b)
	ev.Release()
	dst := make([]byte, 10)
	s.must(b.Post(c.Self(), in(2, 3), dst))
	b.Fence(3, []transport.Name{a.Self(), b.Self()})
	s.mustSend(c, b, transport.Frame{Key: in(2, 3), Payload: content(1, 10)})
	s.mustSend(c, b, transport.Frame{Key: in(3, 4)}) // a member of epoch 4
	s.mustSend(a, b, transport.Frame{Key: in(4, 3)})
	ev = s.recv(b)
	if ev.From != a.Self() || ev.Key != in(4, 3) {
		s.Fatalf("received %v from %v", ev.Key, ev.From)
	}
	ev.Release()
	b.Fence(4, []transport.Name{c.Self()})
	ev = s.recv(b)
	if ev.From != c.Self() || ev.Key != in(3, 4) {
		s.Fatalf("received %v from %v", ev.Key, ev.From)
	}
	ev.Release()
	s.same("posted slice", make([]byte, 10), dst)
	if n := s.ports[1].Stats().Stale; n != 2 {
		s.Fatalf("Stats.Stale is %d, want 2", n)
	}
}

// fenceFalls: epochs only rise.
func fenceFalls(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	b.Fence(5, nil)
	b.Fence(4, nil)
	for i, e := range []transport.Epoch{4, 5} {
		k := key(i)
		k.Epoch = e
		s.mustSend(a, b, transport.Frame{Key: k})
	}
	if ev := s.recv(b); ev.Epoch != 5 {
		s.Fatalf("received a frame of epoch %d, after a fence at 5", ev.Epoch)
	} else {
		ev.Release()
	}
}

// releaseTwice: the second Release of an event does nothing, also after its memory serves another.
func releaseTwice(s *scene) {
	a, b := s.pair(transport.StreamOptions{MaxFrame: 1000, Window: 1000})
	for i := range 100 {
		s.mustSend(a, b, transport.Frame{Key: key(i), Payload: content(i, 1000)})
		ev := s.recv(b)
		s.same("payload", content(i, 1000), ev.Payload)
		ev.Release()
		ev.Release()
		if ev.Payload != nil || ev.Head != nil {
			s.Fatal("an event shows its memory after Release")
		}
	}
	// No credit was given twice: with one frame under way there is none for a second.
	s.mustSend(a, b, transport.Frame{Key: key(0), Payload: content(0, 1000)})
	if took := s.fill(a, b, 1000, 100); took > 65 {
		s.Fatalf("%d frames of 1000 bytes were taken with a window of 1000", took)
	}
}

// fill sends frames until Send blocks, at most limit, and returns how many it took.
func (s *scene) fill(a, b transport.Stream, size, limit int) int {
	s.Helper()
	for i := range limit {
		if s.blocked(func(ctx context.Context) error {
			return s.send(ctx, a, b.Self(), transport.Frame{Key: key(i), Payload: content(i, size)})
		}) != nil {
			return i
		}
	}
	return limit
}
