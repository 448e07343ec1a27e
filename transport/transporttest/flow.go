package transporttest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// creditBlocks: what a peer does not release fills its window, and then Send blocks until its context ends.
func creditBlocks(s *scene) {
	const size, window, queue = 16 << 10, 64 << 10, 4
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: window, Queue: queue})
	for i := range window / size { // what has credit is taken
		s.mustSend(a, b, transport.Frame{Key: key(i), Payload: content(i, size)})
	}
	if more := s.fill(a, b, size, 1000); more > queue+2 {
		s.Fatalf("%d frames of %d bytes were taken beyond the window of %d bytes; the queue has %d", more, size, window, queue)
	}
	// Nor do they pass once Recv has returned them, but are not released.
	var held []transport.Event
	for range window / size {
		held = append(held, s.recv(b))
	}
	if n := s.fill(a, b, size, 1000); n > queue+2 {
		s.Fatalf("%d more frames were taken, and none was released", n)
	}
	for i := range held {
		held[i].Release()
	}
}

// controlCredit: control frames have a window of their own, and one that is used up blocks data as little as data's blocks them.
func controlCredit(s *scene) {
	const size, window, queue = 16 << 10, 64 << 10, 4
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: window, Queue: queue})
	frame := func(i int) transport.Frame {
		return transport.Frame{Priority: transport.Control, Key: key(i), Payload: content(i, size)}
	}
	took := 0
	for took < 1000 && s.blocked(func(ctx context.Context) error { return s.send(ctx, a, b.Self(), frame(took)) }) == nil {
		took++
	}
	if took < window/size || took > window/size+queue+2 {
		s.Fatalf("%d control frames of %d bytes were taken, of a window of %d bytes and a queue of %d", took, size, window, queue)
	}
	for i := range window / size {
		s.mustSend(a, b, transport.Frame{Key: key(i), Payload: content(i, size)})
	}
	next := [4]uint32{}
	for range took + window/size {
		ev := s.recv(b)
		if ev.Chunk != next[ev.Priority] {
			s.Fatalf("frame %d of priority %d came, want %d", ev.Chunk, ev.Priority, next[ev.Priority])
		}
		next[ev.Priority]++
		s.same("payload", content(int(ev.Chunk), size), ev.Payload)
		ev.Release()
	}
	for i := range 3 * took { // and it is granted again
		s.mustSend(a, b, frame(took+i))
		ev := s.recv(b)
		ev.Release()
	}
}

// creditUnblocks: a Send that waits returns when the peer releases.
func creditUnblocks(s *scene) {
	const size = 10 << 10
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: 2 * size, Queue: 2})
	took := s.fill(a, b, size, 1000)
	sent := make(chan error, 1)
	go func() {
		for i := range 30 {
			if err := s.send(s.ctx, a, b.Self(), transport.Frame{Key: key(took + i), Payload: content(took+i, size)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range took + 30 {
		ev := s.recv(b)
		if ev.Chunk != uint32(i) {
			s.Fatalf("received frame %d, want %d", ev.Chunk, i)
		}
		s.same("payload", content(i, size), ev.Payload)
		ev.Release()
	}
	s.must(<-sent)
}

// givenUp: a Send that waits for credit and ends by its context makes way for those behind it, which have enough.
func givenUp(s *scene) {
	const size = 10 << 10
	a, b := s.pair(transport.StreamOptions{MaxFrame: 3 * size, Window: 4 * size})
	s.mustSend(a, b, transport.Frame{Key: key(0), Payload: content(0, 3*size)})
	begin := func(i, n int) (result <-chan error, giveUp func()) {
		ctx, cancel := context.WithCancel(s.ctx)
		sent := make(chan error, 1)
		go func() { sent <- s.send(ctx, a, b.Self(), transport.Frame{Key: key(i), Payload: content(i, n)}) }()
		s.settle()
		return sent, cancel
	}
	large, giveUp := begin(1, 3*size)
	small, cancel := begin(2, size)
	defer cancel()
	giveUp()
	if err := <-large; !errors.Is(err, context.Canceled) {
		s.Fatalf("a send without credit: error %v, want context.Canceled", err)
	}
	s.must(<-small)
	first, second := s.recv(b), s.recv(b)
	if first.Key != key(0) || second.Key != key(2) {
		s.Fatalf("received %v and %v, want %v and %v", first.Key, second.Key, key(0), key(2))
	}
	first.Release()
	second.Release()
}

// more: frames that are followed by more come whole and in order, small and large, also where the next of them waits for credit.
func more(s *scene) {
	const size, groups = 100 << 10, 20
	sizes := []int{0, 100, 5000, size, 100, 40 << 10, 0}
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: size + 100, Queue: 3})
	sent := make(chan error, 1)
	go func() {
		for i := range groups * len(sizes) {
			k := i % len(sizes)
			f := transport.Frame{Key: key(i), Payload: content(i, sizes[k]), More: k+1 < len(sizes)}
			if err := s.send(s.ctx, a, b.Self(), f); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range groups * len(sizes) {
		ev := s.recv(b)
		if ev.Chunk != uint32(i) {
			s.Fatalf("received frame %d, want %d", ev.Chunk, i)
		}
		s.same("payload", content(i, sizes[i%len(sizes)]), ev.Payload)
		ev.Release()
	}
	s.must(<-sent)
}

// controlPasses: control frames do not wait for data, whose credit is used up.
func controlPasses(s *scene) {
	const size = 10 << 10
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: 4 * size, Queue: 2})
	s.fill(a, b, size, 1000)
	for i := range 10 {
		s.mustSend(a, b, transport.Frame{Priority: transport.Control, Key: key(5000 + i), Head: []byte("now")})
	}
	var held []transport.Event
	for control := 0; control < 10; {
		ev := s.recv(b) // nothing is released: all data that can come is 4 frames
		if ev.Priority == transport.Control {
			if ev.Chunk != uint32(5000+control) {
				s.Fatalf("control frame %d came, want %d", ev.Chunk, 5000+control)
			}
			control++
		}
		held = append(held, ev)
	}
	for i := range held {
		held[i].Release()
	}
}

// urgentFirst: of the frames that wait for one peer, urgent ones go first and bulk ones last.
func urgentFirst(s *scene) {
	const size, window, queue, each = 10 << 10, 4, 16, 4
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: window * size, Queue: queue})
	for i := range window { // what has credit is taken
		s.mustSend(a, b, transport.Frame{Key: key(i), Payload: content(i, size)})
	}
	var group sync.WaitGroup
	send := func(priority transport.Priority, first, count int) {
		for i := range count {
			group.Go(func() {
				f := transport.Frame{Priority: priority, Key: key(first + i), Payload: content(i, size)}
				if err := s.send(s.ctx, a, b.Self(), f); err != nil {
					s.Errorf("send: %v", err)
				}
			})
		}
		s.settle()
	}
	const others = queue + 3 // what may be taken without credit: then all that comes later waits
	send(transport.Bulk, window, others)
	for _, priority := range []transport.Priority{transport.Bulk, transport.Data, transport.Urgent} {
		send(priority, 5000, each)
	}
	var came []transport.Priority
	for range window + others + 3*each {
		ev := s.recv(b)
		if ev.Chunk >= 5000 {
			came = append(came, ev.Priority)
		}
		ev.Release()
	}
	group.Wait()
	// One frame may have been on its way already when a more urgent one came.
	before := func(first, then transport.Priority) {
		n, last := 0, 0
		for i, p := range came {
			if p == first {
				last = i
			}
		}
		for _, p := range came[:last] {
			if p == then {
				n++
			}
		}
		if n > 1 {
			s.Errorf("%d frames of priority %d came before the last of priority %d: %v", n, then, first, came)
		}
	}
	before(transport.Urgent, transport.Data)
	before(transport.Urgent, transport.Bulk)
	before(transport.Data, transport.Bulk)
}

// streamNotOpenYet: frames wait, within their credit, for a stream that the peer opens later.
func streamNotOpenYet(s *scene) {
	const size = 1 << 10
	o := transport.StreamOptions{MaxFrame: size, Window: 8 * size, Queue: 4}
	a := s.stream(s.open(name(0)), "late", o)
	p := s.open(name(1))
	other := s.stream(p, "other", o)
	took := 0
	for ; took < 1000; took++ {
		if s.blocked(func(ctx context.Context) error {
			return s.send(ctx, a, p.Name(), transport.Frame{Key: key(took), Payload: content(took, size)})
		}) != nil {
			break
		}
	}
	if took == 0 || took == 1000 {
		s.Fatalf("%d frames were taken for a stream that is not open", took)
	}
	if s.blocked(func(ctx context.Context) error { _, err := other.Recv(ctx); return err }) == nil {
		s.Fatal("another stream received something")
	}
	b := s.stream(p, "late", o)
	for i := range took {
		ev := s.recv(b)
		if ev.Chunk != uint32(i) {
			s.Fatalf("received frame %d, want %d", ev.Chunk, i)
		}
		s.same("payload", content(i, size), ev.Payload)
		ev.Release()
	}
	for i := range 50 {
		s.mustSend(a, b, transport.Frame{Key: key(i)})
		ev := s.recv(b)
		ev.Release()
	}
}

// streamsApart: who does not read one stream does not stop the other.
func streamsApart(s *scene) {
	const size = 10 << 10
	o := transport.StreamOptions{MaxFrame: size, Window: 2 * size, Queue: 2}
	a, b := s.pair(o)
	a2, b2 := s.stream(s.ports[0], "second", o), s.stream(s.ports[1], "second", o)
	s.fill(a, b, size, 1000)
	for i := range 100 {
		s.mustSend(a2, b2, transport.Frame{Key: key(i), Payload: content(i, size)})
		ev := s.recv(b2)
		s.same("payload", content(i, size), ev.Payload)
		ev.Release()
	}
}

// manyNotOpen: frames for however many streams that the peer has not opened stop none of those that it has.
func manyNotOpen(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	for i := range 100 {
		late := s.stream(s.ports[0], fmt.Sprintf("late %d", i), transport.StreamOptions{})
		for k := range 3 {
			s.mustSend(late, b, transport.Frame{Key: key(k), Payload: content(k, 1000)})
		}
		for _, d := range [][2]transport.Stream{{a, b}, {b, a}} {
			s.mustSend(d[0], d[1], transport.Frame{Key: key(i)})
			ev := s.recv(d[1])
			if ev.Key != key(i) {
				s.Fatalf("received %v, want %v", ev.Key, key(i))
			}
			ev.Release()
		}
	}
}

// doneOnce: Done is called once for each frame, with no error when the frame came.
func doneOnce(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	const n = 100
	done := make(chan error, n)
	for i := range n {
		s.mustSend(a, b, transport.Frame{Key: key(i), Payload: content(i, 100*i), Done: func(err error) { done <- err }})
		ev := s.recv(b)
		ev.Release()
	}
	for range n {
		select {
		case err := <-done:
			s.must(err)
		case <-s.ctx.Done():
			s.Fatal("a frame has come and its Done was not called")
		}
	}
}

// doneOnLoss: when the peer goes, a Send that waits ends with an error, and each frame that Send took gets its Done: see scene.close.
func doneOnLoss(s *scene) {
	const size = 10 << 10
	a, b := s.pair(transport.StreamOptions{MaxFrame: size, Window: 2 * size, Queue: 2})
	s.fill(a, b, size, 1000)
	blocked := make(chan error, 1)
	go func() {
		for { // a frame that was taken after the loss waits for the link to come back
			if err := s.send(s.ctx, a, b.Self(), transport.Frame{Payload: content(1, size)}); err != nil {
				blocked <- err
				return
			}
		}
	}()
	s.settle()
	s.shut(s.ports[1])
	s.link(a, transport.LinkLost, b.Self())
	s.ports[0].Forget(b.Self())
	select {
	case err := <-blocked:
		if !errors.Is(err, transport.ErrLinkLost) && !errors.Is(err, transport.ErrUnknownPeer) {
			s.Fatalf("send to a peer that is gone: error %v, want ErrLinkLost or ErrUnknownPeer", err)
		}
	case <-s.ctx.Done():
		s.Fatal("send to a peer that is gone did not return")
	}
}

// noDone: without Done the slices are the caller's when Send returns.
func noDone(s *scene) {
	a, b := s.pair(transport.StreamOptions{})
	p, head := make([]byte, 5000), make([]byte, 10)
	for i := range 50 {
		copy(p, content(i, len(p)))
		head[0] = byte(i)
		s.must(a.Send(s.ctx, b.Self(), transport.Frame{Key: key(i), Head: head, Payload: p}))
		clear(p)
		clear(head)
		ev := s.recv(b)
		s.same("payload", content(i, len(p)), ev.Payload)
		if ev.Head[0] != byte(i) {
			s.Fatalf("head %v, want %d first", ev.Head, i)
		}
		ev.Release()
	}
}

// allToAll: eight peers, frames of random sizes from each to each.
func allToAll(s *scene) {
	const peers, frames = 8, 30
	streams := make([]transport.Stream, peers)
	for i := range streams {
		streams[i] = s.stream(s.open(name(i)), "all", transport.StreamOptions{MaxFrame: 64 << 10, Window: 128 << 10})
	}
	seed := uint64(time.Now().UnixNano())
	s.Logf("seed %d", seed)
	var group sync.WaitGroup
	for i, st := range streams {
		for j := range streams {
			if i == j {
				continue
			}
			group.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i*peers+j)))
				for k := range frames {
					p := content(r.IntN(1e6), r.IntN(64<<10-3))
					f := transport.Frame{Key: key(k), Head: wire.AppendUint32(nil, crc32.ChecksumIEEE(p))[:4], Payload: p}
					if err := s.send(s.ctx, st, name(j), f); err != nil {
						s.Errorf("send from %d to %d: %v", i, j, err)
						return
					}
				}
			})
		}
		group.Go(func() {
			next := map[transport.Name]uint32{}
			for range (peers - 1) * frames {
				ev, err := st.Recv(s.ctx)
				if err != nil || ev.What != transport.Received {
					s.Errorf("peer %d: event %d, error %v", i, ev.What, errors.Join(err, ev.Err))
					return
				}
				if ev.Chunk != next[ev.From] {
					s.Errorf("peer %d: from %v: frame %d, want %d", i, ev.From, ev.Chunk, next[ev.From])
				}
				next[ev.From]++
				if r := wire.NewReader("sum", ev.Head); r.Uint32("sum") != crc32.ChecksumIEEE(ev.Payload) {
					s.Errorf("peer %d: from %v: frame %d is damaged", i, ev.From, ev.Chunk)
				}
				ev.Release()
			}
		})
	}
	group.Wait()
}

// concurrentSenders: one stream may be sent on from many goroutines; the frames of each come in its order.
func concurrentSenders(s *scene) {
	const senders, frames = 8, 100
	a, b := s.pair(transport.StreamOptions{MaxFrame: 4096, Window: 16 << 10})
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			for k := range frames {
				f := transport.Frame{Kind: uint8(i), Key: key(i<<16 | k), Payload: content(i<<16|k, 1+k*40)}
				if err := s.send(s.ctx, a, b.Self(), f); err != nil {
					s.Errorf("sender %d: %v", i, err)
					return
				}
			}
		})
	}
	var next [senders]int
	for range senders * frames {
		ev := s.recv(b)
		if k := int(ev.Chunk & 0xffff); k != next[ev.Kind] {
			s.Fatalf("sender %d: frame %d, want %d", ev.Kind, k, next[ev.Kind])
		}
		next[ev.Kind]++
		s.same("payload", content(int(ev.Chunk), 1+int(ev.Chunk&0xffff)*40), ev.Payload)
		ev.Release()
	}
	group.Wait()
}

// allocations: in steady state a frame is sent and received without an allocation.
func allocations(s *scene) {
	if s.kit.Allocs < 0 {
		s.Skip("not run here: the network does not promise it")
	}
	if raceDetector {
		s.Skip("not run here: the race detector allocates")
	}
	a, b := s.pair(transport.StreamOptions{})
	p, dst, head := content(1, 4096), make([]byte, 4096), []byte("head")
	done := make(chan struct{}, 1)
	f := transport.Frame{Key: key(1), Head: head, Payload: p, Done: func(error) { done <- struct{}{} }}
	frame := func(posted bool) {
		if posted {
			s.must(b.Post(a.Self(), f.Key, dst))
		}
		if err := a.Send(s.ctx, b.Self(), f); err != nil {
			s.Fatal(err)
		}
		ev, err := b.Recv(s.ctx)
		if err != nil || ev.Posted != posted {
			s.Fatal(err, ev.Posted)
		}
		ev.Release()
		<-done
	}
	for range 200 { // pools and connections fill
		frame(false)
		frame(true)
	}
	for _, posted := range []bool{false, true} {
		if n := testing.AllocsPerRun(500, func() { frame(posted) }); n > s.kit.Allocs {
			s.Errorf("%v allocations per frame, Posted %v, want at most %v", n, posted, s.kit.Allocs)
		}
	}
}
