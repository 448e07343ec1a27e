package sim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// counter counts the calls that it acknowledged. A careful one acknowledges when the count rests on its disk; a careless one at once.
type counter struct {
	careless bool
	count    uint64
	waiting  []uint64 // calls whose count is being written
}

type acknowledged uint64

func newCounter(d sim.Disk, careless bool) *counter {
	c := &counter{careless: careless}
	if v, ok := d.Get("count"); ok && len(v) == 8 {
		c.count = binary.BigEndian.Uint64(v)
	}
	return c
}

func (c *counter) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	switch in := in.(type) {
	case protocol.Call:
		c.count++
		store := protocol.Store{ID: c.count, Key: "count", Value: binary.BigEndian.AppendUint64(nil, c.count)}
		if c.careless {
			return []protocol.Command{store, protocol.Answer{ID: in.ID}, protocol.Report{Fact: acknowledged(c.count)}}
		}
		c.waiting = append(c.waiting, in.ID)
		return []protocol.Command{store}
	case protocol.Stored:
		if c.careless {
			return nil
		}
		id := c.waiting[0]
		c.waiting = c.waiting[1:]
		return []protocol.Command{protocol.Answer{ID: id, Err: in.Err}, protocol.Report{Fact: acknowledged(in.ID)}}
	}
	return nil
}

// counting is a scene of three counters that are called each millisecond. The invariant: no number is acknowledged twice.
func counting(careless bool, mix sim.Mix) sim.Scene {
	return func(w *sim.World) (sim.Plan, func(sim.Plan) error) {
		const nodes = 3
		seen := [nodes]map[acknowledged]bool{}
		answered := 0
		for i := range nodes {
			seen[i] = map[acknowledged]bool{}
			n := w.Add(name(fmt.Sprint(i)), sim.Host{}, func(d sim.Disk) protocol.Machine { return newCounter(d, careless) })
			var again func()
			again = func() {
				w.Call(n, 0, nil, func(_ any, err error) {
					if err == nil {
						answered++
					}
				})
				w.After(time.Millisecond, again)
			}
			w.After(time.Duration(i)*100*time.Microsecond, again)
		}
		w.Invariant("no number twice", func(f sim.Fact) error {
			n := f.Value.(acknowledged)
			if seen[f.Node][n] {
				return fmt.Errorf("%v acknowledged %d twice", f.Name, n)
			}
			seen[f.Node][n] = true
			return nil
		})
		return sim.RandomPlan(w.Seed(), w, mix), func(p sim.Plan) error {
			if err := w.Run(p, time.Second); err != nil {
				return err
			}
			w.Heal(nil)
			before := answered
			return w.Converges(time.Second, func() bool { return answered >= before+50 })
		}
	}
}

func TestExploreCarefulCounter(t *testing.T) {
	// Without wiped disks and without writes that fail half-way, a careful counter never gives a number twice.
	sim.Explore(t, sim.Range{Count: 60, Twice: 20}, counting(false, sim.Mix{
		Kinds: []sim.Kind{sim.Crash, sim.Vanish, sim.Pause, sim.Slow, sim.Partition, sim.Loss, sim.Skew}, Until: time.Second, MaxFor: 300 * time.Millisecond,
	}))
}

// recorder is a testing.TB that keeps what it is told.
type recorder struct {
	testing.TB
	text strings.Builder
}

func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.text, format, args...) }
func (r *recorder) Error(args ...any)                 { fmt.Fprint(&r.text, args...) }
func (r *recorder) Logf(string, ...any)               {}

func TestExploreFindsAndShrinksAPlantedBug(t *testing.T) {
	r := &recorder{TB: t}
	sim.Explore(r, sim.Range{Count: 200}, counting(true, sim.Mix{Faults: 20, Until: 900 * time.Millisecond}))
	text := r.text.String()
	if !strings.Contains(text, "no number twice") || !strings.Contains(text, "commit ") || !strings.Contains(text, "To keep it, add this line") {
		t.Fatalf("the report is\n%s", text)
	}
	_, line, _ := strings.Cut(text, "TestExploreFindsAndShrinksAPlantedBug.txt:\n")
	_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	p, err := sim.ParsePlan(rest)
	if err != nil {
		t.Fatal(err)
	}
	if len(p) != 1 || len(p[0].Nodes) != 1 {
		t.Errorf("the plan was shrunk to %q: want one fault of one node", p)
	}
	switch p[0].Kind {
	case sim.Crash, sim.Wipe, sim.Vanish, sim.TornDisk, sim.FailingDisk, sim.FullDisk, sim.ShortDisk:
	default:
		t.Errorf("the plan was shrunk to %q, which makes no counter forget", p)
	}
}

func TestExploreFindsNondeterminism(t *testing.T) {
	runs := 0
	r := &recorder{TB: t}
	sim.Explore(r, sim.Range{Count: 1, Twice: 1}, func(w *sim.World) (sim.Plan, func(sim.Plan) error) {
		runs++
		n := runs
		w.Add(name("a"), sim.Host{}, func(sim.Disk) protocol.Machine {
			return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
				return []protocol.Command{protocol.Report{Fact: n}}
			})
		})
		return nil, func(p sim.Plan) error { return w.Run(p, time.Second) }
	})
	if !strings.Contains(r.text.String(), "two runs differ at line") {
		t.Errorf("the report is %q", r.text.String())
	}
}

func TestViolations(t *testing.T) {
	livelock := func(w *sim.World) { echoes(w, 2) }
	panics := func(w *sim.World) {
		w.Add(name("a"), sim.Host{}, func(sim.Disk) protocol.Machine {
			return script(func(time.Duration, protocol.Event) []protocol.Command { panic("as planted") })
		})
	}
	for _, c := range []struct {
		build     func(*sim.World)
		invariant string
		text      string
	}{{livelock, "ends", "a livelock"}, {panics, "no panic", "as planted"}} {
		w := sim.New(9, sim.Options{MaxEvents: 1000})
		c.build(w)
		err := w.Run(plan(t, "1h0m0s reset"), time.Hour)
		var v *sim.Violation
		if !errors.As(err, &v) || v.Invariant != c.invariant || v.Seed != 9 {
			t.Errorf("the run ends with %v, want the violation %q", err, c.invariant)
			continue
		}
		first, _, _ := strings.Cut(err.Error(), "\n")
		for _, part := range []string{"seed 9", "commit " + sim.Commit(), `plan "1h0m0s reset"`, c.text} {
			if !strings.Contains(first, part) {
				t.Errorf("the first line %q lacks %q", first, part)
			}
		}
	}
	w := sim.New(1, sim.Options{})
	echoes(w, 1)
	var v *sim.Violation
	if err := w.Converges(time.Second, func() bool { return false }); !errors.As(err, &v) || v.Invariant != "converges" || v.At != time.Second {
		t.Errorf("a run that never converges ends with %v", err)
	}
}

func TestShrink(t *testing.T) {
	whole := plan(t, "1s crash 0; 1.2s pause 1,2,3 for 1s; 1.3s loss arg 0.5; 2s crash 2 for 3s; 2.5s clog; 3s partition 0,1; 4s slow 1 arg 2")
	calls := 0
	small := sim.Shrink(whole, func(p sim.Plan) bool {
		calls++
		pause, crash := false, false
		for _, f := range p {
			for _, n := range f.Nodes {
				pause = pause || f.Kind == sim.Pause && n == 2 && f.For >= 200*time.Millisecond
				crash = crash || f.Kind == sim.Crash && n == 2
			}
		}
		return pause && crash
	})
	if got, want := small.String(), "1s pause 2 for 250ms; 2s crash 2 for 730µs"; got != want {
		t.Errorf("shrunk to %q in %d calls, want %q", got, calls, want)
	}
}

func ExampleWorld() {
	w := sim.New(1, sim.Options{Trace: true})
	ping := protocol.Name{ID: "ping"}
	pong := protocol.Name{ID: "pong"}
	w.Add(ping, sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if _, ok := in.(protocol.Start); ok {
				return []protocol.Command{protocol.Send{To: pong, Body: bytes(4)}}
			}
			return nil
		})
	})
	w.Add(pong, sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if m, ok := in.(protocol.Message); ok {
				return []protocol.Command{protocol.Send{To: m.From, Body: m.Body}}
			}
			return nil
		})
	})
	p, _ := sim.ParsePlan("50us crash 0 for 1ms")
	if err := w.Run(p, time.Second); err != nil {
		fmt.Println(err)
	}
	for line := range w.Trace() {
		fmt.Println(line)
	}
	// Output:
	// 0s             ping             start
	// 0s             pong             start
	// 50µs                            fault 50µs crash 0 for 1ms
	// 118.395µs      pong             message from ping: sim_test.bytes4
	// 150µs          pong             link to ping lost: EOF
	// 318.395µs      pong             link to ping lost: connection refused
	// 1.05ms                          ends: 50µs crash 0 for 1ms
	// 1.05ms         ping             start
	// 1.15ms         pong             link to ping lost: unexpected EOF
	// 1.15ms         pong             link to ping back
	// 1.162589ms     pong             message from ping: sim_test.bytes4
	// 1.271338ms     ping             message from pong: sim_test.bytes4
}
