package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestTellerTwoReads: rank 0 may ask what a worker is now, where early stopping found its best model, while it reads what that was at a
// snapshot. Each travels in pieces, and no piece of one comes with the other.
func TestTellerTwoReads(t *testing.T) {
	x := newTeller(nil)
	x.mark(3, state{sums: []float32{1, 2, 3}, codecs: [][]byte{{7, 7}}})
	x.mark(4, state{sums: []float32{4, 5, 6}, codecs: [][]byte{{8, 8}}})
	read := func(key string, from, length int64) []byte {
		t.Helper()
		r, err := x.Get(t.Context(), key, from, length)
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := read("3", 0, -1)
	got := read("3", 0, 6)
	read("4", 0, 6)
	if got = append(got, read("3", 6, -1)...); !bytes.Equal(got, want) {
		t.Errorf("read in two pieces, a state is %v, want %v", got, want)
	}
}

// A lossy stream loses its first frame with the link that it went by.
type lossy struct {
	transport.Stream
	lost bool
}

func (s *lossy) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	if !s.lost {
		s.lost = true
		return transport.ErrLinkLost
	}
	return s.Stream.Send(ctx, to, f)
}

// TestReleaseBrokenLink: a worker hears that all is saved, and ends, though the link breaks under that word.
func TestReleaseBrokenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		var ports [2]transport.Port
		var streams [2]transport.Stream
		for i := range ports {
			var err error
			if ports[i], err = network.Open(t.Context(), transport.Name{Role: "worker", ID: fmt.Sprint(i)}, transport.Options{}); err != nil {
				t.Fatal(err)
			}
			defer ports[i].Close()
			if streams[i], err = ports[i].Stream(workerStream(1), transport.StreamOptions{MaxFrame: remote.Piece + 1<<16}); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range ports {
			if err := p.Know(ports[1-i].Name(), ports[1-i].Addr()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		x, other := newTeller(nil), remote.NewClient(&lossy{Stream: streams[0]}, ports[1].Name())
		var wait sync.WaitGroup
		wait.Go(func() { _ = remote.Serve(ctx, x, streams[1], remote.Options{}) })
		wait.Go(func() { _ = other.Run(ctx) })
		w := &worker{env: &train.Env{}, ctx: ctx, others: []*remote.Client{other}}
		w.release()
		select {
		case <-x.done:
		default:
			t.Error("the other worker waits on")
		}
		cancel()
		wait.Wait()
	})
}
