package ps

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/sim"
)

var (
	seeds = flag.Int("seeds", 500, "seeds that TestExplore runs")
	first = flag.Uint64("first", 0, "the first of them")
)

// An oracle is the log of all writes, and checks every read against it: invariants 1 to 5, 8 and 9.
type oracle struct {
	j       *simJob
	spec    Spec
	slack   Clock
	workers []*logged
	cuts    []SnapshotResult
	count   *uint64 // of reads that were checked; nil: nobody wants to know
}

// logged is what one worker did. Its column of a row grows by stamp + 1 in each round that touches it, so that a sum tells its prefix.
type logged struct {
	client   int
	clock    Clock
	finished bool
	killed   bool
	rows     [][]int64       // per row, per stamp: what it has added up to that round, this one included
	seen     map[int64]Clock // the value clock that it last saw
}

func (o *oracle) write(q int, row int64, stamp Clock) int64 {
	l := o.workers[q]
	sums := &l.rows[row]
	for Clock(len(*sums)) <= stamp {
		last := int64(0)
		if n := len(*sums); n > 0 {
			last = (*sums)[n-1]
		}
		*sums = append(*sums, last)
	}
	(*sums)[stamp] += int64(stamp) + 1
	return int64(stamp) + 1
}

// below is what a worker added to a row in rounds below c.
func (l *logged) below(row int64, c Clock) int64 {
	if n := Clock(len(l.rows[row])); c > n {
		c = n
	}
	if c <= 0 {
		return 0
	}
	return l.rows[row][c-1]
}

// least is the clock of the slowest client that counts.
func (o *oracle) least() Clock {
	m := maxClock
	for _, l := range o.workers {
		if !l.finished && !l.killed {
			m = min(m, l.clock)
		}
	}
	return m
}

// read checks what worker q found in a row.
func (o *oracle) read(q int, row int64, v Clock, cells []int64) error {
	if o.count != nil {
		*o.count++
	}
	me := o.workers[q]
	c, s := me.clock, o.spec.staleness()
	fail := func(invariant, format string, args ...any) error {
		return fmt.Errorf("%s: %s: worker %d, row %d, clock %d, value clock %d: %s", invariant, modeName(o.spec), q, row, c, v, fmt.Sprintf(format, args...))
	}
	if o.spec.Mode != ASP {
		if v < c-s {
			return fail("bound", "want at least %d", c-s)
		}
		if o.spec.Mode == BSP && v != c {
			return fail("bound", "want %d", c)
		}
		if m := o.least(); c-m > s {
			return fail("lead", "the slowest is at %d", m)
		}
	}
	if last := me.seen[row]; v < last {
		return fail("monotone", "it saw %d before", last)
	}
	me.seen[row] = v
	for p, l := range o.workers {
		x := cells[p]
		switch {
		case p == q:
			if want := me.below(row, maxClock); x != want {
				return fail("read my writes", "%d, want %d", x, want)
			}
		case o.spec.Mode == BSP && !l.killed:
			if want := l.below(row, c); x != want {
				return fail("same bits", "column %d: %d, want %d", p, x, want)
			}
		default:
			from := v
			if l.killed {
				from = 0
			}
			found := false
			for k := from; k <= l.clock+1 && !found; k++ {
				found = x == l.below(row, k)
			}
			if !found && x != l.below(row, maxClock) {
				return fail("exactly once", "column %d: %d is no prefix of rounds that are at least %d and at most %d", p, x, v, l.clock)
			}
		}
	}
	return nil
}

// program is what a worker does in the exploration.
func (o *oracle) program(q int, seed uint64, rounds int) program {
	return o.programOf(q, seed, rounds, 0)
}

// programOf is the program of a worker that computes for so long in each round.
func (o *oracle) programOf(q int, seed uint64, rounds int, computes time.Duration) program {
	me := o.workers[q]
	return func(w *Worker, sleep func(time.Duration)) error {
		die := func(n int, k int) int {
			return int(draw.Below(seed, 80+uint64(q), uint64(w.Now())*1000+uint64(k), uint64(n)))
		}
		tab := tableOf[int64](w, "t")
		me.clock = w.Now()
		cells := make([]int64, tab.Spec().Cols)
		for range rounds {
			for k := range 1 + die(5, 0) {
				row := int64(die(int(o.spec.Rows), 100+k))
				switch die(4, 200+k) {
				case 0:
					if v, err := tab.Get(bg, row, cells); err != nil {
						return err
					} else if err := o.read(q, row, v, cells); err != nil {
						return err
					}
				case 1:
					rows := sorted(row, (row+1)%o.spec.Rows)
					two := make([]int64, 2*len(cells))
					v, err := tab.GetRows(bg, rows, two)
					if err != nil {
						return err
					}
					for i, r := range rows { // v is the smaller of the two rows', and neither's falls
						if err := o.read(q, r, max(v, me.seen[r]), two[i*len(cells):(i+1)*len(cells)]); err != nil {
							return err
						}
					}
				case 2:
					sleep(time.Duration(die(2000, 300+k)) * time.Microsecond)
				}
				if err := tab.Inc(row, int64(q), o.write(q, row, w.Now())); err != nil {
					return err
				}
			}
			if computes > 0 {
				sleep(computes/2 + time.Duration(die(int(computes), 400)))
			}
			// The others may see the round from the moment it is sent.
			me.clock++
			var next []Wanted
			if die(3, 500) > 0 { // it may want what it does not read
				next = append(next, tab.Rows(sorted(int64(die(int(o.spec.Rows), 501)), 0)...))
			}
			if _, err := w.Clock(bg, next...); err != nil {
				return err
			}
			if m := o.least(); o.slack >= 0 && me.clock-m > o.slack+1 {
				return fmt.Errorf("lead: %s: worker %d is at %d, the slowest at %d", modeName(o.spec), q, me.clock, m)
			}
		}
		me.finished = true
		return w.Finish(bg)
	}
}

// applied reports whether all rounds that lanes hold are applied.
func (o *oracle) applied() bool {
	p := o.j.p.withDefaults()
	for l := range p.lanes() {
		if s := o.j.lane(l); s.m < s.complete {
			return false
		}
	}
	return true
}

// total checks what the servers hold in the end.
func (o *oracle) total() error {
	held := map[int64][]int64{}
	p := o.j.p.withDefaults()
	for l := range p.lanes() {
		for _, lt := range o.j.lane(l).tables {
			for _, k := range lt.here {
				o.readShard(lt.table, k, lt.shards[k].(*shard[int64]), held)
			}
		}
	}
	for row := range o.spec.Rows {
		for p, l := range o.workers {
			if x := held[row][p]; x != l.below(row, maxClock) && !l.killed {
				return fmt.Errorf("exactly once: %s: in the end row %d, column %d holds %d, want %d", modeName(o.spec), row, p, x, l.below(row, maxClock))
			}
		}
	}
	return nil
}

// readShard copies what shard k of t has of each row into rows.
func (o *oracle) readShard(t *table, k int, s *shard[int64], rows map[int64][]int64) {
	for row := range o.spec.Rows {
		if rows[row] == nil {
			rows[row] = make([]int64, o.spec.Cols)
		}
		t.cut.eachSpan(row, func(p span) {
			if p.shard == k {
				s.read(&section{form: formRange, row: row, from: p.from, n: int(p.to - p.from)}, 0, func(c section, _ *hold) {
					copy(rows[row][c.from:], raw.Of[int64](c.cells))
				})
			}
		})
	}
}

// cut checks a snapshot: exactly the rounds below its clock, in every shard.
func (o *oracle) cut(m *memory, r SnapshotResult) error {
	man, err := ReadManifest(bg, m, r.Key)
	if err != nil {
		return err
	}
	p := o.j.p.withDefaults()
	t := newTable(&Definition{Spec: o.spec, Owners: make([]uint16, maxShards)}, &p)
	got := map[int64][]int64{}
	for k := range t.cut.shards {
		s := newShard[int64](t, k, nil)
		for _, ob := range man.Tables[0].Objects {
			b, err := fetch(m, &ob.file)
			if err != nil {
				return err
			}
			if err := s.restore(b, ob); err != nil {
				return err
			}
		}
		o.readShard(t, k, s, got)
	}
	for row := range o.spec.Rows {
		for q, l := range o.workers {
			if x := got[row][q]; x != l.below(row, r.Clock) && !l.killed {
				return fmt.Errorf("cut: %s: the snapshot at clock %d has %d in row %d, column %d, want %d", modeName(o.spec), r.Clock, x, row, q, l.below(row, r.Clock))
			}
		}
	}
	return nil
}

// scene draws a job from the World's seed: its table, its size, its links, whether a client joins late, is killed, and snapshots.
func scene(w *sim.World) (sim.Plan, func(sim.Plan) error) {
	seed := w.Seed()
	die := func(k uint64, n int) int { return int(draw.Below(seed, 79, k, uint64(n))) }
	spec := []Spec{
		{Mode: BSP}, {Mode: SSP}, {Mode: SSP, Staleness: 2}, {Mode: ESSP}, {Mode: ESSP, Staleness: 2}, {Mode: ASP},
	}[die(0, 6)]
	clients, per, late := 1+die(1, 3), 1+die(2, 2), die(3, 3) == 0
	all := clients*per + 1
	spec.Name, spec.Rows, spec.Cols, spec.Cell = "t", int64(2+die(4, 6)), int64(all), Int64
	spec.Partition = []Partition{Auto, Hash}[die(5, 2)]
	spec.Sparse = spec.Partition == Hash && die(6, 2) == 0
	store := newMemory()
	o := simOptions{
		clients: clients, servers: 1 + die(7, 3), lanes: 1 + die(8, 2), min: 1 + die(9, 8), exact: spec.Mode == BSP && die(10, 2) == 0,
		tables: []Spec{spec}, client: Options{Workers: per, CacheBytes: []int64{0, 3 * (rowOverhead + 64)}[die(11, 2)]}, server: ServerOptions{Store: store},
	}
	o.client.piece = []int{0, 60}[die(30, 2)]
	if o.exact && spec.Sparse {
		o.exact = false
	}
	j := newSimJob(w, o)
	or := &oracle{j: j, spec: spec, slack: spec.staleness()}
	if spec.Mode == ASP {
		or.slack = -1
	}
	for c := range clients {
		for range per {
			or.workers = append(or.workers, &logged{client: c, rows: make([][]int64, spec.Rows), seen: map[int64]Clock{}})
		}
	}
	if late {
		j.co.Workers = 1
		j.addClient(clients, []Spec{spec})
		or.workers = append(or.workers, &logged{client: clients, rows: make([][]int64, spec.Rows), seen: map[int64]Clock{}, finished: true})
	}
	links := make([]sim.Link, 3)
	links[1] = sim.Link{Delay: 100 * time.Microsecond, Jitter: 300 * time.Microsecond, Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Datagram: true}
	links[2] = sim.Link{Delay: 50 * time.Microsecond, Jitter: 200 * time.Microsecond, Loss: 0.01}
	if l := links[die(12, 3)]; l.Delay > 0 {
		for a := range w.Nodes() {
			for b := range a {
				w.Connect(sim.Node(a), sim.Node(b), l, l)
			}
		}
	}
	plan := sim.RandomPlan(seed, w, sim.Mix{Kinds: linkFaults(), Until: 200 * time.Millisecond, MaxFor: 100 * time.Millisecond})
	victim, killedAt := -1, time.Millisecond+time.Duration(die(32, 60_000))*time.Microsecond
	if clients > 1 && die(31, 3) == 0 {
		victim = die(33, clients)
	}
	return plan, func(p sim.Plan) error {
		defer j.end()
		rounds := 4 + die(13, 12)
		for q, l := range or.workers[:clients*per] {
			j.start(l.client, 0, or.program(q, seed, rounds))
		}
		if late {
			q := len(or.workers) - 1
			l := or.workers[q]
			at := time.Duration(die(14, 50)) * time.Millisecond
			f := or.program(q, seed, rounds)
			j.startThen(clients, at, func(w *Worker, sleep func(time.Duration)) error { l.finished = false; return f(w, sleep) }, func(err error) {
				if err != nil {
					j.failures = append(j.failures, fmt.Errorf("late client: %w", err))
				}
			})
		}
		asked := die(15, 3) // snapshots that are not answered yet
		for k := range asked {
			w.Call(j.dir, time.Duration(die(16+uint64(k), 60))*time.Millisecond, snapshotCall{store}, func(r any, err error) {
				asked--
				if err == nil {
					or.cuts = append(or.cuts, r.(SnapshotResult))
				} else if !errors.Is(err, sim.ErrDown) {
					j.failures = append(j.failures, fmt.Errorf("snapshot: %w", err))
				}
			})
		}
		if victim >= 0 { // a client dies, and some time later that is known
			p = append(slices.Clone(p), sim.Fault{Kind: sim.Crash, At: killedAt, For: time.Hour, Nodes: []sim.Node{j.clients[victim].node}})
			w.After(killedAt, func() {
				for _, l := range or.workers {
					l.killed = l.killed || l.client == victim
				}
			})
			w.After(killedAt+time.Duration(die(34, 20_000))*time.Microsecond, func() { w.Call(j.dir, 0, lostCall{clientName(victim)}, nil) })
		}
		if err := w.Run(p, 300*time.Millisecond); err != nil {
			return err
		}
		w.Heal(nil)
		if err := w.Converges(time.Hour, func() bool { return j.running == j.stuck[victim] || len(j.failures) > 0 }); err != nil {
			return errors.Join(append(j.failures, err)...)
		}
		if err := errors.Join(j.failures...); err != nil {
			return err
		}
		if err := w.Converges(10*time.Second, func() bool { return asked == 0 }); err != nil {
			return fmt.Errorf("snapshots: %w", err)
		}
		// In exact mode the last round is applied one hop after it is held.
		if err := w.Converges(10*time.Second, or.applied); err != nil {
			return err
		}
		for _, r := range or.cuts {
			if err := or.cut(store, r); err != nil {
				return err
			}
		}
		return or.total()
	}
}

// linkFaults are the kinds of fault that nobody may lose state by: servers have no replicas yet.
func linkFaults() []sim.Kind {
	var ks []sim.Kind
	for _, k := range sim.Kinds() {
		switch k {
		case sim.Crash, sim.Wipe, sim.Vanish, sim.TornDisk, sim.ShortDisk, sim.FailingDisk, sim.FullDisk:
		default:
			ks = append(ks, k)
		}
	}
	return slices.Clip(ks)
}

func TestExplore(t *testing.T) {
	n := *seeds
	if testing.Short() && n == 500 { // with the race detector each takes twenty times as long
		n = 60
	}
	sim.Explore(t, sim.Range{From: *first, Count: n}, scene)
}
