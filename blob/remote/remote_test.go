package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/blob/blobtest"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	here  = transport.Name{Role: "client", ID: "0"}
	there = transport.Name{Role: "server", ID: "0"}
)

// serve makes store reachable and returns a client of it, and its port, which ends with the test.
func serve(t *testing.T, store blob.Store) (*remote.Client, transport.Port) {
	t.Helper()
	return serveUntil(t, context.Background(), store)
}

// serveUntil serves until serving ends.
func serveUntil(t *testing.T, serving context.Context, store blob.Store) (*remote.Client, transport.Port) {
	t.Helper()
	network := transport.NewMemory()
	open := func(n transport.Name) (transport.Port, transport.Stream) {
		p, err := network.Open(t.Context(), n, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stream("blob", transport.StreamOptions{MaxFrame: remote.Piece + 1<<16})
		if err != nil {
			t.Fatal(err)
		}
		return p, s
	}
	server, s := open(there)
	port, c := open(here)
	if err := c.Know(there, server.Addr()); err != nil {
		t.Fatal(err)
	}
	client := remote.NewClient(c, there)
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	serving, stop := context.WithCancel(serving)
	wait.Go(func() { _ = remote.Serve(serving, store, s, remote.Options{}) })
	wait.Go(func() { _ = client.Run(ctx) })
	t.Cleanup(func() {
		stop()
		cancel()
		wait.Wait()
		_ = port.Close() // a test may have closed it
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return client, port
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store {
		client, _ := serve(t, blob.Dir(t.TempDir()))
		return client
	})
}

func TestLargeObjectsTravelInPieces(t *testing.T) {
	store := blob.Dir(t.TempDir())
	client, _ := serve(t, store)
	want := bytes.Repeat([]byte("0123456789abcdef"), 3*remote.Piece/16+7)
	if err := client.Put(t.Context(), "large", bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []blob.Store{store, client} {
		r, err := s.Get(t.Context(), "large", 5, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[5:]) {
			t.Errorf("%T: %d bytes came back, want %d, or others", s, len(got), len(want)-5)
		}
	}
}

// A write whose writer vanishes leaves nothing.
func TestLostWriter(t *testing.T) {
	store := blob.Dir(t.TempDir())
	client, port := serve(t, store)
	r, w := io.Pipe()
	done := make(chan error)
	go func() { done <- client.Put(t.Context(), "half", r) }()
	if _, err := w.Write(make([]byte, 2*remote.Piece)); err != nil {
		t.Fatal(err)
	}
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	_ = w.CloseWithError(io.ErrUnexpectedEOF) // the pipe's other end is gone or not: either is fine
	if err := <-done; err == nil {
		t.Error("a write over a closed port succeeded")
	}
	objects, err := store.List(t.Context(), "")
	if err != nil || len(objects) != 0 {
		t.Errorf("the store holds %v, %v", objects, err)
	}
	if err := client.Put(t.Context(), "next", strings.NewReader("x")); err == nil {
		t.Error("a closed client wrote")
	}
}

// TestLostServer: a server that ends while it is asked is named. The link's error is io.EOF, which is not taken for the object's end.
func TestLostServer(t *testing.T) {
	network := transport.Unix{Dir: t.TempDir(), Sockets: true}
	self, gone := transport.Name{Role: "worker", ID: "0"}, transport.Name{Role: "server", ID: "3"}
	var ports []transport.Port
	for _, n := range []transport.Name{self, gone} {
		port, err := network.Open(t.Context(), n, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		ports = append(ports, port)
	}
	if err := ports[0].Know(gone, ports[1].Addr()); err != nil {
		t.Fatal(err)
	}
	asked, err := ports[1].Stream("blob", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := ports[0].Stream("blob", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := remote.NewClient(stream, gone)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { _ = client.Run(ctx) })
	wait.Go(func() {
		for {
			ev, err := asked.Recv(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			question := ev.What == transport.Received
			if ev.Release(); question {
				_ = ports[1].Close()
				return
			}
		}
	})
	_, err = client.Get(ctx, "part", 0, -1)
	if lost, ok := errors.AsType[*remote.LostError](err); !ok || lost.Server != gone || !errors.Is(err, transport.ErrLinkLost) {
		t.Errorf("error %v, want that %v is lost", err, gone)
	}
}

// TestNarrowStream: a piece that does not fit the frames of the server's stream is an error, and keeps nobody waiting for an answer.
func TestNarrowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		var streams []transport.Stream
		for i, n := range []transport.Name{there, here} {
			port, err := network.Open(t.Context(), n, transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer port.Close()
			s, err := port.Stream("blob", transport.StreamOptions{MaxFrame: remote.Piece + i<<16})
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		if err := streams[1].Know(there, "memory:there"); err != nil {
			t.Fatal(err)
		}
		store, client := blob.Dir(t.TempDir()), remote.NewClient(streams[1], there)
		if err := store.Put(t.Context(), "piece", bytes.NewReader(make([]byte, remote.Piece))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wait sync.WaitGroup
		defer wait.Wait()
		defer cancel()
		wait.Go(func() { _ = remote.Serve(ctx, store, streams[0], remote.Options{}) })
		wait.Go(func() { _ = client.Run(ctx) })
		r, err := client.Get(ctx, "piece", 0, -1)
		if err == nil || !strings.Contains(err.Error(), "MaxFrame") {
			t.Errorf("%v, error %v; want one that names MaxFrame", r, err)
		}
	})
}

// A last is a store whose Get ends who serves it.
type last struct {
	blob.Store
	end func()
}

func (l last) Get(context.Context, string, int64, int64) (io.ReadCloser, error) {
	l.end()
	return io.NopCloser(strings.NewReader("word")), nil
}

// The answer to a request that ends the server is still sent.
func TestLastAnswer(t *testing.T) {
	for range 20 { // which of the two comes first is a race
		ctx, cancel := context.WithCancel(t.Context())
		client, _ := serveUntil(t, ctx, last{blob.Dir(t.TempDir()), cancel})
		r, err := client.Get(t.Context(), "any", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := io.ReadAll(r); err != nil || string(p) != "word" {
			t.Errorf("%q, %v", p, err)
		}
	}
}

// A script is a stream that receives what it was given, and sends to nowhere.
type script struct {
	transport.Stream
	events []transport.Event
}

func (s *script) Recv(ctx context.Context) (transport.Event, error) {
	if len(s.events) > 0 {
		ev := s.events[0]
		s.events = s.events[1:]
		return ev, nil
	}
	<-ctx.Done()
	return transport.Event{}, ctx.Err()
}

func (s *script) Send(context.Context, transport.Name, transport.Frame) error { return nil }

// A pending store counts the writes that are under way.
type pending struct {
	blob.Store
	writes atomic.Int64
}

func (p *pending) Put(_ context.Context, _ string, r io.Reader) error {
	p.writes.Add(1)
	defer p.writes.Add(-1)
	_, err := io.Copy(io.Discard, r)
	return err
}

// TestLostWhileItBegins: a write whose writer is lost at once is forgotten, too.
func TestLostWhileItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const begin = 4
		s, store := &script{}, &pending{}
		for i := range 200 { // which of the two would come first is a race
			writer := transport.Name{ID: strconv.Itoa(i)}
			s.events = append(s.events, transport.Event{From: writer, Kind: begin, Head: []byte("\x03key\x00\x00\x00\x00")},
				transport.Event{From: writer, What: transport.LinkLost, Err: io.EOF})
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- remote.Serve(ctx, store, s, remote.Options{}) }()
		synctest.Wait()
		if n := store.writes.Load(); n != 0 {
			t.Errorf("%d of 200 writes are still open", n)
		}
		cancel()
		<-served
	})
}

// TestBeginTwice: a second write of the same number is refused, and does not take the first one's place.
func TestBeginTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const begin = 4
		s, store := &script{}, &pending{}
		for range 2 {
			s.events = append(s.events, transport.Event{From: here, Kind: begin, Head: []byte("\x03key\x00\x00\x00\x00")})
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- remote.Serve(ctx, store, s, remote.Options{}) }()
		synctest.Wait()
		if n := store.writes.Load(); n != 1 {
			t.Errorf("%d writes are open, want 1", n)
		}
		cancel()
		<-served
	})
}
