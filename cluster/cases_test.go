package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// until runs s until that time, and fails the test on a violation.
func (s *scene) until(t *testing.T, at time.Duration, plan ...sim.Fault) {
	t.Helper()
	if err := s.w.Run(plan, at); err != nil {
		t.Fatalf("%v\n%s", err, s.describe())
	}
}

// ids are the members of the view of that node, as "0 1 2".
func (s *scene) ids(n sim.Node) string {
	var ids []string
	for _, m := range s.processes[n].view.Members {
		ids = append(ids, m.Name.ID)
	}
	return strings.Join(ids, " ")
}

// sizes are those of all views, by epoch.
func (s *scene) sizes() []int {
	var sizes []int
	for e := protocol.Epoch(1); ; e++ {
		v, ok := s.views[e]
		if !ok {
			return sizes
		}
		sizes = append(sizes, len(v.Members))
	}
}

// TestRanks: the ranks of those who found a group follow their names, whatever order they start in.
func TestRanks(t *testing.T) {
	s := newScene(1, 0, cluster.Policy{StartWorkers: 12}, sim.Options{})
	for i := range 12 {
		s.add(time.Duration(12-i) * 5 * time.Millisecond)
	}
	s.until(t, time.Second)
	if got := s.ids(0); got != "0 1 2 3 4 5 6 7 8 9 10 11" {
		t.Errorf("the ranks are of %s", got)
	}
}

// A group that may have no more than those who are there waits for nobody.
func TestFull(t *testing.T) {
	for seed := range uint64(20) {
		s := newScene(seed, 4, cluster.Policy{StartWorkers: 4, MaxWorkers: 4}, sim.Options{})
		s.keep = true
		s.until(t, second)
		for n := range s.processes {
			if at := s.installs(t, sim.Node(n), 0, 4); at >= 20*time.Millisecond {
				t.Errorf("seed %d: node %d installed the view after %v, a heartbeat or more", seed, n, at)
			}
		}
	}
}

// formed makes a scene of that many processes, whose ranks are their IDs. Each starts a little after the one before.
func formed(t *testing.T, n int, pol cluster.Policy) *scene {
	t.Helper()
	pol.StartWorkers = n
	if pol.LeaseTTL == 0 {
		pol.LeaseTTL = 2 * time.Second
	}
	s := newScene(1, 0, pol, sim.Options{})
	s.keep = true
	for i := range n {
		s.add(time.Duration(i) * 5 * time.Millisecond)
	}
	s.until(t, 500*time.Millisecond)
	if len(s.views) != 1 || len(s.views[1].Members) != n {
		t.Fatalf("the group did not form: %v\n%s", s.sizes(), s.describe())
	}
	for i, m := range s.views[1].Members {
		if m.Name.ID != fmt.Sprint(i) {
			t.Fatalf("rank %d is %v", i, m.Name)
		}
	}
	return s
}

// installs returns when a node installed a view of that many members after a time; it fails the test if it never did.
func (s *scene) installs(t *testing.T, n sim.Node, after time.Duration, size int) time.Duration {
	t.Helper()
	for _, f := range s.facts {
		if v, ok := f.Value.(cluster.Installed); ok && f.Node == n && f.At >= after && len(v.View.Members) == size {
			return f.At
		}
	}
	t.Fatalf("node %d installed no view of %d after %v\n%s", n, size, after, s.describe())
	return 0
}

const second = time.Second

func crash(at time.Duration, nodes ...sim.Node) sim.Fault {
	return sim.Fault{At: at, Kind: sim.Crash, Nodes: nodes}
}

// Case 19: elastic sizes.
func TestCase19Elastic(t *testing.T) {
	t.Run("grow, then shrink, older ranks first", func(t *testing.T) {
		s := newScene(1, 0, cluster.Policy{StartWorkers: 2}, sim.Options{})
		s.keep = true
		for i := range 4 { // 2 and 3 are the second host
			s.add([]time.Duration{0, 5 * time.Millisecond, second, second}[i])
		}
		s.until(t, 2*second)
		if got := s.ids(0); got != "0 1 2 3" && got != "0 1 3 2" {
			t.Errorf("after the second host came, the view is %s", got)
		}
		s.until(t, 3*second, crash(2*second, 0, 1)) // the first host goes
		if got := s.ids(2); got != "2 3" && got != "3 2" {
			t.Errorf("after the first host went, the view is %s", got)
		}
		if got := s.sizes(); !slices.Equal(got, []int{2, 4, 2}) {
			t.Errorf("sizes %v, want 2, 4, 2", got)
		}
		if at := s.installs(t, 2, 2*second, 2); at > 2*second+50*time.Millisecond {
			t.Errorf("the loss was installed after %v", at-2*second)
		}
	})
	t.Run("one of four fails", func(t *testing.T) {
		s := formed(t, 4, cluster.Policy{})
		s.until(t, 2*second, crash(second, 2))
		if got := s.sizes(); !slices.Equal(got, []int{4, 3}) || s.ids(0) != "0 1 3" {
			t.Errorf("sizes %v, members %s: want 4, 3", got, s.ids(0))
		}
	})
	t.Run("below MinWorkers", func(t *testing.T) {
		s := formed(t, 4, cluster.Policy{MinWorkers: 3, Patience: second})
		s.processes[0].leave, s.processes[1].leave = true, true // they would come back
		s.until(t, 3*second, crash(second, 2, 3))
		p := s.processes[0]
		if !p.ended || !errors.Is(p.err, cluster.ErrTooFew) || !strings.Contains(p.err.Error(), "worker/2#1001: its host refuses the connection") {
			t.Errorf("ended %v: %v, want ErrTooFew that names who is lost", p.ended, p.err)
		}
		if got := s.sizes(); !slices.Equal(got, []int{4}) {
			t.Errorf("sizes %v: a view below MinWorkers was made", got)
		}
	})
	t.Run("all fail, and start again", func(t *testing.T) {
		s := formed(t, 4, cluster.Policy{})
		s.until(t, 6*second, sim.Fault{At: second, For: second, Kind: sim.Crash, Nodes: []sim.Node{0, 1, 2, 3}})
		if !s.agreed() {
			t.Errorf("those that started again made no view:\n%s", s.describe())
		}
	})
	for limit, fails := range map[int]bool{1: true, 2: false} {
		t.Run(fmt.Sprintf("ViewLimit %d", limit), func(t *testing.T) {
			s := formed(t, 4, cluster.Policy{ViewLimit: limit})
			for _, p := range s.processes {
				p.leave = true
			}
			s.until(t, 3*second, crash(second, 2), crash(2*second, 3))
			p := s.processes[0]
			if got := errors.Is(p.err, cluster.ErrViewLimit); got != fails {
				t.Errorf("two changes: %v, ended %v", p.err, p.ended)
			}
		})
	}
}

// Case 20: who goes on.
func TestCase20WhoGoesOn(t *testing.T) {
	t.Run("b only knocks, a proceeds", func(t *testing.T) {
		// b is the newcomer whom the store does not know: its knocks alone give it no say.
		s := newScene(1, 0, cluster.Policy{}, sim.Options{})
		s.add(0)
		s.add(50 * time.Millisecond)
		s.until(t, second, sim.Fault{At: 0, Kind: sim.MetaSlow, Arg: 0.2, For: second / 2})
		if s.views[1].Members == nil || s.ids(0) == "" {
			t.Errorf("a made no view: %s", s.describe())
		}
	})
	t.Run("b silent, a goes on at once", func(t *testing.T) {
		s := formed(t, 2, cluster.Policy{LeaseTTL: 10 * second})
		s.until(t, 2*second, sim.Fault{At: second, Kind: sim.Pause, Nodes: []sim.Node{1}})
		if at := s.installs(t, 0, second, 1); at > second+280*time.Millisecond {
			t.Errorf("a went on after %v, want the budget", at-second)
		}
	})
	t.Run("a silent, b goes on after proof only", func(t *testing.T) {
		s := formed(t, 2, cluster.Policy{LeaseTTL: 2 * second})
		s.proofs = true
		s.until(t, 6*second, sim.Fault{At: second, Kind: sim.Pause, Nodes: []sim.Node{0}})
		at := s.installs(t, 1, second, 1)
		if at < 2*second || at > 4*second {
			t.Errorf("b went on %v after a fell silent: want its lease's end, up to 2 s, and little more", at-second)
		}
	})
	t.Run("a silent, its launcher says it died", func(t *testing.T) {
		s := formed(t, 2, cluster.Policy{LeaseTTL: 10 * second})
		s.proofs = true
		s.w.Call(1, second, cluster.Died{Name: s.views[1].Members[0].Name, Why: "exit status 1"}, nil)
		s.until(t, 2*second, sim.Fault{At: 1400 * time.Millisecond, Kind: sim.Pause, Nodes: []sim.Node{0}})
		if at := s.installs(t, 1, second, 1); at > 1550*time.Millisecond {
			t.Errorf("b went on %v after the report", at-1500*time.Millisecond)
		}
	})
	t.Run("a refused by another host, b goes on after proof only", func(t *testing.T) {
		s := newScene(1, 0, cluster.Policy{StartWorkers: 2, LeaseTTL: 2 * second}, sim.Options{})
		s.keep, s.addr = true, "tcp:10.0.0.1:700"
		s.add(0)
		s.add(10 * time.Millisecond)
		s.until(t, 5*second, crash(second, 0))
		if at := s.installs(t, 1, second, 1); at > second+100*time.Millisecond {
			t.Errorf("on one host b went on after %v", at-second)
		}
		s = newScene(1, 0, cluster.Policy{StartWorkers: 2, LeaseTTL: 2 * second}, sim.Options{})
		s.keep, s.addr = true, "tcp:10.0.0."
		s.port = ":7000"
		s.add(0)
		s.add(10 * time.Millisecond)
		s.until(t, 5*second, crash(second, 0))
		if at := s.installs(t, 1, second, 1); at < 2*second || at > 4*second {
			t.Errorf("between hosts b went on after %v, want the end of the lease", at-second)
		}
		s = newScene(1, 0, cluster.Policy{StartWorkers: 5, LeaseTTL: 10 * second}, sim.Options{})
		s.keep, s.addr, s.port = true, "tcp:10.0.0.", ":7000"
		for i := range 5 {
			s.add(time.Duration(i) * 5 * time.Millisecond)
		}
		s.until(t, 5*second, crash(second, 2))
		if at := s.installs(t, 1, second, 4); at > second+20*time.Millisecond {
			t.Errorf("four of five on five hosts went on after %v, want at once", at-second)
		}
	})
	t.Run("shrink only keeps c out", func(t *testing.T) {
		s := newScene(1, 0, cluster.Policy{StartWorkers: 2, ShrinkOnly: true}, sim.Options{})
		s.add(0)
		s.add(0)
		c := s.add(second)
		s.until(t, 2*second)
		p := s.processes[c]
		p.leave = true
		s.until(t, 2500*time.Millisecond)
		var refused *cluster.RefusedError
		if !errors.As(p.err, &refused) || refused.Field != "ShrinkOnly" || len(s.views) != 1 {
			t.Errorf("c: %v, views %v: want a refusal for ShrinkOnly", p.err, s.sizes())
		}
	})
	t.Run("Meta absent, then back: still epoch 1", func(t *testing.T) {
		s := formed(t, 3, cluster.Policy{LeaseTTL: 2 * second})
		s.until(t, 12*second, sim.Fault{At: second, For: 8 * second, Kind: sim.MetaAway})
		if !s.agreed() || len(s.views) != 1 || len(s.convicted) > 0 {
			t.Errorf("views %v, convicted %v", s.sizes(), s.convicted)
		}
	})
	t.Run("new address, same incarnation: same epoch", func(t *testing.T) {
		s := formed(t, 3, cluster.Policy{})
		s.w.Call(1, second/10, cluster.Move{Addr: "elsewhere"}, nil)
		s.until(t, 2*second)
		located := 0
		for _, f := range s.facts {
			if l, ok := f.Value.(cluster.Located); ok && l.Addr == "elsewhere" {
				located++
			}
		}
		if located != 2 || len(s.views) != 1 {
			t.Errorf("%d others heard of the address, views %v: want 2 and one view", located, s.sizes())
		}
		s.until(t, 4*second, crash(2*second, 0)) // the next view has the new address
		if got := s.views[2].Members[0].Addr; got != "elsewhere" {
			t.Errorf("the next view has address %q", got)
		}
	})
}

// Case 21: leave below MinWorkers, wait, rejoin.
func TestCase21LeaveBelowMin(t *testing.T) {
	s := formed(t, 2, cluster.Policy{MinWorkers: 2, BackOff: 100 * time.Millisecond})
	s.w.Call(1, second/2, cluster.Leave{}, nil)
	s.until(t, 2*second)
	if got := s.sizes(); !slices.Equal(got, []int{2}) || s.processes[1].ended {
		t.Fatalf("sizes %v: a view of one was made, MinWorkers is 2", got)
	}
	// It goes away all the same, waits, and comes back.
	s.until(t, 6*second, sim.Fault{At: 2 * second, For: 2 * second, Kind: sim.Crash, Nodes: []sim.Node{1}})
	if at := s.installs(t, 0, 4*second, 2); at > 4*second+250*time.Millisecond {
		t.Errorf("the group went on %v after the quorum was back, want 250 ms", at-4*second)
	}
}

// F7: partitions. One side at most goes on; the other comes back within 2 s of healing.
func TestPartitions(t *testing.T) {
	tests := []struct {
		name  string
		n     int
		fault sim.Fault
		goes  string // on; empty: nobody need
		from  sim.Node
	}{
		{"5 and 3", 8, sim.Fault{Kind: sim.Partition, Nodes: []sim.Node{0, 1, 2}}, "3 4 5 6 7", 3},
		{"3 and 5, the store with the three", 8, sim.Fault{Kind: sim.Partition, Nodes: []sim.Node{0, 1, 2, sim.Meta}}, "", 0},
		{"4 and 4, lowest rank with the store", 8, sim.Fault{Kind: sim.Partition, Nodes: []sim.Node{4, 5, 6, 7}}, "0 1 2 3", 0},
		{"4 and 4, lowest rank without", 8, sim.Fault{Kind: sim.Partition, Nodes: []sim.Node{0, 1, 2, 3}}, "", 0},
		{"4 and 4 across the ring", 8, sim.Fault{Kind: sim.Partition, Nodes: []sim.Node{1, 3, 5, 7}}, "0 2 4 6", 0},
		{"one alone", 8, sim.Fault{Kind: sim.Partition, Nodes: []sim.Node{0}}, "1 2 3 4 5 6 7", 1},
		{"24 of 40, contiguous", 40, sim.Fault{Kind: sim.Partition, Nodes: nodes(0, 16)}, "16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39", 16},
		{"one mute", 5, sim.Fault{Kind: sim.Mute, Nodes: []sim.Node{2}}, "0 1 3 4", 0},
		{"one deaf", 5, sim.Fault{Kind: sim.Deafen, Nodes: []sim.Node{0}}, "1 2 3 4", 1},
		{"bridge", 5, sim.Fault{Kind: sim.Bridge, Nodes: []sim.Node{2, 3, 4}}, "", 0},
		{"ring of majorities", 8, sim.Fault{Kind: sim.Ring}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && tt.n > 8 {
				t.Skip("not run here: -short; the simulator has one goroutine, and 40 members are slow under the race detector")
			}
			s := formed(t, tt.n, cluster.Policy{LeaseTTL: 20 * second, MaxWorkers: 64})
			tt.fault.At, tt.fault.For = second, 4*second
			s.until(t, 5*second, tt.fault)
			if tt.goes != "" && s.ids(tt.from) != tt.goes {
				t.Errorf("the view is %s, want %s\n%s", s.ids(tt.from), tt.goes, s.describe())
			}
			if tt.goes != "" {
				if at := s.installs(t, tt.from, second, len(strings.Fields(tt.goes))); at > second+900*time.Millisecond {
					t.Errorf("it went on after %v", at-second)
				}
			}
			s.w.Heal(nil)
			if err := s.w.Converges(2*second, s.agreed); err != nil {
				t.Errorf("%v\n%s", err, s.describe())
			}
		})
	}
}

func nodes(from, to int) []sim.Node {
	var all []sim.Node
	for i := from; i < to; i++ {
		all = append(all, sim.Node(i))
	}
	return all
}

// F1, F2: what is told to whom, and when.
func TestDetectionTimes(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		s := formed(t, 8, cluster.Policy{})
		s.until(t, 2*second, crash(second, 5))
		known := map[sim.Node]time.Duration{}
		for _, f := range s.facts {
			if c, ok := f.Value.(cluster.Convicted); ok && c.Name.ID == "5" {
				known[f.Node] = f.At - second
			}
		}
		if len(known) != 7 {
			t.Errorf("%d of 7 know of the death", len(known))
		}
		for n, at := range known {
			if at > 5*time.Millisecond {
				t.Errorf("node %d knows after %v", n, at)
			}
		}
	})
	t.Run("frozen, then back", func(t *testing.T) {
		for phase := range 8 {
			s := formed(t, 8, cluster.Policy{})
			from := second + time.Duration(phase)*3*time.Millisecond
			s.until(t, 5*second, sim.Fault{At: from, For: 2 * second, Kind: sim.Pause, Nodes: []sim.Node{5}})
			first := time.Duration(0)
			for _, f := range s.facts {
				if c, ok := f.Value.(cluster.Convicted); ok && c.Name.ID == "5" && first == 0 {
					first = f.At - from
				}
			}
			if first < 220*time.Millisecond || first > 280*time.Millisecond {
				t.Errorf("convicted after %v, want 250 ms ± 30 ms", first)
			}
			if at := s.installs(t, 5, from+2*second, 8); at > from+4*second {
				t.Errorf("back %v after it thawed, want 2 s", at-from-2*second)
			}
			if len(s.convicted) != 7 {
				t.Errorf("%d convictions, want those of one by seven", len(s.convicted))
			}
		}
	})
	t.Run("reset alone", func(t *testing.T) {
		s := formed(t, 5, cluster.Policy{})
		s.until(t, 3*second, sim.Fault{At: second, Kind: sim.Reset}, sim.Fault{At: 2 * second, Kind: sim.Reset})
		if len(s.views) != 1 || len(s.convicted) > 0 {
			t.Errorf("views %v, convicted %v: a reset is no loss", s.sizes(), s.convicted)
		}
	})
	t.Run("one link silent, others vouch", func(t *testing.T) {
		s := formed(t, 5, cluster.Policy{})
		s.until(t, 2500*time.Millisecond, sim.Fault{At: second, For: 700 * time.Millisecond, Kind: sim.Clog, Nodes: []sim.Node{1, 2}})
		if len(s.views) != 1 || len(s.convicted) > 0 {
			t.Errorf("for 0.7 s: views %v, convicted %v: others hear both", s.sizes(), s.convicted)
		}
		s = formed(t, 5, cluster.Policy{})
		s.until(t, 2500*time.Millisecond, sim.Fault{At: second, For: 4 * second, Kind: sim.Clog, Nodes: []sim.Node{1, 2}})
		if at := s.installs(t, 0, second, 4); s.ids(0) != "0 1 3 4" || at < 1900*time.Millisecond || at > 2300*time.Millisecond {
			t.Errorf("for 4 s: %s after %v: want the higher rank out after a second", s.ids(0), at-second)
		}
		s.w.Heal(nil)
		if err := s.w.Converges(3*second, s.agreed); err != nil {
			t.Error(err)
		}
	})
	t.Run("a late watcher blames itself", func(t *testing.T) {
		s := formed(t, 5, cluster.Policy{})
		for i := range 10 { // everyone stands still, one after the other, for less than the others' budget and more than a beat
			at := second + time.Duration(i)*400*time.Millisecond
			s.until(t, at+400*time.Millisecond, sim.Fault{At: at, For: 200 * time.Millisecond, Kind: sim.Pause, Nodes: []sim.Node{sim.Node(i % 5)}})
		}
		all := nodes(0, 5)
		s.until(t, 8*second, sim.Fault{At: 6 * second, For: second, Kind: sim.Pause, Nodes: all}) // the whole host stands still
		if len(s.views) != 1 || len(s.convicted) > 0 {
			t.Errorf("views %v, convicted %v", s.sizes(), s.convicted)
		}
	})
}

// F10: a worker that flaps ten times a second is let in more and more seldom.
func TestFlapping(t *testing.T) {
	s := formed(t, 4, cluster.Policy{})
	var plan []sim.Fault
	for at := second; at < 21*second; at += 100 * time.Millisecond {
		plan = append(plan, sim.Fault{At: at, For: 30 * time.Millisecond, Kind: sim.Crash, Nodes: []sim.Node{3}})
	}
	s.until(t, 21*second, plan...)
	if n := len(s.views); n > 12 {
		t.Errorf("%d views in 20 s: want the back-off to keep them few", n)
	}
	for _, n := range []sim.Node{0, 1, 2} {
		if p := s.processes[n]; p.ended || len(p.view.Members) < 3 || p.self.Incarnation != 1001 {
			t.Errorf("%v did not go on: %v", p.self, p.err)
		}
	}
	s.until(t, 90*second)
	if !s.agreed() {
		t.Errorf("it was not let in again:\n%s", s.describe())
	}
}

// Beyond MaxWorkers newcomers wait as spares, and are let in when there is room.
func TestSpares(t *testing.T) {
	s := newScene(2, 0, cluster.Policy{StartWorkers: 3, MaxWorkers: 3, LeaseTTL: 2 * second}, sim.Options{})
	s.keep = true
	for i := range 4 {
		s.add(time.Duration(i) * 100 * time.Millisecond)
	}
	s.until(t, 3*second, crash(2*second, 1))
	if got := s.sizes(); !slices.Equal(got, []int{3, 3}) || s.ids(0) != "0 2 3" {
		t.Errorf("sizes %v, members %s: want the spare in the place of the dead, in one view", got, s.ids(0))
	}
	if at := s.installs(t, 3, 2*second, 3); at > 2*second+50*time.Millisecond {
		t.Errorf("the spare came in after %v", at-2*second)
	}
}
