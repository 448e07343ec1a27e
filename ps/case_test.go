package ps

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

var bg = context.Background()

// tableOf asks for one, in a worker's program.
func tableOf[T Number](w *Worker, name string) Table[T] {
	t, err := TableOf[T](w, name)
	if err != nil {
		panic(err)
	}
	return t
}

// TestCase1StartStop: start, barrier, stop, four times; nothing remains. (ps-lite)
func TestCase1StartStop(t *testing.T) {
	for range 4 {
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 2})
		for i := range 2 {
			j.start(i, 0, func(w *Worker, _ func(time.Duration)) error {
				if err := w.Barrier(bg); err != nil {
					return err
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Minute)
		if err := j.w.Run(nil, j.w.Now()+time.Minute); err != nil {
			t.Fatal(err)
		}
		events := j.w.Events()
		if err := j.w.Run(nil, j.w.Now()+time.Minute); err != nil {
			t.Fatal(err)
		}
		if n := j.w.Events() - events; n > 0 {
			t.Errorf("%d events in a minute when all are done", n)
		}
		for l := range 2 {
			s := j.lane(l)
			for _, c := range s.clients {
				if !c.done || c.owed || len(c.pieces)+len(c.queue) > 0 {
					t.Errorf("lane %d: of %s remain %d pieces and %d rounds; done %v", l, c.Name, len(c.pieces), len(c.queue), c.done)
				}
			}
			if len(s.parked) > 0 {
				t.Errorf("lane %d: %d reads wait", l, len(s.parked))
			}
		}
		for i, x := range j.clients {
			c := x.state
			if n := len(c.waits) + len(c.pulls) + len(c.rounds) + len(c.opens) + len(c.creates); n > 0 {
				t.Errorf("client %d: %d calls, questions and rounds are not answered", i, n)
			}
			for _, l := range c.lanes {
				if len(l.unacked) > 0 || l.inflight != 0 {
					t.Errorf("client %d: %d pieces of %d bytes are under way", i, len(l.unacked), l.inflight)
				}
			}
		}
	}
}

// TestCase3StalenessTest is Bösen's: in round i each worker finds at least i in its rows, under BSP exactly i; also where the job goes on from a
// snapshot.
func TestCase3StalenessTest(t *testing.T) {
	const rounds = 12
	for _, mode := range modes() {
		t.Run(modeName(mode), func(t *testing.T) {
			store := newMemory()
			cut := case3(t, mode, rounds, store, nil)
			m, err := ReadManifest(bg, store, cut.Key)
			if err != nil || m.Clock < 1 || m.Clock > rounds {
				t.Fatalf("a snapshot of round %d: %v", cut.Clock, err)
			}
			case3(t, mode, m.Clock+rounds/2, store, m)
		})
	}
}

// case3 goes on until that round, and returns a snapshot of one before.
func case3(t *testing.T, mode Spec, rounds Clock, store *memory, from *Manifest) (cut SnapshotResult) {
	t.Helper()
	const workers = 4
	var specs []Spec
	for _, n := range []string{"a", "b"} {
		s := mode
		s.Name, s.Rows, s.Cols, s.Cell = n, 1000, 1000, Int32
		specs = append(specs, s)
	}
	j := newSimJob(sim.New(7, sim.Options{}), simOptions{
		clients: workers, servers: 2, tables: specs, server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: from},
	})
	for id := range workers {
		j.start(id, 0, func(w *Worker, sleep func(time.Duration)) error {
			row := make([]int32, 1000)
			for w.Now() < rounds {
				i := int(w.Now())
				for _, n := range []string{"a", "b"} {
					tab := tableOf[int32](w, n)
					for _, r := range []int64{0, int64(id) + 1} {
						v, err := tab.Get(bg, r, row)
						if err != nil {
							return err
						}
						if row[id] != int32(i) {
							return fmt.Errorf("round %d: table %s, row %d, own cell: %d (value clock %d)", i, n, r, row[id], v)
						}
						if err := tab.Inc(r, int64(id), 1); err != nil {
							return err
						}
						for q := range workers {
							least := max(0, i-mode.Staleness)
							if r == 0 && (row[q] < int32(least) || row[q] < int32(v) || mode.Mode == BSP && row[q] != int32(i)) {
								return fmt.Errorf("round %d: cell %d is %d, value clock %d", i, q, row[q], v)
							}
						}
					}
				}
				sleep(time.Millisecond)
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			return w.Finish(bg)
		})
	}
	if from == nil {
		j.w.Call(j.dir, time.Millisecond, snapshotCall{store}, func(r any, err error) {
			if err != nil {
				j.failures = append(j.failures, err)
				return
			}
			cut = r.(SnapshotResult)
		})
	}
	j.run(t, time.Hour)
	return cut
}

// TestCase4Lead: s = 2, one worker stays at clock 0 (Ho et al. 2013).
func TestCase4Lead(t *testing.T) {
	for _, read := range []bool{true, false} {
		j := newSimJob(sim.New(3, sim.Options{}), simOptions{clients: 2, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 4, Mode: SSP, Staleness: 2}}})
		at, waits := -1, false
		j.startThen(0, 0, func(w *Worker, _ func(time.Duration)) error {
			row := make([]float32, 4)
			for i := range 10 {
				waits = true
				if read {
					if _, err := tableOf[float32](w, "t").Get(bg, 0, row); err != nil {
						return err
					}
				}
				at, waits = i, false
				if !read {
					waits = true
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			return nil
		}, func(error) {})
		j.startThen(1, 0, func(_ *Worker, sleep func(time.Duration)) error { sleep(time.Hour); return nil }, func(error) {})
		if err := j.w.Run(nil, time.Second); err != nil {
			t.Fatal(err)
		}
		// Reading, Get returns at clocks 0, 1 and 2 and waits at 3. Not reading, three Clocks return and the fourth waits.
		want := 2
		if !read {
			want = 3
		}
		if at != want || !waits {
			t.Errorf("read %v: the last round entered is %d, waiting %v; want %d, waiting", read, at, waits, want)
		}
	}
}

// TestCase5Arrays is Multiverso's: arrays of all sizes, also with more servers than cells.
func TestCase5Arrays(t *testing.T) {
	const w = 2
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	for _, size := range []int64{1, 10, 500, 10000} {
		for _, servers := range []int{1, 3, 12} {
			for _, part := range []Partition{Range, Hash} {
				if size == 10000 && (servers == 12 || part == Hash) {
					continue
				}
				spec := Spec{Name: "array", Rows: 1, Cols: size, Mode: BSP, Partition: part}
				j := newSimJob(sim.New(5, sim.Options{}), simOptions{clients: w, servers: servers, min: 8, tables: []Spec{spec}})
				for k := range w {
					j.start(k, 0, func(w0 *Worker, _ func(time.Duration)) error {
						tab, row, add := tableOf[float32](w0, "array"), make([]float32, size), make([]float32, size)
						for i := range add {
							add[i] = float32(i + 1)
						}
						for i := range rounds {
							for range 2 {
								if err := tab.DenseInc(0, 0, add); err != nil {
									return err
								}
							}
							if _, err := w0.Clock(bg); err != nil {
								return err
							}
							if _, err := tab.Get(bg, 0, row); err != nil {
								return err
							}
							for k, x := range row {
								if want := float32(2 * (k + 1) * (i + 1) * w); x != want {
									return fmt.Errorf("size %d, %d servers, %s, round %d: cell %d is %v, want %v", size, servers, part, i, k, x, want)
								}
							}
						}
						return w0.Finish(bg)
					})
				}
				j.run(t, time.Hour)
			}
		}
	}
}

// TestCase6Matrix is Multiverso's.
func TestCase6Matrix(t *testing.T) {
	const workers = 3
	for _, min := range []int{0, 4} {
		spec := Spec{Name: "m", Rows: 11, Cols: 10, Mode: BSP}
		j := newSimJob(sim.New(6, sim.Options{}), simOptions{clients: workers, servers: 2, min: min, tables: []Spec{spec}})
		for k := range workers {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				tab := tableOf[float32](w, "m")
				rows := sorted(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
				all := make([]float32, 110)
				for n := 1; n <= 20; n++ {
					for r := range int64(11) {
						add := make([]float32, 10)
						for c := range add {
							add[c] = float32(r*10 + int64(c))
						}
						times := 1
						if r == 0 || r == 1 || r == 5 || r == 10 {
							times = 2
						}
						for range times {
							if err := tab.DenseInc(r, 0, add); err != nil {
								return err
							}
						}
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
					if _, err := tab.GetRows(bg, rows, all); err != nil {
						return err
					}
					for k, x := range all {
						want := float32(k * n * workers)
						if r := k / 10; r == 0 || r == 1 || r == 5 || r == 10 {
							want *= 2
						}
						if x != want {
							return fmt.Errorf("round %d: cell %d is %v, want %v", n, k, x, want)
						}
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
	}
}

// TestCase7Sum: 0, +3, -4 gives -1, in every type of cell and every form of table. (Multiverso)
func TestCase7Sum(t *testing.T) {
	for _, cell := range []Cell{Float32, Float64, Int32, Int64} {
		for _, spec := range []Spec{{Rows: 1, Cols: 1}, {Cols: 1}, {Cols: 1, Sparse: true}, {Rows: 9, Cols: 2000}, {Cols: 1 << 40, Sparse: true}} {
			spec.Name, spec.Cell = "t", cell
			j := newSimJob(sim.New(6, sim.Options{}), simOptions{clients: 1, servers: 2, tables: []Spec{spec}})
			j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
				switch cell {
				case Float64:
					return case7[float64](w)
				case Int32:
					return case7[int32](w)
				case Int64:
					return case7[int64](w)
				}
				return case7[float32](w)
			})
			j.run(t, time.Hour)
		}
	}
}

func case7[T Number](w *Worker) error {
	tab := tableOf[T](w, "t")
	x := make([]T, 1)
	read := func(want T) error {
		if _, err := tab.GetCells(bg, 0, []int64{tab.Spec().Cols - 1}, x); err != nil {
			return err
		}
		if x[0] != want {
			return fmt.Errorf("%+v: %v, want %v", tab.Spec(), x[0], want)
		}
		return nil
	}
	last, minus := tab.Spec().Cols-1, T(4)
	for i, d := range []T{3, -minus} {
		if err := read([]T{0, 3}[i]); err != nil {
			return err
		}
		if err := tab.Inc(0, last, d); err != nil {
			return err
		}
		if err := read([]T{3, 0 - 1}[i]); err != nil {
			return err
		}
		if _, err := w.Clock(bg); err != nil {
			return err
		}
	}
	if err := read(0 - 1); err != nil {
		return err
	}
	return w.Finish(bg)
}
