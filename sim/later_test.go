package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestNodesComeLater: what is planned, in force, or spared by Heal does not concern nodes that come afterwards.
func TestNodesComeLater(t *testing.T) {
	const ms = time.Millisecond
	idle := func(sim.Disk) protocol.Machine {
		return script(func(time.Duration, protocol.Event) []protocol.Command { return nil })
	}
	w := sim.New(1, sim.Options{})
	first := w.Add(name("first"), sim.Host{}, idle)
	if err := w.Run(plan(t, "20ms pause 0 for 20ms; 30ms ring for 20ms; 60ms swizzle for 20ms"), 10*ms); err != nil {
		t.Fatal(err)
	}
	w.Add(name("while it is planned"), sim.Host{}, idle)
	if err := w.Run(nil, 35*ms); err != nil {
		t.Fatal(err)
	}
	w.Add(name("while it is in force"), sim.Host{}, idle)
	if err := w.Run(nil, 90*ms); err != nil {
		t.Fatal(err)
	}
	w.Heal([]sim.Node{first})
	late := w.Add(name("after Heal"), sim.Host{}, idle)
	w.Connect(first, late, sim.Link{}, sim.Link{})
	if err := w.Run(plan(t, "100ms loss arg 0.5"), 110*ms); err != nil {
		t.Fatal(err)
	}
}

func TestNodesComeLaterToANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(1, sim.Options{}).Network()
		n.Node(name("first"))
		time.AfterFunc(10*time.Millisecond, func() { n.Node(name("while it is planned")) })
		time.AfterFunc(30*time.Millisecond, func() { n.Node(name("while it is in force")) })
		if err := n.Run(t.Context(), plan(t, "20ms pause 0 for 20ms; 50ms swizzle for 20ms")); err != nil {
			t.Fatal(err)
		}
	})
}
