package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

func TestHeal(t *testing.T) {
	w := sim.New(1, sim.Options{MaxEvents: 50_000})
	echoes(w, 5)
	up := func() (all []bool) {
		for i := range 5 {
			all = append(all, w.Up(sim.Node(i)))
		}
		return all
	}
	if err := w.Run(plan(t, "1ms crash 0,1,2; 2ms partition 3; 1h pause 4"), 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := up(); !slices.Equal(got, []bool{false, false, false, true, true}) {
		t.Errorf("up: %v", got)
	}
	w.Heal([]sim.Node{0, 3, 4})
	if err := w.Run(nil, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := up(); !slices.Equal(got, []bool{true, false, false, true, true}) {
		t.Errorf("up after the core was healed: %v", got)
	}
	// A core stays spared; the others do not.
	if err := w.Run(plan(t, "11ms crash 0,1"), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w.Heal(nil)
	if got := up(); !slices.Equal(got, []bool{true, true, true, true, true}) {
		t.Errorf("up after all were healed: %v", got)
	}
	before := w.Events()
	if err := w.Converges(time.Second, func() bool { return w.Events() > before+1000 }); err != nil {
		t.Error(err)
	}
	if w.Now() > time.Second {
		t.Errorf("it took until %v to do 1,000 events", w.Now())
	}
	if err := w.Run(nil, 2*time.Hour); err == nil || w.Now() > 2*time.Hour {
		t.Errorf("the plan's last fault, or the livelock, ended with %v at %v", err, w.Now())
	}
}

func TestCallsStopAndExit(t *testing.T) {
	w := sim.New(1, sim.Options{})
	planted := errors.New("as asked")
	n := w.Add(name("a"), sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Call:
				if in.Arg == nil {
					return nil // never answered
				}
				return []protocol.Command{protocol.Answer{ID: in.ID, Result: in.Arg.(int) * 2}}
			case protocol.Stop:
				return []protocol.Command{protocol.Exit{Err: planted}, protocol.Report{Fact: "after the end"}}
			}
			return nil
		})
	})
	w.Invariant("nothing after the end", func(f sim.Fact) error { return fmt.Errorf("reported %v", f.Value) })
	var got []string
	done := func(result any, err error) {
		got = append(got, fmt.Sprint(w.Now().Milliseconds(), " ", result, " ", err))
	}
	w.Call(n, 1*time.Millisecond, 21, done)
	w.Call(n, 2*time.Millisecond, nil, done)
	w.Call(n, 15*time.Millisecond, 1, done) // while it is down
	w.Call(n, 25*time.Millisecond, 2, nil)
	w.Call(n, 30*time.Millisecond, nil, done)
	w.Stop(n, 40*time.Millisecond)
	w.Call(n, 50*time.Millisecond, 3, done)
	if err := w.Run(plan(t, "10ms crash 0 for 10ms; 60ms crash 0 for 10ms"), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	down := sim.ErrDown.Error()
	want := []string{"1 42 <nil>", "10 <nil> " + down, "15 <nil> " + down, "40 <nil> " + down, "50 <nil> " + down}
	if !slices.Equal(got, want) {
		t.Errorf("calls ended with\n%q, want\n%q", got, want)
	}
	if ended, err := w.Exited(n); !ended || !errors.Is(err, planted) || w.Up(n) {
		t.Errorf("exited %v with %v, up %v", ended, err, w.Up(n))
	}
}

// To leave one fault out changes no draw elsewhere: that is what makes shrinking work.
func TestDrawsAreNamed(t *testing.T) {
	arrivals := func(text string) (at []time.Duration) {
		w := sim.New(11, sim.Options{Link: sim.Link{Delay: time.Millisecond, Jitter: time.Millisecond}})
		names := []protocol.Name{name("a"), name("b"), name("c"), name("d")}
		for i, me := range names {
			to := names[i^1]
			w.Add(me, sim.Host{}, func(sim.Disk) protocol.Machine {
				return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
					switch in.(type) {
					case protocol.Start, protocol.Timer:
						return []protocol.Command{protocol.Send{To: to, Body: bytes(10)}, protocol.SetTimer{After: 5 * time.Millisecond}}
					case protocol.Message:
						if i == 3 {
							at = append(at, w.Now())
						}
					}
					return nil
				})
			})
		}
		if err := w.Run(plan(t, text), time.Second); err != nil {
			t.Fatal(err)
		}
		return at
	}
	want := arrivals("")
	for _, text := range []string{"10ms loss 0,1 arg 0.5", "10ms crash 0 for 100ms; 50ms clog 1 for 300ms", "0s jitter 1 arg 0.01"} {
		if got := arrivals(text); !slices.Equal(got, want) {
			t.Errorf("%q, which is of a and b, changes what c sends to d", text)
		}
	}
}

// A host whose events take time handles one after the other, in their order.
func TestStepTime(t *testing.T) {
	for _, c := range []struct {
		host sim.Host
		plan string
		last time.Duration
	}{
		{sim.Host{}, "", time.Millisecond},
		{sim.Host{Step: time.Millisecond}, "", 101 * time.Millisecond},
		{sim.Host{Step: time.Millisecond, Speed: 2}, "", 51 * time.Millisecond},
		{sim.Host{Step: time.Millisecond}, "0s slow 1 arg 3", 301 * time.Millisecond},
		{sim.Host{}, "0s slow 1 arg 100", 201 * time.Millisecond},
	} {
		w := sim.New(1, sim.Options{Link: sim.Link{Delay: time.Millisecond}})
		w.Add(name("a"), sim.Host{}, func(sim.Disk) protocol.Machine {
			return script(func(_ time.Duration, in protocol.Event) (out []protocol.Command) {
				if _, ok := in.(protocol.Start); ok {
					for i := range 100 {
						out = append(out, protocol.Send{To: name("b"), Body: num(i)})
					}
				}
				return out
			})
		})
		var got []num
		var last time.Duration
		w.Add(name("b"), c.host, func(sim.Disk) protocol.Machine {
			return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
				if m, ok := in.(protocol.Message); ok {
					got, last = append(got, m.Body.(num)), w.Now()
				}
				return nil
			})
		})
		if err := w.Run(plan(t, c.plan), time.Second); err != nil {
			t.Fatal(err)
		}
		if len(got) != 100 || !slices.IsSorted(got) {
			t.Errorf("%+v, %q: handled %d", c.host, c.plan, got)
		}
		if d := c.last - last; d < 0 || d > 5*time.Millisecond {
			t.Errorf("%+v, %q: the last of 100 messages was handled at %v, want %v", c.host, c.plan, last, c.last)
		}
	}
}
