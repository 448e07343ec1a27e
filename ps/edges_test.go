package ps

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// stepsSeen is an updater that writes down the numbers of its steps.
type stepsSeen struct {
	tally
	seen *[]int64
}

func (u stepsSeen) Apply(step int64, _ *trivium.Layout, _ int, _, _, _ []float32, _ [][]float32) {
	*u.seen = append(*u.seen, step)
}

// CountsAll implements Counter.
func (stepsSeen) CountsAll(*trivium.Layout) bool { return true }

// TestLastStep: the steps of a row are counted up to the largest number, and not from 0 again: to a rule the first step is another than any later
// one.
func TestLastStep(t *testing.T) {
	const most = math.MaxUint32
	ones := raw.Bytes([]float32{1, 1, 1, 1})
	for name, x := range map[string]struct {
		spec Spec
		sec  section
	}{
		"dense rows":  {Spec{Rows: 1, Cols: 4}, section{form: formRows, rows: []int64{0}, n: 4, cells: ones}},
		"dense runs":  {Spec{Cols: 4}, section{form: formRange, n: 4, cells: ones}},
		"sparse rows": {Spec{Cols: 4, Sparse: true}, section{form: formCells, rows: []int64{0}, ends: []int64{2}, cols: []int64{1, 3}, n: 2, cells: ones[:8]}},
	} {
		var seen []int64
		x.spec.Name, x.spec.Optimizer = "t", "seen"
		p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 1}.withDefaults()
		tab := newTable(&Definition{Spec: x.spec}, &p)
		if err := tab.equip(map[string]trivium.Optimizer{"seen": stepsSeen{seen: &seen}}); err != nil {
			t.Fatal(err)
		}
		s := newShard[float32](tab, 0, nil)
		round := func(divide bool) { s.apply(&roundPart{secs: []*section{&x.sec}, divide: divide}) }
		round(false)
		steps := func() *uint32 {
			if s.live != nil {
				return &s.live.steps[0]
			}
			return &s.rows[0].steps
		}
		*steps() = most - 1
		round(false)
		round(false)
		round(true) // its weights add up to nothing: it is counted alone
		if !slices.Equal(seen, []int64{1, most, most}) || *steps() != most {
			t.Errorf("%s: the steps are %v, and %d are counted", name, seen, *steps())
		}
	}
}

// TestKeyListsGoOn: after 2³² key lists the next number is 1: 0 is that of no list.
func TestKeyListsGoOn(t *testing.T) {
	var client, lane keyLists
	client.next = math.MaxUint32 - 1
	name := func(first int64) section {
		s := section{form: formRows}
		for k := range int64(minList) {
			s.rows = append(s.rows, first+k)
		}
		client.name(&s)
		return s
	}
	for round := range 2 {
		for k, want := range []uint32{math.MaxUint32, 1, 2} {
			s := name(int64(100 * k))
			if s.list != want || s.listed != (round == 1) {
				t.Errorf("list %d has number %d, named before: %v", k, s.list, s.listed)
			}
			if s.rows = slices.Clone(s.rows); s.listed {
				s.rows = nil
			}
			if !lane.resolve(&s) || len(s.rows) != minList || s.rows[0] != int64(100*k) {
				t.Errorf("list %d is %v at the lane", k, s.rows)
			}
		}
	}
}

// TestEndingIsTold: a client that is lost, of which it is still being found out how far it came, is told so, and of no clock.
func TestEndingIsTold(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
	for _, state := range []State{Ending, Ended} {
		c := *x.s.config
		c.Version++
		c.Clients = slices.Clone(c.Clients)
		c.Clients[0].State, c.Clients[0].End = state, Clock(map[State]int{Ended: 7}[state])
		x.lane(dirName(), &install{config: &c})
		down := x.lane(clientName(0), &pull{session: 1, id: 1})
		want := "ps: j/worker/0 was counted as lost" + map[State]string{Ended: " at clock 7"}[state] + ", and"
		if len(down) != 1 || !strings.HasPrefix(down[0].(*refused).text, want) {
			t.Errorf("%s: it is told %v", state, down)
		}
	}
}

// TestSnapshotsOfTwoJobs: jobs that go on from one snapshot in one store, such as one that is tried again, leave one another's snapshots whole,
// though each numbers its own from 1.
func TestSnapshotsOfTwoJobs(t *testing.T) {
	store := newMemory()
	snapshot := func(from *Manifest, session uint64, add int64) (m *Manifest) {
		t.Helper()
		j := newSimJob(sim.New(session, sim.Options{}), simOptions{
			clients: 1, servers: 2, min: 1, tables: []Spec{{Name: "t", Rows: 2, Cols: 4, Cell: Int64}},
			server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: from, Session: session},
		})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			if err := tableOf[int64](w, "t").Inc(1, 3, add); err != nil {
				return err
			}
			return w.Finish(bg)
		})
		var key string
		j.w.Call(j.dir, time.Millisecond, snapshotCall{store}, func(r any, err error) {
			if err != nil {
				j.failures = append(j.failures, err)
				return
			}
			key = r.(SnapshotResult).Key
		})
		j.run(t, time.Hour)
		if err := j.w.Converges(time.Hour, func() bool { return key != "" || len(j.failures) > 0 }); err != nil || len(j.failures) > 0 {
			t.Fatal(err, j.failures)
		}
		m, err := ReadManifest(bg, store, key)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := snapshot(nil, 1, 1)
	tried := []*Manifest{snapshot(first, 2, 10), snapshot(first, 3, 100)}
	for i, want := range []int64{11, 101} {
		if tried[i].Clock != tried[0].Clock {
			t.Errorf("the snapshots are at clocks %d and %d: nothing is tried", tried[0].Clock, tried[1].Clock)
		}
		sum := int64(0)
		err := ReadTable(bg, store, tried[i], "t", func(x Saved[int64]) error {
			for _, c := range x.Cells {
				sum += c
			}
			return nil
		})
		if err != nil || sum != want {
			t.Errorf("the snapshot of job %d has %d, want %d: %v", i, sum, want, err)
		}
	}
}

// TestOvertakenAnswers: an answer that later ones have overtaken is not read after them: neither where single cells of the row were read meanwhile,
// past the cache, nor where the row was thrown out and asked for anew.
func TestOvertakenAnswers(t *testing.T) {
	for _, spec := range []Spec{{Rows: 1, Cols: 4}, {Cols: 4, Sparse: true}, {Rows: 1, Cols: twoMessages}} {
		for _, evicts := range []bool{false, true} {
			spec.Name, spec.Staleness = "t", 3
			x := newCarried(t, spec, Options{})
			ask := func() []protocol.Body {
				_, up := x.call(prefetchCall{[]*getCall{{w: x.w, t: x.c.tables[0], rows: []int64{0}, silent: true}}})
				return x.lane(clientName(0), up[0])
			}
			var last []protocol.Body // answers that come when they are waited for
			tab := tableOf[float32](&Worker{s: x.w, d: carriedDriver{x, func(up []protocol.Body) { x.carry(up); x.carry(x.deliver(last)) }}}, "t")
			row := make([]float32, spec.Cols)
			clock := func(stamp Clock) {
				_, up := x.call(clockCall{w: x.w})
				x.carry(up)
				x.carry(x.deliver(x.lane(clientName(1), &batch{client: 1, session: 1, stamp: stamp, last: true})))
			}
			old := ask() // as it is at clock 0, and is delivered last
			clock(0)
			var seen Clock
			var err error
			if evicts {
				g := x.c.waits[0].get
				x.c.waits = x.c.waits[1:] // nobody waits for it any more
				x.c.unpin(g)
				x.evictAll()
				if seen, err = tab.Get(bg, 0, row); err != nil {
					t.Fatal(err)
				}
				x.evictAll()
				last = ask()
			} else if seen, err = tab.GetCells(bg, 0, []int64{2}, row[:1]); err != nil {
				t.Fatal(err)
			}
			x.carry(x.deliver(old))
			v, err := tab.Get(bg, 0, row)
			if err != nil {
				t.Fatal(err)
			}
			if seen != 1 || v < seen {
				t.Errorf("sparse %v, %d columns, thrown out %v: value clock %d after %d", spec.Sparse, spec.Cols, evicts, v, seen)
			}
		}
	}
}
