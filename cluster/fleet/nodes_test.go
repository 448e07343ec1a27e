package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// TestStartUnanswered: a process of which a machine says nothing is not waited for for ever, and is killed should it run.
func TestStartUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		coordinator, s := open(t, network, "coordinator")
		defer coordinator.Close()
		port, stream := open(t, network, NodeRole)
		defer port.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		v := newLentNodes(s, offer(1).Build, nil)
		ended := make(chan error, 1)
		go func() { ended <- v.Run(ctx) }()
		err := errors.Join(port.Know(coordinator.Name(), coordinator.Addr()), send(ctx, stream, coordinator.Name(), kindOffer, offer(1)))
		if err != nil {
			t.Fatal(err)
		}
		<-v.Changed()
		var asked []uint8
		go func() {
			for {
				ev, err := stream.Recv(ctx)
				if err != nil {
					return
				}
				if ev.Release(); ev.Kind == kindStart || ev.Kind == kindSignal {
					asked = append(asked, ev.Kind)
				}
			}
		}()
		began := time.Now()
		_, err = v.Launcher([]string{"0"}).Start(ctx, launch.Spec{Name: "worker/0"})
		if err == nil || !strings.Contains(err.Error(), "on the machine 0: no word of worker/0 within 30s") || time.Since(began) != startWait {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		synctest.Wait()
		if !slices.Equal(asked, []uint8{kindStart, kindSignal}) || v.List()[0].Processes != 0 {
			t.Errorf("the machine was sent messages of kinds %v, want a start and a signal; %d processes count as running", asked, v.List()[0].Processes)
		}
	})
}

// TestOffersRefused: a machine of another program, or that lends nothing, is refused, and not among those that are lent.
func TestOffersRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		coordinator, s := open(t, network, "coordinator")
		defer coordinator.Close()
		port, stream := open(t, network, NodeRole)
		defer port.Close()
		v := newLentNodes(s, offer(1).Build, nil)
		if err := coordinator.Know(port.Name(), port.Addr()); err != nil {
			t.Fatal(err)
		}
		other := offer(1)
		other.Build = "that"
		for _, o := range []Offer{offer(0), offer(-1), other} {
			if err := v.take(t.Context(), port.Name(), o); err != nil {
				t.Fatal(err)
			}
			ev, err := stream.Recv(t.Context())
			if err != nil || ev.Kind != kindRefused || len(v.List()) != 0 {
				t.Errorf("%+v: answered with kind %d, %v; %d machines are lent", o, ev.Kind, err, len(v.List()))
			}
			ev.Release()
		}
	})
}
