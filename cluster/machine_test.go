package cluster_test

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/sim"
)

func TestForms(t *testing.T) {
	for n := 1; n <= 8; n++ {
		s := newScene(1, n, cluster.Policy{StartWorkers: n}, sim.Options{})
		if err := s.w.Run(nil, time.Second); err != nil {
			t.Fatal(err)
		}
		if !s.agreed() || len(s.views) != 1 || len(s.convicted) > 0 {
			t.Fatalf("%d processes: agreed %v, views %v, convicted %v, events %d", n, s.agreed(), s.views, s.convicted, s.w.Events())
		}
		t.Log(n, s.w.Events(), s.applied)
	}
}

// TestMetaAwayWhoAsks: that a change waits for the store is said by who has asked it, and by none of those that wait for another.
func TestMetaAwayWhoAsks(t *testing.T) {
	s := formed(t, 4, cluster.Policy{})
	s.until(t, 10*second, crash(2*second, 0), sim.Fault{At: second, For: 60 * second, Kind: sim.MetaAway})
	said := map[sim.Node]int{}
	for _, f := range s.facts {
		if _, ok := f.Value.(cluster.MetaAway); ok {
			said[f.Node]++
		}
	}
	if said[1] < 5 || len(said) != 1 {
		t.Errorf("said by node: %v; want it of node 1, each second", said)
	}
}

func TestKill(t *testing.T) {
	s := newScene(1, 8, cluster.Policy{StartWorkers: 8}, sim.Options{})
	s.keep = true
	if err := s.w.Run(sim.Plan{{At: time.Second, Kind: sim.Crash, Nodes: []sim.Node{0}, For: time.Second}, {At: 1500 * time.Millisecond, Kind: sim.Pause, Nodes: []sim.Node{3}, For: time.Second}}, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.facts {
		switch f.Value.(type) {
		case applied, cluster.Located:
		default:
			t.Logf("%v %v %T %+v", f.At, f.Name, f.Value, f.Value)
		}
	}
	t.Log(s.agreed(), s.w.Events())
}
