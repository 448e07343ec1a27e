package cluster_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

var (
	seedsFor  = flag.Duration("cluster.seeds", 2*time.Second, "run simulated seeds of the membership protocol for so long")
	firstSeed = flag.Uint64("cluster.seed", 0, "the first seed of TestSeeds, and the one of TestSeed")
	seedPlan  = flag.String("cluster.plan", "", "the plan of TestSeed; empty: the seed's own")
)

// kinds are the faults of a seed: all that concern a protocol of messages over links.
var kinds = []sim.Kind{
	sim.Crash, sim.Crash, sim.Vanish, sim.Pause, sim.Pause, sim.Slow, sim.Skew, sim.Delay, sim.Jitter, sim.Loss, sim.Corrupt, sim.Reset,
	sim.Clog, sim.Swizzle, sim.Partition, sim.Partition, sim.Mute, sim.Deafen, sim.Bridge, sim.Ring, sim.MetaAway, sim.MetaSlow, sim.MetaRestart,
}

// seedPolicy has the default's proportions, with fewer beats, so that a seed is short.
var seedPolicy = cluster.Policy{
	Heartbeat: 40 * time.Millisecond, Budget: 250 * time.Millisecond, BudgetMax: time.Second, LeaseTTL: 2500 * time.Millisecond,
	BackOff: 50 * time.Millisecond, Patience: time.Hour, MetaWait: time.Hour,
}

// seed builds the scene of w's seed, and its plan: up to eight processes, of which some come later and one may leave; every sixteenth
// seed has no fault.
func seed(w *sim.World) (*scene, sim.Plan) {
	n := w.Seed()
	pick := func(i uint64, below int) int { return int(draw.Mix(n^draw.Mix(i)) >> 1 % uint64(below)) }
	size := 2 + pick(1, 6)
	late := pick(2, 3)
	pol := seedPolicy
	pol.StartWorkers = size
	pol.MinWorkers = 1 + pick(3, 2)
	s := populate(w, size, pol)
	for i := range late {
		s.add(time.Duration(pick(uint64(10+i), 2000)) * time.Millisecond)
	}
	if pick(4, 4) == 0 && size > 2 {
		who, at := sim.Node(pick(5, size)), time.Duration(300+pick(6, 1500))*time.Millisecond
		w.After(at, func() {
			p := s.processes[who]
			p.leave = true
			w.Call(who, 0, cluster.Leave{}, func(_ any, err error) { p.leave = err == nil })
		})
	}
	if n%16 == 0 {
		return s, nil
	}
	plan := sim.RandomPlan(n, w, sim.Mix{Kinds: kinds, Faults: 8, Until: 1500 * time.Millisecond, MaxFor: time.Second})
	for i := range plan {
		plan[i].At += 200 * time.Millisecond // the group forms first
	}
	return s, plan
}

const (
	faulty    = 2 * time.Second
	converges = 15 * time.Second
)

// run runs a seed: faults, then progress.
func (s *scene) run(plan sim.Plan) error {
	if err := s.w.Run(plan, faulty); err != nil {
		return err
	}
	s.w.Heal(nil)
	if err := s.w.Converges(converges, s.agreed); err != nil {
		return err
	}
	if n, limit := s.w.Events(), uint64(3000*len(s.processes))*uint64(1+s.w.Now()/time.Second); n > limit {
		return fmt.Errorf("%d events in %v: something asks again and again", n, s.w.Now())
	}
	if len(plan) == 0 && len(s.convicted) > 0 {
		return fmt.Errorf("without a fault %v was convicted: %s", s.convicted[0].Name, s.convicted[0].Why)
	}
	return nil
}

// TestSeeds runs as many seeds as fit, and holds each to agreement (one chain of views), fencing (nothing of an old epoch is applied) and
// termination (when all is well again, all live processes are in one view). For a minute, in which 10,000 must fit:
// go test -run TestSeeds ./cluster -cluster.seeds=60s -v
func TestSeeds(t *testing.T) {
	count := 100
	if *seedsFor >= time.Minute { // what a minute must reach, however slow the machine
		count = 10_000
	}
	sim.Explore(t, sim.Range{From: *firstSeed, For: *seedsFor, Count: count, Workers: runtime.GOMAXPROCS(0)}, func(w *sim.World) (sim.Plan, func(sim.Plan) error) {
		s, plan := seed(w)
		return plan, s.run
	})
}

// describe says where each process stands.
func (s *scene) describe() string {
	out := ""
	for _, p := range s.processes {
		out += fmt.Sprintf("%v up %v ended %v (%v) view %d %v\n", p.self, s.w.Up(p.node), p.ended, p.err, p.view.Epoch, p.view.Names())
	}
	return out
}

// TestSeed runs one seed and, with -v, prints what is reported: go test -run TestSeed$ -v ./cluster -cluster.seed=N
func TestSeed(t *testing.T) {
	s, plan := seed(sim.New(*firstSeed, sim.Options{}))
	if *seedPlan != "" {
		var err error
		if plan, err = sim.ParsePlan(*seedPlan); err != nil {
			t.Fatal(err)
		}
	}
	s.keep = true
	t.Logf("plan: %v", plan)
	err := s.run(plan)
	if testing.Verbose() {
		for _, f := range s.facts {
			switch v := f.Value.(type) {
			case cluster.Installed:
				var names []protocol.Name
				for _, m := range v.View.Members {
					names = append(names, m.Name)
				}
				t.Logf("%12v %v installed %d %v by %v", f.At, f.Name, v.View.Epoch, names, v.By)
			case cluster.Convicted:
				t.Logf("%12v %v convicted %v in %d: %s: %s", f.At, f.Name, v.Name, v.Epoch, v.How, v.Why)
			case cluster.Ended:
				t.Logf("%12v %v ended: %v", f.At, f.Name, v.Err)
			case cluster.MetaAway:
				t.Logf("%12v %v meta away %v", f.At, f.Name, v.For)
			}
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, s.describe())
	}
}
