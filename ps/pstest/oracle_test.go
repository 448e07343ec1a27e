package pstest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/ps"
)

// TestOracle: six workers in three processes read and write rows by chance, each read is held against the log of all writes, and
// processes stand still for a while, by chance too. What a worker writes is a function of the seed, its number and the round, so that
// the log of all is known to each.
func TestOracle(t *testing.T) {
	for _, x := range []struct {
		mode      ps.Mode
		staleness int
	}{{ps.BSP, 0}, {ps.SSP, 2}, {ps.ESSP, 2}, {ps.ASP, 0}} {
		if testing.Short() && x.mode != ps.SSP {
			continue
		}
		t.Run(fmt.Sprintf("%s:%d", x.mode, x.staleness), func(t *testing.T) {
			const seed, victim = 5, 2
			c := child{Case: "oracle", Servers: 2, Clients: 3, Workers: 2, Lanes: 2, Min: 4, Cache: 6 * 264, Mode: x.mode, Staleness: x.staleness, Rounds: 150, Seed: seed}
			if x.mode == ps.ESSP || x.mode == ps.ASP {
				c.Dir = t.TempDir()
			}
			j := begin(t, c, nil)
			for k := range uint64(12) {
				time.Sleep(time.Duration(draw.Below(seed, 90, k, 20)) * time.Millisecond)
				all := j.all()
				all[draw.Below(seed, 91, k, uint64(len(all)))].pause(time.Duration(5+draw.Below(seed, 92, k, 30)) * time.Millisecond)
			}
			if x.mode != ps.BSP { // what others see of the killed one's last rounds ends somewhere
				j.clients[victim].kill()
				if err := j.directory.Lost(t.Context(), c.name("worker", victim)); err != nil {
					t.Fatal(err)
				}
			}
			reads := 0
			for i, p := range j.clients {
				if i == victim && x.mode != ps.BSP {
					continue
				}
				for _, s := range p.rest() {
					var n int
					if _, err := fmt.Sscan(s, &n); err != nil {
						t.Fatal(err)
					}
					reads += n
				}
			}
			j.finish()
			t.Logf("%d reads", reads)
			if reads < 500 {
				t.Errorf("only %d reads", reads)
			}
		})
	}
}

const oracleRows = 8

func oracleTables(c *child) []ps.Spec {
	return []ps.Spec{{Name: "t", Rows: oracleRows, Cols: int64(c.Clients * c.Workers), Cell: ps.Int64, Mode: c.Mode, Staleness: c.Staleness}}
}

// times is how often a worker adds to a row in a round.
func (c *child) times(worker int, round ps.Clock, row int64) int64 {
	return int64(draw.Below(c.Seed, 60+uint64(worker), uint64(round)*oracleRows+uint64(row), 6)) / 3
}

// An oracleLog is what each worker has added to each row below a clock: a sum that tells the rounds apart.
type oracleLog [][oracleRows][]int64

func (c *child) log() oracleLog {
	l := make(oracleLog, c.Clients*c.Workers)
	for q := range l {
		for row := range l[q] {
			sums := make([]int64, c.Rounds+1)
			for k := range c.Rounds {
				sums[k+1] = sums[k] + int64(k+1)*c.times(q, ps.Clock(k), int64(row))
			}
			l[q][row] = sums
		}
	}
	return l
}

func oracleWorker(in *inside, w *ps.Worker) error {
	tab, log, me := tableOf[int64](w, "t"), in.log(), in.number
	cols := in.Clients * in.Workers
	cells, two := make([]int64, cols), make([]int64, 2*cols)
	seen, old := make([]ps.Clock, oracleRows), make([][]int64, oracleRows)
	added := make([]int64, oracleRows) // in this round
	s := ps.Clock(in.Staleness)
	reads := 0
	check := func(row int64, v ps.Clock, cells []int64) error {
		reads++
		c := w.Now()
		fail := func(what, format string, args ...any) error {
			return fmt.Errorf("%s: worker %d, row %d, clock %d, value clock %d: %s", what, me, row, c, v, fmt.Sprintf(format, args...))
		}
		if in.Mode != ps.ASP && v < c-s || in.Mode == ps.BSP && v != c {
			return fail("bound", "want at least %d", c-s)
		}
		if v < seen[row] {
			return fail("monotone", "it saw %d before", seen[row])
		}
		seen[row] = v
		for q, x := range cells {
			sums := log[q][row]
			if q == me {
				if want := sums[c] + added[row]; x != want {
					return fail("read my writes", "%d, want %d", x, want)
				}
				continue
			}
			// A lead of s + 1 when Clock returns, and the round after it may be on its way.
			from, to := v, min(c+s+2, ps.Clock(in.Rounds))
			switch in.Mode {
			case ps.BSP:
				from, to = c, c
			case ps.ASP:
				to = ps.Clock(in.Rounds)
			}
			if q/in.Workers == 2 { // it may have been killed before that
				from = 0
			}
			if from > to || !slices.Contains(sums[from:to+1], x) {
				return fail("exactly once", "column %d: %d is what no rounds from %d to %d come to", q, x, from, to)
			}
			if old[row] != nil && x < old[row][q] {
				return fail("monotone", "column %d: %d, and it was %d", q, x, old[row][q])
			}
		}
		old[row] = slices.Clone(cells)
		return nil
	}
	for round := range uint64(in.Rounds) {
		clear(added)
		die := func(k, n uint64) int64 { return int64(draw.Below(in.Seed, 30+uint64(me), round*64+k, n)) }
		for k := range uint64(2 + die(0, 3)) {
			row := die(1+4*k, oracleRows)
			switch die(2+4*k, 4) {
			case 0:
				v, err := tab.Get(in.ctx, row, cells)
				if err == nil {
					err = check(row, v, cells)
				}
				if err != nil {
					return err
				}
			case 1:
				other := (row + 1) % oracleRows
				v, err := tab.GetRows(in.ctx, []int64{row, other}, two)
				if err == nil { // v is the smaller of the two
					err = check(row, max(v, seen[row]*bit(in.Mode != ps.BSP)), two[:cols])
				}
				if err == nil {
					err = check(other, max(v, seen[other]*bit(in.Mode != ps.BSP)), two[cols:])
				}
				if err != nil {
					return err
				}
			case 2:
				v, err := tab.View(in.ctx, row, func(x []int64) { copy(cells, x) })
				if err == nil {
					err = check(row, v, cells)
				}
				if err != nil {
					return err
				}
			case 3:
				time.Sleep(time.Duration(die(3+4*k, 1500)) * time.Microsecond)
			}
		}
		for row := range int64(oracleRows) {
			for range in.times(me, ps.Clock(round), row) {
				if err := tab.Inc(row, int64(me), int64(round)+1); err != nil {
					return err
				}
				added[row] += int64(round) + 1
			}
			if die(40+uint64(row), 8) == 0 {
				v, err := tab.Get(in.ctx, row, cells)
				if err == nil {
					err = check(row, v, cells)
				}
				if err != nil {
					return err
				}
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	// In the end a read holds all that was written by who was not killed.
	clear(added)
	if err := w.Barrier(in.ctx); err != nil {
		return err
	}
	for row := range int64(oracleRows) {
		v, err := tab.Get(in.ctx, row, cells)
		if err != nil {
			return err
		}
		for q, x := range cells {
			want := log[q][row][in.Rounds]
			if low := log[q][row][max(0, min(int(v), in.Rounds))]; x > want || q/in.Workers != 2 && x < low {
				return fmt.Errorf("in the end row %d, column %d holds %d, want %d to %d", row, q, x, low, want)
			}
		}
	}
	in.say("%d", reads)
	return w.Finish(in.ctx)
}

func bit(b bool) ps.Clock {
	if b {
		return 1
	}
	return 0
}
