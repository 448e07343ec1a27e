package ps

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

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

// TestRowsOfAFuture: whoever asked for rows may use the slice that named them before they are here.
func TestRowsOfAFuture(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 3, Cols: 1}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab, rows, x := tableOf[float32](w, "t"), []int64{0, 1}, make([]float32, 2)
		if err := errors.Join(tab.Inc(0, 0, 1), tab.Inc(1, 0, 2)); err != nil {
			return err
		}
		f := tab.GetAsync(bg, rows, x)
		rows[0], rows[1] = 2, 99
		if _, err := f.Wait(bg); err != nil || x[0] != 1 || x[1] != 2 {
			return fmt.Errorf("rows 0 and 1 are %v, %w", x, err)
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestNothingIsRead: no rows and no cells are read at once, with Now as their value clock, also where others are behind.
func TestNothingIsRead(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: []Spec{{Name: "d", Rows: 9, Cols: 2, Mode: BSP}, {Name: "s", Cols: 2, Sparse: true, Mode: BSP}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		if _, err := w.Clock(bg); err != nil {
			return err
		}
		for _, name := range []string{"d", "s"} {
			tab := tableOf[float32](w, name)
			w.OnRead(func(table string, _ Clock, _ bool) { t.Errorf("a read of %q is told of", table) })
			for op, read := range map[string]func() (Clock, error){
				"GetRows":  func() (Clock, error) { return tab.GetRows(bg, nil, nil) },
				"GetAsync": func() (Clock, error) { return tab.GetAsync(bg, []int64{}, nil).Wait(bg) },
				"Pull":     func() (Clock, error) { return w.Pull(bg, tab.Into(nil, []float32{})) },
				"GetCells": func() (Clock, error) { return tab.GetCells(bg, 3, nil, nil) },
			} {
				if v, err := read(); v != w.Now() || err != nil {
					t.Errorf("%s of nothing of %q: value clock %d, %v; want %d", op, name, v, err, w.Now())
				}
			}
			if _, err := tab.GetRows(bg, nil, make([]float32, 2)); err == nil {
				t.Error("room for a row is not filled by none")
			}
			if _, err := tab.GetCells(bg, 3, nil, make([]float32, 1)); err == nil {
				t.Error("room for a cell is not filled by none")
			}
		}
		return w.Finish(bg)
	})
	j.start(1, 0, func(w *Worker, sleep func(time.Duration)) error { sleep(time.Second); return w.Finish(bg) })
	j.run(t, time.Minute)
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
		if n := c.Resent - resent; n != 1 {
			return fmt.Errorf("%d pieces were sent again, want 1", n)
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

// TestListsOfTheGone: a lane keeps no key lists of who has finished, or is lost.
func TestListsOfTheGone(t *testing.T) {
	for _, lost := range []bool{false, true} {
		x := newCarried(t, Spec{Name: "t", Cols: 1}, Options{})
		g := &getCall{w: x.w, t: x.c.tables[0], silent: true}
		for r := range int64(2 * minList) {
			g.rows = append(g.rows, r)
		}
		_, up := x.call(prefetchCall{[]*getCall{g}})
		x.carry(up)
		lists := &x.s.clients[0].lists
		if len(lists.lists) != 1 {
			t.Fatalf("%d lists of a question, want 1", len(lists.lists))
		}
		if lost {
			for k, state := range []State{Ending, Ended} {
				c := *x.s.config
				c.Version, c.Clients = uint64(2+k), slices.Clone(c.Clients)
				c.Clients[0].State = state
				x.lane(dirName(), &install{config: &c})
			}
		} else {
			_, up := x.call(finishCall{x.w})
			x.carry(up)
		}
		if n := len(lists.lists); n > 0 {
			t.Errorf("lost %v: %d lists are kept", lost, n)
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

// TestPushOfLongSparseRow: a sparse row that fills more than one message is pushed whole, and is not read before it is.
func TestPushOfLongSparseRow(t *testing.T) {
	full := int64(sparsePiece(Float64))
	for _, cols := range []int64{full - 1, full, full + 1, 2 * full, 2*full + 300} {
		if testing.Short() && cols != full+1 {
			continue // all in the full run; the simulator has no second thread
		}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: []Spec{{Name: "n", Rows: 30, Cols: cols, Cell: Float64, Sparse: true, Mode: ESSP}}})
		for i := range 2 {
			j.start(i, 0, func(w *Worker, sleep func(time.Duration)) error {
				n := tableOf[float64](w, "n")
				row, one := make([]float64, cols), slices.Repeat([]float64{1}, int(cols))
				for k := range 4 {
					for r := range int64(4) {
						if _, err := n.Get(bg, r, row); err != nil {
							return err
						}
						for c, x := range row {
							if x < float64(k) || x > float64(k+1) || x != row[0] {
								return fmt.Errorf("client %d, clock %d: column %d of row %d is %v, column 0 %v", i, k, c, r, x, row[0])
							}
						}
						if i == 0 {
							if err := n.DenseInc(r, 0, one); err != nil {
								return err
							}
						}
					}
					if err := w.Barrier(bg); err != nil {
						return err
					}
					sleep(time.Second)
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
		if j.clients[1].state.Pushed == 0 && cols <= 2*full {
			t.Errorf("%d columns: nothing is pushed", cols)
		}
	}
}

// TestCellsBesideHalfARow: single cells are not read newer than the half of their row that the cache has, where another server still owes the
// rest: the row that is read next has that half.
func TestCellsBesideHalfARow(t *testing.T) {
	w := sim.New(1, sim.Options{})
	j := newSimJob(w, simOptions{clients: 2, servers: 2, shards: 1, min: 4, tables: []Spec{{Name: "t", Rows: 1, Cols: 8, Staleness: 3}}})
	slow := sim.Link{Delay: time.Second}
	w.Connect(j.clients[0].node, j.servers[1], slow, slow)
	j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
		tab, cell, row := tableOf[float32](w, "t"), make([]float32, 1), make([]float32, 8)
		tab.Prefetch(0) // the near server's half comes as it is at clock 0
		if _, err := w.Clock(bg); err != nil {
			return err
		}
		sleep(500 * time.Millisecond) // that server is at clock 1, and the far one's half is on its way
		v, err := tab.GetCells(bg, 0, []int64{2}, cell)
		if err != nil {
			return err
		}
		next, err := tab.Get(bg, 0, row)
		if err != nil {
			return err
		}
		if row[2] < cell[0] {
			return fmt.Errorf("a cell is %v with value clock %d, and then %v with %d", cell[0], v, row[2], next)
		}
		return w.Finish(bg)
	})
	j.start(1, 0, func(w *Worker, sleep func(time.Duration)) error {
		sleep(100 * time.Millisecond)
		if err := tableOf[float32](w, "t").DenseInc(0, 0, []float32{1, 1, 1, 1, 1, 1, 1, 1}); err != nil {
			return err
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestRowsOfOtherShards: a section of whole rows is refused where one of them lies in another shard, be it the first or the last.
func TestRowsOfOtherShards(t *testing.T) {
	p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 3, MinShardCells: 1}.withDefaults()
	for _, s := range []Spec{{Name: "t", Rows: 9, Cols: 2}, {Name: "t", Rows: 9, Cols: 2, Partition: Hash}} {
		tab := newTable(&Definition{Spec: s}, &p)
		of := map[int][]int64{}
		for r := range int64(9) {
			k := tab.cut.shardOf(r, 0)
			of[k] = append(of[k], r)
		}
		for k, rows := range of {
			sh := newShard[float32](tab, k, nil)
			check := func(rows ...int64) error { return sh.check(&section{form: formRows, rows: rows}, false) }
			if err := check(rows...); err != nil {
				t.Errorf("%s, shard %d: rows %v: %v", s.partition(), k, rows, err)
			}
			for r := range int64(9) {
				if slices.Contains(rows, r) {
					continue
				}
				with := slices.Sorted(slices.Values(append(slices.Clone(rows), r)))
				if check(with...) == nil {
					t.Errorf("%s, shard %d has rows %v: found no mistake in %v", s.partition(), k, rows, with)
				}
			}
		}
	}
}
