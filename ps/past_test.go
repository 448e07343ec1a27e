package ps

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestPull: rows of several tables are read at once, with the worker's own deltas, and those that can be read past the cache leave nothing there.
func TestPull(t *testing.T) {
	specs := []Spec{
		{Name: "short", Rows: 40, Cols: 3},
		{Name: "one", Rows: 900, Cols: 1, Cell: Float32},
		{Name: "sparse", Cols: 6, Sparse: true},
		{Name: "hashed", Rows: 40, Cols: 3, Partition: Hash},
		{Name: "long", Rows: 40, Cols: 300},
		{Name: "split", Rows: 40, Cols: 1100},
	}
	for _, mode := range modes() {
		for i := range specs {
			specs[i].Mode, specs[i].Staleness = mode.Mode, mode.Staleness
		}
		j := newSimJob(sim.New(3, sim.Options{}), simOptions{clients: 1, servers: 2, lanes: 2, min: 60, tables: specs})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			rows := []int64{2, 3, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 38, 39}
			for round := range 4 {
				var reads []Read
				dst := make([][]float32, len(specs))
				for i, s := range specs {
					tab := tableOf[float32](w, s.Name)
					for _, r := range rows {
						if err := tab.Inc(r, int64(round)%s.Cols, float32(r)); err != nil {
							return err
						}
					}
					dst[i] = make([]float32, len(rows)*int(s.Cols))
					reads = append(reads, tab.Into(rows, dst[i]))
				}
				v, err := w.Pull(bg, reads...)
				if err != nil {
					return err
				}
				if v > w.Now() || v < needOf(w.s.c.tables[0], w.Now()) {
					return fmt.Errorf("%s, round %d: value clock %d", modeName(mode), round, v)
				}
				for i, s := range specs {
					for k, r := range rows {
						row := dst[i][k*int(s.Cols) : (k+1)*int(s.Cols)]
						want := make([]float32, s.Cols)
						for past := range round + 1 {
							want[int64(past)%s.Cols] += float32(r)
						}
						if !slices.Equal(row, want) {
							return fmt.Errorf("%s, round %d: row %d of %s is %v, want %v", modeName(mode), round, r, s.Name, row, want)
						}
					}
				}
				for _, r := range w.s.c.ring.rows {
					if n := r.t.spec.Name; n == "short" || n == "one" {
						t.Errorf("%s: the cache has row %d of %s", modeName(mode), r.row, n)
					}
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}

// TestPullAgain: a Read that is kept is pulled again, alone, beside others and twice at once.
func TestPullAgain(t *testing.T) {
	for _, partition := range []Partition{Range, Hash} { // past the cache, and through it
		spec := Spec{Name: "t", Rows: 9, Cols: 1, Mode: BSP, Partition: partition}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{spec}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			tab := tableOf[float32](w, "t")
			a, b := make([]float32, 2), make([]float32, 2)
			kept, other := tab.Into([]int64{0, 1}, a), tab.Into([]int64{5, 6}, b)
			for round := range 3 {
				if err := tab.IncRows(0, []int64{0, 1, 5, 6}, []float32{1, 2, 6, 7}); err != nil {
					return err
				}
				n := float32(round + 1)
				for i, reads := range [][]Read{{kept}, {kept, other}, {kept, tab.Into([]int64{5, 6}, b)}, {other, kept, kept}} {
					clear(a)
					if i > 0 {
						clear(b)
					}
					if _, err := w.Pull(bg, reads...); err != nil {
						return err
					}
					if !slices.Equal(a, []float32{n, 2 * n}) || i > 0 && !slices.Equal(b, []float32{6 * n, 7 * n}) {
						t.Errorf("%v, round %d, pull %d: rows 0 and 1 are %v, 5 and 6 are %v", partition, round, i, a, b)
					}
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}

// TestPullNamesRowsOnce: rows that are asked for, and then added to, are named once, and by a number from then on.
func TestPullNamesRowsOnce(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 2, shards: 1, min: 100, tables: []Spec{{Name: "t", Rows: 900, Cols: 2, Mode: BSP}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab := tableOf[float32](w, "t")
		var rows []int64
		for r := int64(0); r < 900; r += 3 {
			rows = append(rows, r)
		}
		dst := make([]float32, 2*len(rows))
		for range 3 {
			if _, err := w.Pull(bg, tab.Into(rows, dst)); err != nil {
				return err
			}
			for _, r := range rows {
				if err := tab.DenseInc(r, 0, []float32{1, 2}); err != nil {
					return err
				}
			}
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		if n := w.s.c.KeysSent; n != uint64(8*len(rows)) {
			t.Errorf("%d bytes of keys are sent, want %d", n, 8*len(rows))
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestPullMistakes: what cannot be read is said, and the worker goes on.
func TestPullMistakes(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 9, Cols: 2, Mode: BSP}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab := tableOf[float32](w, "t")
		dst := make([]float32, 4)
		for want, r := range map[string]Read{
			`ps: pull "t": row 3 follows 3: want ascending rows, each once`: tab.Into([]int64{3, 3}, dst),
			`ps: get "t": row 9: want 0 to 8`:                               tab.Into([]int64{3, 9}, dst),
			`ps: get "t": row -1: want 0 to 8`:                              tab.Into([]int64{-1, 3}, dst),
			`ps: get "t": 1 rows: want 2 cells, found room for 4`:           tab.Into([]int64{3}, dst),
			`ps: get of the zero Table`:                                     Table[float32]{}.Into([]int64{3}, dst),
			`ps: pull: want rows that Table.Into names`:                     {},
		} {
			if _, err := w.Pull(bg, tab.Into([]int64{0, 1}, dst), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("found %v, want %s", err, want)
			}
		}
		other := &Worker{s: w.s, d: w.d}
		if _, err := other.Pull(bg, tab.Into([]int64{0, 1}, dst)); err == nil || !strings.Contains(err.Error(), "rows of a table of another worker") {
			t.Errorf("found %v", err)
		}
		if _, err := w.Pull(bg); err == nil {
			t.Error("a pull of nothing is one")
		}
		if _, err := w.Pull(bg, tab.Into([]int64{0, 1}, dst)); err != nil {
			return err
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestPullSaysWhatItWaitsFor: of several tables it is one that needs a round.
func TestPullSaysWhatItWaitsFor(t *testing.T) {
	specs := []Spec{{Name: "any", Rows: 9, Cols: 2, Mode: ASP}, {Name: "all", Rows: 9, Cols: 2, Mode: BSP}}
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: specs, client: Options{RoundTimeout: time.Second}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		if _, err := w.Clock(bg); err != nil {
			return err
		}
		dst := make([]float32, 4)
		_, err := w.Pull(bg, tableOf[float32](w, "any").Into([]int64{0, 1}, dst), tableOf[float32](w, "all").Into([]int64{2, 3}, dst))
		if want := `read "all" rows 2 to 3`; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "held by j/worker/1") {
			return fmt.Errorf("found %w, want %s", err, want)
		}
		return nil
	})
	j.start(1, 0, func(_ *Worker, sleep func(time.Duration)) error { sleep(time.Minute); return nil })
	j.run(t, 2*time.Minute)
}

// TestPullOfOthersRefused: a server refuses to read past the cache what cannot be, whoever asks.
func TestPullOfOthersRefused(t *testing.T) {
	p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 2, MinShardCells: 1}.withDefaults()
	for _, s := range []Spec{{Cols: 4}, {Rows: 9, Cols: 4, Sparse: true}, {Rows: 9, Cols: 4, Partition: Hash}, {Rows: 1, Cols: 400}, {Rows: 9, Cols: 257}, {Rows: 9, Cols: 256}} {
		s.Name = "t"
		sh := newShard[float32](newTable(&Definition{Spec: s}, &p), 0, nil)
		q := section{form: formRows, mark: true, rows: []int64{0}}
		err := sh.check(&q, false)
		if can := s.Cols == 256; (err == nil) != can {
			t.Errorf("%d × %d, sparse %v, %s: found %v", s.Rows, s.Cols, s.Sparse, s.partition(), err)
		}
	}
}
