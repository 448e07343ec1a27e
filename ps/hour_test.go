package ps

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
)

var hour = flag.Duration("hour", 0, "the simulated time that TestHour lasts; 0: a minute")

// TestHour lets jobs live for a long simulated time: `go test ./ps -run TestHour -hour 1h`, a minute where nothing is said. Workers read
// and write by chance and each read is held against the log of all writes, while links lose, double, reorder and hold frames, break,
// and nodes are cut off or stand still. Every few seconds a client is killed, for good; some seconds later all servers are, and the
// job goes on from its last snapshot on another number of servers, with the log cut back to the snapshot's round.
// Invariants 1 to 5, 8 and 9 are checked throughout; 6 without secondaries, and 7 with one placement, hold by construction.
func TestHour(t *testing.T) {
	whole := *hour
	if whole == 0 {
		whole = time.Minute
		if testing.Short() {
			whole = 12 * time.Second
		}
	}
	var seed, events, reads, faults, kills, restores uint64
	var lived time.Duration
	kinds := map[sim.Kind]int{}
	for lived < whole {
		l := &life{seed: seed, kinds: kinds}
		if err := l.run(); err != nil {
			t.Fatalf("seed %d, after %v of simulated time: %v", seed, lived, err)
		}
		lived += l.lived
		events += l.events
		reads += l.reads
		faults += l.faults
		kills += l.kills
		restores += l.restores
		seed++
	}
	t.Logf("%v of simulated time, %d jobs: %d events, %d reads checked, %d faults, %d clients killed, all servers killed %d times; faults by kind: %v",
		lived.Round(time.Second), seed, events, reads, faults, kills, restores, kinds)
	if restores == 0 || reads == 0 || faults == 0 || kills == 0 && whole >= time.Minute {
		t.Error("nothing happened")
	}
}

// A life is one job from its beginning through several deaths of all its servers.
type life struct {
	seed  uint64
	kinds map[sim.Kind]int

	lived                                  time.Duration
	events, reads, faults, kills, restores uint64
}

func (l *life) die(k uint64, n int) int { return int(draw.Below(l.seed, 78, k, uint64(n))) }

const (
	generations = 3               // between deaths of all servers
	generation  = 4 * time.Second // of simulated time
)

func (l *life) run() error {
	store := newMemory()
	spec := Spec{Name: "t", Rows: int64(2 + l.die(1, 6)), Cols: 8, Cell: Int64}
	per := 1 + l.die(2, 2)
	clients := 2 + l.die(3, 2)
	var from *Manifest
	var log []*logged
	for g := range uint64(generations) {
		m := []Spec{{Mode: BSP}, {Mode: SSP}, {Mode: SSP, Staleness: 2}, {Mode: ESSP}, {Mode: ESSP, Staleness: 2}, {Mode: ASP}}[l.die(4, 6)]
		spec.Mode, spec.Staleness = m.Mode, m.Staleness
		var err error
		if from, log, err = l.generation(g, spec, clients, per, store, from, log); err != nil {
			return fmt.Errorf("%s, servers %d: %w", modeName(spec), g, err)
		}
		l.restores++
	}
	return nil
}

// generation is the time between two deaths of all servers. It returns the last snapshot, and the log as it is in it.
func (l *life) generation(g uint64, spec Spec, clients, per int, store *memory, from *Manifest, log []*logged) (*Manifest, []*logged, error) {
	w := sim.New(draw.Mix(l.seed*generations+g), sim.Options{MaxEvents: 50_000_000})
	base := 100 * (g + 1)
	j := newSimJob(w, simOptions{
		clients: clients, servers: 1 + l.die(base, 3), lanes: 1, min: 4, most: 3, tables: []Spec{spec},
		client: Options{Workers: per, CacheBytes: []int64{0, 3 * (rowOverhead + 64)}[l.die(base+1, 2)]},
		server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: from},
	})
	defer j.end()
	or := &oracle{j: j, spec: spec, slack: spec.staleness(), count: &l.reads}
	if spec.Mode == ASP {
		or.slack = -1
	}
	start := Clock(0)
	if from != nil {
		start = from.Clock
	}
	for q := range clients * per {
		x := &logged{client: q / per, clock: start, rows: make([][]int64, spec.Rows), seen: map[int64]Clock{}}
		if log != nil {
			x.rows = log[q].rows
		}
		or.workers = append(or.workers, x)
	}
	link := []sim.Link{
		{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.03, Duplicate: 0.05, Reorder: 0.05, Datagram: true},
		{Delay: time.Millisecond, Jitter: 3 * time.Millisecond, Loss: 0.005},
		{},
	}[l.die(base+2, 3)]
	if link.Delay > 0 {
		for a := range w.Nodes() {
			for b := range a {
				w.Connect(sim.Node(a), sim.Node(b), link, link)
			}
		}
	}
	plan := sim.RandomPlan(draw.Mix(l.seed)+g, w, sim.Mix{Kinds: linkFaults(), Until: generation, MaxFor: 400 * time.Millisecond})
	victim, killedAt := -1, 500*time.Millisecond+time.Duration(l.die(base+3, 2500))*time.Millisecond
	if clients > 1 && l.die(base+4, 2) == 0 && g == generations-1 { // then it is not part of what is restored
		victim = l.die(base+5, clients)
		plan = append(slices.Clone(plan), sim.Fault{Kind: sim.Crash, At: killedAt, For: time.Hour, Nodes: []sim.Node{j.clients[victim].node}})
		w.After(killedAt, func() {
			for _, x := range or.workers {
				x.killed = x.killed || x.client == victim
			}
		})
		w.After(killedAt+time.Duration(l.die(base+6, 500))*time.Millisecond, func() { w.Call(j.dir, 0, lostCall{clientName(victim)}, nil) })
		l.kills++
	}
	for _, f := range plan {
		l.kinds[f.Kind]++
	}
	l.faults += uint64(len(plan))
	for q, x := range or.workers { // until all servers die
		j.startThen(x.client, 0, or.programOf(q, l.seed*generations+g, 1<<40, 4*time.Millisecond), func(err error) {
			if err != nil && !errors.Is(err, errStopped) && !errors.Is(err, sim.ErrDown) && x.client != victim {
				j.failures = append(j.failures, fmt.Errorf("worker %d: %w", q, err))
			}
		})
	}
	var cut *SnapshotResult
	for at := 700 * time.Millisecond; at < generation; at += 900 * time.Millisecond {
		w.Call(j.dir, at, snapshotCall{store}, func(r any, err error) {
			if err != nil {
				j.failures = append(j.failures, fmt.Errorf("snapshot: %w", err))
				return
			}
			s := r.(SnapshotResult)
			cut = &s
			if err := or.cut(store, s); err != nil {
				j.failures = append(j.failures, err)
			}
		})
	}
	err := w.Run(plan, generation)
	if err == nil {
		w.Heal(nil)
		err = w.Converges(time.Hour, func() bool { return cut != nil || len(j.failures) > 0 })
	}
	l.lived += w.Now()
	l.events += w.Events()
	if err := errors.Join(append(j.failures, err)...); err != nil {
		return nil, nil, err
	}
	m, err := ReadManifest(bg, store, cut.Key)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range or.workers { // what came after the cut is gone with the servers
		for r := range x.rows {
			x.rows[r] = slices.Clone(x.rows[r][:min(Clock(len(x.rows[r])), m.Clock)])
		}
	}
	return m, or.workers, nil
}
