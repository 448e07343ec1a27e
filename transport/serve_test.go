package transport_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// Several peers send frames of two priorities, some to posted memory, to one that serves: each peer's come in order, whole, and none after
// Serve has returned. The end of a peer comes after its frames.
func TestServe(t *testing.T) {
	for name, open := range map[string]func() transport.Network{
		"tcp":    func() transport.Network { return transport.TCP{} },
		"unix":   func() transport.Network { return transport.Unix{Dir: t.TempDir(), Sockets: true} },
		"shared": func() transport.Network { return transport.Unix{Dir: t.TempDir()} },
	} {
		t.Run(name, func(t *testing.T) { testServe(t, open()) })
	}
}

func testServe(t *testing.T, n transport.Network) {
	const senders, frames, length = 3, 200, 40_000
	port := func(id string) transport.Port {
		p, err := n.Open(t.Context(), transport.Name{Role: "test", ID: id}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	stream := func(p transport.Port) transport.Stream {
		s, err := p.Stream("serve", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	to := port("to")
	served := stream(to)
	posted := map[string][]byte{}
	var from []transport.Port
	for i := range senders {
		p := port(fmt.Sprint(i))
		from = append(from, p)
		dst := make([]byte, length)
		if err := served.Post(p.Name(), transport.Key{Op: wire.MakeOp(0, 7)}, dst); err != nil {
			t.Fatal(err)
		}
		posted[p.Name().ID] = dst
	}

	var mu sync.Mutex
	next := map[string]uint32{}
	got, lost := 0, 0
	all := make(chan struct{})
	end := make(chan struct{}, senders)
	returned := false
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		err := served.(transport.Server).Serve(ctx, func(ev *transport.Event) (keep, yield bool) {
			mu.Lock()
			defer mu.Unlock()
			id := ev.From.ID
			switch {
			case returned:
				t.Error("called after Serve had returned")
			case ev.What == transport.LinkLost:
				if lost++; next[id] != frames {
					t.Errorf("the link to %s is lost after %d frames of %d", id, next[id], frames)
				}
				end <- struct{}{}
				return false, false
			case ev.What != transport.Received || ev.Kind == 2:
				return false, false
			case ev.Chunk != next[id]:
				t.Errorf("frame %d of %s comes in place of %d", ev.Chunk, id, next[id])
			case len(ev.Payload) != length || ev.Payload[0] != byte(ev.Chunk) || ev.Payload[length-1] != byte(ev.Chunk):
				t.Errorf("frame %d of %s has another payload", ev.Chunk, id)
			case ev.Posted && &ev.Payload[0] != &posted[id][0]:
				t.Errorf("frame %d of %s landed elsewhere", ev.Chunk, id)
			}
			next[id]++
			if got++; got == senders*frames {
				close(all)
			}
			return false, ev.Chunk%3 == 0
		})
		mu.Lock()
		returned = true
		mu.Unlock()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
	})
	for _, p := range from {
		s := stream(p)
		if err := s.Know(to.Name(), to.Addr()); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for k := range uint32(frames) {
				payload := make([]byte, length)
				payload[0], payload[length-1] = byte(k), byte(k)
				f := transport.Frame{Kind: 1, Payload: payload, Key: transport.Key{Chunk: k}}
				if k == 0 {
					f.Op = wire.MakeOp(0, 7)
				}
				if err := s.Send(ctx, to.Name(), f); err != nil {
					t.Errorf("frame %d: %v", k, err)
				}
				if k%8 == 0 {
					if err := s.Send(ctx, to.Name(), transport.Frame{Kind: 2, Priority: transport.Control}); err != nil {
						t.Errorf("control frame %d: %v", k, err)
					}
				}
			}
		})
	}
	wait := func(c <-chan struct{}, what string) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("%s: %d of %d frames have come", what, got, senders*frames)
		}
	}
	wait(all, "frames")
	for _, p := range from {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		wait(end, "the end of "+p.Name().ID)
	}
	cancel()
	wg.Wait()
	if lost < senders {
		t.Errorf("%d of %d peers were seen to end", lost, senders)
	}
}

// TestServeWaits: Serve returns when no call of its function is under way any more, also where its context ended amid one.
func TestServeWaits(t *testing.T) {
	n := transport.Unix{Dir: t.TempDir()}
	var ends [2]transport.Stream
	for i, id := range []string{"from", "to"} {
		p, err := n.Open(t.Context(), transport.Name{ID: id}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if ends[i], err = p.Stream("serve", transport.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ends[0].Know(p.Name(), p.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, end, returned := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		returned <- ends[1].(transport.Server).Serve(ctx, func(ev *transport.Event) (keep, yield bool) {
			if ev.Chunk == 1 { // those before may come through the queue, and so on Serve's own goroutine
				close(began)
				<-end
			}
			return false, false
		})
	}()
	for i := range uint32(2) {
		if err := ends[0].Send(ctx, ends[1].Self(), transport.Frame{Key: transport.Key{Chunk: i}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	<-began
	cancel()
	select {
	case err := <-returned:
		close(end)
		t.Fatalf("returned %v amid a call", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Errorf("returned %v", err)
	}
}
