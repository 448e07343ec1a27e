package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/transport"
)

// TestDeafCoordinator: a coordinator that takes nothing any more, such as word that a process has ended, does not know what runs here.
// So it is lost to the machine, which ends what it started.
func TestDeafCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		open := func(role string) (transport.Port, transport.Stream) {
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
		coordinator, s := open("coordinator")
		defer coordinator.Close()
		port, stream := open(NodeRole)
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
