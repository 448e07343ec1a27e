package transport_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

func TestMemory(t *testing.T) {
	open := func(*testing.T) transport.Network { return transport.NewMemory() }
	t.Run("real", func(t *testing.T) { transporttest.Run(t, transporttest.Kit{Open: open}) })
	t.Run("bubble", func(t *testing.T) {
		transporttest.Run(t, transporttest.Kit{Open: open, Bubble: true, Options: transport.Options{Secret: []byte("both hold it")}})
	})
}

func ExampleMemory() {
	ctx := context.Background()
	network := transport.NewMemory()
	a, _ := network.Open(ctx, transport.Name{ID: "a"}, transport.Options{})
	defer a.Close()
	b, _ := network.Open(ctx, transport.Name{ID: "b"}, transport.Options{})
	defer b.Close()

	from, _ := a.Stream("greetings", transport.StreamOptions{})
	to, _ := b.Stream("greetings", transport.StreamOptions{})
	_ = from.Know(b.Name(), b.Addr())
	_ = from.Send(ctx, b.Name(), transport.Frame{Kind: 1, Payload: []byte("hello")})

	ev, err := to.Recv(ctx)
	fmt.Println(ev.From, string(ev.Payload), err)
	ev.Release()
	// Output: a hello <nil>
}

// memoryPair returns two ports with a stream each; options are a's and b's.
func memoryPair(t testing.TB, oa, ob transport.Options, so transport.StreamOptions) (a, b transport.Stream, pa, pb transport.Port) {
	t.Helper()
	network := transport.NewMemory()
	var streams [2]transport.Stream
	var ports [2]transport.Port
	for i, o := range []transport.Options{oa, ob} {
		p, err := network.Open(t.Context(), transport.Name{ID: fmt.Sprint(i)}, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		if streams[i], err = p.Stream("test", so); err != nil {
			t.Fatal(err)
		}
		ports[i] = p
	}
	for i := range ports {
		if err := ports[i].Know(ports[1-i].Name(), ports[1-i].Addr()); err != nil {
			t.Fatal(err)
		}
	}
	return streams[0], streams[1], ports[0], ports[1]
}

// TestMemoryHandsOver: with Done, the receiver reads the sender's own slices, and Done waits for its Release.
func TestMemoryHandsOver(t *testing.T) {
	a, b, _, _ := memoryPair(t, transport.Options{}, transport.Options{}, transport.StreamOptions{})
	p, done := []byte("payload"), 0
	if err := a.Send(t.Context(), b.Self(), transport.Frame{Payload: p, Done: func(error) { done++ }}); err != nil {
		t.Fatal(err)
	}
	ev, err := b.Recv(t.Context())
	if err != nil || &ev.Payload[0] != &p[0] {
		t.Fatalf("the payload was copied; error %v", err)
	}
	if done != 0 {
		t.Error("Done was called while the receiver read")
	}
	ev.Release()
	if done != 1 {
		t.Errorf("Done was called %d times after Release", done)
	}
}

// TestMemoryRefuses: another secret, too many peers, an address of another network.
func TestMemoryRefuses(t *testing.T) {
	a, b, pa, pb := memoryPair(t, transport.Options{Secret: []byte("one")}, transport.Options{Secret: []byte("two")}, transport.StreamOptions{})
	if err := a.Send(t.Context(), b.Self(), transport.Frame{}); err != nil {
		t.Fatal(err)
	}
	ev, err := a.Recv(t.Context())
	if err != nil || ev.What != transport.LinkLost || !strings.Contains(ev.Err.Error(), "another secret") || errors.Is(ev.Err, protocol.ErrRefused) {
		t.Errorf("another secret: event %+v, error %v", ev, err)
	}
	if n := pb.Stats().Refused["secret"]; n != 1 {
		t.Errorf("%d refusals were counted, want 1: %v", n, pb.Stats().Refused)
	}
	if err := pa.Know(transport.Name{ID: "x"}, "127.0.0.1:80"); err == nil {
		t.Error("an address of another network was taken")
	}

	a, b, _, pb = memoryPair(t, transport.Options{}, transport.Options{MaxPeers: 1}, transport.StreamOptions{})
	if err := pb.Know(transport.Name{ID: "x"}, "memory:x"); err != nil { // b has one peer then besides a, which it knows
		t.Fatal(err)
	}
	pb.Forget(a.Self())
	if err := a.Send(t.Context(), b.Self(), transport.Frame{}); err != nil {
		t.Fatal(err)
	}
	if ev, err := a.Recv(t.Context()); err != nil || ev.What != transport.LinkLost || !strings.Contains(ev.Err.Error(), "has its 1 peers") {
		t.Errorf("too many peers: event %+v, error %v", ev, err)
	}
}

func TestStreamOptions(t *testing.T) {
	p, err := transport.NewMemory().Open(t.Context(), transport.Name{ID: "a"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.Stream("bad", transport.StreamOptions{MaxFrame: -1, Window: -2, Queue: -3})
	for _, want := range []string{`stream "bad": MaxFrame`, "Window", "Queue"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	for _, size := range []int{64, 256 << 10} {
		for _, posted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/posted=%v", size, posted), func(b *testing.B) {
				from, to, _, _ := memoryPair(b, transport.Options{}, transport.Options{}, transport.StreamOptions{})
				ctx, p, dst := b.Context(), make([]byte, size), make([]byte, size)
				f := transport.Frame{Payload: p, Done: func(error) {}}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if posted {
						if err := to.Post(from.Self(), f.Key, dst); err != nil {
							b.Fatal(err)
						}
					}
					if err := from.Send(ctx, to.Self(), f); err != nil {
						b.Fatal(err)
					}
					ev, err := to.Recv(ctx)
					if err != nil {
						b.Fatal(err)
					}
					ev.Release()
				}
			})
		}
	}
}

// TestMemoryLinksOfNobody: what a stream that nobody reads keeps of a link that comes and goes does not grow; a frame in between stays there.
func TestMemoryLinksOfNobody(t *testing.T) {
	network := transport.NewMemory()
	here, err := network.Open(t.Context(), transport.Name{ID: "here"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	s, err := here.Stream("s", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var there transport.Port
	again := func() transport.Stream {
		if there, err = network.Open(t.Context(), transport.Name{ID: "there"}, transport.Options{}); err != nil {
			t.Fatal(err)
		}
		at, err := there.Stream("s", transport.StreamOptions{})
		if err == nil {
			err = errors.Join(at.Know(here.Name(), here.Addr()), s.Know(there.Name(), there.Addr()))
		}
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	flap := func() {
		for range 1000 {
			if err := there.Close(); err != nil {
				t.Fatal(err)
			}
			again()
		}
	}
	if err := again().Send(t.Context(), here.Name(), transport.Frame{Kind: 1}); err != nil {
		t.Fatal(err)
	}
	flap()
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again().Send(t.Context(), here.Name(), transport.Frame{Kind: 2}); err != nil {
		t.Fatal(err)
	}
	flap()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	got := ""
	for range 20 {
		ev, err := s.Recv(now)
		if err != nil {
			break
		}
		got += fmt.Sprintf("%v %d, ", ev.What, ev.Kind)
		ev.Release()
	}
	if want := fmt.Sprintf("%v 1, %[2]v 0, %[3]v 0, %[1]v 2, %[2]v 0, %[3]v 0, ", transport.Received, transport.LinkLost, transport.LinkBack); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
