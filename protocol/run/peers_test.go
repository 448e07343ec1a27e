package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/protocol/run"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

// A peer that does not read holds up nobody else, and costs a bounded queue; the machine is told of what was dropped.
func TestSlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		b := start(t, script(doubler), stream(t, network, "b"), run.Options{})
		deaf := stream(t, network, "deaf")
		asks := &asker{peer: protocol.Name{ID: "b"}}
		var lost []error
		a := start(t, script(func(now time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Start:
				var out []protocol.Command
				for i := range 1000 {
					out = append(out, protocol.Send{To: protocol.Name{ID: "deaf"}, Body: number(i)})
				}
				return out
			case protocol.LinkLost:
				lost = append(lost, in.Err)
			}
			return asks.Step(now, in)
		}), stream(t, network, "a"), run.Options{Queue: 100})
		if got, err := a.Call(t.Context(), 21); err != nil || got != 42 {
			t.Errorf("a call to another peer: %v, %v", got, err)
		}
		// Now it reads.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		for {
			ev, err := deaf.Recv(ctx)
			if err != nil {
				break
			}
			n++
			ev.Release()
		}
		if n < 100 || n > 900 {
			t.Errorf("%d of 1,000 messages arrived: want the queues of the loop and of the stream", n)
		}
		stop(t, a, b)
		if len(lost) == 0 {
			t.Error("the machine was not told that messages were dropped")
		}
		for _, err := range lost {
			if !errors.Is(err, run.ErrQueueFull) {
				t.Errorf("the machine was told %v, want ErrQueueFull", err)
			}
		}
	})
}

// TestPeersOfAWhile: a machine that speaks to ever new peers keeps nothing for those that it speaks to no more. What it says to one again,
// and to one that it speaks to all the time, comes.
func TestPeersOfAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		b := start(t, script(doubler), stream(t, network, "b"), run.Options{})
		said := 0
		a := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Call:
				return []protocol.Command{protocol.Send{To: in.Arg.(protocol.Name), Body: number(1)}, protocol.Answer{ID: in.ID}}
			case protocol.Message:
				said++
			}
			return exitOnStop(in)
		}), stream(t, network, "a"), run.Options{})
		tell := func(n protocol.Name) {
			t.Helper()
			if _, err := a.Call(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		tell(protocol.Name{ID: "b"})
		synctest.Wait()
		before := transporttest.Goroutines()
		for i := range 100 {
			tell(protocol.Name{ID: "nobody", Incarnation: uint64(i)})
		}
		for range 5 {
			tell(protocol.Name{ID: "b"})
			time.Sleep(time.Minute / 2)
		}
		synctest.Wait()
		if n := transporttest.Goroutines(); n > before {
			t.Errorf("%d goroutines, %d before there were 100 more peers", n, before)
		}
		time.Sleep(5 * time.Minute)
		tell(protocol.Name{ID: "b"})
		if synctest.Wait(); said != 7 {
			t.Errorf("%d answers came, want 7", said)
		}
		stop(t, a, b)
	})
}

func TestBadFramesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		b := start(t, script(doubler), stream(t, network, "b"), run.Options{})
		a := stream(t, network, "a")
		for _, f := range []transport.Frame{{Kind: 3}, {Kind: 7, Head: []byte("abc")}, {Kind: 7, Head: []byte{21, 0, 0, 0, 0, 0, 0, 0}}} {
			if err := a.Send(t.Context(), protocol.Name{ID: "b"}, f); err != nil {
				t.Fatal(err)
			}
		}
		ev, err := a.Recv(t.Context())
		if err != nil || len(ev.Head) != 8 || ev.Head[0] != 42 {
			t.Errorf("the answer is %v, %v", ev, err)
		}
		ev.Release()
		stop(t, b)
	})
}

func TestPeerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		lost := make(chan protocol.LinkLost, 10)
		a := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Start:
				return []protocol.Command{protocol.Send{To: protocol.Name{ID: "nobody"}, Body: number(1)}}
			case protocol.LinkLost:
				lost <- in
			}
			return exitOnStop(in)
		}), stream(t, network, "a"), run.Options{})
		if l := <-lost; l.Peer.ID != "nobody" || l.Err == nil {
			t.Errorf("the machine was told %v", l)
		}
		stop(t, a)
	})
}
