package pstest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/trivium-ml/trivium/ps"
)

// TestCase1StartStop: start, barrier, stop, four times; no process remains, and none says that anything is wrong. (ps-lite)
func TestCase1StartStop(t *testing.T) {
	for range 4 {
		begin(t, child{Case: "1", Servers: 2, Clients: 2}, nil).finish()
	}
}

func case1(in *inside, w *ps.Worker) error {
	if err := w.Barrier(in.ctx); err != nil {
		return err
	}
	return w.Finish(in.ctx)
}

// TestCase3StalenessTest is Bösen's: in round i each of four workers finds i in its own cell of two tables, and of the others at least what the
// staleness asks for; all are killed, and it is so as well where they go on from a snapshot.
func TestCase3StalenessTest(t *testing.T) {
	for _, mode := range []ps.Mode{ps.SSP, ps.ESSP} {
		for _, staleness := range []int{0, 1, 5} {
			if testing.Short() && (mode != ps.ESSP || staleness != 1) {
				continue // all in the full run
			}
			t.Run(fmt.Sprintf("%s:%d", mode, staleness), func(t *testing.T) {
				c := child{Case: "3", Servers: 2, Clients: 4, Mode: mode, Staleness: staleness, Rounds: 1 << 30, Store: t.TempDir()}
				j := begin(t, c, nil)
				if s := j.clients[0].said(); s != "begun" {
					t.Fatal(s)
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				cut, err := j.directory.Snapshot(ctx, folder(c.Store))
				if err != nil {
					t.Fatal(err)
				}
				j.kill()
				m, err := ps.ReadManifest(ctx, folder(c.Store), cut.Key)
				if err != nil {
					t.Fatal(err)
				}
				c.Rounds = int(m.Clock) + 20
				begin(t, c, m).finish()
			})
		}
	}
}

func case3Tables(c *child) (specs []ps.Spec) {
	for _, name := range []string{"a", "b"} {
		specs = append(specs, ps.Spec{Name: name, Rows: 5, Cols: 1000, Cell: ps.Int32, Mode: c.Mode, Staleness: c.Staleness})
	}
	return specs
}

func case3(in *inside, w *ps.Worker) error {
	row, me := make([]int32, 1000), in.Index
	start := in.client.Start()
	for i := start; i < ps.Clock(in.Rounds); i++ {
		for _, name := range []string{"a", "b"} {
			tab := tableOf[int32](w, name)
			for _, r := range []int64{0, int64(me) + 1} {
				v, err := tab.Get(in.ctx, r, row)
				if err != nil {
					return err
				}
				if row[me] != int32(i) {
					return fmt.Errorf("round %d: table %s, row %d, own cell: %d", i, name, r, row[me])
				}
				for q := range in.Clients {
					if x := ps.Clock(row[q]); r == 0 && (v < i-ps.Clock(in.Staleness) || x < v) {
						return fmt.Errorf("round %d: table %s, cell %d is %d, value clock %d", i, name, q, x, v)
					}
				}
				if err := tab.Inc(r, int64(me), 1); err != nil {
					return err
				}
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		if i == start+20 && me == 0 {
			in.say("begun")
		}
	}
	return w.Finish(in.ctx)
}

// TestCase5Arrays is Multiverso's: arrays of 1 to 10,000 cells on more servers than the smallest has; after round i every Get gives
// 2(j + 1)(i + 1)W.
func TestCase5Arrays(t *testing.T) {
	begin(t, child{Case: "5", Servers: 3, Clients: 2, Min: 8}, nil).finish()
}

func case5Tables(*child) (specs []ps.Spec) {
	for _, size := range []int64{1, 10, 500, 10_000} {
		specs = append(specs, ps.Spec{Name: fmt.Sprint(size), Rows: 1, Cols: size, Mode: ps.BSP})
	}
	return specs
}

func case5(in *inside, w *ps.Worker) error {
	row, add := make([]float32, 10_000), make([]float32, 10_000)
	for j := range add {
		add[j] = float32(j + 1)
	}
	specs := case5Tables(in.child)
	for i := range 100 {
		for _, s := range specs {
			tab := tableOf[float32](w, s.Name)
			if err := errors.Join(tab.DenseInc(0, 0, add[:s.Cols]), tab.DenseInc(0, 0, add[:s.Cols])); err != nil {
				return err
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		for _, s := range specs {
			if _, err := tableOf[float32](w, s.Name).Get(in.ctx, 0, row[:s.Cols]); err != nil {
				return err
			}
			for j, x := range row[:s.Cols] {
				if want := float32(2 * (j + 1) * (i + 1) * in.Clients); x != want {
					return fmt.Errorf("size %s, round %d: cell %d is %v, want %v", s.Name, i, j, x, want)
				}
			}
		}
	}
	return w.Finish(in.ctx)
}

// TestCase21KeyLists: a repeated request carries no keys, and lists that are equal in their first 2 KiB are two. (dmlc takes them for one)
func TestCase21KeyLists(t *testing.T) {
	begin(t, child{Case: "21", Servers: 1, Clients: 1}, nil).finish()
}

func case21(in *inside, w *ps.Worker) error {
	tab := tableOf[float32](w, "t")
	rows := make([]int64, 4000) // of each of eight shards some 500, whose keys are 4,000 bytes
	for i := range rows {
		rows[i] = int64(i) * 7
	}
	dst := make([]float32, len(rows))
	// round reads the rows, of which each has been added to so often, adds to them, and returns how many bytes of keys were sent.
	round := func(want func(i int) float32) (uint64, error) {
		before := in.client.Counters().KeysSent
		if _, err := tab.GetRows(in.ctx, rows, dst); err != nil {
			return 0, err
		}
		for i, r := range rows {
			if x := want(i); dst[i] != x {
				return 0, fmt.Errorf("row %d is %v, want %v", r, dst[i], x)
			}
			if err := tab.Inc(r, 0, 1); err != nil {
				return 0, err
			}
		}
		_, err := w.Clock(in.ctx)
		return in.client.Counters().KeysSent - before, err
	}
	for k := range 5 {
		n, err := round(func(int) float32 { return float32(k) })
		if err != nil || (n > 0) != (k == 0) {
			return fmt.Errorf("round %d: %d bytes of keys, %w", k, n, err)
		}
	}
	last := len(rows) - 1
	rows[last]++
	n, err := round(func(i int) float32 {
		if i == last { // a row that nobody has added to
			return 0
		}
		return 5
	})
	if err != nil || n == 0 {
		return fmt.Errorf("another list: %d bytes of keys, %w", n, err)
	}
	return w.Finish(in.ctx)
}
