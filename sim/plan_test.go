package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

func TestPlanText(t *testing.T) {
	for _, text := range []string{
		"1.2s crash 0,3 for 300ms",
		"0s loss arg 0.05",
		"1ms partition 0,meta for 2s; 3s meta-slow for 1s arg 0.2",
		"1h0m0s torn-disk 7 for 1ns",
	} {
		p, err := sim.ParsePlan(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if p.String() != text {
			t.Errorf("%q prints as %q", text, p)
		}
	}
	for text, want := range map[string]string{
		"crash 1":               "time",
		"1s":                    "a time and a kind",
		"1s crush 1":            `unknown kind "crush"`,
		"1s crash x":            `node "x"`,
		"1s crash 1 during 2s":  `unexpected "during"`,
		"1s crash 1 for":        `nothing follows "for"`,
		"1s crash 1 for ever":   "duration",
		"1s slow 1 arg quickly": "quickly",
	} {
		if _, err := sim.ParsePlan(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
	w := sim.New(1, sim.Options{})
	echoes(w, 2)
	for text, want := range map[string]string{
		"1s crash 2":             "node 2: the World has 2",
		"1s crash":               "want the nodes",
		"1s partition meta":      "want the nodes",
		"1s loss arg 1.5":        "a probability",
		"1s slow 1 arg 0.5":      "a factor",
		"1s crash 1,1":           "twice",
		"1s crash 1 for -5s":     "below 0",
		"1s bridge meta,1":       "bridge first",
		"1s jump 1 arg NaN":      "seconds",
		"1s pause 1 arg 3":       "no argument",
		"1s bandwidth 1 arg 0.5": "bytes a second",
	} {
		if err := w.Run(plan(t, text), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	f.Add("1.2s crash 0,3 for 300ms; 2s loss 1,4 for 1s arg 0.05")
	f.Add("# a comment\n3s partition 0,meta for 2s\n\n1s meta-slow arg 0.2")
	f.Add("1s slow 0 arg 1e300")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := sim.ParsePlan(text)
		if err != nil {
			return
		}
		again, err := sim.ParsePlan(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q reads as %q, and that as %q, %v", text, p, again, err)
		}
		w := sim.New(1, sim.Options{MaxEvents: 5000})
		echoes(w, 3)
		_ = w.Run(p, 10*time.Millisecond) // no panic
	})
}

// Every kind of fault is drawn, and every plan that is drawn is valid and reads back.
func TestRandomPlan(t *testing.T) {
	count := map[sim.Kind]int{}
	for seed := range uint64(500) {
		w := sim.New(seed, sim.Options{})
		if len(sim.RandomPlan(seed, w, sim.Mix{})) > 0 {
			t.Fatal("a plan for no nodes")
		}
		n := 1 + int(seed%7)
		echoes(w, n)
		p := sim.RandomPlan(seed, w, sim.Mix{})
		if len(p) == 0 {
			t.Errorf("seed %d: an empty plan", seed)
		}
		for _, f := range p {
			count[f.Kind]++
		}
		if again := plan(t, p.String()); again.String() != p.String() {
			t.Errorf("seed %d: %q reads as %q", seed, p, again)
		}
		if seed < 100 {
			if err := w.Run(p, 20*time.Millisecond); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
	for _, k := range sim.Kinds() {
		if (count[k] == 0) != (k == sim.Slice) {
			t.Errorf("no plan has a %v", k)
		}
	}
}
