package tensor

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestDuties: every core has the same to do, no process is on two cores at once, and whoever changes does so at most once.
func TestDuties(t *testing.T) {
	for cores := 2; cores <= 9; cores++ {
		for n := cores + 1; n <= 4*cores; n++ {
			work := make([]float64, cores)
			length := float64(n) / float64(cores) // of the best schedule, in steps
			for i := range n {
				d := dutyOf(i, n, cores)
				if d.first < 0 || d.first >= cores || d.rest < 0 || d.rest >= cores || d.part <= 0 || d.part > 1 || d.part < 1 == (d.first == d.rest) {
					t.Fatalf("%d of %d on %d cores: %+v", i, n, cores, d)
				}
				work[d.first] += d.part
				work[d.rest] += 1 - d.part
				// The first part is done from time 0 on, the other at the end.
				if d.part > length-(1-d.part)+1e-9 {
					t.Errorf("%d of %d on %d cores: both parts at once: %+v", i, n, cores, d)
				}
			}
			for core, x := range work {
				if !(math.Abs(x-length) <= 1e-9) {
					t.Errorf("%d on %d cores: core %d has %v steps, want %v", n, cores, core, x, length)
				}
			}
		}
	}
}

// A fakeCores counts what is asked of the system.
type fakeCores struct {
	now   time.Duration
	calls []string
}

func (f *fakeCores) keep()        { f.calls = append(f.calls, "keep") }
func (f *fakeCores) run(core int) { f.calls = append(f.calls, "run "+string(rune('0'+core))) }

func (f *fakeCores) free(ran bool) {
	f.calls = append(f.calls, "free")
	if ran {
		f.calls = append(f.calls, "run everywhere")
	}
}

func (f *fakeCores) leave(core int)          { f.calls = append(f.calls, "leave "+string(rune('0'+core))) }
func (f *fakeCores) yield()                  { f.calls = append(f.calls, "yield") }
func (f *fakeCores) computed() time.Duration { return f.now }

// TestTurns: a step that is typically long enough is computed where its duty says; others are left alone.
func TestTurns(t *testing.T) {
	const node = 150 * time.Microsecond
	for _, c := range []struct {
		name string
		duty duty
		took time.Duration
		want []string
	}{
		{"not known yet", dutyOf(0, 3, 2), 0, []string{"keep", "free"}},
		{"short", dutyOf(1, 3, 2), turnsWorth - 1, []string{"keep", "run 5", "free"}},
		{"one core", dutyOf(0, 3, 2), 4 * node, []string{"keep", "run 0", "yield", "yield", "yield", "free", "run everywhere"}},
		{"two cores", dutyOf(1, 3, 2), 4 * node, []string{"keep", "run 1", "yield", "run 0", "yield", "free", "run everywhere"}},
		{"two cores, thirds", dutyOf(2, 4, 3), 4 * node, []string{"keep", "run 2", "run 1", "yield", "yield", "free", "run everywhere"}},
	} {
		f := &fakeCores{now: time.Hour}
		turns := &Turns{duty: c.duty, home: 5, sys: f}
		x := turns.Begin(c.took)
		if turns.Begin(c.took) != nil {
			t.Errorf("%s: two steps at once", c.name)
		}
		for range 3 {
			f.now += node
			x.Between()
			f.now += turnLeast / 2 // too soon
			x.Between()
		}
		f.now += node
		if took := x.End(); took != 4*node+3*turnLeast/2 {
			t.Errorf("%s: took %v", c.name, took)
		}
		if !slices.Equal(f.calls, c.want) {
			t.Errorf("%s: %q, want %q", c.name, f.calls, c.want)
		}
		f.calls = nil
		turns.leave()
		if left := slices.Equal(f.calls, []string{"leave 5"}); left != (c.name == "short") {
			t.Errorf("%s: what stayed on the process's core was left: %t", c.name, left)
		}
		if turns.Begin(0) == nil {
			t.Errorf("%s: the step does not end", c.name)
		}
	}
	var none *Turns
	if none.Begin(time.Second) != nil {
		t.Error("where there are cores enough a step takes turns")
	}
	none.Between()
	none.End()
	none.leave()
}

// TestTurnsAreAlike: processes whose steps are between the two bounds do what they did, however their first steps went, or one that took long.
func TestTurnsAreAlike(t *testing.T) {
	const between, long = (turnsWorth + turnsLeft) / 2, turnsWorth * 3 / 2
	turns := &Turns{duty: dutyOf(0, 3, 2), home: 5, sys: &fakeCores{}}
	for _, c := range []struct {
		name  string
		took  time.Duration
		steps int
		want  bool
	}{
		{"a cold one", 10 * turnsWorth, 1, true},
		{"then those between", between, 3 * turnsSteady, false},
		{"one that is held up", 100 * turnsWorth, 1, false},
		{"long ones", long, 5 * turnsSteady, true},
		{"those between again", between, 5 * turnsSteady, true},
		{"short ones", turnsLeft / 2, 5 * turnsSteady, false},
	} {
		for range c.steps {
			turns.Begin(c.took).End()
		}
		if turns.kept != c.want {
			t.Errorf("%s: takes turns: %t, want %t", c.name, turns.kept, c.want)
		}
	}
}

// TestTurnsAreSteady: a step that takes longer than usual, or a shorter one, changes nothing; steps that have become so do.
func TestTurnsAreSteady(t *testing.T) {
	turns := &Turns{duty: dutyOf(0, 3, 2), home: 5, sys: &fakeCores{}}
	kept := func(took time.Duration, steps int) bool {
		for range steps {
			turns.Begin(took).End()
		}
		return turns.kept
	}
	const short, long = turnsWorth * 2 / 3, turnsWorth * 4 / 3
	for _, c := range []struct {
		took  time.Duration
		steps int
		want  bool
	}{{short, 20, false}, {long, 3, false}, {short, 1, false}, {long, 3 * turnsSteady, true}, {short, 3, true}, {short, 3 * turnsSteady, false}} {
		if got := kept(c.took, c.steps); got != c.want {
			t.Errorf("after %d steps of %v: takes turns: %t, want %t", c.steps, c.took, got, c.want)
		}
	}
}
