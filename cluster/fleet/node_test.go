package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/transport"
)

// open returns a port on the network, and its stream between a coordinator and its nodes.
func open(t *testing.T, network *transport.Memory, role string) (transport.Port, transport.Stream) {
	t.Helper()
	port, err := network.Open(t.Context(), transport.Name{Role: role, ID: "0", Incarnation: 1}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := port.Stream(StreamName, transport.StreamOptions{MaxFrame: MaxMessage})
	if err != nil {
		t.Fatal(err)
	}
	return port, s
}

// TestDeafCoordinator: a coordinator that takes nothing any more, such as word that a process has ended, does not know what runs here.
// So it is lost to the machine, which ends what it started.
func TestDeafCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		coordinator, s := open(t, network, "coordinator")
		defer coordinator.Close()
		port, stream := open(t, network, NodeRole)
		defer port.Close()
		if err := port.Know(coordinator.Name(), coordinator.Addr()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		launcher := launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
			defer close(ended)
			for ctx.Err() == nil {
				fmt.Fprintln(c.Stderr, "still here")
			}
			return ctx.Err()
		})
		defer launcher.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		node := Node{Stream: stream, Coordinator: coordinator.Name(), Launcher: launcher, Offer: offer(1)}
		result := make(chan error, 1)
		go func() { result <- node.Run(ctx) }()
		ev, err := s.Recv(ctx)
		if err != nil || ev.What != transport.Received || ev.Kind != kindOffer {
			t.Fatalf("an offer is to come first, not %+v, %v", ev, err)
		}
		if err := errors.Join(send(ctx, s, port.Name(), kindWelcome, nil), send(ctx, s, port.Name(), kindStart, start{Seq: 1, Name: "worker/0"})); err != nil {
			t.Fatal(err)
		}
		var lost *LostError
		if err := <-result; !errors.As(err, &lost) {
			t.Errorf("it ends with %v", err)
		}
		<-ended
	})
}

// TestLostCoordinator: a machine whose coordinator's process is gone gives it up as soon as the group would, to look for a new one behind
// the same door.
func TestLostCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		coordinator, s := open(t, network, "coordinator")
		port, stream := open(t, network, NodeRole)
		defer port.Close()
		if err := port.Know(coordinator.Name(), coordinator.Addr()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		lent, result := make(chan error, 2), make(chan error, 1)
		node := Node{Stream: stream, Coordinator: coordinator.Name(), Offer: offer(1), Said: func(lost error) { lent <- lost }}
		go func() { result <- node.Run(ctx) }()
		if _, err := s.Recv(ctx); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(send(ctx, s, port.Name(), kindWelcome, nil), <-lent, coordinator.Close()); err != nil {
			t.Fatal(err)
		}
		gone := time.Now()
		var lost *LostError
		if err := <-result; !errors.As(err, &lost) || <-lent == nil {
			t.Errorf("it ends with %v", err)
		}
		if took, want := time.Since(gone), Policy(port, nil).Budget; took > want {
			t.Errorf("it took %v, want at most %v", took, want)
		}
	})
}

// TestLostBeforeItsWelcome: word that a process is to start may overtake the welcome. If the link is lost between the two, the process is ended
// as any other: nobody watches over it any more.
func TestLostBeforeItsWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		coordinator, s := open(t, network, "coordinator")
		port, stream := open(t, network, NodeRole)
		defer port.Close()
		if err := port.Know(coordinator.Name(), coordinator.Addr()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		ended, result := make(chan struct{}), make(chan error, 1)
		launcher := launch.NewGoroutines(func(ctx context.Context, _ launch.Child) error {
			defer close(ended)
			<-ctx.Done()
			return ctx.Err()
		})
		node := Node{Stream: stream, Coordinator: coordinator.Name(), Launcher: launcher, Offer: offer(1)}
		go func() { result <- node.Run(ctx) }()
		if _, err := s.Recv(ctx); err != nil {
			t.Fatal(err)
		}
		if err := send(ctx, s, port.Name(), kindStart, start{Seq: 1, Name: "worker/0"}); err != nil {
			t.Fatal(err)
		}
		if ev, err := s.Recv(ctx); err != nil || ev.Kind != kindStarted {
			t.Fatalf("%+v, %v", ev, err)
		}
		if err := coordinator.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("what it started lives on")
		}
		cancel()
		if err := errors.Join(<-result, launcher.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestLeave: a machine that is asked to end says that it leaves before it ends what runs there. One that its group has put out says nothing. Its
// log says who ended it.
func TestLeave(t *testing.T) {
	for _, cause := range []error{nil, errors.New("a signal came"), ErrOut} {
		synctest.Test(t, func(t *testing.T) {
			network := transport.NewMemory()
			coordinator, s := open(t, network, "coordinator")
			defer coordinator.Close()
			port, stream := open(t, network, NodeRole)
			defer port.Close()
			if err := port.Know(coordinator.Name(), coordinator.Addr()); err != nil {
				t.Fatal(err)
			}
			var ended atomic.Bool
			launcher := launch.NewGoroutines(func(ctx context.Context, _ launch.Child) error {
				<-ctx.Done()
				time.Sleep(time.Millisecond) // of the bubble: the others do what they can meanwhile
				ended.Store(true)
				return ctx.Err()
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			var log bytes.Buffer
			node := Node{
				Stream: stream, Coordinator: coordinator.Name(), Launcher: launcher, Offer: offer(1), Log: slog.New(slog.NewTextHandler(&log, nil)),
			}
			result := make(chan error, 1)
			go func() { result <- node.Run(ctx) }()
			var kinds []uint8
			early := false // that it leaves is known before its process has ended
			hearing := make(chan struct{})
			go func() {
				defer close(hearing)
				for {
					ev, err := s.Recv(t.Context())
					if err != nil {
						return
					}
					if ev.What == transport.Received {
						kinds = append(kinds, ev.Kind)
						early = early || ev.Kind == kindLeave && !ended.Load()
					}
					ev.Release()
				}
			}()
			synctest.Wait()
			if err := errors.Join(send(t.Context(), s, port.Name(), kindWelcome, nil), send(t.Context(), s, port.Name(), kindStart, start{Seq: 1, Name: "worker/0"})); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			cancel(cause)
			if err := errors.Join(<-result, launcher.Close()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			_ = coordinator.Close() // its end is what is wanted
			<-hearing
			want := []uint8{kindOffer, kindStarted, kindLeave}
			if cause == ErrOut {
				want = want[:2]
			}
			if !slices.Equal(kinds, want) || early != (cause != ErrOut) {
				t.Errorf("ended by %v it sent messages of kinds %v, want %v; heard before its process ended: %v", cause, kinds, want, early)
			}
			if !strings.Contains(log.String(), ") was ended by this node, after ") {
				t.Errorf("its log has not that it ended its process itself: %s", &log)
			}
		})
	}
}

// TestLeaveUnheard: a coordinator that takes nothing does not keep a machine that is asked to end.
func TestLeaveUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port, stream := open(t, transport.NewMemory(), NodeRole)
		defer port.Close()
		ctx, cancel := context.WithCancel(t.Context())
		node := Node{Stream: &stuck{Stream: stream}, Coordinator: transport.Name{Role: "coordinator", ID: "0"}, Offer: offer(1), Patience: time.Hour}
		cancel()
		began := time.Now()
		if err := node.Run(ctx); err != nil || time.Since(began) > leaveWait {
			t.Errorf("it ends after %v with %v", time.Since(began), err)
		}
	})
}

// A stuck stream takes nothing.
type stuck struct{ transport.Stream }

func (*stuck) Send(ctx context.Context, _ transport.Name, _ transport.Frame) error {
	<-ctx.Done()
	return ctx.Err()
}
