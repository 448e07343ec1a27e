package observe

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestCase1Split(t *testing.T) {
	var s Split
	s.Begin(7, 0)
	s.Enter(Load, 0)
	s.Leave(10 * ms)
	s.Enter(Compute, 10*ms)
	s.Leave(60 * ms)
	s.Enter(Push, 60*ms)
	s.Enter(Serialise, 62*ms)
	s.Leave(65 * ms)
	s.Leave(70 * ms)
	s.Enter(WaitBarrier, 70*ms)
	s.Leave(95 * ms)
	s.Enter(Pull, 95*ms)
	s.Leave(100 * ms)
	s.Enter(Apply, 100*ms)
	s.Leave(104 * ms)
	got := s.End(110 * ms)
	want := [NumPhases]time.Duration{
		Load: 10 * ms, Compute: 50 * ms, Serialise: 3 * ms, Push: 7 * ms, Pull: 5 * ms,
		WaitBarrier: 25 * ms, Apply: 4 * ms, Other: 6 * ms,
	}
	if got.Phases != want || got.Wall() != 110*ms || got.Step != 7 {
		t.Errorf("step %d: phases %v, sum %v, want %v, 110ms", got.Step, got.Phases, got.Wall(), want)
	}
}

func TestCase2Wait(t *testing.T) {
	for _, c := range []struct {
		staleness          int
		parked             time.Duration
		barrier, stale     time.Duration
		pull               time.Duration
		anomalies, excess_ time.Duration
	}{
		{3, 30 * ms, 0, 30 * ms, 20 * ms, 0, 0},
		{0, 30 * ms, 30 * ms, 0, 20 * ms, 0, 0},
		{3, 70 * ms, 0, 50 * ms, 0, 1, 20 * ms},
	} {
		var s Split
		s.Begin(0, 0)
		s.Enter(Pull, 0)
		s.Leave(50 * ms)
		s.Move(Pull, WaitPhase(c.staleness), c.parked)
		got := s.End(50 * ms)
		if got.Phases[WaitBarrier] != c.barrier || got.Phases[WaitStale] != c.stale || got.Phases[Pull] != c.pull {
			t.Errorf("staleness %d, parked %v: %v", c.staleness, c.parked, got.Phases)
		}
		n, excess := s.Anomalies()
		if n != uint64(c.anomalies) || excess != c.excess_ || got.Wall() != 50*ms {
			t.Errorf("staleness %d, parked %v: %d anomalies, %v too much, wall %v", c.staleness, c.parked, n, excess, got.Wall())
		}
	}
}

func TestCase3Overlap(t *testing.T) {
	var s Split
	s.Begin(0, 0)
	s.Enter(Compute, 0)
	s.Overlap(Push, 40*ms)
	s.Leave(50 * ms)
	got := s.End(50 * ms)
	if got.Phases[Compute] != 50*ms || got.Phases[Push] != 0 || got.Overlapped[Push] != 40*ms {
		t.Errorf("phases %v, overlapped %v", got.Phases, got.Overlapped)
	}
}

// TestSplitPass: a phase that passes ends at the next reading of the clock, and what it had suspended goes on from there.
func TestSplitPass(t *testing.T) {
	var s Split
	s.Begin(0, 0)
	s.Enter(Load, 0)
	s.Pass()
	s.Enter(Compute, 3*ms) // load until 3
	s.Enter(Push, 5*ms)
	s.Pass()
	s.Leave(6 * ms) // push until 6, and compute as well, which is left then
	s.Enter(Apply, 8*ms)
	s.Pass()
	got := s.End(11 * ms)
	if p := got.Phases; p[Load] != 3*ms || p[Compute] != 2*ms || p[Push] != ms || p[Other] != 2*ms || p[Apply] != 3*ms || got.Wall() != 11*ms {
		t.Errorf("phases %v, wall %v", got.Phases, got.Wall())
	}
	s.Begin(1, 11*ms)
	s.Enter(Load, 11*ms)
	s.Pass()
	s.Abandon()
	s.Begin(2, 20*ms)
	if got := s.End(21 * ms); got.Phases[Other] != ms || got.Wall() != ms {
		t.Errorf("after Abandon: %v", got.Phases)
	}
}

// TestEnded: the end of a step by the recorder is that of the clock.
func TestEnded(t *testing.T) {
	if _, ok := (*Recorder)(nil).Ended(); ok {
		t.Error("nothing records, and a step has ended")
	}
	before := time.Now()
	r := NewRecorder(Source{Role: Worker}, before)
	r.BeginIn(1, Load)
	r.Pass()
	r.End(Facts{})
	if ended, ok := r.Ended(); !ok || ended.Before(before) || ended.After(time.Now()) {
		t.Errorf("ended %v, %v after the base", ok, ended.Sub(before))
	}
	if s := r.Step(); s.Phases[Load] != s.Wall() {
		t.Errorf("phases %v", s.Phases)
	}
}

// TestSplitSumsToWall compares random nests with a dumb account that asks, for each nanosecond, which phase was entered last.
func TestSplitSumsToWall(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for trial := range 2000 {
		var s Split
		var want [NumPhases]time.Duration
		now := time.Duration(rng.IntN(1000))
		begin := now
		s.Begin(int64(trial), now)
		open := []Phase{Other}
		for range rng.IntN(40) {
			d := time.Duration(rng.IntN(5000))
			now += d
			want[open[len(open)-1]] += d
			switch {
			case len(open) <= splitDepth && rng.IntN(2) == 0:
				p := Phase(rng.IntN(NumPhases))
				s.Enter(p, now)
				open = append(open, p)
			case len(open) > 1:
				s.Leave(now)
				open = open[:len(open)-1]
			}
		}
		for len(open) > 1 {
			s.Leave(now)
			open = open[:len(open)-1]
		}
		now += 17
		want[Other] += 17
		if got := s.End(now); got.Phases != want || got.Wall() != now-begin || got.Start != begin {
			t.Fatalf("seed %d, trial %d: phases %v, want %v; wall %v, want %v", seed, trial, got.Phases, want, got.Wall(), now-begin)
		}
	}
}

func TestSplitRefusesImbalance(t *testing.T) {
	for _, c := range []struct {
		name, want string
		do         func(s *Split)
	}{
		{"leave outside", "Leave outside of a step", func(s *Split) { s.Leave(0) }},
		{"enter outside", "Enter of phase push outside of a step", func(s *Split) { s.Enter(Push, 0) }},
		{"leave without enter", "Leave without Enter in step 3", func(s *Split) { s.Begin(3, 0); s.Leave(0) }},
		{"pass outside", "Leave outside of a step", func(s *Split) { s.Pass() }},
		{"pass twice", "Pass after Pass in step 3", func(s *Split) { s.Begin(3, 0); s.Enter(Pull, 0); s.Pass(); s.Pass() }},
		{"leave after the last pass", "Leave without Enter in step 3", func(s *Split) { s.Begin(3, 0); s.Enter(Pull, 0); s.Pass(); s.Leave(0) }},
		{"end inside", "End of step 3 inside phase pull", func(s *Split) { s.Begin(3, 0); s.Enter(Pull, 0); s.End(1) }},
		{"begin twice", "Begin of step 4 inside step 3", func(s *Split) { s.Begin(3, 0); s.Begin(4, 0) }},
		{"end without begin", "End without Begin", func(s *Split) { s.End(1) }},
		{"no such phase", "phase(99)", func(s *Split) { s.Begin(3, 0); s.Enter(99, 0) }},
		{"too deep", "8 phases are already suspended", func(s *Split) {
			s.Begin(3, 0)
			for range 9 {
				s.Enter(Push, 0)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want %q", got, c.want)
				}
			}()
			c.do(&Split{})
		})
	}
}

func ExampleSplit() {
	var s Split
	s.Begin(0, 0)
	s.Enter(Push, 10*ms)
	s.Enter(Serialise, 12*ms) // suspends push
	s.Leave(15 * ms)
	s.Leave(20 * ms)
	step := s.End(21 * ms)
	fmt.Println("push", step.Phases[Push], "serialise", step.Phases[Serialise], "other", step.Phases[Other], "wall", step.Wall())
	// Output: push 7ms serialise 3ms other 11ms wall 21ms
}

func BenchmarkSplit(b *testing.B) {
	r := NewRecorder(Source{Role: Worker}, time.Now())
	b.Run("EnterLeave", func(b *testing.B) {
		r.Begin(0)
		b.ReportAllocs()
		for b.Loop() {
			r.Enter(Compute)
			r.Leave()
		}
		r.End(Facts{})
	})
	// A whole step of five phases, as a training loop reports it, with the collector draining beside it.
	b.Run("Step", func(b *testing.B) {
		b.ReportAllocs()
		var i int64
		for b.Loop() {
			r.Begin(i)
			for _, p := range [...]Phase{Load, Compute, Push, Pull, Apply} {
				r.Enter(p)
				r.Leave()
			}
			r.Add(Updates, 1)
			r.End(Facts{Samples: 100, Loss: 0.5})
			if i++; i%512 == 0 {
				b.StopTimer()
				r.Drain(func(Step) {})
				b.StartTimer()
			}
		}
	})
}
