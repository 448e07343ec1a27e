package sim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Scene fills a World with nodes and invariants. It proposes a plan, and says how a run with a plan goes: Run under faults, then Heal
// and Converges. It is called for each seed, and for each try of the shrinker with a smaller plan.
type Scene func(w *World) (Plan, func(Plan) error)

// A Range says which seeds Explore runs. The zero value works.
type Range struct {
	From    uint64
	Count   int           // of seeds, at least; 0: 100
	For     time.Duration // of real time: seeds beyond Count run while it lasts
	Twice   int           // of so many seeds one runs twice, and the traces must be equal; 0: 50
	Workers int           // worlds at once; 0: 1. With more, the scene is called from several goroutines
	Dir     string        // of stored seeds; "": testdata/seeds
	Options Options       // of each World
}

// Explore runs the scene under many seeds and prints how many. Where one fails it shrinks the plan, and t fails with the line that
// reproduces it. Lines kept in the file Dir/TestName.txt, each a seed and a plan (or "-" for the scene's own), run first, always.
func Explore(t testing.TB, r Range, scene Scene) {
	t.Helper()
	r.Count = cmp.Or(r.Count, 100)
	r.Twice = cmp.Or(r.Twice, 50)
	r.Workers = cmp.Or(r.Workers, 1)
	r.Dir = cmp.Or(r.Dir, filepath.Join("testdata", "seeds"))
	file := filepath.Join(r.Dir, strings.ReplaceAll(t.Name(), "/", "_")+".txt")
	stored, err := readSeeds(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stored {
		if _, _, err := try(s.seed, s.plan, r.Options, scene); err != nil {
			t.Errorf("a stored seed of %s fails: %v", file, err)
			return
		}
	}
	// Worlds are small and short-lived: with the usual setting the collector runs a hundred times a second.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	x := explorer{t: t, r: r, scene: scene, begun: time.Now(), next: r.From}
	var wg sync.WaitGroup
	for range r.Workers {
		wg.Go(x.work)
	}
	wg.Wait()
	took := time.Since(x.begun)
	t.Logf("sim: %d seeds and %d stored ones, %d events, %d faults, in %v: %.0f events a second", x.seeds, len(stored), x.events, x.faults,
		took.Round(time.Millisecond), float64(x.events)/took.Seconds())
	if x.failed != nil {
		x.report(file)
	}
}

// explorer hands out seeds, and counts.
type explorer struct {
	t     testing.TB
	r     Range
	scene Scene
	begun time.Time

	mu     sync.Mutex
	next   uint64
	seeds  int
	events uint64
	faults int
	failed error // the first
	seed   uint64
	plan   Plan
}

func (x *explorer) take() (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := int(x.next - x.r.From)
	if x.failed != nil || n >= x.r.Count && time.Since(x.begun) >= x.r.For {
		return 0, false
	}
	x.next++
	return x.next - 1, true
}

func (x *explorer) work() {
	for {
		seed, ok := x.take()
		if !ok {
			return
		}
		o := x.r.Options
		twice := (seed-x.r.From)%uint64(x.r.Twice) == 0
		o.Trace = o.Trace || twice
		w, plan, err := try(seed, nil, o, x.scene)
		if err == nil && twice {
			err = x.again(w, plan, o)
		}
		x.mu.Lock()
		x.seeds++
		x.events += w.events
		x.faults += len(plan)
		if err != nil && x.failed == nil {
			x.failed, x.seed, x.plan = err, seed, plan
		}
		x.mu.Unlock()
	}
}

// again runs a seed once more: the two must be equal, event by event.
func (x *explorer) again(first *World, plan Plan, o Options) error {
	second, _, err := try(first.seed, plan, o, x.scene)
	if err != nil {
		return fmt.Errorf("sim: seed %d: a second run of the same fails: %w", first.seed, err)
	}
	for i, l := range first.lines {
		if i >= len(second.lines) || second.lines[i] != l {
			other := "nothing"
			if i < len(second.lines) {
				other = second.lines[i].String()
			}
			return fmt.Errorf("sim: seed %d: two runs differ at line %d: the first has\n\t%v\nthe second\n\t%v\nA machine, or the scene, depends on more than its events", first.seed, i, l, other)
		}
	}
	if first.hash != second.hash || len(first.lines) != len(second.lines) {
		return fmt.Errorf("sim: seed %d: two runs of equal traces have the hashes %x and %x", first.seed, first.hash, second.hash)
	}
	return nil
}

// report shrinks the plan that failed, and fails the test.
func (x *explorer) report(file string) {
	x.t.Helper()
	var v *Violation
	if !errors.As(x.failed, &v) {
		x.t.Error(x.failed)
		return
	}
	last := x.failed
	small := Shrink(x.plan, func(p Plan) bool {
		if p == nil {
			p = Plan{}
		}
		_, _, err := try(x.seed, p, x.r.Options, x.scene)
		var other *Violation
		if errors.As(err, &other) && other.Invariant == v.Invariant {
			last = err
			return true
		}
		return false
	})
	x.t.Errorf("%v\n\nTo keep it, add this line to %s:\n%d %v", last, file, x.seed, small)
}

// try runs one seed with a plan, or with the scene's own (nil).
func try(seed uint64, p Plan, o Options, scene Scene) (w *World, used Plan, err error) {
	w = New(seed, o)
	defer func() {
		if r := recover(); r != nil {
			w.violate("no panic", fmt.Errorf("%v\n%s", r, debug.Stack()))
			err = w.bad
		}
	}()
	own, run := scene(w)
	if p == nil {
		p = own
	}
	err = run(p)
	var v *Violation
	if err != nil && !errors.As(err, &v) { // the scene's own finding
		w.plan = p
		w.violate("scene", err)
		err = w.bad
	}
	return w, p, err
}

type seedLine struct {
	seed uint64
	plan Plan
}

// readSeeds reads a file of stored seeds. Where there is none, there are none.
func readSeeds(file string) ([]seedLine, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []seedLine
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		seed, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: seed %q: want a number, then a plan", file, number, word)
		}
		s := seedLine{seed: seed}
		if rest = strings.TrimSpace(rest); rest != "-" {
			if s.plan, err = ParsePlan(rest); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, number, err)
			}
			if s.plan == nil {
				s.plan = Plan{}
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// Shrink looks for a smaller plan that still fails: without faults that do not matter (delta debugging: Zeller and Hildebrandt 2002),
// then with fewer nodes, then with shorter times. fails is called up to about a thousand times.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	s := shrinker{fails: fails, left: 1000}
	p = s.fewer(p)
	p = s.nodes(p)
	p = s.shorter(p)
	return s.fewer(p)
}

type shrinker struct {
	fails func(Plan) bool
	left  int
}

func (s *shrinker) still(p Plan) bool {
	if s.left == 0 {
		return false
	}
	s.left--
	return s.fails(p)
}

// fewer leaves out faults: first halves, then ever smaller parts.
func (s *shrinker) fewer(p Plan) Plan {
	if len(p) > 0 && s.still(Plan{}) {
		return Plan{}
	}
	for parts := 2; len(p) > 1; {
		size := (len(p) + parts - 1) / parts
		smaller := false
		for from := 0; from < len(p); from += size {
			rest := slices.Concat(p[:from], p[min(from+size, len(p)):])
			if len(rest) > 0 && s.still(rest) {
				p, smaller = rest, true
				break
			}
		}
		switch {
		case smaller:
			parts = max(parts-1, 2)
		case size == 1:
			return p
		default:
			parts = min(2*parts, len(p))
		}
	}
	return p
}

// nodes leaves out nodes of each fault.
func (s *shrinker) nodes(p Plan) Plan {
	for i := range p {
		for j := 0; j < len(p[i].Nodes) && len(p[i].Nodes) > 1; {
			try := slices.Clone(p)
			try[i].Nodes = slices.Delete(slices.Clone(p[i].Nodes), j, j+1)
			if s.valid(try[i]) && s.still(try) {
				p = try
			} else {
				j++
			}
		}
	}
	return p
}

// valid says whether the fault can be in a plan at all; the number of nodes was checked before.
func (s *shrinker) valid(f Fault) bool { return f.check(1<<31-1) == nil }

// shorter halves how long each fault lasts, while it still fails, and rounds its times.
func (s *shrinker) shorter(p Plan) Plan {
	for i := range p {
		for p[i].For > time.Millisecond {
			try := slices.Clone(p)
			try[i].For = (p[i].For / 2).Truncate(10 * time.Microsecond)
			if !s.still(try) {
				break
			}
			p = try
		}
		for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond} {
			try := slices.Clone(p)
			try[i].At = p[i].At.Round(unit)
			if f := p[i].For.Truncate(unit); f > 0 {
				try[i].For = f
			}
			if try[i].At == p[i].At && try[i].For == p[i].For {
				break
			}
			if s.still(try) {
				p = try
				break
			}
		}
	}
	return p
}
