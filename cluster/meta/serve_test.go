package meta_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/cluster/meta/metatest"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

var (
	parent = transport.Name{Job: "j", Role: "coordinator", ID: "0"}
	child  = transport.Name{Job: "j", Role: "worker", ID: "0"}
)

// open opens name's stream of the metadata store.
func open(t *testing.T, net transport.Network, name transport.Name) (transport.Port, transport.Stream) {
	t.Helper()
	port, err := net.Open(context.Background(), name, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := port.Stream("meta", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return port, s
}

// serve serves m as the parent, until stop is called.
func serve(t *testing.T, net transport.Network, m cluster.Meta) (port transport.Port, stop func()) {
	t.Helper()
	port, s := open(t, net, parent)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- meta.Serve(ctx, m, s) }()
	return port, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		port.Close()
	}
}

func dial(t *testing.T, net transport.Network, server transport.Port) (*meta.Client, func()) {
	t.Helper()
	port, s := open(t, net, child)
	if err := s.Know(server.Name(), server.Addr()); err != nil {
		t.Fatal(err)
	}
	c := meta.NewClient(s, server.Name())
	return c, func() {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		port.Close()
	}
}

func TestServed(t *testing.T) {
	metatest.Run(t, metatest.Options{In: synctest.Test}, func(t *testing.T) cluster.Meta {
		m, net := meta.NewMemory(meta.Options{}), transport.NewMemory()
		port, stop := serve(t, net, m)
		c, closeClient := dial(t, net, port)
		t.Cleanup(func() { closeClient(); stop(); m.Close() })
		return c
	})
}

// The same over sockets, in real time.
func TestServedOverSockets(t *testing.T) {
	for name, net := range map[string]transport.Network{"unix": transport.Unix{Dir: t.TempDir()}, "TCP": transport.TCP{Listen: "127.0.0.1:0"}} {
		t.Run(name, func(t *testing.T) {
			metatest.Run(t, metatest.Options{TTL: time.Second, Parallel: true}, func(t *testing.T) cluster.Meta {
				// Each has a job of its own, since they run beside one another.
				m := meta.NewMemory(meta.Options{})
				net := inJob{net, t.Name()}
				port, stop := serve(t, net, m)
				c, closeClient := dial(t, net, port)
				t.Cleanup(func() { closeClient(); stop(); m.Close() })
				return c
			})
		})
	}
}

// inJob opens ports under names of a job of its own.
type inJob struct {
	transport.Network
	job string
}

func (n inJob) Open(ctx context.Context, self transport.Name, o transport.Options) (transport.Port, error) {
	self.Job = n.job
	return n.Network.Open(ctx, self, o)
}

// What happens to the parent: requests and watches end with ErrUnavailable, and work again when it is back.
func TestServerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, net, ctx := meta.NewMemory(meta.Options{}), transport.NewMemory(), t.Context()
		defer m.Close()
		port, stop := serve(t, net, m)
		c, closeClient := dial(t, net, port)
		defer closeClient()
		rev, err := c.PutIf(ctx, "k", []byte("1"), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		watched := make(chan cluster.KV, 1)
		go func() {
			for kv, err := range c.Watch(ctx, "k", rev) {
				if !errors.Is(err, protocol.ErrUnavailable) {
					t.Errorf("a watch whose store is lost: %+v, %v", kv, err)
				}
				watched <- kv
			}
		}()
		synctest.Wait()
		stop()
		if kv := <-watched; kv.Rev != rev {
			t.Errorf("the lost watch is to go on from %d, want %d", kv.Rev, rev)
		}
		began := time.Now()
		if _, err := c.Get(ctx, "k"); !errors.Is(err, protocol.ErrUnavailable) || !strings.Contains(err.Error(), parent.String()) {
			t.Errorf("Get without a server: %v", err)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("Get without a server took %v", d)
		}
		// Changed while the client is away.
		if _, err := m.PutIf(ctx, "k", []byte("2"), rev, 0); err != nil {
			t.Fatal(err)
		}
		_, stop = serve(t, net, m)
		defer stop()
		for { // LinkBack comes when the port has tried again
			kv, err := c.Get(ctx, "k")
			if err == nil && string(kv.Value) == "2" {
				break
			}
			if !errors.Is(err, protocol.ErrUnavailable) || time.Since(began) > time.Minute {
				t.Fatalf("after the server is back: %+v, %v", kv, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		for kv, err := range c.Watch(ctx, "k", rev) {
			if err != nil || string(kv.Value) != "2" {
				t.Errorf("the watch goes on with %+v, %v", kv, err)
			}
			break
		}
	})
}

// A client that vanishes loses its watches, and its leases run out.
func TestClientLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, net, ctx := meta.NewMemory(meta.Options{}), transport.NewMemory(), t.Context()
		defer m.Close()
		counted := &countWatches{Meta: m}
		port, stop := serve(t, net, counted)
		defer stop()
		c, closeClient := dial(t, net, port)
		term, err := c.Campaign(ctx, "leader", []byte("child"))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range c.Watch(ctx, "", 0) {
			}
		}()
		time.Sleep(time.Minute)
		if kv, err := m.Get(ctx, "leader"); err != nil || kv.Rev != term.Rev {
			t.Fatalf("the term after a minute: %+v, %v", kv, err)
		}
		if n := counted.now(); n != 2 { // the campaign's and ours
			t.Fatalf("%d watches run, want 2", n)
		}
		closeClient()
		synctest.Wait()
		if n := counted.now(); n != 0 {
			t.Fatalf("%d watches of a client that has gone", n)
		}
		gone := time.Now()
		for kv, err := range m.Watch(ctx, "leader", term.Rev) {
			if err != nil || kv.Value != nil || time.Since(gone) > 5*time.Second {
				t.Errorf("after %v: %+v, %v", time.Since(gone), kv, err)
			}
			break
		}
		<-term.Lost
	})
}

// What the client does not answer for is refused, and others are served meanwhile.
func TestBadFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, net, ctx := meta.NewMemory(meta.Options{}), transport.NewMemory(), t.Context()
		defer m.Close()
		port, stop := serve(t, net, m)
		defer stop()
		c, closeClient := dial(t, net, port)
		defer closeClient()

		strangerPort, stranger := open(t, net, transport.Name{ID: "stranger"})
		defer strangerPort.Close()
		if err := stranger.Know(parent, port.Addr()); err != nil {
			t.Fatal(err)
		}
		for _, f := range []transport.Frame{
			{Kind: 9, Head: []byte("what")},
			{Kind: 1, Head: nil},
			{Kind: 1, Head: bytes.Repeat([]byte{0xff}, 100)},
		} {
			f.Priority = transport.Control
			if err := stranger.Send(ctx, parent, f); err != nil {
				t.Fatal(err)
			}
			ev, err := stranger.Recv(ctx)
			if err != nil || !bytes.Contains(ev.Head, []byte("meta: ")) {
				t.Errorf("the answer to a bad frame: %q, %v", ev.Head, err)
			}
			ev.Release()
			if _, err := c.Get(ctx, "k"); err != nil {
				t.Errorf("another client: %v", err)
			}
		}
	})
}

// More requests at a time than a client may have are refused by themselves, and leave room again.
func TestTooManyUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, net := meta.NewMemory(meta.Options{}), transport.NewMemory()
		defer m.Close()
		port, stop := serve(t, net, m)
		defer stop()
		c, closeClient := dial(t, net, port)
		defer closeClient()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		refused := make(chan error, 1000)
		for range 300 {
			go func() {
				for _, err := range c.Watch(ctx, "none", 0) {
					refused <- err
				}
			}()
		}
		synctest.Wait()
		if n := len(refused); n != 300-256 {
			t.Errorf("%d of 300 watches were refused, want 44", n)
		}
		if err := <-refused; !errors.Is(err, protocol.ErrUnavailable) || !strings.Contains(err.Error(), "at most 256") {
			t.Errorf("refused with %v", err)
		}
		cancel()
		synctest.Wait()
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Errorf("when the watches have ended: %v", err)
		}
	})
}

// countWatches counts the watches that run.
type countWatches struct {
	cluster.Meta
	running atomic.Int64
}

func (c *countWatches) now() int64 { return c.running.Load() }

func (c *countWatches) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[cluster.KV, error] {
	return func(yield func(cluster.KV, error) bool) {
		c.running.Add(1)
		defer c.running.Add(-1)
		c.Meta.Watch(ctx, prefix, rev)(yield)
	}
}

func BenchmarkServed(b *testing.B) {
	m, net, ctx := meta.NewMemory(meta.Options{}), transport.NewMemory(), b.Context()
	defer m.Close()
	pp, s := mustOpen(b, net, parent)
	cp, cs := mustOpen(b, net, child)
	serving, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- meta.Serve(serving, m, s) }()
	if err := cs.Know(parent, pp.Addr()); err != nil {
		b.Fatal(err)
	}
	c := meta.NewClient(cs, parent)
	rev := int64(0)
	var err error
	for b.Loop() {
		if rev, err = c.PutIf(ctx, "k", []byte("value"), rev, 0); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	stop()
	<-done
	pp.Close()
	cp.Close()
}

func mustOpen(b *testing.B, net transport.Network, name transport.Name) (transport.Port, transport.Stream) {
	port, err := net.Open(b.Context(), name, transport.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := port.Stream("meta", transport.StreamOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return port, s
}
