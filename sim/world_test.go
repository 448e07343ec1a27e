package sim_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

type bytes int

func (b bytes) Size() int { return int(b) }

// script is a machine of one function.
type script func(now time.Duration, in protocol.Event) []protocol.Command

func (s script) Step(now time.Duration, in protocol.Event) []protocol.Command { return s(now, in) }

func name(id string) protocol.Name { return protocol.Name{Role: "test", ID: id} }

// echo answers each message to its sender; the first one sends to all others when it starts.
type echo struct {
	peers []protocol.Name
	out   [1]protocol.Command
}

func (e *echo) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	switch in := in.(type) {
	case protocol.Start:
		var out []protocol.Command
		for _, p := range e.peers {
			out = append(out, protocol.Send{To: p, Body: bytes(64)})
		}
		return out
	case protocol.Message:
		e.out[0] = protocol.Send{To: in.From, Body: in.Body}
		return e.out[:]
	}
	return nil
}

func echoes(w *sim.World, n int) {
	var names []protocol.Name
	for i := range n {
		names = append(names, name(strconv.Itoa(i)))
	}
	for i, me := range names {
		w.Add(me, sim.Host{}, func(sim.Disk) protocol.Machine { return &echo{peers: names[i+1:]} })
	}
}

// watcher says hello to its peer when it starts and every 10 ms, and keeps what it sees.
type watcher struct {
	peer protocol.Name
	seen *[]string
}

func (r watcher) Step(now time.Duration, in protocol.Event) []protocol.Command {
	switch in := in.(type) {
	case protocol.Start, protocol.Timer:
		return []protocol.Command{protocol.Send{To: r.peer, Body: bytes(8)}, protocol.SetTimer{After: 10 * time.Millisecond}}
	case protocol.Message:
		*r.seen = append(*r.seen, "message "+in.From.String())
	case protocol.LinkLost:
		*r.seen = append(*r.seen, fmt.Sprintf("lost %v %v", in.Peer, in.Err))
	case protocol.LinkBack:
		*r.seen = append(*r.seen, "back "+in.Peer.String())
	}
	return nil
}

// patient sets a timer beyond the end of time, and one that it counts.
type patient struct{ rang *[]protocol.TimerID }

func (p patient) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	if in, ok := in.(protocol.Timer); ok {
		*p.rang = append(*p.rang, in.ID)
	}
	return []protocol.Command{protocol.SetTimer{ID: 1, After: math.MaxInt64}, protocol.SetTimer{ID: 2, After: time.Second}}
}

func TestTimerBeyondTime(t *testing.T) {
	var rang []protocol.TimerID
	w := sim.New(1, sim.Options{})
	w.Add(name("a"), sim.Host{}, func(sim.Disk) protocol.Machine { return patient{&rang} })
	if err := w.Run(nil, 3500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if want := []protocol.TimerID{2, 2, 2}; !slices.Equal(rang, want) {
		t.Errorf("timers %v ran out, want %v", rang, want)
	}
}

// pair is two watchers; it returns what each saw, without repeats one after the other.
func pair(t *testing.T, incarnation uint64, plan string, until time.Duration) (a, b []string) {
	t.Helper()
	w := sim.New(1, sim.Options{})
	na, nb := name("a"), name("b")
	na.Incarnation, nb.Incarnation = incarnation, incarnation
	w.Add(na, sim.Host{}, func(sim.Disk) protocol.Machine { return watcher{name("b"), &a} })
	w.Add(nb, sim.Host{}, func(sim.Disk) protocol.Machine { return watcher{name("a"), &b} })
	p, err := sim.ParsePlan(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(p, until); err != nil {
		t.Fatal(err)
	}
	return slices.Compact(a), slices.Compact(b)
}

func TestLinks(t *testing.T) {
	for _, c := range []struct {
		name        string
		incarnation uint64
		plan        string
		a, b        []string
	}{
		{"no fault", 0, "", []string{"message test/b"}, []string{"message test/a"}},
		{
			"crash", 0, "100ms crash 1",
			[]string{"message test/b", "lost test/b EOF", "lost test/b connection refused"},
			[]string{"message test/a"},
		},
		{
			"crash and restart", 0, "105ms crash 1 for 2ms",
			[]string{"message test/b", "lost test/b EOF", "back test/b", "message test/b"},
			[]string{"message test/a"},
		},
		{
			"restart as another", 1, "100ms crash 1 for 50ms",
			[]string{"message test/b#1", "lost test/b#1 EOF", "lost test/b connection refused", "lost test/b#1 connection refused", "lost test/b connection refused", "message test/b#2"},
			[]string{"message test/a#1"},
		},
		{"power", 0, "100ms vanish 1", []string{"message test/b"}, []string{"message test/a"}},
		{
			"power and restart", 0, "100ms vanish 1 for 50ms",
			[]string{"message test/b", "lost test/b unexpected EOF", "back test/b", "message test/b"},
			[]string{"message test/a"},
		},
		{
			"partition", 0, "100ms partition 1 for 200ms",
			[]string{"message test/b", "lost test/b unexpected EOF", "lost test/b unexpected EOF", "back test/b", "message test/b"},
			[]string{"message test/a", "lost test/a unexpected EOF", "lost test/a unexpected EOF", "back test/a", "message test/a"},
		},
		{
			"one way", 0, "100ms mute 1",
			[]string{"message test/b"},
			[]string{"message test/a"},
		},
		{
			"reset", 0, "105ms reset 0,1",
			[]string{"message test/b", "lost test/b unexpected EOF", "lost test/b unexpected EOF", "back test/b", "message test/b"},
			[]string{"message test/a", "lost test/a unexpected EOF", "lost test/a unexpected EOF", "back test/a", "message test/a"},
		},
		{"clog", 0, "100ms clog for 200ms", []string{"message test/b"}, []string{"message test/a"}},
		{"pause", 0, "100ms pause 1 for 200ms", []string{"message test/b"}, []string{"message test/a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, c.incarnation, c.plan, 400*time.Millisecond)
			if a, want := fmt.Sprint(a), fmt.Sprint(slices.Compact(c.a)); a != want {
				t.Errorf("a saw\n%s, want\n%s", a, want)
			}
			if b, want := fmt.Sprint(b), fmt.Sprint(slices.Compact(c.b)); b != want {
				t.Errorf("b saw\n%s, want\n%s", b, want)
			}
		})
	}
}

func run(t *testing.T, seed uint64, plan sim.Plan) (string, uint64) {
	t.Helper()
	w := sim.New(seed, sim.Options{Trace: true})
	echoes(w, 5)
	if plan == nil {
		plan = sim.RandomPlan(seed, w, sim.Mix{Until: 100 * time.Millisecond})
	}
	if err := w.Run(plan, 150*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for l := range w.Trace() {
		fmt.Fprintln(&b, l)
	}
	return b.String(), w.Hash()
}

func TestSameSeedSameTrace(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		a, ha := run(t, seed, nil)
		b, hb := run(t, seed, nil)
		if a != b || ha != hb {
			t.Fatalf("seed %d: two runs differ: hashes %x and %x", seed, ha, hb)
		}
		if strings.Count(a, "\n") < 50 {
			t.Errorf("seed %d: a trace of %d lines only", seed, strings.Count(a, "\n"))
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			w := sim.New(1, sim.Options{MaxEvents: 1 << 62})
			echoes(w, n)
			if err := w.Run(nil, 10*time.Millisecond); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			before := w.Events()
			for b.Loop() {
				if err := w.Run(nil, w.Now()+time.Millisecond); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(w.Events()-before)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(w.Events()-before)/float64(b.N), "events/op")
		})
	}
}

// The hashes in testdata hold on every machine: whoever changes what a run does rewrites them with -update.
func TestGoldenHashes(t *testing.T) {
	var b strings.Builder
	for seed := range uint64(40) {
		w := sim.New(seed, sim.Options{})
		if seed%2 == 1 {
			w = sim.New(seed, sim.Options{Link: sim.Link{Delay: time.Millisecond, Jitter: 500 * time.Microsecond, BytesPerSec: 1e6, Loss: 0.001, Datagram: seed%4 == 1}})
		}
		echoes(w, 3+int(seed%5))
		c := newClient(w, "client")
		c.at(0, protocol.MetaCall{Op: protocol.MetaWatch})
		for i := range 20 {
			c.at(10*i, put(uint64(i), "k", "v", int64(i), 0))
		}
		p := sim.RandomPlan(seed, w, sim.Mix{Until: 150 * time.Millisecond, MaxFor: 100 * time.Millisecond})
		if err := w.Run(p, 200*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d %016x %d events, %v\n", seed, w.Hash(), w.Events(), p)
	}
	file := filepath.Join("testdata", "hashes.txt")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("the runs are not those of %s. They are now:\n%s", file, got)
	}
}

var update = flag.Bool("update", false, "rewrite testdata")
