package sim_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

func TestNetworkConforms(t *testing.T) {
	var network *sim.Network
	for _, c := range []struct {
		name string
		link sim.Link
	}{
		{"plain", sim.Link{}},
		{"slow", sim.Link{Delay: 2 * time.Millisecond, Jitter: time.Millisecond, BytesPerSec: 1e8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.link != (sim.Link{}) {
				t.Skip("not run here: -short, and the plain link has run")
			}
			transporttest.Run(t, transporttest.Kit{
				Open: func(*testing.T) transport.Network {
					network = sim.New(1, sim.Options{Link: c.link}).Network()
					return network
				},
				Cut: func(t *testing.T, a, b transport.Port) {
					if err := network.Run(t.Context(), sim.Plan{{Kind: sim.Reset, Nodes: []sim.Node{network.Node(a.Name()), network.Node(b.Name())}}}); err != nil {
						t.Error(err)
					}
				},
				Bubble: true, Allocs: -1,
			})
		})
	}
}

// flow sends numbered frames from one port to another, one each ms for 300 ms, under a plan, and returns what came, with its ms, and
// how often the receiver's link was lost.
func flow(t *testing.T, link sim.Link, text string) (got []uint64, ms []int64, lost int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(5, sim.Options{Link: link}).Network()
		var streams [2]transport.Stream
		var ports [2]transport.Port
		for i := range ports {
			p, err := n.Open(t.Context(), name(string(rune('a'+i))), transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ports[i] = p
			if streams[i], err = p.Stream("flow", transport.StreamOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range ports {
			if err := p.Know(ports[1-i].Name(), ports[1-i].Addr()); err != nil {
				t.Fatal(err)
			}
		}
		p := plan(t, text)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if err := n.Run(ctx, p); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		group.Go(func() {
			for i := range uint64(300) {
				time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Millisecond)))
				_ = streams[0].Send(ctx, ports[1].Name(), transport.Frame{Payload: binary.LittleEndian.AppendUint64(nil, i)})
			}
		})
		group.Go(func() {
			for {
				ev, err := streams[1].Recv(ctx)
				if err != nil {
					return
				}
				switch ev.What {
				case transport.Received:
					got = append(got, binary.LittleEndian.Uint64(ev.Payload))
					ms = append(ms, time.Since(begun).Milliseconds())
				case transport.LinkLost:
					lost++
				}
				ev.Release()
			}
		})
		group.Wait()
		for _, p := range ports {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("%q: frames came out of order, or twice: %d", text, got)
	}
	return got, ms, lost
}

func TestNetworkFaults(t *testing.T) {
	link := sim.Link{Delay: time.Millisecond}
	for _, c := range []struct {
		name, plan  string
		least, most int // frames that come
		lost        bool
		check       func(got []uint64, ms []int64) bool
	}{
		{"none", "", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[100] >= 101 && ms[100] <= 110 }},
		{"delay", "50ms delay 0,1 for 100ms arg 0.05", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[80] >= 131 && ms[299] <= 302 }},
		{"bandwidth", "0s bandwidth for 4s arg 28000", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[299] >= 500 }},
		{"partition", "50.5ms partition 1 for 100ms", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[60] >= 150 && ms[60] < 160 }},
		{"one way", "50.5ms mute 0 for 100ms", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[60] >= 150 && ms[60] < 160 }},
		{"clog", "50.5ms clog 0 for 100ms", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[60] >= 150 && ms[60] < 160 }},
		{"pause", "50.5ms pause 1 for 100ms", 300, 300, false, func(_ []uint64, ms []int64) bool { return ms[60] >= 150 && ms[60] < 160 }},
		{"reset", "50.5ms reset 0,1", 270, 299, true, nil},
		// Dials wait 20, 20, 40, 80 ms, each times 0.5 to 1.5: of 40 ms without a process the last may end 160 ms after their begin.
		{"crash", "50.5ms crash 1 for 40ms", 120, 260, true, func(_ []uint64, ms []int64) bool {
			return !slices.ContainsFunc(ms, func(m int64) bool { return m > 51 && m < 90 })
		}},
		{"loss", "50.5ms loss for 100ms arg 0.1", 120, 299, true, nil},
		{"corruption", "50.5ms corrupt for 100ms arg 0.1", 120, 299, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ms, lost := flow(t, link, c.plan)
			if len(got) < c.least || len(got) > c.most || (lost > 0) != c.lost {
				t.Errorf("%d frames came, the link was lost %d times: want %d to %d, lost %v", len(got), lost, c.least, c.most, c.lost)
				return
			}
			if c.check != nil && !c.check(got, ms) {
				t.Errorf("frames came at %d", ms)
			}
		})
	}
}

func TestNetworkRefusesABadPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(1, sim.Options{}).Network()
		if a, again := n.Node(protocol.Name{ID: "a", Incarnation: 1}), n.Node(protocol.Name{ID: "a", Incarnation: 2}); a != again {
			t.Errorf("a new incarnation is node %d, the old one was %d", again, a)
		}
		if err := n.Run(t.Context(), plan(t, "0s crash 3")); err == nil {
			t.Error("a plan for an unknown node was taken")
		}
	})
}
