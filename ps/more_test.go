package ps

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestCase2Counts: 100 requests of every worker to every server; each counts exactly. (ps-lite)
func TestCase2Counts(t *testing.T) {
	const workers, servers = 3, 3
	spec := Spec{Name: "t", Rows: servers * 4, Cols: 2, Cell: Int64, Mode: ASP}
	j := newSimJob(sim.New(2, sim.Options{}), simOptions{clients: workers, servers: servers, min: 2, tables: []Spec{spec}})
	for k := range workers {
		j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
			tab, row := tableOf[int64](w, "t"), make([]int64, 2)
			for i := range 100 {
				for r := range spec.Rows {
					if err := tab.Inc(r, 1, 1); err != nil {
						return err
					}
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
				for r := range spec.Rows {
					if _, err := tab.Get(bg, r, row); err != nil {
						return err
					}
					if row[1] < int64(i+1) {
						return fmt.Errorf("round %d: row %d counts %d", i, r, row[1])
					}
				}
			}
			if err := w.Barrier(bg); err != nil {
				return err
			}
			for r := range spec.Rows {
				if _, err := tab.Get(bg, r, row); err != nil {
					return err
				}
				if row[1] != 100*workers {
					return fmt.Errorf("row %d counts %d, want %d", r, row[1], 100*workers)
				}
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
}

// TestCase8Stragglers compares when the last of 12 rounds ends with the figures of the recursion start(p, c) = max(finish(p, c-1),
// max over q of finish(q, c-s-1)), on links without latency.
func TestCase8Stragglers(t *testing.T) {
	rotating := func(p, c int) time.Duration {
		if c%4 == p {
			return 4 * time.Second
		}
		return time.Second
	}
	slow := func(p, _ int) time.Duration {
		if p == 0 {
			return 2 * time.Second
		}
		return time.Second
	}
	for _, c := range []struct {
		mode Spec
		cost func(p, c int) time.Duration
		want int
	}{
		{Spec{Mode: BSP}, rotating, 48},
		{Spec{Mode: SSP, Staleness: 1}, rotating, 25},
		{Spec{Mode: SSP, Staleness: 2}, rotating, 22},
		{Spec{Mode: SSP, Staleness: 3}, rotating, 21},
		{Spec{Mode: ESSP, Staleness: 1}, rotating, 25},
		{Spec{Mode: ASP}, rotating, 21},
		{Spec{Mode: BSP}, slow, 24},
		{Spec{Mode: SSP, Staleness: 3}, slow, 24},
		{Spec{Mode: ASP}, slow, 24},
	} {
		s := c.mode
		s.Name, s.Rows, s.Cols = "t", 1, 10
		j := newSimJob(sim.New(8, sim.Options{Link: sim.Link{Delay: time.Nanosecond}}), simOptions{clients: 4, servers: 1, tables: []Spec{s}})
		last := time.Duration(0)
		for p := range 4 {
			j.start(p, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab, row := tableOf[float32](w, "t"), make([]float32, 10)
				for i := range 12 {
					if _, err := tab.Get(bg, 0, row); err != nil {
						return err
					}
					sleep(c.cost(p, i))
					last = max(last, j.w.Now())
					if err := tab.Inc(0, int64(p), 1); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
		if got := last.Round(time.Millisecond); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: the last round ends at %v, want %d s", modeName(s), got, c.want)
		}
	}
}

// twice is MXNet's test rule: a cell grows by twice the sum of the gradients.
type twice struct{}

func (twice) Slots() int        { return 0 }
func (twice) Elementwise() bool { return true }
func (twice) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, _ [][]float32) {
	for i := range u {
		u[i] = 2 * g[i]
	}
}

// TestCase9ServerRule is MXNet's dist_sync_kvstore.
func TestCase9ServerRule(t *testing.T) {
	const workers, rounds = 3, 5
	for _, size := range []int64{3, 1200} {
		for _, servers := range []int{1, 2} {
			rows := int64(2)
			if size == 1200 {
				rows = 1200
			}
			dense := Spec{Name: "dense", Rows: rows, Cols: size, Mode: BSP, Optimizer: "twice", Init: Init{Kind: Constant, A: 1}}
			sparse := dense
			sparse.Name, sparse.Rows = "sparse", 2
			j := newSimJob(sim.New(9, sim.Options{}), simOptions{
				clients: workers, servers: servers, tables: []Spec{dense, sparse}, server: ServerOptions{Updaters: map[string]trivium.Optimizer{"twice": twice{}}},
			})
			for r := range workers {
				j.start(r, 0, func(w *Worker, _ func(time.Duration)) error {
					a, b := tableOf[float32](w, "dense"), tableOf[float32](w, "sparse")
					row, g := make([]float32, size), make([]float32, size)
					for i := range g {
						g[i] = float32(r + 1)
					}
					for k := range rounds {
						for i := range rows {
							if err := a.DenseInc(i, 0, g); err != nil {
								return err
							}
						}
						if err := b.DenseInc(int64(r%2), 0, g); err != nil {
							return err
						}
						if _, err := w.Clock(bg); err != nil {
							return err
						}
						for _, c := range []struct {
							t    Table[float32]
							row  int64
							want float32
						}{{a, rows - 1, float32(1 + 12*(k+1))}, {b, 0, float32(1 + 8*(k+1))}, {b, 1, float32(1 + 4*(k+1))}} {
							if _, err := c.t.Get(bg, c.row, row); err != nil {
								return err
							}
							for i, x := range row {
								if x != c.want {
									return fmt.Errorf("%s, round %d: row %d, cell %d is %v, want %v", c.t.Spec().Name, k, c.row, i, x, c.want)
								}
							}
						}
					}
					return w.Finish(bg)
				})
			}
			j.run(t, time.Hour)
		}
	}
}

// TestCase10SparseRows is ElasticDL's: a row that is named twice is stepped once, with the sum.
func TestCase10SparseRows(t *testing.T) {
	for _, spec := range []Spec{{Rows: 10, Cols: 4}, {Cols: 4}, {Cols: 4, Sparse: true}} {
		spec.Name, spec.Mode, spec.Optimizer = "t", BSP, "sgd rate=0.1"
		j := newSimJob(sim.New(10, sim.Options{}), simOptions{clients: 1, servers: 2, min: 4, tables: []Spec{spec}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			tab, row := tableOf[float32](w, "t"), make([]float32, 4)
			for _, rows := range [][]int64{{1, 3}, {1, 3, 3, 5}} {
				for _, r := range rows {
					if err := tab.DenseInc(r, 0, []float32{1, 1, 1, 1}); err != nil {
						return err
					}
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			for r, want := range []float32{0, -0.2, 0, -0.3, 0, -0.1} {
				if _, err := tab.Get(bg, int64(r), row); err != nil {
					return err
				}
				for _, x := range row {
					if math.Abs(float64(x-want)) > 1e-7 {
						return fmt.Errorf("%+v: row %d is %v, want %v", spec, r, row, want)
					}
				}
			}
			return w.Finish(bg)
		})
		j.run(t, time.Hour)
	}
}

// TestCase11Forms: 100 columns, ten deltas, shards of 50; Get equals the deltas. (Angel)
func TestCase11Forms(t *testing.T) {
	for _, cell := range []Cell{Float32, Float64, Int32, Int64} {
		for _, spec := range []Spec{{Rows: 1}, {Rows: 1, Partition: Hash}, {}, {Sparse: true}, {Rows: 7}, {Rows: 7, Partition: Hash}} {
			for _, mode := range []Mode{BSP, SSP, ESSP} {
				spec.Name, spec.Cell, spec.Cols, spec.Mode = "t", cell, 100, mode
				j := newSimJob(sim.New(11, sim.Options{}), simOptions{clients: 1, servers: 2, min: 50, tables: []Spec{spec}})
				j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
					switch cell {
					case Float64:
						return case11[float64](w)
					case Int32:
						return case11[int32](w)
					case Int64:
						return case11[int64](w)
					}
					return case11[float32](w)
				})
				j.run(t, time.Hour)
			}
		}
	}
}

func case11[T Number](w *Worker) error {
	tab := tableOf[T](w, "t")
	want, row := make([]T, 100), make([]T, 100)
	for round := range 3 {
		for k := range 10 {
			c := int64(k*9 + round)
			want[c] += T(k + 1)
			if err := tab.Inc(0, c, T(k+1)); err != nil {
				return err
			}
		}
		for _, after := range []bool{false, true} { // its own writes, then what the servers have
			if after {
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			if _, err := tab.Get(bg, 0, row); err != nil {
				return err
			}
			if !slices.Equal(row, want) {
				return fmt.Errorf("%+v, round %d, after clock %v: %v, want %v", tab.Spec(), round, after, row, want)
			}
			cells := make([]T, 3)
			if _, err := tab.GetCells(bg, 0, []int64{0, 9, 99}, cells); err != nil {
				return err
			}
			if !slices.Equal(cells, []T{want[0], want[9], want[99]}) {
				return fmt.Errorf("%+v, round %d: cells %v of %v", tab.Spec(), round, cells, want)
			}
			var seen []T
			if _, err := tab.View(bg, 0, func(v []T) { seen = slices.Clone(v) }); err != nil {
				return err
			}
			if !slices.Equal(seen, want) {
				return fmt.Errorf("%+v, round %d: view %v, want %v", tab.Spec(), round, seen, want)
			}
		}
	}
	return w.Finish(bg)
}

// TestCase12OneRow: one row of 10,000 cells over four servers makes nine shards, and each server has at least 2,200 cells.
func TestCase12OneRow(t *testing.T) {
	for _, part := range []Partition{Range, Hash} {
		p := Placement{Servers: make([]Name, 4)}.withDefaults()
		s := Spec{Name: "w", Rows: 1, Cols: 10000, Partition: part}
		c := newCut(&s, &p)
		if c.shards != 9 {
			t.Errorf("%s: %d shards, want 9", part, c.shards)
		}
		if part == Hash {
			continue
		}
		cells := make([]int64, 4)
		for k, o := range p.owners(0, c.shards) {
			cells[o] += c.bounds[k+1] - c.bounds[k]
		}
		if least := slices.Min(cells); least < 2200 {
			t.Errorf("%s: the servers have %v cells, want at least 2,200 each", part, cells)
		}
	}
}

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
					v, err := tab.Get(bg, r, row)
					if err != nil {
						return err
					}
					if i > 1 && v != c.lanes[0].m {
						return fmt.Errorf("round %d: value clock %d, M %d", i, v, c.lanes[0].m)
					}
					if err := tab.Inc(r, int64(k), 1); err != nil {
						return err
					}
				}
				if i == 0 {
					pulls = c.Pulls
				} else if i < rounds-2 && c.Pulls != pulls {
					return fmt.Errorf("round %d: %d requests, the first round made %d", i, c.Pulls, pulls)
				}
				if i == 10 { // row 0 is thrown out: others are sent still
					for _, r := range c.ring.rows {
						r.used = r.row != 0
					}
					c.ring.limit = c.ring.bytes - 1
					c.evict()
					c.ring.limit = 1 << 20
					if c.Evicted != 1 || c.tables[0].find(0) != nil {
						return fmt.Errorf("%d rows are evicted", c.Evicted)
					}
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				if i >= 11 {
					if n := c.Pushed - pushed; i > 11 && n != rows-1 {
						return fmt.Errorf("round %d: %d rows are pushed, want %d", i, n, rows-1)
					}
				} else if n := c.Pushed - pushed; i > 1 && i < 10 && n != rows {
					return fmt.Errorf("round %d: %d rows are pushed, want %d", i, n, rows)
				}
				pushed = c.Pushed
				if i >= 10 {
					break
				}
			}
			for i := 11; i < rounds; i++ { // row 0 is not read any more
				if err := tab.Inc(0, int64(k), 1); err != nil {
					return err
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				if c.Pushed != pushed {
					return fmt.Errorf("round %d: an evicted row is pushed", i)
				}
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

// TestCase15Finish: workers with 10 and 7 rounds; after Finish nobody waits. (Multiverso FinishTrain)
func TestCase15Finish(t *testing.T) {
	for _, mode := range modes() {
		spec := mode
		spec.Name, spec.Rows, spec.Cols = "t", 1, 4
		j := newSimJob(sim.New(15, sim.Options{}), simOptions{clients: 2, servers: 2, min: 1, tables: []Spec{spec}})
		for k, rounds := range []int{10, 7} {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				tab, row := tableOf[float32](w, "t"), make([]float32, 4)
				for i := range rounds {
					if _, err := tab.Get(bg, 0, row); err != nil {
						return err
					}
					if want := float32(min(i, 7)); mode.Mode == BSP && row[1-k] != want {
						return fmt.Errorf("round %d: the other's cell is %v, want %v", i, row[1-k], want)
					}
					if err := tab.Inc(0, int64(k), 1); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
	}
}

// TestCase16Exactly: 10 % of frames are dropped and 10 % doubled, and every cell counts 1,000.
func TestCase16Exactly(t *testing.T) {
	const workers, rounds = 4, 250
	for _, mode := range []Spec{{Mode: SSP, Staleness: 3}, {Mode: ESSP, Staleness: 3}, {Mode: BSP}, {Mode: ASP}} {
		spec := mode
		spec.Name, spec.Rows, spec.Cols, spec.Cell = "t", 4, 4, Int64
		link := sim.Link{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond, Loss: 0.1, Duplicate: 0.1, Reorder: 0.05, Datagram: true}
		j := newSimJob(sim.New(16, sim.Options{Link: link}), simOptions{clients: workers, servers: 2, min: 2, tables: []Spec{spec}})
		for k := range workers {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				tab, row := tableOf[int64](w, "t"), make([]int64, 4)
				for i := range rounds {
					for r := range int64(4) {
						for c := range int64(4) {
							if err := tab.Inc(r, c, 1); err != nil {
								return err
							}
						}
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
					if i%10 == 0 {
						if _, err := tab.Get(bg, int64(k), row); err != nil {
							return err
						}
					}
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				for r := range int64(4) {
					if _, err := tab.Get(bg, r, row); err != nil {
						return err
					}
					for c, x := range row {
						if mode.Mode == BSP && x != workers*rounds || x > workers*rounds || x < rounds {
							return fmt.Errorf("row %d, cell %d: %d, want %d", r, c, x, workers*rounds)
						}
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, 10*time.Hour)
		for l := range 2 {
			for _, lt := range j.lane(l).tables {
				for _, k := range lt.here {
					for i, x := range lt.shards[k].(*shard[int64]).live.cells {
						if x != workers*rounds {
							t.Errorf("%s: lane %d, shard %d, cell %d: %d, want %d", modeName(spec), l, k, i, x, workers*rounds)
						}
					}
				}
			}
		}
	}
}

// TestCase17ExactKill kills a worker at 50 points of a round: all cells agree, at its acknowledged rounds or one more.
func TestCase17ExactKill(t *testing.T) {
	for seed := range uint64(50) {
		if testing.Short() && seed%7 != 0 {
			continue // the others in the full run
		}
		spec := Spec{Name: "t", Rows: 1, Cols: 64, Mode: BSP, Cell: Int64}
		j := newSimJob(sim.New(seed, sim.Options{}), simOptions{clients: 3, servers: 3, min: 4, exact: true, tables: []Spec{spec}})
		held := Clock(0)
		for k := range 3 {
			j.startThen(k, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab, one := tableOf[int64](w, "t"), make([]int64, 64)
				for i := range one {
					one[i] = 1 << (20 * k)
				}
				for i := range 30 {
					if k == 0 && i == 25 {
						sleep(time.Second) // the killed one must not be needed any more
					}
					if _, err := tab.Get(bg, 0, make([]int64, 64)); err != nil {
						return err
					}
					if err := tab.DenseInc(0, 0, one); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
					if k == 2 {
						held = j.clients[2].state.held
					}
				}
				return w.Finish(bg)
			}, func(err error) {
				if err != nil && k != 2 {
					j.failures = append(j.failures, err)
				}
			})
		}
		at := time.Millisecond + time.Duration(draw.Below(seed, 99, 0, 2000))*time.Microsecond
		if err := j.w.Run(sim.Plan{{Kind: sim.Crash, At: at, For: time.Hour, Nodes: []sim.Node{j.clients[2].node}}}, at+time.Millisecond); err != nil {
			t.Fatal(err)
		}
		rounds := held
		j.w.Call(j.dir, 0, lostCall{clientName(2)}, nil)
		if err := j.w.Run(nil, at+time.Hour/2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.failures...); err != nil || j.running > 0 {
			t.Fatalf("seed %d: %d still run, %v", seed, j.running, err)
		}
		var all []int64
		for l := range 3 {
			for _, lt := range j.lane(l).tables {
				for _, k := range lt.here {
					all = append(all, lt.shards[k].(*shard[int64]).live.cells...)
				}
			}
		}
		for i, x := range all {
			a, b, c := x&(1<<20-1), x>>20&(1<<20-1), x>>40
			if x != all[0] || a != 30 || b != 30 || c < int64(rounds) || c > int64(rounds)+1 {
				t.Fatalf("seed %d: cell %d counts %d, %d and %d rounds; %d of the killed one were acknowledged", seed, i, a, b, c, rounds)
			}
		}
	}
}

// TestCase21KeyLists: a repeated request carries no keys, a lost list one resend, and only equal lists share a number.
func TestCase21KeyLists(t *testing.T) {
	spec := Spec{Name: "t", Cols: 1, Mode: BSP}
	j := newSimJob(sim.New(21, sim.Options{}), simOptions{clients: 1, servers: 1, shards: 1, tables: []Spec{spec}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		c, tab := j.clients[0].state, tableOf[float32](w, "t")
		rows := make([]int64, 1000)
		for i := range rows {
			rows[i] = int64(i) * 7
		}
		dst := make([]float32, len(rows))
		round := func() (uint64, error) {
			before := c.KeysSent
			if _, err := tab.GetRows(bg, rows, dst); err != nil {
				return 0, err
			}
			for _, r := range rows {
				if err := tab.Inc(r, 0, 1); err != nil {
					return 0, err
				}
			}
			_, err := w.Clock(bg)
			return c.KeysSent - before, err
		}
		n, err := round()
		if err != nil || n != 8000 { // the same rows are read and written, so one list
			return fmt.Errorf("first round: %d bytes of keys, want 8000; %w", n, err)
		}
		for i := range 3 {
			if n, err := round(); err != nil || n != 0 {
				return fmt.Errorf("round %d: %d bytes of keys, want 0; %w", i+1, n, err)
			}
		}
		// The server forgets: the next round is sent again with its keys, and counts once.
		j.lane(0).clients[0].lists = keyLists{}
		resent := c.Resent
		if _, err := round(); err != nil {
			return err
		}
		if _, err := tab.GetRows(bg, rows, dst); err != nil {
			return err
		}
		for i, x := range dst {
			if x != 5 {
				return fmt.Errorf("row %d is %v, want 5", rows[i], x)
			}
		}
		if n := c.Resent - resent; n > 1 {
			return fmt.Errorf("%d pieces were sent again", n)
		}
		// Equal in their first 2 KiB.
		rows[999]++
		before := len(c.lanes[0].lists.lists)
		if _, err := round(); err != nil {
			return err
		}
		if len(c.lanes[0].lists.lists) == before {
			return errors.New("another list has the number of one that begins alike")
		}
		return w.Finish(bg)
	})
	j.run(t, time.Hour)
}

// TestCase23SameBits: Adam at the server under BSP has the same bits for any number of servers and lanes; in exact mode also of workers,
// and they are those of one loop over the tree.
func TestCase23SameBits(t *testing.T) {
	const shards, rounds, cols, rows = 16, 6, 300, 9
	grad := func(v, round, i int) float32 {
		x := draw.Unit(uint64(round), 70, uint64(v*10000+i))
		if i%7 == 0 {
			return float32(math.Copysign(0, -1))
		}
		return x * float32(math.Pow(2, float64(i%11)))
	}
	touched := func(v, round int, row int64) bool {
		return draw.Bits(uint64(round), 71, uint64(v*100)+uint64(row))%3 == 0
	}
	run := func(t *testing.T, workers, servers, lanes int, exact bool) (dense []float32, sparse [][]float32) {
		d := Spec{Name: "dense", Rows: 1, Cols: cols, Mode: BSP, Optimizer: "adam rate=0.01", Init: Init{Kind: Uniform, A: -1, B: 1, Seed: 5}}
		s := d
		s.Name, s.Rows, s.Cols = "sparse", rows, 10
		j := newSimJob(sim.New(23, sim.Options{}), simOptions{clients: workers, servers: servers, lanes: lanes, min: 16, most: 5, exact: exact, tables: []Spec{d, s}})
		for k := range workers {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				a, b := tableOf[float32](w, "dense"), tableOf[float32](w, "sparse")
				for r := range rounds {
					for _, p := range Parts(shards, k*shards/workers, (k+1)*shards/workers) {
						id := p.ID
						if !exact {
							id = 0
						}
						g, weight := treeSum(p.From, p.To, func(v int) []float32 {
							g := make([]float32, cols)
							for i := range g {
								g[i] = grad(v, r, i)
							}
							return g
						})
						if err := errors.Join(a.IncPart(id, 0, 0, g), w.Weight(id, weight)); err != nil {
							return err
						}
						for row := range int64(rows) {
							if g := treeRow(p.From, p.To, func(v int) []float32 {
								if !touched(v, r, row) {
									return nil
								}
								g := make([]float32, 10)
								for i := range g {
									g[i] = grad(v+50, r, i)
								}
								return g
							}); g != nil {
								if err := b.IncPart(id, row, 0, g); err != nil {
									return err
								}
							}
						}
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				if k == 0 {
					dense = make([]float32, cols)
					if _, err := a.Get(bg, 0, dense); err != nil {
						return err
					}
					for row := range int64(rows) {
						x := make([]float32, 10)
						if _, err := b.Get(bg, row, x); err != nil {
							return err
						}
						sparse = append(sparse, x)
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
		return dense, sparse
	}
	same := func(what string, a, b []float32) {
		t.Helper()
		for i := range a {
			if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
				t.Fatalf("%s: cell %d is %v, want %v", what, i, b[i], a[i])
			}
		}
	}
	dense, sparse := run(t, 3, 1, 1, false)
	for _, servers := range []int{1, 2, 5} {
		for _, lanes := range []int{1, 4} {
			d, s := run(t, 3, servers, lanes, false)
			same(fmt.Sprint(servers, lanes), dense, d)
			for r := range s {
				same(fmt.Sprint(servers, lanes, " row ", r), sparse[r], s[r])
			}
		}
	}
	// The loop in one place.
	rule, err := optimizerOf(&Spec{Optimizer: "adam rate=0.01"}, nil, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	init := Init{Kind: Uniform, A: -1, B: 1, Seed: 5}
	step := func(n int64, row int64, steps int64, cells, g []float32, slots [][]float32, weight float64) {
		l, err := trivium.NewLayout(trivium.Spec{Name: "r", Shape: []int{len(cells)}})
		if err != nil {
			t.Fatal(err)
		}
		g = slices.Clone(g)
		divide(kernel.Best(), g, weight)
		rule.Apply(steps, l, 0, cells, g, g, slots)
		kernel.AddInto(kernel.Best(), cells, g)
	}
	dense, sparse = make([]float32, cols), nil
	fill(&init, 0, 0, dense)
	slots := [][]float32{make([]float32, cols), make([]float32, cols)}
	var rowSlots [][][]float32
	steps := make([]int64, rows)
	for row := range int64(rows) {
		x := make([]float32, 10)
		fill(&init, row, 0, x)
		sparse = append(sparse, x)
		rowSlots = append(rowSlots, [][]float32{make([]float32, 10), make([]float32, 10)})
	}
	for r := range rounds {
		g, weight := treeSum(0, shards, func(v int) []float32 {
			g := make([]float32, cols)
			for i := range g {
				g[i] = grad(v, r, i)
			}
			return g
		})
		step(0, 0, int64(r+1), dense, g, slots, weight)
		for row := range int64(rows) {
			g := treeRow(0, shards, func(v int) []float32 {
				if !touched(v, r, row) {
					return nil
				}
				g := make([]float32, 10)
				for i := range g {
					g[i] = grad(v+50, r, i)
				}
				return g
			})
			if g != nil {
				steps[row]++
				step(0, row, steps[row], sparse[row], g, rowSlots[row], weight)
			}
		}
	}
	for _, workers := range []int{1, 2, 3, 4, 5, 8} {
		for _, servers := range []int{1, 3} {
			d, s := run(t, workers, servers, 1, true)
			same(fmt.Sprint("exact ", workers, servers), dense, d)
			for r := range s {
				same(fmt.Sprint("exact ", workers, servers, " row ", r), sparse[r], s[r])
			}
		}
	}
}

// treeSum adds leaves from to to-1 by the tree's definition, and counts them as their weights.
func treeSum(from, to int, leaf func(v int) []float32) ([]float32, float64) {
	g := treeRow(from, to, leaf)
	return g, float64(to - from)
}

// treeRow is the sum by definition; a missing side is left out.
func treeRow(from, to int, leaf func(v int) []float32) []float32 {
	n := to - from
	if n == 1 {
		return leaf(from)
	}
	half := 1
	for 2*half < n {
		half *= 2
	}
	a, b := treeRow(from, from+half, leaf), treeRow(from+half, to, leaf)
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	for i := range a {
		a[i] += b[i]
	}
	return a
}

func TestParts(t *testing.T) {
	for v := 1; v <= 40; v++ {
		for p := 1; p <= v; p++ {
			next := 0
			for k := range p {
				for _, x := range Parts(v, k*v/p, (k+1)*v/p) {
					if x.From != next || x.To <= x.From || x.To > v {
						t.Fatalf("%d shards, worker %d of %d: part %+v after shard %d", v, k, p, x, next)
					}
					next = x.To
				}
			}
			if next != v {
				t.Fatalf("%d shards, %d workers: %d are covered", v, p, next)
			}
		}
		if ps := Parts(v, 0, v); len(ps) != 1 || ps[0].ID != 1 {
			t.Fatalf("%d shards: the whole is %+v, want part 1", v, ps)
		}
	}
}

// TestSpecsThatDiffer names table, field, both values and both peers.
func TestSpecsThatDiffer(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "weights", Rows: 1, Cols: 10}}})
	j.addClient(1, []Spec{{Name: "weights", Rows: 1, Cols: 11}})
	var got, other error
	j.startThen(0, 0, func(w *Worker, sleep func(time.Duration)) error { sleep(time.Second); return w.Finish(bg) }, func(err error) { other = err })
	j.startThen(1, 100*time.Millisecond, func(*Worker, func(time.Duration)) error { return nil }, func(err error) { got = err })
	j.run(t, time.Minute)
	if got == nil { // the other was first
		got = other
	}
	for _, want := range []string{`"weights"`, "cols", "10 by j/worker/0", "11 by j/worker/1"} {
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("error %v, want it to name %s", got, want)
		}
	}
}
