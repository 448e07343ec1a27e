package transport

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// A frame that says that more follow is written with the last of them, where it has a Done, whatever their sizes.
func TestMore(t *testing.T) {
	for name, n := range map[string]Network{"unix": &Unix{Dir: t.TempDir()}, "tcp": &TCP{}} {
		for _, sizes := range [][2]int{{10, 10}, {batchBytes / 2, copyBytes}, {2 * batchBytes, copyBytes}} {
			t.Run(fmt.Sprint(name, " ", sizes), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				from, to := twoStreams(ctx, t, n, StreamOptions{})
				done := make(chan int, 3)
				send := func(k, size int, more bool) {
					t.Helper()
					f := Frame{Kind: 1, Key: Key{Chunk: uint32(k)}, Payload: make([]byte, size), More: more, Done: func(error) { done <- k }}
					if err := from.Send(ctx, to.Self(), f); err != nil {
						t.Fatal(err)
					}
				}
				recv := func(k int) {
					t.Helper()
					ev, err := to.Recv(ctx)
					if err != nil {
						t.Fatal(err)
					}
					if ev.Chunk != uint32(k) {
						t.Fatalf("received frame %d, want %d", ev.Chunk, k)
					}
					ev.Release()
				}
				send(0, 1, false) // the link is up
				recv(0)
				<-done
				before := from.(*stream).port.Stats().FramesSent
				send(1, sizes[0], true)
				if got := from.(*stream).port.Stats().FramesSent - before; got != 0 || len(done) != 0 {
					t.Fatalf("%d frames were written, and %d done, of one that waits", got, len(done))
				}
				send(2, sizes[1], false)
				if got := from.(*stream).port.Stats().FramesSent - before; got != 2 {
					t.Errorf("%d frames were written by the second's Send, want both", got)
				}
				recv(1)
				recv(2)
				if a, b := <-done, <-done; a != 1 || b != 2 {
					t.Errorf("done: %d, then %d", a, b)
				}
			})
		}
	}
}

// twoStreams opens a stream at each of two ports, of which the first knows the second.
func twoStreams(ctx context.Context, t *testing.T, n Network, o StreamOptions) (from, to Stream) {
	t.Helper()
	var streams [2]Stream
	var ports [2]Port
	for i := range streams {
		p, err := n.Open(ctx, Name{Role: "worker", ID: fmt.Sprint(i)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		if streams[i], err = p.Stream("a", o); err != nil {
			t.Fatal(err)
		}
		ports[i] = p
	}
	if err := streams[0].Know(streams[1].Self(), ports[1].Addr()); err != nil {
		t.Fatal(err)
	}
	return streams[0], streams[1]
}
