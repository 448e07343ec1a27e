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
	from, to := twoStreams(ctx, t, &TCP{}, StreamOptions{MaxFrame: frame, Window: 4 * frame})
	if sent, err := from.(Trier).Try(ctx, to.Self(), Frame{Kind: 1}); sent || err != nil {
		t.Errorf("without a Done: %v, %v", sent, err)
	}
	done := make(chan error, 100)
	f := Frame{Kind: 1, Payload: make([]byte, frame), Done: func(err error) { done <- err }}
	if err := from.Send(ctx, to.Self(), f); err != nil { // the link is up, and the window known
		t.Fatal(err)
	}
	events := make([]Event, 1, 8)
	var err error
	if events[0], err = to.Recv(ctx); err != nil {
		t.Fatal(err)
	}
	for k := 1; ; k++ {
		sent, err := from.(Trier).Try(ctx, to.Self(), f)
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
		sent, err := from.(Trier).Try(ctx, to.Self(), f)
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
