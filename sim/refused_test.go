package sim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestRefusedAfterRestart: a machine that starts again while the refusal for the one before it is on its way hears of its own.
func TestRefusedAfterRestart(t *testing.T) {
	w := sim.New(1, sim.Options{})
	refused := map[int]int{} // by start
	w.Add(name("a"), sim.Host{}, func(d sim.Disk) protocol.Machine {
		start := d.Boots()
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Start:
				return []protocol.Command{protocol.Send{To: name("b"), Body: bytes(8)}}
			case protocol.LinkLost:
				if errors.Is(in.Err, protocol.ErrRefused) {
					refused[start]++
				}
			}
			return nil
		})
	})
	w.Add(name("b"), sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(time.Duration, protocol.Event) []protocol.Command { return nil })
	})
	// A refusal takes 200 µs. The second start, at 20 ms, has not heard of its own when it ends.
	if err := w.Run(plan(t, "1ms crash 1; 10ms crash 0 for 10ms; 20.05ms crash 0 for 50µs"), 30*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if refused[2] != 0 || refused[3] == 0 {
		t.Errorf("refusals by start are %v, want none for the second and some for the third", refused)
	}
}
