package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/transport"
)

// TestStartOnWhatIsGone: a process does not start on a machine that went after its job was given to it, and the error says that this is why.
func TestStartOnWhatIsGone(t *testing.T) {
	_, err := newLentNodes(nil, "this", nil).Launcher([]string{"a"}).Start(t.Context(), launch.Spec{Name: "worker/0"})
	if gone, ok := errors.AsType[*MachineLostError](err); !ok || gone.ID != "a" {
		t.Errorf("error %v", err)
	}
}

// TestChangedBefore: a change between a look at the list and the wait for changes is not missed.
func TestChangedBefore(t *testing.T) {
	port, err := transport.NewMemory().Open(t.Context(), transport.Name{Role: "coordinator", ID: "0", Incarnation: 1}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	s, err := port.Stream(StreamName, transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v := newLentNodes(s, "this", nil)
	node := transport.Name{Role: "node", ID: "a", Incarnation: 1}
	_ = v.take(t.Context(), node, offer(1)) // nobody is there to be told
	v.Lost(node, nil)
	select {
	case <-v.Changed():
	default:
		t.Error("a machine came and went, and the list has not changed")
	}
	select {
	case <-v.Changed():
		t.Error("a change is told twice")
	default:
	}
}

// TestStartedAgain: a machine that says again and again that a process runs does not keep its coordinator from hearing others.
func TestStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		coordinator, s := open(t, network, "coordinator")
		defer coordinator.Close()
		port, stream := open(t, network, NodeRole)
		defer port.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		v := newLentNodes(s, offer(1).Build, nil)
		ended := make(chan error, 1)
		go func() { ended <- v.Run(ctx) }()
		err := errors.Join(port.Know(coordinator.Name(), coordinator.Addr()), send(ctx, stream, coordinator.Name(), kindOffer, offer(1)))
		if err != nil {
			t.Fatal(err)
		}
		<-v.Changed()
		go func() {
			for {
				ev, err := stream.Recv(ctx)
				if err != nil {
					return
				}
				if ev.Release(); ev.Kind == kindStart {
					for range 3 {
						_ = send(ctx, stream, coordinator.Name(), kindStarted, started{Seq: 1, PID: 7})
					}
				}
			}
		}()
		if _, err := v.Launcher([]string{"0"}).Start(ctx, launch.Spec{Name: "worker/0"}); err != nil {
			t.Fatal(err)
		}
		if err := send(ctx, stream, coordinator.Name(), kindExited, exited{Seq: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := v.List()[0].Processes; n != 0 {
			t.Errorf("of the machine's processes %d run, of which it said that none does", n)
		}
	})
}
