package ps

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestCase13Push: rows that were read once come unasked, with v = M; an evicted one costs nothing from the next round on.
func TestCase13Push(t *testing.T) {
	const workers, rows, rounds = 3, 10, 20
	spec := Spec{Name: "t", Rows: rows, Cols: 8, Mode: ESSP, Staleness: 1}
	j := newSimJob(sim.New(13, sim.Options{}), simOptions{clients: workers, servers: 1, tables: []Spec{spec}, client: Options{CacheBytes: 1 << 20}})
	for k := range workers {
		j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
			c, tab, row := j.clients[k].state, tableOf[float32](w, "t"), make([]float32, 8)
			var pulls, pushed uint64
			for i := range rounds {
				for r := range int64(rows) {
					if r > 0 || i <= 10 { // row 0 is thrown out in round 10, and not read any more
						v, err := tab.Get(bg, r, row)
						if err != nil {
							return err
						}
						if i > 1 && v != c.lanes[0].m {
							return fmt.Errorf("round %d: value clock %d, M %d", i, v, c.lanes[0].m)
						}
					}
					if err := tab.Inc(r, int64(k), 1); err != nil {
						return err
					}
				}
				if i == 0 {
					pulls = c.Pulls
				} else if c.Pulls != pulls {
					return fmt.Errorf("round %d: %d requests, the first round made %d", i, c.Pulls, pulls)
				}
				want := uint64(rows)
				if i == 10 {
					for _, r := range c.ring.rows {
						r.used = r.row != 0
					}
					c.ring.limit = c.ring.bytes - 1
					c.evict()
					c.ring.limit = 1 << 20
					if c.Evicted != 1 || c.tables[0].find(0) != nil {
						return fmt.Errorf("%d rows are evicted", c.Evicted)
					}
				} else if i > 10 {
					want--
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				if n := c.Pushed - pushed; i > 1 && i != 10 && n != want {
					return fmt.Errorf("round %d: %d rows are pushed, want %d", i, n, want)
				}
				pushed = c.Pushed
			}
			if r := c.tables[0].find(0); r != nil {
				return fmt.Errorf("row %d is in the cache again", r.row)
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
}

// TestCase14SmallCache: a cache of 8 rows, a table of 64, four workers inside View.
func TestCase14SmallCache(t *testing.T) {
	for _, mode := range []Spec{{Mode: SSP, Staleness: 2}, {Mode: ESSP, Staleness: 2}, {Mode: BSP}, {Mode: ASP}} {
		spec := mode
		spec.Name, spec.Rows, spec.Cols = "t", 64, 16
		j := newSimJob(sim.New(14, sim.Options{}), simOptions{
			clients: 1, servers: 2, min: 64, tables: []Spec{spec}, client: Options{Workers: 4, CacheBytes: 8 * (rowOverhead + 64)},
		})
		most := int64(0)
		for k := range 4 {
			j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab := tableOf[float32](w, "t")
				for i := range 20 {
					for r := range int64(16) {
						row := (r*4 + int64(k) + int64(i)) % 64
						var x float32
						v, err := tab.View(bg, row, func(c []float32) {
							x = c[0]
							sleep(time.Millisecond)
							if c[0] != x {
								j.failures = append(j.failures, fmt.Errorf("%s: a row changed under View", modeName(spec)))
							}
						})
						if err != nil {
							return err
						}
						if least := w.Now() - spec.staleness(); spec.Mode != ASP && v < least {
							return fmt.Errorf("%s: value clock %d at clock %d", modeName(spec), v, w.Now())
						}
						if err := tab.Inc(row, 0, 1); err != nil {
							return err
						}
						most = max(most, j.clients[0].state.ring.bytes)
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
		if limit := int64(13 * (rowOverhead + 64)); most > limit { // eight, and one for each that reads
			t.Errorf("%s: the cache took %d bytes, want at most %d", modeName(spec), most, limit)
		}
		if j.clients[0].state.Evicted == 0 {
			t.Errorf("%s: nothing was evicted", modeName(spec))
		}
	}
}

// TestManyEvicted: however many rows a round has thrown out, the next one is the last that has them sent.
func TestManyEvicted(t *testing.T) {
	for _, part := range []Partition{Range, Hash} {
		spec := Spec{Name: "t", Rows: 1000, Cols: 4, Mode: ESSP, Staleness: 1, Partition: part}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{spec}, client: Options{CacheBytes: 8 * (rowOverhead + 16)}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			tab, row := tableOf[float32](w, "t"), make([]float32, 4)
			for r := range spec.Rows {
				if _, err := tab.Get(bg, r, row); err != nil {
					return err
				}
			}
			if err := w.Barrier(bg); err != nil {
				return err
			}
			sent := 0
			for _, s := range j.lane(0).tables[0].shards {
				for i := range s.(*shard[float32]).segs {
					if s.(*shard[float32]).segs[i].subscribed(0) {
						sent++
					}
				}
			}
			if most := len(j.clients[0].state.ring.rows); sent > most {
				return fmt.Errorf("%s: the server sends %d rows, and %d are in the cache", part, sent, most)
			}
			return w.Finish(bg)
		})
		j.run(t, time.Hour)
	}
}

// TestPushEndsWithFinish: who is finished is sent no more rows, and reads what it asks for.
func TestPushEndsWithFinish(t *testing.T) {
	spec := Spec{Name: "t", Rows: 2, Cols: 8, Mode: ESSP, Staleness: 1}
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: []Spec{spec}})
	var pushed uint64
	for k, rounds := range []int{20, 3} {
		j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, row := tableOf[float32](w, "t"), make([]float32, 8)
			for range rounds {
				if _, err := tab.Get(bg, 0, row); err != nil {
					return err
				}
				if err := tab.Inc(0, int64(k), 1); err != nil {
					return err
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			if err := w.Finish(bg); err != nil || k == 0 {
				return err
			}
			pushed = j.clients[k].state.Pushed
			sleep(time.Minute)
			if v, err := tab.Get(bg, 1, row); err != nil || v < 20 { // a row that it had not read before
				return fmt.Errorf("value clock %d, %w", v, err)
			}
			return nil
		})
	}
	j.run(t, time.Hour)
	if n := j.clients[1].state.Pushed; n != pushed || pushed == 0 {
		t.Errorf("%d rows are pushed until it finishes, and %d in all", pushed, n)
	}
}

// TestReadsAreCounted: each read is one that the cache answered, also where the row was asked for ahead, or one that waited for a server;
// what is asked for ahead is itself no read.
func TestReadsAreCounted(t *testing.T) {
	const rounds = 10
	j := newSimJob(sim.New(5, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 5, Cols: 8, Mode: BSP}}})
	j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
		tab, row, rows := tableOf[float32](w, "t"), make([]float32, 8), make([]float32, 16)
		var told []bool
		w.OnRead(func(table string, v Clock, cached bool) {
			if table != "t" || v != w.Now() {
				t.Errorf("a read of %q at clock %d has value clock %d", table, w.Now(), v)
			}
			told = append(told, cached)
		})
		get := func(r int64) error { _, err := tab.Get(bg, r, row); return err }
		view := func(r int64) error { _, err := tab.View(bg, r, func([]float32) {}); return err }
		both := func() error { _, err := tab.GetRows(bg, []int64{2, 3}, rows); return err }
		cells := func(r int64) error { _, err := tab.GetCells(bg, r, []int64{1, 5}, row[:2]); return err }
		for k := range rounds {
			told = told[:0]
			err := errors.Join(get(0), get(0), view(0), cells(0))
			tab.Prefetch(1)
			sleep(time.Second)
			err = errors.Join(err, get(1), both(), both(), cells(4))
			if want := []bool{false, true, true, true, true, false, true, false}; err != nil || !slices.Equal(told, want) {
				return fmt.Errorf("round %d: the cache answered %v of the reads, want %v: %w", k, told, want, err)
			}
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		return w.Finish(bg)
	})
	j.run(t, time.Hour)
}
