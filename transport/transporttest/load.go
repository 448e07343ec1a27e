package transporttest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// heldFrames: events may be held, and released in any order, while others come: their memory stays theirs.
func heldFrames(s *scene) {
	const size, hold = 100_000, 12
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: hold * size})
	seed := uint64(time.Now().UnixNano())
	s.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var held []transport.Event
	drop := func(i int) {
		ev := held[i]
		s.same("payload that was held", content(int(ev.Chunk), int(ev.Op)), ev.Payload)
		ev.Release()
		held[i] = held[len(held)-1]
		held = held[:len(held)-1]
	}
	for i := range 150 {
		n := 30_000 + r.IntN(size-30_000)
		s.mustSend(a, b, transport.Frame{Key: transport.Key{Op: wire.Op(n), Chunk: uint32(i)}, Payload: content(i, n)})
		held = append(held, s.recv(b))
		for len(held) > hold/2 || len(held) > 0 && r.IntN(3) == 0 {
			drop(r.IntN(len(held)))
		}
	}
	for len(held) > 0 {
		drop(0)
	}
}

// bounded: a peer that reads nothing is sent a bounded number of frames, however small they are and of whatever priority.
func bounded(s *scene) {
	for _, priority := range []transport.Priority{transport.Data, transport.Control} {
		i := len(s.ports)
		a, b := s.stream(s.open(name(i)), "kit", transport.StreamOptions{}), s.stream(s.open(name(i+1)), "kit", transport.StreamOptions{})
		took := 0
		for ; took < 20_000; took++ {
			if s.blocked(func(ctx context.Context) error {
				return s.send(ctx, a, b.Self(), transport.Frame{Priority: priority, Key: key(took)})
			}) != nil {
				break
			}
		}
		if took == 20_000 {
			s.Fatalf("%d empty frames of priority %d were taken by a peer that reads none", took, priority)
		}
		for j := range took {
			ev := s.recv(b)
			if ev.Chunk != uint32(j) {
				s.Fatalf("received frame %d, want %d", ev.Chunk, j)
			}
			ev.Release()
		}
	}
}

// bothWays: two peers that send one another large frames at once do not block one another.
func bothWays(s *scene) {
	const size, frames = 1 << 20, 24
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: 2 * size})
	var group sync.WaitGroup
	p := content(1, size)
	for _, d := range [][2]transport.Stream{{a, b}, {b, a}} {
		group.Go(func() {
			for i := range frames {
				if err := s.send(s.ctx, d[0], d[1].Self(), transport.Frame{Key: key(i), Payload: p}); err != nil {
					s.Errorf("send: %v", err)
					return
				}
			}
		})
		group.Go(func() {
			dst := make([]byte, size)
			for i := range frames {
				if i%2 == 0 { // now and then the frame is there first
					if err := d[1].Post(d[0].Self(), key(i), dst); err != nil {
						s.Errorf("post: %v", err)
					}
				}
				ev, err := d[1].Recv(s.ctx)
				if err != nil || ev.What != transport.Received || ev.Chunk != uint32(i) || len(ev.Payload) != size || ev.Payload[size-1] != p[size-1] {
					s.Errorf("receive %d: event %d, chunk %d, %d bytes, error %v", i, ev.What, ev.Chunk, len(ev.Payload), err)
					return
				}
				if ev.Posted != (i%2 == 0) {
					s.Errorf("frame %d: Posted is %v", i, ev.Posted)
				}
				ev.Release()
			}
		})
	}
	group.Wait()
}

// manyStreams: each stream has its own frames.
func manyStreams(s *scene) {
	const streams, frames = 40, 10
	pa, pb := s.open(name(0)), s.open(name(1))
	var group sync.WaitGroup
	for i := range streams {
		label := "stream" + string(rune('A'+i))
		a, b := s.stream(pa, label, transport.StreamOptions{}), s.stream(pb, label, transport.StreamOptions{})
		group.Go(func() {
			for j := range frames {
				if err := s.send(s.ctx, a, b.Self(), transport.Frame{Kind: uint8(i), Key: key(j)}); err != nil {
					s.Errorf("send: %v", err)
				}
			}
		})
		group.Go(func() {
			for j := range frames {
				ev, err := b.Recv(s.ctx)
				if err != nil || ev.Kind != uint8(i) || ev.Chunk != uint32(j) {
					s.Errorf("%s received kind %d, frame %d, error %v; want %d, %d", label, ev.Kind, ev.Chunk, err, i, j)
					return
				}
				ev.Release()
			}
		})
	}
	group.Wait()
}

// unpostRace: whenever Unpost comes, it and the event agree on where the payload went.
func unpostRace(s *scene) {
	const size = 40_000
	a, b := s.pair(transport.StreamOptions{})
	for i := range 100 {
		dst := make([]byte, size)
		s.must(b.Post(a.Self(), key(i), dst))
		sent := make(chan error, 1)
		go func() {
			sent <- s.send(s.ctx, a, b.Self(), transport.Frame{Key: key(i), Payload: content(i, size)})
		}()
		if i%2 == 0 {
			s.must(<-sent)
			sent <- nil
		}
		back := b.Unpost(a.Self(), key(i))
		ev := s.recv(b)
		if ev.Posted == back {
			s.Fatalf("frame %d: Unpost returned %v and Posted is %v", i, back, ev.Posted)
		}
		s.same("payload", content(i, size), ev.Payload)
		ev.Release()
		if back {
			s.same("slice that was taken back", make([]byte, size), dst)
		}
		s.must(<-sent)
	}
}

// fenceRace: once Fence has returned, Recv returns nothing of an older epoch, whatever was under way.
func fenceRace(s *scene) {
	const size = 40_000
	a, b := s.pair(transport.StreamOptions{})
	for e := transport.Epoch(1); e < 40; e++ {
		old, now := key(1), key(2)
		old.Epoch, now.Epoch = e-1, e
		dst := make([]byte, size)
		s.must(b.Post(a.Self(), old, dst))
		sent := make(chan error, 1)
		go func() {
			err := s.send(s.ctx, a, b.Self(), transport.Frame{Key: old, Payload: content(1, size)})
			if err == nil {
				err = s.send(s.ctx, a, b.Self(), transport.Frame{Key: now, Payload: content(2, size)})
			}
			sent <- err
		}()
		b.Fence(e, nil)
		ev := s.recv(b)
		if ev.Key != now || ev.Posted {
			s.Fatalf("after the fence at %d, %v was received, Posted %v", e, ev.Key, ev.Posted)
		}
		s.same("payload", content(2, size), ev.Payload)
		ev.Release()
		s.must(<-sent)
	}
}

// fenceNobody: an epoch whose list of members is empty hears nobody.
func fenceNobody(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	b.Fence(1, []transport.Name{})
	k := key(1)
	k.Epoch = 1
	s.mustSend(a, b, transport.Frame{Key: k})
	k.Epoch = 2
	s.mustSend(a, b, transport.Frame{Key: k})
	b.Fence(2, nil)
	if ev := s.recv(b); ev.Epoch != 2 {
		s.Fatalf("received a frame of epoch %d, which has no members", ev.Epoch)
	} else {
		ev.Release()
	}
}

// postOutlivesLink: what is posted waits for its frame also when the link is lost and comes back.
func postOutlivesLink(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	s.mustSend(a, b, transport.Frame{})
	ev := s.recv(b)
	ev.Release()
	dst := make([]byte, 1000)
	s.must(a.Post(b.Self(), key(5), dst))
	s.shut(s.ports[1])
	s.link(a, transport.LinkLost, b.Self())
	b = s.stream(s.open(name(1)), "kit", transport.StreamOptions{})
	s.link(a, transport.LinkBack, b.Self())
	s.mustSend(b, a, transport.Frame{Key: key(5), Payload: content(5, 1000)})
	ev = s.recv(a)
	if !ev.Posted {
		s.Fatal("the payload did not land in what was posted before the link was lost")
	}
	ev.Release()
	s.same("posted slice", content(5, 1000), dst)
}

// chaos: ports close while all send to all. Every call ends, every Done is called once (see scene.close), no goroutine stays.
func chaos(s *scene) {
	const peers = 4
	o := transport.StreamOptions{MaxFrame: 64 << 10, Window: 256 << 10, Queue: 4}
	ports, streams := make([]transport.Port, peers), make([]transport.Stream, peers)
	for i := range streams {
		ports[i] = s.open(name(i))
		streams[i] = s.stream(ports[i], "kit", o)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var group sync.WaitGroup
	enough := make(chan struct{}, 1)
	for i, st := range streams {
		for j := range peers {
			if i == j {
				continue
			}
			group.Go(func() {
				for k := 0; ; k++ {
					f := transport.Frame{Priority: transport.Priority(k % 4), Key: key(k), Payload: content(k%7, 1+k*7919%(60<<10))}
					if s.send(ctx, st, name(j), f) != nil {
						return // closed, lost, or the end
					}
				}
			})
		}
		group.Go(func() {
			for n := 0; ; n++ {
				ev, err := st.Recv(ctx)
				if err != nil {
					return
				}
				if ev.What == transport.Received && n%3 == 0 {
					if k := int(ev.Chunk); len(ev.Payload) != 1+k*7919%(60<<10) {
						s.Errorf("frame %d from %v has %d bytes", k, ev.From, len(ev.Payload))
					}
				}
				ev.Release()
				if n == 200 {
					select {
					case enough <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for i := range 2 {
		select {
		case <-enough:
		case <-s.ctx.Done():
			s.Fatal("the frames do not flow")
		}
		s.shut(ports[i])
	}
	cancel()
	group.Wait()
}
