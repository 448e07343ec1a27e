package run_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/protocol/run"
	"github.com/trivium-ml/trivium/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type number uint64

func (number) Size() int { return 8 }

// numbers codes a number as its frame's head.
type numbers struct{}

func (numbers) Encode(b protocol.Body, f *transport.Frame) error {
	n, ok := b.(number)
	if !ok {
		return fmt.Errorf("want a number, found a %T", b)
	}
	f.Kind = 7
	f.Head = binary.LittleEndian.AppendUint64(f.Head, uint64(n))
	return nil
}

func (numbers) Decode(ev *transport.Event) (protocol.Body, bool, error) {
	if ev.Kind != 7 || len(ev.Head) != 8 {
		return nil, false, fmt.Errorf("kind %d with %d bytes: want kind 7 with 8", ev.Kind, len(ev.Head))
	}
	return number(binary.LittleEndian.Uint64(ev.Head)), false, nil
}

// script is a machine of one function.
type script func(now time.Duration, in protocol.Event) []protocol.Command

func (s script) Step(now time.Duration, in protocol.Event) []protocol.Command { return s(now, in) }

func stream(t testing.TB, network transport.Network, id string) transport.Stream {
	t.Helper()
	port, err := network.Open(t.Context(), protocol.Name{ID: id}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := port.Stream("test", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	for _, peer := range []string{"a", "b", "deaf", "nobody"} {
		if peer == id {
			continue
		}
		if err := s.Know(protocol.Name{ID: peer}, "memory:"+peer); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func start(t testing.TB, m protocol.Machine, s transport.Stream, o run.Options) *run.Loop {
	t.Helper()
	o.Codec = numbers{}
	l, err := run.Start(t.Context(), m, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func stop(t testing.TB, loops ...*run.Loop) {
	t.Helper()
	for _, l := range loops {
		if err := l.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

func exitOnStop(in protocol.Event) []protocol.Command {
	if _, ok := in.(protocol.Stop); ok {
		return []protocol.Command{protocol.Exit{}}
	}
	return nil
}

func doubler(_ time.Duration, in protocol.Event) []protocol.Command {
	if m, ok := in.(protocol.Message); ok {
		return []protocol.Command{protocol.Send{To: m.From, Body: 2 * m.Body.(number)}}
	}
	return exitOnStop(in)
}

// asker sends each Call's number to its peer, and answers it with what comes back.
type asker struct {
	peer  protocol.Name
	calls []uint64
}

func (a *asker) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	switch in := in.(type) {
	case protocol.Call:
		a.calls = append(a.calls, in.ID)
		return []protocol.Command{protocol.Send{To: a.peer, Body: number(in.Arg.(int))}}
	case protocol.Message:
		id := a.calls[0]
		a.calls = a.calls[1:]
		return []protocol.Command{protocol.Answer{ID: id, Result: int(in.Body.(number))}}
	}
	return exitOnStop(in)
}

func TestCallsOverANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		b := start(t, script(doubler), stream(t, network, "b"), run.Options{})
		a := start(t, &asker{peer: protocol.Name{ID: "b"}}, stream(t, network, "a"), run.Options{})
		for i := range 100 {
			got, err := a.Call(t.Context(), i)
			if err != nil || got != 2*i {
				t.Fatalf("call %d: %v, %v: want %d", i, got, err, 2*i)
			}
		}
		stop(t, a, b)
		if _, err := a.Call(t.Context(), 1); !errors.Is(err, run.ErrEnded) {
			t.Errorf("a call after the end: %v, want ErrEnded", err)
		}
	})
}

// memory is a disk that takes a while.
type memory struct {
	mu   sync.Mutex
	kept []string
	err  error
}

func (m *memory) Put(_ context.Context, key string, r io.Reader) error {
	p, err := io.ReadAll(r)
	time.Sleep(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.err == nil {
		m.kept = append(m.kept, key+"="+string(p))
	}
	return errors.Join(err, m.err)
}

func TestComputeStoreAndMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &memory{}
		var seen []string
		var worked bool
		meta := func(ctx context.Context, c protocol.MetaCall) iter.Seq2[protocol.MetaKV, error] {
			return func(yield func(protocol.MetaKV, error) bool) {
				for rev := int64(1); ; rev++ {
					if !yield(protocol.MetaKV{Key: c.Key, Rev: rev}, nil) || c.Op != protocol.MetaWatch || rev == 3 {
						return
					}
				}
			}
		}
		l := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Start:
				return []protocol.Command{
					protocol.Store{ID: 1, Key: "a", Value: []byte("1")},
					protocol.Store{ID: 2, Key: "b", Value: []byte("2")},
				}
			case protocol.Stored:
				seen = append(seen, fmt.Sprint("stored ", in.ID, in.Err))
				if in.ID == 2 {
					return []protocol.Command{protocol.Compute{ID: 3, Work: func() { worked = true }}}
				}
			case protocol.Computed:
				seen = append(seen, fmt.Sprint("computed ", in.ID, worked))
				return []protocol.Command{protocol.MetaCall{ID: 4, Op: protocol.MetaGet, Key: "k"}, protocol.Report{Fact: "asked"}}
			case protocol.MetaReply:
				seen = append(seen, fmt.Sprint("meta ", in.ID, in.KV.Rev, in.Err))
				switch {
				case in.ID == 4:
					return []protocol.Command{protocol.MetaCall{ID: 5, Op: protocol.MetaWatch, Key: "k"}}
				case in.Err != nil:
					return []protocol.Command{protocol.Exit{Err: errors.New("enough")}}
				}
			}
			return nil
		}), nil, run.Options{Disk: disk, Meta: meta, Report: func(fact any) { seen = append(seen, fmt.Sprint("report ", fact)) }})
		if err := l.Wait(); err == nil || err.Error() != "enough" {
			t.Errorf("the machine ended with %v, want its own error", err)
		}
		want := []string{
			"stored 1 <nil>", "stored 2 <nil>", "computed 3 true", "report asked", "meta 4 1 <nil>", "meta 5 1 <nil>", "meta 5 2 <nil>",
			"meta 5 3 <nil>", "meta 5 0 " + protocol.ErrUnavailable.Error(),
		}
		if !slices.Equal(seen, want) {
			t.Errorf("the machine saw\n%q, want\n%q", seen, want)
		}
		if !slices.Equal(disk.kept, []string{"a=1", "b=2"}) {
			t.Errorf("the disk keeps %q", disk.kept)
		}
	})
}

func TestWithoutDiskAndMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		l := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Start:
				return []protocol.Command{protocol.Store{Key: "a"}, protocol.MetaCall{Key: "a"}, protocol.Send{To: protocol.Name{ID: "x"}, Body: number(1)}}
			case protocol.Stored:
				errs = append(errs, in.Err)
			case protocol.LinkLost:
				errs = append(errs, in.Err)
			case protocol.MetaReply:
				errs = append(errs, in.Err)
			}
			return exitOnStop(in)
		}), nil, run.Options{})
		synctest.Wait()
		stop(t, l)
		if len(errs) != 3 || !errors.Is(errs[0], run.ErrNoDisk) || errs[1] == nil || !errors.Is(errs[2], protocol.ErrUnavailable) {
			t.Errorf("the machine got %v", errs)
		}
	})
}

func TestEnds(t *testing.T) {
	deaf := script(func(time.Duration, protocol.Event) []protocol.Command { return nil })
	t.Run("its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			l, err := run.Start(ctx, script(doubler), stream(t, transport.NewMemory(), "a"), run.Options{Codec: numbers{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Wait(); err != nil {
				t.Errorf("a machine that exits when asked: %v", err)
			}
		})
	})
	t.Run("grace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			l, err := run.Start(ctx, deaf, nil, run.Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = l.Wait()
			if !errors.Is(err, run.ErrNoExit) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 3*time.Second {
				t.Errorf("a machine that does not exit: %v after %v, want ErrNoExit after 3s", err, time.Since(begun))
			}
		})
	})
	t.Run("stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := start(t, deaf, nil, run.Options{})
			go func() {
				if _, err := l.Call(t.Context(), 1); !errors.Is(err, run.ErrEnded) || !errors.Is(err, run.ErrNoExit) {
					t.Errorf("a call under way: %v, want ErrEnded and ErrNoExit", err)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := l.Stop(ctx); !errors.Is(err, run.ErrNoExit) {
				t.Errorf("stop: %v, want ErrNoExit", err)
			}
			if err := l.Wait(); !errors.Is(err, run.ErrNoExit) {
				t.Errorf("wait: %v, want ErrNoExit", err)
			}
			synctest.Wait()
		})
	})
	t.Run("its stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := stream(t, transport.NewMemory(), "a")
			l := start(t, script(doubler), s, run.Options{})
			_ = s.Close()
			if err := l.Wait(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("no codec", func(t *testing.T) {
		if _, err := run.Start(t.Context(), deaf, stream(t, transport.NewMemory(), "a"), run.Options{}); err == nil {
			t.Error("a loop with a stream and no codec starts")
		}
	})
}

func TestGoodbyeIsSentBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		var got []number
		b := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if m, ok := in.(protocol.Message); ok {
				got = append(got, m.Body.(number))
			}
			return exitOnStop(in)
		}), stream(t, network, "b"), run.Options{})
		a := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			var out []protocol.Command
			for i := range 50 {
				out = append(out, protocol.Send{To: protocol.Name{ID: "b"}, Body: number(i)})
			}
			return append(out, protocol.Exit{})
		}), stream(t, network, "a"), run.Options{})
		if err := a.Wait(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop(t, b)
		if len(got) != 50 || !slices.IsSorted(got) {
			t.Errorf("b got %v, want 0 to 49 in order", got)
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	network := transport.NewMemory()
	e := start(b, script(doubler), stream(b, network, "b"), run.Options{})
	a := start(b, &asker{peer: protocol.Name{ID: "b"}}, stream(b, network, "a"), run.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Call(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
	}
	stop(b, a, e)
}

// TestCallGivenUp: a call that its caller gives up before the machine gets it never comes to the machine.
func TestCallGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := make(chan struct{})
		var called []any
		l := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if c, ok := in.(protocol.Call); ok {
				if called = append(called, c.Arg); c.Arg == "first" {
					<-busy
				}
				return []protocol.Command{protocol.Answer{ID: c.ID}}
			}
			return exitOnStop(in)
		}), nil, run.Options{})
		answered := make(chan error, 1)
		go func() {
			_, err := l.Call(t.Context(), "first")
			answered <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Call(ctx, "given up"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the context ended", err)
		}
		close(busy)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if _, err := l.Call(t.Context(), "last"); err != nil {
			t.Error(err)
		}
		stop(t, l)
		if want := []any{"first", "last"}; !slices.Equal(called, want) {
			t.Errorf("the machine was called with %v, want %v", called, want)
		}
	})
}
