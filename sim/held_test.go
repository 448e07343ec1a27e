package sim_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestEndWithEventsHeld: a machine that ends while events wait for it leaves those of others as they are, and calls that wait are answered.
func TestEndWithEventsHeld(t *testing.T) {
	const ms = time.Millisecond
	w := sim.New(1, sim.Options{})
	busy := w.Add(name("busy"), sim.Host{Step: ms}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if in, ok := in.(protocol.Call); ok && in.Arg == "end" {
				return []protocol.Command{protocol.Exit{}}
			}
			return nil
		})
	})
	var got []any
	other := w.Add(name("other"), sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if in, ok := in.(protocol.Call); ok {
				got = append(got, in.Arg)
			}
			return nil
		})
	})
	var answers []error
	for _, arg := range []any{"first", "end", "one that waits"} {
		w.Call(busy, 10*ms, arg, func(_ any, err error) { answers = append(answers, err) })
	}
	if err := w.Run(nil, 20*ms); err != nil {
		t.Fatal(err)
	}
	want := []any{0, 1, 2, 3}
	for i, arg := range want {
		w.Call(other, time.Duration(i+1)*ms, arg, nil)
	}
	if err := w.Run(nil, 40*ms); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("another node was called with %v, want %v", got, want)
	}
	if len(answers) != 3 || slices.ContainsFunc(answers, func(err error) bool { return !errors.Is(err, sim.ErrDown) }) {
		t.Errorf("the calls of the node that ended were answered %v, want ErrDown three times", answers)
	}
}

// TestTimerWhileHeld: a timer that runs out while its machine pauses, and that the machine stops or sets anew by what came before, does not
// ring for its old time.
func TestTimerWhileHeld(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		after time.Duration
		want  []time.Duration
	}{
		{"left alone", 0, []time.Duration{20 * ms}},
		{"stopped", -1, nil},
		{"set anew", 5 * ms, []time.Duration{25 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := sim.New(1, sim.Options{})
			var rang []time.Duration
			n := w.Add(name("a"), sim.Host{}, func(sim.Disk) protocol.Machine {
				return script(func(now time.Duration, in protocol.Event) []protocol.Command {
					switch in.(type) {
					case protocol.Start:
						return []protocol.Command{protocol.SetTimer{After: 10 * ms}}
					case protocol.Call:
						if c.after != 0 {
							return []protocol.Command{protocol.SetTimer{After: c.after}}
						}
					case protocol.Timer:
						rang = append(rang, now)
					}
					return nil
				})
			})
			w.Call(n, 7*ms, nil, nil)
			if err := w.Run(plan(t, "5ms pause 0 for 15ms"), 50*ms); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(rang, c.want) {
				t.Errorf("the timer rang at %v, want %v", rang, c.want)
			}
		})
	}
}
