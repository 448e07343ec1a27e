package ps

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
)

// A mixture is a job with tables of all kinds, some of which several workers create at once while others train, and the log of all that is
// added: column c of a row belongs to worker c mod len(workers), and grows by stamp + 1 in each round that touches it.
type mixture struct {
	j       *simJob
	seed    uint64
	specs   []Spec
	begins  []int // the round of a worker in which it creates a table; 0: Open does
	workers []*mixedWorker
}

type mixedWorker struct {
	client int
	clock  Clock // rounds below it, others may see
	sums   map[mixedCell][]mixedSum
	seen   map[mixedCell]Clock // by row: the value clock of the last read
}

type mixedCell struct {
	table    int
	row, col int64
}

// A mixedSum is what a cell comes to by a round, this one included.
type mixedSum struct {
	stamp Clock
	sum   float64
}

// below is what a worker added to a cell in rounds below c.
func (w *mixedWorker) below(x mixedCell, c Clock) float64 {
	sums := w.sums[x]
	if k := sort.Search(len(sums), func(i int) bool { return sums[i].stamp >= c }); k > 0 {
		return sums[k-1].sum
	}
	return 0
}

func (w *mixedWorker) add(x mixedCell, stamp Clock) float64 {
	sums := w.sums[x]
	d := float64(stamp + 1)
	if k := len(sums); k > 0 && sums[k-1].stamp == stamp {
		sums[k-1].sum += d
	} else {
		w.sums[x] = append(sums, mixedSum{stamp, w.below(x, maxClock) + d})
	}
	return d
}

// newMixture draws the tables and workers of a job.
func newMixture(seed uint64, clients, per, late int) *mixture {
	m := &mixture{seed: seed}
	die := func(k uint64, n int) int { return int(draw.Below(seed, 83, k, uint64(n))) }
	for k := range uint64(2 + die(0, 3)) {
		k *= 10
		s := []Spec{
			{Rows: 6, Cols: 8},
			{Rows: 6, Cols: 8, Partition: Hash},
			{Cols: 8},
			{Cols: 8, Sparse: true},
			{Rows: 2, Cols: 1100},
			{Rows: 2, Cols: 1100, Partition: Hash},
			{Cols: 1100},
			{Rows: 2, Cols: 1100, Sparse: true},
		}[die(1+k, 8)]
		mode := append(modes(), Spec{Mode: ASP})[die(2+k, 8)]
		s.Name, s.Mode, s.Staleness, s.Cell = fmt.Sprint("t", k), mode.Mode, mode.Staleness, Cell(die(3+k, 4))
		s.Init = Init{Kind: Constant, A: float64(die(4+k, 2) * 5)}
		if s.Cell == Float32 && die(6+k, 2) == 0 {
			s.Optimizer = []string{"tally", "gathered"}[die(7+k, 2)]
		}
		m.specs = append(m.specs, s)
		begins := 0
		if k > 0 && late > 0 {
			begins = die(5+k, late)
		}
		m.begins = append(m.begins, begins)
	}
	for c := range clients {
		for range per {
			m.workers = append(m.workers, &mixedWorker{client: c, sums: map[mixedCell][]mixedSum{}, seen: map[mixedCell]Clock{}})
		}
	}
	return m
}

// opened are the tables that Open creates.
func (m *mixture) opened() (specs []Spec) {
	for i, s := range m.specs {
		if m.begins[i] == 0 {
			specs = append(specs, s)
		}
	}
	return specs
}

// check holds cells of a row that worker q read against the log.
func (m *mixture) check(q int, table int, row int64, cols []int64, v Clock, cells []float64) error {
	s, me := &m.specs[table], m.workers[q]
	c := me.clock
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s of %s cells, %d × %d, sparse %v, %s: worker %d, row %d, clock %d, value clock %d: %s", modeName(*s), s.Cell, s.Rows, s.Cols, s.Sparse, s.partition(), q, row, c, v, fmt.Sprintf(format, args...))
	}
	if s.Mode != ASP && v < c-s.staleness() || s.Mode == BSP && v != c {
		return fail("out of bounds")
	}
	for k, col := range cols {
		x := cells[k] - s.Init.A
		p := int(col) % len(m.workers)
		w, cell := m.workers[p], mixedCell{table, row, col}
		from, to := v, w.clock+1
		switch {
		case p == q && s.Optimizer == "":
			from, to = maxClock, maxClock
		case s.Mode == BSP:
			from, to = c, c
		}
		if x == w.below(cell, from) || x == w.below(cell, to) {
			continue
		}
		if !slices.ContainsFunc(w.sums[cell], func(y mixedSum) bool { return y.stamp >= from && y.stamp < to && y.sum == x }) {
			return fail("column %d of worker %d at clock %d is %v, want %v to %v", col, p, w.clock, x, w.below(cell, from), w.below(cell, to))
		}
	}
	return nil
}

// erased is a table of any type of cell.
type erased interface {
	read(w *Worker, kind int, rows, cols []int64, pause func()) ([][]float64, Clock, error)
	add(kind int, row int64, cols []int64, x float64) error
	wanted(rows []int64) Wanted
}

type erasedTable[T Number] struct{ Table[T] }

func (m *mixture) table(w *Worker, i int) erased {
	switch n := m.specs[i].Name; m.specs[i].Cell {
	case Float64:
		return erasedTable[float64]{tableOf[float64](w, n)}
	case Int32:
		return erasedTable[int32]{tableOf[int32](w, n)}
	case Int64:
		return erasedTable[int64]{tableOf[int64](w, n)}
	default:
		return erasedTable[float32]{tableOf[float32](w, n)}
	}
}

// read reads rows whole, or, of the first kind, columns of one.
func (t erasedTable[T]) read(w *Worker, kind int, rows, cols []int64, pause func()) (cells [][]float64, v Clock, err error) {
	n := int(t.Spec().Cols)
	dst := make([]T, n*len(rows))
	switch kind {
	case 0:
		n, dst = len(cols), dst[:len(cols)]
		v, err = t.GetCells(bg, rows[0], cols, dst)
	case 1:
		f := t.GetAsync(bg, rows, dst)
		pause()
		v, err = f.Wait(bg)
	case 2:
		v, err = t.View(bg, rows[0], func(x []T) { copy(dst, x) })
	case 4:
		v, err = w.Pull(bg, t.Into(rows, dst))
	default:
		v, err = t.Get(bg, rows[0], dst[:n])
	}
	for ; len(dst) > 0; dst = dst[n:] {
		row := make([]float64, n)
		for i, x := range dst[:n] {
			row[i] = float64(x)
		}
		cells = append(cells, row)
	}
	return cells, v, err
}

// add adds x to columns of a row.
func (t erasedTable[T]) add(kind int, row int64, cols []int64, x float64) (err error) {
	switch kind {
	case 0:
		from := cols[0]
		d := make([]T, cols[len(cols)-1]+1-from)
		for _, c := range cols {
			d[c-from] = T(x)
		}
		return t.DenseInc(row, from, d)
	case 1:
		return t.BatchInc(row, cols, slices.Repeat([]T{T(x)}, len(cols)))
	case 2:
		d := make([]T, t.Spec().Cols)
		for _, c := range cols {
			d[c] = T(x)
		}
		return t.IncRows(0, []int64{row}, d)
	}
	for _, c := range cols {
		err = errors.Join(err, t.Inc(row, c, T(x)))
	}
	return err
}

func (t erasedTable[T]) wanted(rows []int64) Wanted { return t.Rows(rows...) }

// program is what worker q does.
func (m *mixture) program(q, rounds int) program {
	me := m.workers[q]
	return func(w *Worker, sleep func(time.Duration)) error {
		writesOnly := draw.Below(m.seed, 84, uint64(q), 4) == 0
		me.clock = w.Now()
		p := m.j.p.withDefaults()
		tables := make([]erased, len(m.specs))
		for round := range rounds {
			k := uint64(round) * 1000
			die := func(n int) int { k++; return int(draw.Below(m.seed, 85+uint64(q), k, uint64(n))) }
			var there []int
			for i := range m.specs {
				if tables[i] == nil && round >= m.begins[i] {
					if _, err := w.d.Call(bg, createCall{m.specs[i]}); err != nil {
						return err
					}
					tables[i] = m.table(w, i)
				}
				if tables[i] != nil {
					there = append(there, i)
				}
			}
			var next []Wanted
			for range 1 + die(4) {
				i := there[die(len(there))]
				t, s := tables[i], &m.specs[i]
				first := int64(die(2))
				rows := []int64{first, 1 - first}
				cols := make([]int64, 0, 4)
				for c := int64(die(8)); c < s.Cols && len(cols) < 4; c += 1 + int64(die(int(s.Cols/3))) {
					cols = append(cols, c)
				}
				if kind := die(7); kind < 5 && !writesOnly {
					switch kind {
					case 1:
					case 4:
						rows = []int64{0, 1}
					default:
						rows = rows[:1]
					}
					cells, v, err := t.read(w, kind, rows, cols, func() { sleep(time.Duration(die(300)) * time.Microsecond) })
					if err != nil {
						return err
					}
					if kind != 0 {
						cols = nil
						for c := range s.Cols {
							cols = append(cols, c)
						}
					}
					for n, row := range rows {
						if err := m.check(q, i, row, cols, v, cells[n]); err != nil {
							return err
						}
					}
					key := mixedCell{table: i, row: rows[0]}
					if kind == 4 { // v is the smaller one
						for _, row := range rows {
							key := mixedCell{table: i, row: row}
							me.seen[key] = max(me.seen[key], v)
						}
					} else if kind > 1 || kind == 0 && newCut(s, &p).wholeRows() { // else v is that of some of the row, or the smaller of two rows'
						if v < me.seen[key] {
							return fmt.Errorf("%s: worker %d, row %d: value clock %d after %d", modeName(*s), q, rows[0], v, me.seen[key])
						}
						me.seen[key] = v
					}
				} else if kind == 5 {
					sleep(time.Duration(die(1500)) * time.Microsecond)
				}
				if die(4) == 0 {
					next = append(next, t.wanted(rows))
				}
				own := make([]int64, 0, 4)
				for c := int64(q + die(3)*len(m.workers)); c < s.Cols && len(own) < 4; c += int64(len(m.workers) * (1 + die(int(s.Cols)/8))) {
					own = append(own, c)
				}
				if len(own) > 0 {
					x := 0.0
					for _, c := range own {
						x = me.add(mixedCell{i, first, c}, w.Now())
					}
					kind := die(4)
					if s.Sparse && s.Optimizer != "" {
						kind = []int{1, 3}[kind%2] // a run would touch, and step, what is between the columns
					}
					if err := t.add(kind, first, own, x); err != nil {
						return err
					}
				}
			}
			if round == rounds-1 && die(2) == 0 { // the last round ends with Finish
				break
			}
			me.clock++
			if _, err := w.Clock(bg, next...); err != nil {
				return err
			}
		}
		me.clock++
		return w.Finish(bg)
	}
}

// restored reads a snapshot in another job: it holds exactly the rounds below its clock, of every table that had any.
func (m *mixture) restored(store *memory, cut SnapshotResult) error {
	man, err := ReadManifest(bg, store, cut.Key)
	if err != nil {
		return err
	}
	if err := m.tallied(store, man, cut.Clock, true); err != nil {
		return err
	}
	there := map[string]bool{}
	for i := range man.Tables {
		there[man.Tables[i].Name] = true
	}
	die := func(k uint64, n int) int { return int(draw.Below(m.seed, 83, 1000+uint64(cut.Clock)*10+k, uint64(n))) }
	clients := 1 + die(0, 3)
	j := newSimJob(sim.New(m.seed, sim.Options{}), simOptions{
		clients: clients, servers: 1 + die(1, 4), min: 1 + die(2, 30), server: ServerOptions{Store: store, Updaters: tallies()},
		dir: DirectoryOptions{Restore: man, Session: uint64(cut.Clock) + 2},
	})
	defer j.end()
	for c := range clients {
		j.start(c, 0, func(w *Worker, _ func(time.Duration)) error {
			if w.Now() != cut.Clock {
				return fmt.Errorf("it goes on from clock %d", w.Now())
			}
			for i, s := range m.specs {
				for row := range int64(2) {
					cells := [][]float64{slices.Repeat([]float64{s.Init.A}, int(s.Cols))}
					if there[s.Name] {
						if cells, _, err = m.table(w, i).read(w, 3, []int64{row}, nil, nil); err != nil {
							return err
						}
					}
					for col, x := range cells[0] {
						p := col % len(m.workers)
						if want := s.Init.A + m.workers[p].below(mixedCell{i, row, int64(col)}, cut.Clock); x != want {
							return fmt.Errorf("%s of %s cells, %d × %d, sparse %v, %s, there %v: row %d, column %d is %v, want %v", modeName(s), s.Cell, s.Rows, s.Cols, s.Sparse, s.partition(), there[s.Name], row, col, x, want)
						}
					}
				}
			}
			return w.Finish(bg)
		})
	}
	err = j.w.Converges(time.Hour, func() bool { return j.running == 0 })
	again := ""
	if err == nil { // what is restored is saved as it was
		j.w.Call(j.dir, 0, snapshotCall{store}, func(r any, e error) {
			if err = e; err == nil {
				again = r.(SnapshotResult).Key
			}
		})
		err = errors.Join(err, j.w.Converges(time.Hour, func() bool { return again != "" || err != nil }))
	}
	if err == nil && len(j.failures) == 0 {
		if man, err = ReadManifest(bg, store, again); err == nil {
			err = m.tallied(store, man, cut.Clock, false)
		}
	}
	if err = errors.Join(append(j.failures, err)...); err != nil {
		return fmt.Errorf("the snapshot at clock %d: %w", cut.Clock, err)
	}
	return nil
}

// mixedScene draws a mixture from the World's seed, with links that lose, a cache of a few rows, little in flight, and snapshots.
func mixedScene(w *sim.World) (sim.Plan, func(sim.Plan) error) {
	seed := w.Seed()
	die := func(k uint64, n int) int { return int(draw.Below(seed, 82, k, uint64(n))) }
	per := 1 + die(1, 2)
	m := newMixture(seed, 1+die(0, 3), per, 6)
	clients := len(m.workers) / per
	store := newMemory()
	joins := clients // the one that joins at a round that nobody has begun; else none
	if clients > 1 && die(9, 3) == 0 {
		joins--
	}
	m.j = newSimJob(w, simOptions{
		clients: joins, servers: 1 + die(2, 3), lanes: 1 + die(3, 2), min: 1 + die(4, 30), tables: m.opened(), server: ServerOptions{Store: store, Updaters: tallies()},
		client: Options{Workers: per, CacheBytes: []int64{0, 3 * (rowOverhead + 64)}[die(5, 2)], Inflight: []int{0, 2000}[die(6, 2)], piece: []int{0, 200}[die(7, 2)]},
	})
	j := m.j
	if joins < clients {
		j.addClient(joins, m.opened())
	}
	if die(8, 2) == 0 {
		l := sim.Link{Delay: 100 * time.Microsecond, Jitter: 300 * time.Microsecond, Loss: 0.05, Duplicate: 0.05, Reorder: 0.1, Datagram: true}
		for a := range w.Nodes() {
			for b := range a {
				w.Connect(sim.Node(a), sim.Node(b), l, l)
			}
		}
	}
	plan := sim.RandomPlan(seed, w, sim.Mix{Kinds: linkFaults(), Until: 100 * time.Millisecond, MaxFor: 50 * time.Millisecond})
	return plan, func(p sim.Plan) error {
		defer j.end()
		for q, x := range m.workers {
			after := time.Duration(0)
			if x.client == joins {
				after = time.Duration(die(50, 20_000)) * time.Microsecond
			}
			j.start(x.client, after, m.program(q, 4+die(10+uint64(q), 12)))
		}
		var cuts []SnapshotResult
		asked := 0
		snapshot := func(after time.Duration) {
			asked++
			w.Call(j.dir, after, snapshotCall{store}, func(r any, err error) {
				asked--
				if err != nil {
					j.failures = append(j.failures, fmt.Errorf("snapshot: %w", err))
					return
				}
				cuts = append(cuts, r.(SnapshotResult))
			})
		}
		for k := range uint64(die(30, 4)) {
			snapshot(time.Duration(die(31+k, 20_000)) * time.Microsecond)
		}
		if err := w.Run(p, 100*time.Millisecond); err != nil {
			return err
		}
		w.Heal(nil)
		ended := func() bool { return j.running == 0 && asked == 0 || len(j.failures) > 0 }
		err := w.Converges(time.Hour, ended)
		if err == nil && len(j.failures) == 0 { // of all that was added
			snapshot(0)
			err = w.Converges(time.Hour, ended)
		}
		if err := errors.Join(append(j.failures, err)...); err != nil {
			return err
		}
		for _, c := range cuts {
			if err := m.restored(store, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestMixture: every read of a table of any kind, by any call, is held against the log of all that was added, and every snapshot is read on
// another number of servers and clients.
func TestMixture(t *testing.T) {
	n := *seeds
	if n == 500 {
		n = 300
		if testing.Short() {
			n = 20
		}
	}
	sim.Explore(t, sim.Range{From: *first, Count: n}, mixedScene)
}
