package transport

import (
	"context"
	"testing"
	"time"
)

// A stream with a window of four frames takes four that nobody releases, refuses the next at once and leaves it the caller's, and takes more
// when the first has been released. A frame without a Done is refused: nobody would hear what becomes of it.
func TestTry(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const frame = 64 << 10
	names := [2]Name{{Role: "worker", ID: "0"}, {Role: "worker", ID: "1"}}
	var streams [2]Stream
	var ports [2]Port
	for i := range names {
		p, err := TCP{}.Open(ctx, names[i], Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}()
		s, err := p.Stream("a", StreamOptions{MaxFrame: frame, Window: 4 * frame})
		if err != nil {
			t.Fatal(err)
		}
		ports[i], streams[i] = p, s
	}
	from, to := streams[0], streams[1]
	if err := from.Know(names[1], ports[1].Addr()); err != nil {
		t.Fatal(err)
	}
	if sent, err := from.(Trier).Try(ctx, names[1], Frame{Kind: 1}); sent || err != nil {
		t.Errorf("without a Done: %v, %v", sent, err)
	}
	done := make(chan error, 100)
	f := Frame{Kind: 1, Payload: make([]byte, frame), Done: func(err error) { done <- err }}
	if err := from.Send(ctx, names[1], f); err != nil { // the link is up, and the window known
		t.Fatal(err)
	}
	events := make([]Event, 1, 8)
	var err error
	if events[0], err = to.Recv(ctx); err != nil {
		t.Fatal(err)
	}
	for k := 1; ; k++ {
		sent, err := from.(Trier).Try(ctx, names[1], f)
		if err != nil {
			t.Fatal(err)
		}
		if sent != (k < 4) {
			t.Fatalf("frame %d of a window of 4: %v", k, sent)
		}
		if !sent {
			break
		}
		ev, err := to.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	for i := range events {
		events[i].Release()
	}
	for { // until the release is told
		sent, err := from.(Trier).Try(ctx, names[1], f)
		if err != nil {
			t.Fatal(err)
		}
		if sent {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("nothing is sent any more")
		}
	}
	ev, err := to.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ev.Release()
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if len(done) != 0 {
		t.Error("a frame that was refused is done")
	}
}
