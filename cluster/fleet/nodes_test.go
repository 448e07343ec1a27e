package fleet

import (
	"errors"
	"testing"

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
